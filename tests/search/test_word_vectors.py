"""The table that ships is what it promises, and puts related words nearer than others."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.house.source import ROOT, SOURCE

from portico.search.word_vectors import WordVectors, shipped_table
from portico.search.words_and_postings import query_words

FOLDER = SOURCE / "search" / "table"


@pytest.fixture(scope="module")
def table() -> WordVectors:
    return shipped_table()


def meaning(table: WordVectors, text: str) -> np.ndarray:
    return table.of_query(query_words(text))


def test_the_table_has_the_size_that_it_promises(table: WordVectors) -> None:
    words = list(table.words.words)
    assert table.numbers.dtype == np.int8
    assert table.numbers.shape == (len(words), table.dims)
    assert table.scales.shape == (len(words),)
    assert table.scales.dtype == np.float32
    assert np.isfinite(table.scales).all()
    assert len(words) >= 20_000
    assert words == sorted(set(words))
    assert all(word and word.isascii() and word.islower() for word in words)


def test_the_table_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 12_000_000


def test_the_table_is_packed_into_the_wheel() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = config["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert wheel["packages"] == ["src/portico"]
    assert not {"exclude", "include", "only-include", "artifacts"} & {*build, *wheel}
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert not {"*.npy", "*.txt", "table/", "*.bin"} & set(ignored)
    assert {path.name for path in FOLDER.iterdir()} == {"languages.txt", "scales.npy", "vectors.npy", "words.txt"}


def test_the_table_is_opened_once(table: WordVectors) -> None:
    assert shipped_table() is table


def test_a_table_is_read_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("apple\npear", encoding="utf-8")
    np.save(tmp_path / "vectors.npy", np.array([[127, 0], [0, 127]], dtype=np.int8))
    np.save(tmp_path / "scales.npy", np.array([1, 2], dtype=np.float32))
    small = WordVectors.read(tmp_path)
    assert small.dims == 2
    assert small.of_query({"apple": 1.0}).tolist() == [1, 0]
    assert small.of_query({"apple": 2.0, "pear": 1.0}) == pytest.approx([0.5**0.5, 0.5**0.5])
    assert small.of_query({"plum": 1.0}).tolist() == [0, 0]


@pytest.mark.requirement("P-SEARCH-MEANING")
@pytest.mark.parametrize(
    ("one", "related", "unrelated"),
    [
        ("picture", "photo", "invoice"),
        ("delete", "remove", "weather"),
        ("email", "mail", "database"),
        ("meeting", "calendar", "currency"),
        ("money", "currency", "branch"),
        ("folder", "directory", "song"),
        ("repository", "git", "recipe"),
        ("forecast", "weather", "ticket"),
        ("flight", "airport", "column"),
        ("translate", "language", "stock"),
        ("movie", "film", "server"),
        ("bug", "issue", "hotel"),
        ("song", "music", "table"),
        ("doctor", "hospital", "commit"),
    ],
)
def test_related_words_are_nearer_than_others(one: str, related: str, unrelated: str, table: WordVectors) -> None:
    wanted = meaning(table, one)
    assert wanted @ meaning(table, related) > wanted @ meaning(table, unrelated) + 0.1


def test_an_unknown_word_is_read_by_its_parts(table: WordVectors) -> None:
    assert "weatherforecast" not in table.words
    parts = table.words.rows_of("weatherforecast")
    assert parts == (*table.words.rows_of("weather"), *table.words.rows_of("forecast"))
    assert meaning(table, "weatherforecast") @ meaning(table, "weather forecast") == pytest.approx(1, abs=1e-5)


def test_identifiers_mean_what_their_words_mean(table: WordVectors) -> None:
    assert meaning(table, "sendEmail") == pytest.approx(meaning(table, "send_email"))


@pytest.mark.parametrize("text", ["", "the of and", "!!!", "созда", "12 345", "x", "\ud800"])
def test_nothing_known_means_nothing(text: str, table: WordVectors) -> None:
    assert not meaning(table, text).any()


@given(text=st.text(max_size=100) | st.lists(st.sampled_from("send email файл ünï x1 qzx".split())).map(" ".join))
def test_every_meaning_has_length_one_or_none(text: str) -> None:
    found = meaning(shipped_table(), text)
    assert found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1 if found.any() else 0, abs=1e-4)


@given(weight=st.floats(0.1, 100))
def test_the_weight_of_all_words_together_changes_nothing(weight: float) -> None:
    table = shipped_table()
    weighed = table.of_query({"send": weight, "email": weight})
    assert weighed == pytest.approx(table.of_query({"send": 1, "email": 1}), abs=1e-6)


def test_no_tools_have_no_meanings(table: WordVectors) -> None:
    assert table.of_tools([]).shape == (0, table.dims)


@pytest.mark.requirement("P-TABLE-TRACED")
def test_the_table_is_the_one_whose_sources_are_listed() -> None:
    told = orjson.loads((ROOT / "bench" / "train_static" / "sources.json").read_bytes())
    found = {name: sha256((FOLDER / name).read_bytes()).hexdigest() for name in told["table_sha256"]}
    assert found == told["table_sha256"]
    assert len(told["pairs_sha256"]) == 64
    assert sum(source["pairs"] for source in told["used"]) >= told["pairs"]
    assert all(source["licence"] for source in told["used"])
