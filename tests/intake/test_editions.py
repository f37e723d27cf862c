"""Editions are published whole, once per change, and their index always agrees with them."""

from __future__ import annotations

from typing import Any

import pytest

from portico.catalog.publisher import Editions
from portico.domain.server import Offering
from portico.domain.snapshot import Edition
from portico.domain.tool import ToolId
from portico.search.index import build_index
from portico.testing import definition


def offering(server: str, *tools: dict[str, Any]) -> tuple[Offering, str]:
    return Offering(server=server, tools=tools), "upstream"


@pytest.fixture
def editions() -> Editions:
    return Editions(build_index=build_index)


@pytest.mark.requirement("P-EDITION-ONCE")
def test_many_offerings_make_one_edition(editions: Editions) -> None:
    heard: list[Edition] = []
    editions.subscribe(heard.append)
    edition = editions.accept([offering("a", definition("x")), offering("b", definition("y"))])
    assert edition.number == 1
    assert heard == [edition]
    assert [tool.handle for tool in edition.tools.values()] == ["a.x", "b.y"]


@pytest.mark.requirement("P-EDITION-ONCE")
def test_an_unchanged_offering_is_the_same_edition(editions: Editions) -> None:
    first = editions.accept([offering("a", definition("x"))])
    assert editions.accept([offering("a", definition("x"))]) is first
    assert editions.accept([]) is first


@pytest.mark.requirement("P-EDITION-AGREES")
def test_the_index_knows_the_edition_that_a_listener_hears_of(editions: Editions) -> None:
    seen: list[list[str]] = []

    def listen(edition: Edition) -> None:
        current = editions.current
        assert current.edition is edition
        hits = current.index.query("weather", within=edition.tools.keys(), limit=9).hits
        seen.append([hit.handle for hit in hits])

    editions.subscribe(listen)
    editions.accept([offering("a", definition("weather"))])
    editions.accept([offering("b", definition("weather"))])
    editions.withdraw("a")
    assert seen == [["a.weather"], ["a.weather", "b.weather"], ["b.weather"]]


def test_tools_that_did_not_change_are_the_same_objects(editions: Editions) -> None:
    first = editions.accept([offering("a", definition("x"), definition("y")), offering("b", definition("z"))])
    second = editions.accept([offering("a", definition("x"), definition("y", "changed"))])
    x, y, z = ToolId("a", "x"), ToolId("a", "y"), ToolId("b", "z")
    assert second.tools[x] is first.tools[x]
    assert second.tools[z] is first.tools[z]
    assert second.tools[y].description == "changed"


def test_a_new_text_over_the_same_schema_object_is_taken(editions: Editions) -> None:
    schema = {"type": "object"}
    editions.accept([offering("a", {"name": "x", "description": "old", "inputSchema": schema})])
    edition = editions.accept([offering("a", {"name": "x", "description": "new", "inputSchema": schema})])
    assert edition.tools[ToolId("a", "x")].description == "new"


def test_a_withdrawn_server_is_gone_and_withdrawing_twice_changes_nothing(editions: Editions) -> None:
    first = editions.accept([offering("a", definition("x")), offering("b", definition("y"))])
    second = editions.withdraw("a")
    assert second.number == 2
    assert list(second.servers) == ["b"]
    assert editions.withdraw("a") is second
    assert list(first.servers) == ["a", "b"]


def test_readers_keep_the_edition_they_took(editions: Editions) -> None:
    first = editions.accept([offering("a", definition("x"))])
    editions.accept([offering("a", definition("y"))])
    assert [tool.handle for tool in first.tools.values()] == ["a.x"]


@pytest.mark.requirement("P-NAMES-STABLE")
def test_spellings_are_the_same_after_a_restart_in_another_order() -> None:
    given = [offering("a-b", definition("x-y"), definition("x.y")), offering("a.b", definition("x y"))]
    spelled = []
    for order in (given, given[::-1]):
        editions = Editions(build_index=build_index, aliases={"a-b": "", "a.b": ""})
        for one in order:
            editions.accept([one])
        tools = editions.current.edition.tools
        spelled.append({str(id): (tool.handle, tool.listed) for id, tool in tools.items()})
    assert spelled[0] == spelled[1]
    assert spelled[0]["a.b::x y"] == ("a_b_2.x_y", "a.b__x_y")


def test_a_server_keeps_its_spelling_while_the_other_offers_nothing() -> None:
    editions = Editions(build_index=build_index, aliases={"a-b": "", "a.b": ""})
    edition = editions.accept([offering("a.b", definition("x"))])
    assert edition.servers["a.b"].identifier == "a_b_2"


def test_before_the_first_offering_there_is_an_empty_edition(editions: Editions) -> None:
    assert editions.current.edition.number == 0
    assert editions.current.index.query("anything", within=set(), limit=5).hits == ()


@pytest.mark.requirement("T31")
def test_a_tool_named_like_a_meta_tool_is_neither_merged_nor_in_the_way() -> None:
    editions = Editions(build_index=build_index)
    edition = editions.accept([(Offering(server="local", tools=(definition("search_tools"),)), "local")])
    assert [tool.listed for tool in edition.tools.values()] == ["local__search_tools"]


def test_a_tool_is_put_on_another_shelf_in_one_whole_edition(editions: Editions) -> None:
    first = editions.accept([offering("a", definition("x"), definition("y")), offering("a.b", definition("c"))])
    second = editions.shelve(ToolId("a", "x"), "tables")
    assert second.number == first.number + 1
    assert second.categories == {"misc": 2, "tables": 1}
    assert second.tools[ToolId("a", "y")] is first.tools[ToolId("a", "y")]
    assert second.chapters["a.b"] is first.chapters["a.b"]
    assert editions.shelve(ToolId("a", "x"), "tables") is second


def test_a_shelf_waits_for_its_tool_and_is_kept_when_the_tool_changes(editions: Editions) -> None:
    assert editions.shelve(ToolId("a", "x"), "tables").number == 0
    editions.accept([offering("a", definition("x"))])
    editions.withdraw("a")
    edition = editions.accept([offering("a", definition("x", "changed")), offering("b", definition("x"))])
    assert [tool.category for tool in edition.tools.values()] == ["tables", "misc"]
