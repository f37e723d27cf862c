"""A query that is a tool's name, however it is typed, finds that tool first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.search_answers import Findings
from portico.search.index import build_index
from portico.testing import definition, make_test_app

BROWSER = ["browser_file_select", "browser_fill_form", "browser_network_request", "type_text", "type", "set_timeout"]
FILES = ["read_file", "readFileLines", "time", "createIndex", "create_issue", "rename-collection", "rename"]
SERVERS = {
    "browser": [definition(name, f"Do {name.replace('_', ' ')} in a page") for name in BROWSER],
    "files": [definition(name, "Work with what is stored") for name in FILES],
    "mongodb": [definition("mongodb-logs", "Tell what happened"), definition("drop", "Remove everything")],
}
SNAPSHOT = make_test_app(SERVERS).gateway.snapshot
INDEX = build_index(SNAPSHOT, None)


def ask(text: str, without: Sequence[str] = ()) -> Findings:
    within = frozenset(id for id in SNAPSHOT.tools if id.name not in without)
    return INDEX.query(text, within=within, limit=5)


@pytest.mark.requirement("P-SEARCH-EXACT-FIRST", "P-SEARCH-BEGINNINGS")
@pytest.mark.parametrize(
    ("text", "expected", "part"),
    [
        ("read_file", "read_file", "exact name"),
        ("READ FILE", "read_file", "exact name"),
        ("readfile", "read_file", "exact name"),
        ("read-file-lines", "readFileLines", "exact name"),
        ("files.time", "time", "exact name"),
        ("browser_fil", "browser_fill_form", ""),
        ("browser_fill", "browser_fill_form", "name begins so"),
        ("read_file_", "readFileLines", "name begins so"),
        ("type_", "type_text", "name begins so"),
        ("rename-", "rename-collection", "name begins so"),
        ("mongo", "mongodb-logs", "name begins so"),
        ("create-i", "create_issue", ""),
        ("create_is", "create_issue", "name begins so"),
        ("bfs", "browser_file_select", "initials of the name"),
        ("BNR", "browser_network_request", "initials of the name"),
        ("issue create", "create_issue", "name in another order"),
        ("browser_network_requets", "browser_network_request", "name nearly so"),
        ("creat_isue", "create_issue", "name nearly so"),
        ("tyep", "type", "name nearly so"),
    ],
)
def test_a_name_is_found_however_it_is_typed(text: str, expected: str, part: str):
    hits = ask(text).hits
    assert expected in [hit.name for hit in hits[: 1 if part else 5]]
    assert not part or part in hits[0].why


@pytest.mark.requirement("P-SEARCH-BEGINNINGS")
@pytest.mark.parametrize("text", ["time", "type", "rename"])
def test_a_whole_name_is_not_taken_for_the_beginning_of_another(text: str):
    assert ask(text).hits[0].name == text


@pytest.mark.requirement("P-SEARCH-EXACT-FIRST")
@pytest.mark.parametrize("text", ["bfs", "browser_fill", "issue create", "creat_isue"])
def test_a_hidden_tool_is_not_named_by_anything(text: str):
    shown = ask(text, without=["browser_file_select", "browser_fill_form", "create_issue"])
    assert not any("name" in part for hit in shown.hits for part in hit.why)


@pytest.mark.requirement("P-SEARCH-EXACT-FIRST")
def test_initials_of_several_names_name_none():
    several = {"one": [definition(name) for name in ("open_new_tab", "offer_nice_things")]}
    snapshot = make_test_app(several).gateway.snapshot
    hits = build_index(snapshot, None).query("ont", within=frozenset(snapshot.tools), limit=5).hits
    assert not any("initials of the name" in hit.why for hit in hits)


@pytest.mark.requirement("P-SEARCH-EXACT-FIRST")
def test_names_of_tools_that_come_and_go_are_followed():
    grown = make_test_app({**SERVERS, "more": [definition("make_coffee_now")]}).gateway.snapshot
    index = build_index(grown, INDEX)
    assert index.query("mcn", within=frozenset(grown.tools), limit=1).hits[0].name == "make_coffee_now"
    back = build_index(SNAPSHOT, index)
    assert "make_coffee_now" not in [h.name for h in back.query("mcn", within=frozenset(SNAPSHOT.tools), limit=5).hits]


@pytest.mark.requirement("P-SEARCH-ANY-TEXT")
@given(st.text(max_size=700))
def test_any_text_may_be_a_name(text: str):
    assert len(ask(text).hits) <= 5
