"""Requests in five other languages find the tools that they mean, and English ones are read as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalogue import generate
from tests.well_known_tools import WELL_KNOWN

import portico.search
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.search_answers import Findings
from portico.protocols import Index
from portico.search.index import ToolIndex, build_index
from portico.search.languages import dictionary, fold, french_stem, german_stem, in_english, spanish_stem
from portico.search.word_vectors import shipped_table
from portico.search.words_and_postings import is_english
from portico.testing import definition, make_test_app

Application = tuple[CatalogSnapshot, Index]
DATA = Path(portico.search.__path__[0]) / "table" / "languages.txt"


def open_app(*more: dict[str, list[dict[str, object]]]) -> Application:
    servers = dict(WELL_KNOWN)
    for other in more:
        servers.update(other)
    snapshot = make_test_app(servers).gateway.snapshot
    return snapshot, build_index(snapshot, None)


def ask(application: Application, text: str) -> Findings:
    snapshot, index = application
    return index.query(text, within=snapshot.tools.keys(), limit=3)


def read(text: str, *said: str) -> str | None:
    """A text in English words, with single spaces, where tools have some words more than English has."""
    known = shipped_table().words
    found = in_english(text, known.__contains__, lambda word: word in known or word in said)
    return None if found is None else " ".join(found.split())


@pytest.fixture(scope="module")
def well_known() -> Application:
    return open_app()


GERMAN = {
    "Leg bitte einen neuen Ordner an": "create_folder",
    "verschiebe die Dateien woandershin": "move_file",
    "Kannst du mir die Wettervorhersage für Köln zeigen?": "get_forecast",
    "Buche mir einen Flug nach Oslo": "book_flight",
    "Kalendereintrag anlegen": "create_event",
    "Aktienkurse abrufen": "get_stock_price",
    "erstelle ein Issue in github": "create_issue",
    "fasse diesen langen Text zusammen": "summarize_text",
    "Bildgroesse aendern": "resize_image",
}
SPANISH = {
    "crea una carpeta nueva": "create_folder",
    "mándale un correo a Lucía": "send_email",
    "¿Qué tiempo hará el domingo?": "get_forecast",
    "resérvame un vuelo a Lima": "book_flight",
    "tradúceme este texto": "translate_text",
    "hacer una captura de pantalla de la pagina": "take_screenshot",
    "buscar hoteles baratos": "search_hotels",
}
FRENCH = {
    "crée un nouveau dossier": "create_folder",
    "envoyez un courriel à Marie": "send_email",
    "quelle est la météo à Lyon": "get_forecast",
    "réserver un vol pour Dakar": "book_flight",
    "supprime les fichiers inutiles": "delete_file",
    "prends une capture d'écran": "take_screenshot",
    "affiche les colonnes de la table": "describe_table",
}
CHINESE = {
    "新建一个文件夹": "create_folder",
    "给小王发一封邮件": "send_email",
    "上海明天的天气预报": "get_forecast",
    "帮我预订飞往伦敦的机票": "book_flight",
    "把这段文字翻译成法语": "translate_text",
    "在github上建立issue": "create_issue",
    "建立一個新資料夾": "create_folder",
    "將電子郵件發送給客戶": "send_email",
}
JAPANESE = {
    "新しいフォルダを作って": "create_folder",
    "田中さんにメールを送ってください": "send_email",
    "大阪の天気予報": "get_forecast",
    "ロンドン行きのフライトを予約したい": "book_flight",
    "この文章を英語に訳して": "translate_text",
    "GitHubにissueを作成": "create_issue",
    "スクショを撮って": "take_screenshot",
}


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
@pytest.mark.parametrize(("text", "name"), [*{**GERMAN, **SPANISH, **FRENCH, **CHINESE, **JAPANESE}.items()])
def test_a_request_in_another_language_finds_its_tool(well_known: Application, text: str, name: str) -> None:
    found = ask(well_known, text)
    assert name in [hit.name for hit in found.hits]
    assert found.fits


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("Rechnungsnummer suchen", "invoice number search"),
        ("Die Dateien werden heruntergeladen", "file download"),
        ("Ich möchte das Foto hochzuladen versuchen", "photo upload try test"),
        ("lade die Datei bitte hoch", "upload file"),
        ("factures chiffonnées du client", 'invoice "chiffonnées" client customer'),
        ("descargué los archivos", "download file"),
        ("busque mis facturas y envíelas", "search invoice and send"),
        ("öffne 'Mein Bericht' in /srv/Rechnung/alt.txt", "open 'Mein Bericht' /srv/Rechnung/alt.txt"),
        ("öffne createInvoice für datei.pdf", "open createInvoice datei.pdf"),
        ("キャンセルする", "cancel"),
        ("サーバーのログ", "server log"),
        ("「会議」というファイルを開く", '"会議" file open'),
    ],
)
def test_what_is_known_is_told_in_english_and_the_rest_stays(text: str, english: str) -> None:
    assert read(text) == english


@pytest.mark.requirement("P-SEARCH-ENGLISH")
@pytest.mark.parametrize(
    "text",
    [
        "list the tables",
        "die in a fire",
        "gift ideas for my chat group",
        "what hat was fast",
        "serach repositry",
        "actual date of a note",
        "El Paso weather",
        "restaurants in Los Angeles",
        "translate 'Guten Morgen, wie geht es dir' to English",
        "how do you say 我爱你 in English",
        "translate 文件 to English",
        "sous vide cooking instructions",
        "rename résumé.pdf",
        "createIssue in kubetron",
        "https://example.org/rechnung/suchen",
        "",
        "42",
    ],
)
def test_a_request_in_english_is_not_translated(text: str) -> None:
    assert is_english(text, shipped_table().words.__contains__) or read(text) is None


@pytest.mark.requirement("P-SEARCH-ENGLISH")
def test_no_english_description_is_taken_for_another_language() -> None:
    servers = {**WELL_KNOWN, **generate(20, 300)}
    texts = [tool["description"] for tools in servers.values() for tool in tools]
    known = shipped_table().words.__contains__
    assert [text for text in texts if not is_english(text, known) and read(text) is not None] == []


@pytest.mark.requirement("P-SEARCH-ENGLISH")
def test_the_dictionary_is_not_opened_for_english(well_known: Application) -> None:
    dictionary.cache_clear()
    for text in ("create an issue", "send an email to Bob", "what's the weather like in Paris", "take a screenshot"):
        assert ask(well_known, text).hits
    assert dictionary.cache_info().misses == 0
    assert ask(well_known, "eine Datei löschen").hits
    assert dictionary.cache_info().misses == 1


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
def test_tools_in_another_language_are_found_beside_english_ones() -> None:
    german = {"buch": [definition("rechnung_suchen", "Sucht eine Rechnung"), definition("kunde", "Zeigt einen Kunden")]}
    names = [hit.name for hit in ask(open_app(german), "Rechnung suchen").hits]
    assert names[0] == "rechnung_suchen"


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
def test_several_needs_are_told_apart_in_another_language(well_known: Application) -> None:
    names = [hit.name for hit in ask(well_known, "übersetze den Text und schicke eine E-Mail an Bob").hits]
    assert set(names[:2]) == {"translate_text", "send_email"}
    names = [hit.name for hit in ask(well_known, "把文字翻译成英文，然后发送电子邮件").hits]
    assert set(names[:2]) == {"translate_text", "send_email"}


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
def test_words_that_nothing_knows_are_named_as_they_were_typed(well_known: Application) -> None:
    found = ask(well_known, "ich möchte den Zwergpinguin und die Wollmaus kämmen")
    assert not found.fits
    assert found.unmatched == ("Zwergpinguin", "Wollmaus", "kämmen")


@pytest.mark.requirement("P-SEARCH-ANY-TEXT")
@pytest.mark.parametrize("text", ["ページ" * 6_000, "datei" * 4_000, "«" * 9_000, "“" * 9_000, "." * 9_000, "ー", "、"])
def test_any_text_is_read_in_other_languages(well_known: Application, text: str) -> None:
    assert len(ask(well_known, text).hits) <= 3


def test_forms_of_a_word_have_one_stem() -> None:
    assert len({german_stem(fold(word)) for word in "Nachricht Nachrichten".split()}) == 1
    assert len({german_stem(fold(word)) for word in "erstelle erstellen erstellt erstellst".split()}) == 1
    assert len({german_stem(fold(word)) for word in "löschen loeschen lösche".split()}) == 1
    assert len({spanish_stem(fold(word)) for word in "buscar busca buscando busque buscado".split()}) == 1
    assert len({spanish_stem(fold(word)) for word in "imagen imágenes".split()}) == 1
    assert len({french_stem(fold(word)) for word in "chercher cherche cherchez cherchant".split()}) == 1


def test_the_dictionary_is_small_and_well_formed() -> None:
    lines = [line for line in DATA.read_text(encoding="utf-8").splitlines() if line[0] not in "~#"]
    assert DATA.stat().st_size < 300_000
    assert [line for line in lines if line.count("|") != 5 or line.startswith("|")] == []
    assert len(lines) > 1_000


@pytest.mark.requirement("P-SEARCH-LANGUAGES")
def test_a_query_is_told_in_english_as_it_is_whatever_was_asked_before():
    snapshot = make_test_app(WELL_KNOWN).gateway.snapshot
    within = frozenset(snapshot.tools)
    asked = ["截取网页截图", "erstelle ein neues Issue", "ファイルを読み込む", "take a picture of the page"] * 2

    def found(index: ToolIndex, text: str) -> list[str]:
        return [hit.handle for hit in index.query(text, within=within, limit=3).hits]

    index = build_index(snapshot, None)
    assert [found(index, text) for text in asked] == [found(build_index(snapshot, None), text) for text in asked]
