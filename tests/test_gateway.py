"""What an agent is told: text formats, pages that are complete, the map, and answers that fit their budget."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.discovery.tokens import TokenEstimate
from portico.domain.disclosure import Budget, Disclosure, Level
from portico.domain.items import Item
from portico.domain.server import ServerSpec
from portico.errors import UnknownTool
from portico.gateway import Query
from portico.testing import AGENT, FakeHouse, definition, furnish
from tests.catalogue import generate

ISSUE = definition("create_issue", "Create a new issue in a repository.", title="string", body="string?")
READ = {**definition("read_file", "Read a file from disk.", path="string"), "annotations": {"readOnlyHint": True}}


@pytest.fixture
def house() -> FakeHouse:
    specs = [
        ServerSpec(name="github", transport="stdio", command="x", category="code"),
        ServerSpec(name="files", transport="stdio", command="x"),
    ]
    return furnish({"github": [ISSUE, definition("list_issues", "List the issues.")], "files": [READ]}, specs=specs)


@pytest.fixture(scope="module")
def large() -> FakeHouse:
    return furnish(generate(20, 300))


def handles(found: Disclosure) -> list[str]:
    return [card.handle for card in found.cards]


def cursor_of(found: Disclosure) -> str:
    match = re.search(r'"cursor": "([^"]+)"', found.next)
    return match[1] if match else ""


def walk(house: FakeHouse, query: Query, budget: Budget | None = None) -> list[str]:
    seen: list[str] = []
    for _ in range(400):
        found = house.gateway.search(AGENT, query, budget)
        seen += handles(found)
        if not (cursor := cursor_of(found)):
            return seen
        query = Query(text=query.text, server=query.server, category=query.category, limit=query.limit, cursor=cursor)
    raise AssertionError("the pages do not end")


def test_a_hit_is_one_callable_line(house: FakeHouse) -> None:
    found = house.gateway.search(AGENT, Query(text="new issue", limit=1))
    assert found.text.split("\n")[0] == "github.create_issue(title, body?) [write] Create a new issue in a repository"
    assert house.gateway.search(AGENT, Query(text="read a file")).text == (
        "files.read_file(path) [read] Read a file from disk"
    )


def test_more_hits_are_announced_with_the_exact_next_call(house: FakeHouse) -> None:
    found = house.gateway.search(AGENT, Query(text="issue", limit=1))
    number = house.gateway.edition.number
    assert found.next == f'1 more: search_tools({{"query": "issue", "limit": 1, "cursor": "{number}:1"}})'
    assert found.truncated
    assert found.text.endswith(found.next)


@pytest.mark.parametrize(
    "spelling", ["github.create_issue", "github::create_issue", "create_issue", "GITHUB/create_issue"]
)
def test_an_exact_name_gives_the_full_card(house: FakeHouse, spelling: str) -> None:
    found = house.gateway.search(AGENT, Query(text=spelling))
    assert handles(found) == ["github.create_issue"]
    assert found.cards[0].level is Level.FULL
    assert '"required":["title"]' in found.text
    assert found.text.endswith('example: call_tool({"name": "github.create_issue", "arguments": {"title": "..."}})')


def test_no_words_give_the_map(house: FakeHouse) -> None:
    assert house.gateway.search(AGENT, Query(text=" ")).text == (
        "3 tools on 2 servers.\ncategories: code (2), misc (1)\nservers:\n- files (1)\n- github (2)"
    )


def test_pins_stand_above_the_map_and_unknown_pins_are_left_out() -> None:
    house = furnish({"files": [READ]}, pins=("files.read_file", "gone.tool"))
    lines = house.gateway.search(AGENT, Query()).text.split("\n")
    assert lines[0] == "files.read_file(path) [read] Read a file from disk"
    assert lines[1] == "1 tools on 1 servers."
    assert [tool.handle for tool in house.gateway.pinned(AGENT)] == ["files.read_file"]


def test_a_server_or_category_alone_lists_its_tools(house: FakeHouse) -> None:
    search = house.gateway.search
    assert handles(search(AGENT, Query(server="GitHub"))) == ["github.create_issue", "github.list_issues"]
    assert handles(search(AGENT, Query(category="Code"))) == ["github.create_issue", "github.list_issues"]
    assert handles(search(AGENT, Query(server="files", category="misc"))) == ["files.read_file"]
    assert handles(search(AGENT, Query(text="issue file", server="files"))) == ["files.read_file"]


def test_an_empty_shelf_and_a_search_without_hits_show_the_map(house: FakeHouse) -> None:
    nothing = house.gateway.search(AGENT, Query(text="quantum zebra"))
    assert nothing.text.split("\n")[:2] == ["no tool fits 'quantum zebra'", "3 tools on 2 servers."]
    assert nothing.cards == ()
    near = house.gateway.search(AGENT, Query(text="kreate_isue"))
    assert "nearest names: github.create_issue" in near.text
    assert house.gateway.search(AGENT, Query(server="nobody")).text.startswith("no tool is on that shelf\n3 tools")


def test_an_empty_catalog_answers_too() -> None:
    assert furnish({}).gateway.search(AGENT, Query()).text == "0 tools on 0 servers.\nservers:"


@pytest.mark.requirement("P-PAGES-COMPLETE")
@pytest.mark.parametrize("limit", [1, 3, 7, 50])
@pytest.mark.parametrize("tokens", [90, 250, 800])
@pytest.mark.parametrize("query", [Query(text="create new invoice"), Query(server="billing"), Query(category="misc")])
def test_the_pages_together_are_all_hits_without_repeats(
    large: FakeHouse, query: Query, tokens: int, limit: int
) -> None:
    if query.text:
        expected = [hit.handle for hit in large.gateway.hits(AGENT, query).hits]
    else:
        listing = large.gateway.listing(AGENT)
        expected = [tool.handle for tool in listing if not query.server or tool.id.server == query.server]
    assert len(expected) > 5
    assert walk(large, query, Budget(tokens=tokens, cards=limit)) == expected


@pytest.mark.requirement("P-PAGES-COMPLETE")
def test_a_long_query_has_complete_pages_too(large: FakeHouse) -> None:
    query = Query(text="create or update an invoice, a message, a page and a contact " * 8, limit=9)
    expected = [hit.handle for hit in large.gateway.hits(AGENT, query).hits]
    assert walk(large, query) == expected


@pytest.mark.parametrize("cursor", ["", "x", "0:5", "1:-1", "1:²", "²:1", "1:" + "9" * 5_000, "1:5:6", ":", "1:٣"])
def test_a_strange_cursor_starts_at_the_beginning(large: FakeHouse, cursor: str) -> None:
    first = large.gateway.search(AGENT, Query(text="create invoice"))
    assert large.gateway.search(AGENT, Query(text="create invoice", cursor=cursor)) == first


def test_a_cursor_beyond_the_end_finds_nothing(large: FakeHouse) -> None:
    number = large.gateway.edition.number
    assert large.gateway.search(AGENT, Query(text="create", cursor=f"{number}:999")).cards == ()


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=120)
@given(
    st.sampled_from(["", "create", "search messages and files", "billing.x", "zzz", "\n", "x" * 500]),
    st.sampled_from(["", "billing", "nobody"]),
    st.integers(1, 60),
    st.integers(150, 900),
)
def test_a_search_answer_stays_within_its_tokens(
    large: FakeHouse, text: str, server: str, limit: int, tokens: int
) -> None:
    found = large.gateway.search(
        AGENT, Query(text=text, server=server, limit=limit), Budget(tokens=tokens, cards=limit)
    )
    assert TokenEstimate().count(found.text) == found.tokens
    assert found.tokens <= tokens


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
def test_monstrous_definitions_do_not_make_answers_long() -> None:
    wide = definition("wide", "word " * 20_000, **{f"parameter{n}": "string" for n in range(3_000)})
    house = furnish({"s": [wide]})
    assert house.gateway.search(AGENT, Query(text="wide word")).tokens <= 800
    assert house.gateway.describe(AGENT, ["s.wide"]).tokens <= 6_000


def test_describe_shows_full_cards_and_answers_unknown_names_in_place(house: FakeHouse) -> None:
    found = house.gateway.describe(AGENT, ["github.create_issue", "github.create_isue", "files.read_file"])
    first, second, third = found.text.split("\n\n")
    assert first.startswith("## github.create_issue [write]\nCreate a new issue in a repository.\nparameters: {")
    assert second.startswith("## github.create_isue: unknown_tool\n- did you mean: github.create_issue")
    assert third.startswith("## files.read_file [read]")


def test_describe_with_nothing_known_is_an_error(house: FakeHouse) -> None:
    with pytest.raises(UnknownTool):
        house.gateway.describe(AGENT, ["nobody.knows", "me.neither"])


def test_describe_takes_eight_names_and_says_what_it_left_out(house: FakeHouse) -> None:
    names = ["github.create_issue", *(f"unknown{n}" for n in range(10))]
    found = house.gateway.describe(AGENT, names)
    assert found.shown == 8
    assert found.text.endswith("(3 more names left out: at most 8 a call)")
    again = house.gateway.describe(AGENT, ["github.create_issue"] * 20)
    assert (again.shown, again.next) == (1, "")


def test_describe_degrades_instead_of_overflowing(large: FakeHouse) -> None:
    names = [tool.handle for tool in large.gateway.listing(AGENT)[:8]]
    found = large.gateway.describe(AGENT, names, tokens=300)
    assert found.tokens <= 300
    assert handles(found) == names


def test_examples_fit_their_own_schema(large: FakeHouse) -> None:
    for tool in large.gateway.listing(AGENT)[:40]:
        line = large.gateway.describe(AGENT, [tool.handle]).text.rsplit("example: call_tool(", 1)[1]
        example: dict[str, Any] = json.loads(line[:-1])["arguments"]
        large.gateway.executor.arguments.check(tool, example)


async def test_requests_beside_tools_go_to_their_server(house: FakeHouse) -> None:
    item = Item(server="github", original="greet", listed="github__greet", definition={})
    answer = await house.gateway.pass_on(item, "prompts/get", {"name": "greet"})
    assert answer == {"method": "prompts/get", "params": {"name": "greet"}}
