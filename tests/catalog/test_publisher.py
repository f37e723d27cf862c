"""Editions are published whole, once per change, and their index always agrees with them."""

from __future__ import annotations

from typing import Any

import pytest

from portico.catalog.publisher import Publisher
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.search.index import build_index
from portico.testing import definition


def offering(server: str, *tools: dict[str, Any]) -> tuple[Offering, str]:
    return Offering(server=server, tools=tools), "upstream"


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(build_index=build_index)


@pytest.mark.requirement("P-EDITION-ONCE")
def test_many_offerings_make_one_edition(publisher: Publisher) -> None:
    heard: list[CatalogSnapshot] = []
    publisher.subscribe(heard.append)
    snapshot = publisher.accept([offering("a", definition("x")), offering("b", definition("y"))])
    assert snapshot.number == 1
    assert heard == [snapshot]
    assert [tool.handle for tool in snapshot.tools.values()] == ["a.x", "b.y"]


@pytest.mark.requirement("P-EDITION-ONCE")
def test_an_unchanged_offering_is_the_same_edition(publisher: Publisher) -> None:
    first = publisher.accept([offering("a", definition("x"))])
    assert publisher.accept([offering("a", definition("x"))]) is first
    assert publisher.accept([]) is first


@pytest.mark.requirement("P-EDITION-AGREES")
def test_the_index_knows_the_edition_that_a_listener_hears_of(publisher: Publisher) -> None:
    seen: list[list[str]] = []

    def listen(snapshot: CatalogSnapshot) -> None:
        current = publisher.current
        assert current.snapshot is snapshot
        hits = current.index.query("weather", within=snapshot.tools.keys(), limit=9).hits
        seen.append([handle for hit in hits for handle in (hit.handle, *hit.also)])

    publisher.subscribe(listen)
    publisher.accept([offering("a", definition("weather"))])
    publisher.accept([offering("b", definition("weather"))])
    publisher.withdraw("a")
    assert seen == [["a.weather"], ["a.weather", "b.weather"], ["b.weather"]]


def test_tools_that_did_not_change_are_the_same_objects(publisher: Publisher) -> None:
    first = publisher.accept([offering("a", definition("x"), definition("y")), offering("b", definition("z"))])
    second = publisher.accept([offering("a", definition("x"), definition("y", "changed"))])
    x, y, z = ToolId("a", "x"), ToolId("a", "y"), ToolId("b", "z")
    assert second.tools[x] is first.tools[x]
    assert second.tools[z] is first.tools[z]
    assert second.tools[y].description == "changed"


def test_a_new_text_over_the_same_schema_object_is_taken(publisher: Publisher) -> None:
    schema = {"type": "object"}
    publisher.accept([offering("a", {"name": "x", "description": "old", "inputSchema": schema})])
    snapshot = publisher.accept([offering("a", {"name": "x", "description": "new", "inputSchema": schema})])
    assert snapshot.tools[ToolId("a", "x")].description == "new"


def test_a_withdrawn_server_is_gone_and_withdrawing_twice_changes_nothing(publisher: Publisher) -> None:
    first = publisher.accept([offering("a", definition("x")), offering("b", definition("y"))])
    second = publisher.withdraw("a")
    assert second.number == 2
    assert list(second.servers) == ["b"]
    assert publisher.withdraw("a") is second
    assert list(first.servers) == ["a", "b"]


def test_readers_keep_the_edition_they_took(publisher: Publisher) -> None:
    first = publisher.accept([offering("a", definition("x"))])
    publisher.accept([offering("a", definition("y"))])
    assert [tool.handle for tool in first.tools.values()] == ["a.x"]


@pytest.mark.requirement("P-NAMES-STABLE")
def test_spellings_are_the_same_after_a_restart_in_another_order() -> None:
    given = [offering("a-b", definition("x-y"), definition("x.y")), offering("a.b", definition("x y"))]
    spelled = []
    for order in (given, given[::-1]):
        publisher = Publisher(build_index=build_index, aliases={"a-b": "", "a.b": ""})
        for one in order:
            publisher.accept([one])
        tools = publisher.current.snapshot.tools
        spelled.append({str(id): (tool.handle, tool.listed) for id, tool in tools.items()})
    assert spelled[0] == spelled[1]
    assert spelled[0]["a.b::x y"] == ("a_b_2.x_y", "a.b__x_y")


def test_a_server_keeps_its_spelling_while_the_other_offers_nothing() -> None:
    publisher = Publisher(build_index=build_index, aliases={"a-b": "", "a.b": ""})
    snapshot = publisher.accept([offering("a.b", definition("x"))])
    assert snapshot.servers["a.b"].identifier == "a_b_2"


def test_before_the_first_offering_there_is_an_empty_edition(publisher: Publisher) -> None:
    assert publisher.current.snapshot.number == 0
    assert publisher.current.index.query("anything", within=set(), limit=5).hits == ()


@pytest.mark.requirement("T31")
def test_a_tool_named_like_a_meta_tool_is_neither_merged_nor_in_the_way() -> None:
    publisher = Publisher(build_index=build_index)
    snapshot = publisher.accept([(Offering(server="local", tools=(definition("search_tools"),)), "local")])
    assert [tool.listed for tool in snapshot.tools.values()] == ["local__search_tools"]


def test_a_tool_is_put_on_another_shelf_in_one_whole_edition(publisher: Publisher) -> None:
    first = publisher.accept([offering("a", definition("x"), definition("y")), offering("a.b", definition("c"))])
    second = publisher.shelve(ToolId("a", "x"), "tables")
    assert second.number == first.number + 1
    assert second.categories == {"misc": 2, "tables": 1}
    assert second.tools[ToolId("a", "y")] is first.tools[ToolId("a", "y")]
    assert second.sections["a.b"] is first.sections["a.b"]
    assert publisher.shelve(ToolId("a", "x"), "tables") is second


def test_a_shelf_waits_for_its_tool_and_is_kept_when_the_tool_changes(publisher: Publisher) -> None:
    assert publisher.shelve(ToolId("a", "x"), "tables").number == 0
    publisher.accept([offering("a", definition("x"))])
    publisher.withdraw("a")
    snapshot = publisher.accept([offering("a", definition("x", "changed")), offering("b", definition("x"))])
    assert [tool.category for tool in snapshot.tools.values()] == ["tables", "misc"]
