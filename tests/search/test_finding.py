"""What people ask finds the tool that they mean, each of several needs finds its own, and nonsense finds nothing."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import anyio
import pytest
from tests.catalogue import generate
from tests.well_known_tools import WELL_KNOWN

from portico.catalog.publisher import Publisher
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.call import Caller
from portico.domain.search_answers import Findings, Query
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage
from portico.protocols import Index
from portico.samples import SAMPLES
from portico.search.groups_and_doubt import settle
from portico.search.index import build_index
from portico.testing import definition, make_test_app

Application = tuple[CatalogSnapshot, Index]


def open_app(servers: dict[str, list[dict[str, Any]]]) -> Application:
    snapshot = make_test_app(servers).gateway.snapshot
    return snapshot, build_index(snapshot, None)


def ask(application: Application, text: str, limit: int = 5) -> Findings:
    snapshot, index = application
    return index.query(text, within=snapshot.tools.keys(), limit=limit)


def names(application: Application, text: str, limit: int = 5) -> list[str]:
    return [hit.name for hit in ask(application, text, limit).hits]


@pytest.fixture(scope="module")
def well_known() -> Application:
    return open_app(WELL_KNOWN)


@pytest.fixture(scope="module")
def generated() -> Application:
    return open_app(generate(20, 300))


@pytest.fixture(scope="module")
def samples() -> Application:
    servers = {}
    for name, (module, _) in SAMPLES.items():
        listed = anyio.run(partial(import_module(module).server.list_tools))
        servers[name] = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed]
    return open_app(servers)


@pytest.mark.requirement("P-SEARCH-FORGIVES")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("serach repositry", "search_repositories"),
        ("creat isue", "create_issue"),
        ("tranlsate a txet", "translate_text"),
        ("sumarize this", "summarize_text"),
        ("remove a file", "delete_file"),
        ("list the directory", "list_folder"),
        ("make a directory", "create_folder"),
        ("fork a repo", "fork_repository"),
        ("createPullRequest", "create_pull_request"),
        ("MERGE-PULL-REQUEST", "merge_pull_request"),
        ("what's the weather in Paris", "get_forecast"),
        ("how much is 20 dollars in euros", "convert_currency"),
        ("send a mail to 'bob@example.org'", "send_email"),
        ("when is everybody free to meet", "find_free_time"),
        ("ERRORS AND ALERTS about storms", "get_alerts"),
        ("search and replace text", "replace_text"),
        ("black and white image", "convert_to_grayscale"),
        ("terms and conditions", "get_terms"),
    ],
)
def test_what_was_meant_comes_first(text: str, name: str, well_known: Application) -> None:
    found = ask(well_known, text)
    assert found.hits[0].name == name
    assert found.fits


def test_a_path_does_not_say_what_to_do(well_known: Application) -> None:
    assert names(well_known, "open '/tmp/delete/all.txt'")[0] != "delete_file"
    assert names(well_known, "read '/tmp/delete/all.txt'")[0] == "read_file"
    assert names(well_known, "take a screenshot of https://example.org/delete/file")[0] == "take_screenshot"


def test_words_of_other_languages_find_what_is_written_in_them(well_known: Application) -> None:
    foreign = {
        "ru": [
            definition("удалить_файл", "Удалить файл навсегда"),
            definition("создать_задачу", "Создать новую задачу"),
        ],
        "de": [definition("datei_löschen", "Löscht eine Datei"), definition("größe_ändern", "Ändert die Größe")],
        "zh": [definition("创建", "创建 问题")],
    }
    application = open_app({**WELL_KNOWN, **foreign})
    assert names(application, "создать новую задачу")[0] == "создать_задачу"
    assert names(application, "Größe ändern")[0] == "größe_ändern"
    assert names(application, "创建 问题")[0] == "创建"
    assert names(well_known, "создать новую задачу") == []


SEVERAL = {
    "read a csv, then post it to slack": {"read_file", "post_message"},
    "read the file report.csv and send an email to Bob": {"read_file", "send_email"},
    "search for repositories, then create an issue in the first one": {"search_repositories", "create_issue"},
    "get the weather forecast for Paris and post a message to the channel": {"get_forecast", "post_message"},
    "list the tables; run a query that counts the orders": {"list_tables", "run_query"},
    "take a screenshot of the page, then resize the image": {"take_screenshot", "resize_image"},
    "translate the text into French, then send an email with it": {"translate_text", "send_email"},
    "find a time when everyone is free and create an event in the calendar": {"find_free_time", "create_event"},
    "book a flight to Rome and also search for hotels there": {"book_flight", "search_hotels"},
    "merge the pull request. After that, close the issue": {"merge_pull_request", "close_issue"},
    "1. list the commits\n2. summarize the text\n3. post a message": {"list_commits", "summarize_text", "post_message"},
    "- read the file\n- translate its text\n- write it to a file": {"read_file", "translate_text", "write_file"},
    "create a folder, then move the file, finally list the folder": {"create_folder", "move_file", "list_folder"},
    "generate a picture of a cat as well as convert the currency": {"generate_image", "convert_currency"},
    "fill in the form and click the submit element": {"fill_form", "click_element"},
    "get the stock price of ACME, then draft an email about it": {"get_stock_price", "create_draft"},
    "search my emails for the invoice, afterwards delete the file": {"search_emails", "delete_file"},
    "describe the table users and run a SQL query": {"describe_table", "run_query"},
}


@pytest.mark.requirement("P-SEARCH-NEEDS")
@pytest.mark.parametrize("text", SEVERAL)
def test_each_of_several_needs_finds_its_tool_among_the_first_five(text: str, well_known: Application) -> None:
    assert SEVERAL[text] <= set(names(well_known, text))
    assert ask(well_known, text).fits


NONSENSE = (
    "",
    "the of and",
    "!!! ???",
    "qwertz uiop",
    "blorf gnarl",
    "asdkjh qwlekj zmxncb",
    "knit a sweater",
    "mow the lawn",
    "brew coffee",
    "walk the dog",
    "tune my guitar",
    "bake sourdough bread",
    "the quantum spin of an electron",
    "paint the kitchen wall",
)


@pytest.mark.requirement("P-NOTHING-FITS")
@pytest.mark.parametrize("text", NONSENSE)
@pytest.mark.parametrize("catalogue", ["well_known", "generated", "samples"])
def test_nonsense_and_what_is_far_off_does_not_fit(text: str, catalogue: str, request: pytest.FixtureRequest) -> None:
    assert not ask(request.getfixturevalue(catalogue), text).fits


@pytest.mark.requirement("P-NOTHING-FITS")
@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("add two numbers", "calculator.add"),
        ("square root of 16", "calculator.sqrt"),
        ("create an issue", "tracker.create_issue"),
        ("plan the next sprint", "tracker.plan_sprint"),
        ("put a label on a bug", "tracker.label_issue"),
        ("find free time for a meeting", "calendar.find_free_slots"),
        ("cancel the meeting", "calendar.cancel_event"),
        ("delete a note", "notes.delete_note"),
        ("list the datasets", "data_server.list_datasets"),
        ("compare two texts", "text_tools.compare_texts"),
        ("what's the difference between two texts", "text_tools.compare_texts"),
        ("count words", "text_tools.count_text"),
    ],
)
def test_what_a_sample_server_can_do_fits(text: str, handle: str, samples: Application) -> None:
    found = ask(samples, text)
    assert found.hits[0].handle == handle
    assert found.fits


@pytest.mark.requirement("P-NOTHING-FITS")
def test_an_exact_name_always_fits(well_known: Application, generated: Application, samples: Application) -> None:
    for application in (well_known, generated, samples):
        for tool in application[0].tools.values():
            for spelling in (tool.handle, tool.id.name, tool.listed):
                assert ask(application, spelling, 1).fits
    strange = open_app({"s": [definition("qwxzy", "Зачем")]})
    assert ask(strange, "qwxzy").fits


@pytest.mark.requirement("P-SEARCH-COPIES", "T37")
def test_copies_give_way_to_other_tools() -> None:
    copies = {f"s{number}": [definition("search_notes", "Search the notes by words")] for number in range(6)}
    application = open_app({**copies, "other": [definition("find_notes", "Find notes by their tags and words")]})
    found = ask(application, "search my notes").hits
    assert found[0].handle == "s0.search_notes"
    assert set(found[0].also) >= {f"s{number}.search_notes" for number in range(1, 6)}
    assert "other.find_notes" in [hit.handle for hit in found]


@pytest.mark.requirement("P-SEARCH-COPIES")
def test_tools_of_one_server_are_never_one_answer() -> None:
    application = open_app({"s": [definition("list_notes", "List notes"), definition("list_all_notes", "List notes")]})
    assert {hit.also for hit in ask(application, "list notes").hits} == {()}


@pytest.mark.requirement("P-SEARCH-COPIES")
def test_a_filter_opens_a_group() -> None:
    gateway = make_test_app({name: [definition("create_issue", "Create an issue")] for name in "abc"}).gateway
    assert [hit.also for hit in gateway.hits(Caller(), Query(text="create issue")).hits] == [
        ("b.create_issue", "c.create_issue")
    ]
    assert [hit.handle for hit in gateway.hits(Caller(), Query(text="create issue", server="c")).hits] == [
        "c.create_issue"
    ]


@pytest.mark.requirement("P-SEARCH-COPIES")
@pytest.mark.parametrize("query", ["create an issue in linear", "linear create issue"])
def test_the_server_that_a_query_names_leads_its_group(query: str) -> None:
    servers = {name: [definition("create_issue", "Create an issue")] for name in ("github", "gitlab", "linear")}
    first = ask(open_app(servers), query).hits[0]
    assert (first.handle, set(first.also)) == ("linear.create_issue", {"github.create_issue", "gitlab.create_issue"})


@pytest.mark.requirement("P-SEARCH-COPIES", "T37")
def test_the_server_that_was_there_first_leads_before_its_clone() -> None:
    publisher = Publisher(build_index=build_index)
    for server in ("notes", "a-clone"):
        publisher.accept([(Offering(server=server, tools=tuple(WELL_KNOWN["files"])), "upstream")])
    current = publisher.current
    for query in ("read a file", "delete file", "list the folder"):
        first = current.index.query(query, within=frozenset(current.snapshot.tools), limit=5).hits[0]
        assert first.server == "notes"
        assert first.also[0].startswith("a_clone.")
        assert sum(first.why.values()) == pytest.approx(first.score, abs=0.002)


@pytest.mark.requirement("P-SEARCH-COPIES")
def test_the_tool_that_is_used_leads_its_group() -> None:
    servers = {name: [definition("create_issue", "Create an issue")] for name in "abc"}
    found = ask(open_app(servers), "create issue").hits
    used = settle(found, {ToolId("c", "create_issue"): Usage(calls=40, done=40)})
    assert (used[0].handle, set(used[0].also)) == ("c.create_issue", {"a.create_issue", "b.create_issue"})
    assert sum(used[0].why.values()) == pytest.approx(used[0].score, abs=0.002)


@pytest.mark.requirement("P-SEARCH-COPIES")
def test_tools_that_only_share_a_name_are_no_copies() -> None:
    same_name = {
        "bank": [definition("transfer", "Transfer money from one bank account to another currency")],
        "disk": [definition("transfer", "Upload photos and video files to the backup server disk")],
    }
    assert {hit.also for hit in ask(open_app(same_name), "transfer it please").hits} == {()}


def test_copies_keep_their_place_when_their_name_is_asked_for() -> None:
    copies = {f"server{number}": [definition("search_notes", "Search the notes")] for number in range(6)}
    (found,) = ask(open_app(copies), "search_notes", 6).hits
    assert [found.handle, *found.also] == [f"{server}.search_notes" for server in sorted(copies)]
    assert len({hit.score for hit in (found, *found.copies)}) == 1
