"""However the catalog came to be as it is, its edition is the one that a single start would have made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.naming import Owners, distinct, name_servers, name_tools, spell_apart, wish_names
from portico.catalog.publisher import Publisher
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.errors import CallError

SERVERS = ["a", "b", "A", "a-b", "a.b", "a b", "a__b", "a_b_2", "category", "local", "x" * 110]
TOOLS = [
    "x",
    "X",
    "x-y",
    "x.y",
    "x_y",
    "x_y_2",
    "b__x",
    "b.x",
    "b__x_2",
    "search_tools",
    "goto",
    "y" * 30,
    "y" * 31,
    "",
]
ALIASES = ["", "a", "b", "a_b", "A", "math"]

texts = st.sampled_from(["", "one", "two"])
tools = st.lists(st.tuples(st.sampled_from(TOOLS), texts), max_size=5)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.lists(st.tuples(st.sampled_from(SERVERS), tools), min_size=1, max_size=3)),
        st.tuples(st.just("withdraw"), st.sampled_from(SERVERS)),
        st.tuples(st.just("alias"), st.sampled_from(SERVERS), st.sampled_from(ALIASES)),
    ),
    min_size=1,
    max_size=8,
)


def build_index(snapshot: CatalogSnapshot, previous: Any) -> Any:
    """None of this asks an index."""


class Catalog:
    """A catalog that is changed step by step, and the same one made at once of what it has come to."""

    def __init__(self) -> None:
        self.publisher = Publisher(build_index=build_index)
        self.offerings: dict[str, Offering] = {}
        self.aliases: dict[str, str] = {}
        """As they were when the current edition was published: a new alias waits for the next one."""
        self.publisher.subscribe(lambda snapshot: setattr(self, "aliases", dict(self.publisher.aliases)))

    def change(self, kind: str, *details: Any) -> None:
        if kind == "accept":
            self._accept(offering(server, own) for server, own in details[0])
        elif kind == "withdraw":
            self.offerings.pop(details[0], None)
            self.publisher.withdraw(details[0])
        elif details[0] in self.offerings:
            self.publisher.aliases[details[0]] = details[1]
            self._accept([replace(self.offerings[details[0]], version=f"with alias {details[1]!r}")])

    def _accept(self, offerings: Iterable[Offering]) -> None:
        given = list(offerings)
        self.offerings.update((one.server, one) for one in given)
        self.publisher.accept((one, source(one.server)) for one in given)

    @property
    def snapshot(self) -> CatalogSnapshot:
        return self.publisher.current.snapshot

    def at_once(self) -> CatalogSnapshot:
        publisher = Publisher(build_index=build_index, aliases=dict(self.aliases))
        return publisher.accept((one, source(one.server)) for one in self.offerings.values())


def source(server: str) -> str:
    return "local" if server == "local" else "upstream"


def offering(server: str, own: list[tuple[str, str]]) -> Offering:
    return Offering(
        server=server,
        tools=tuple({"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in own),
        prompts=tuple({"name": name} for name, text in own if text == "one"),
        resources=tuple({"uri": f"file:///{name}"} for name, text in own if text == "two"),
    )


def contents(snapshot: CatalogSnapshot) -> tuple[Any, ...]:
    resolved = [answer(snapshot, tool.listed, snapshot.tools.keys()) for tool in snapshot.tools.values()]
    return list(snapshot.tools.items()), list(snapshot.servers.items()), snapshot.items, resolved


def answers(snapshot: CatalogSnapshot) -> dict[str, str]:
    """What the resolver says to every spelling of every tool there might be, for two callers."""
    sees_all = snapshot.tools.keys()
    sees_some = {id for number, id in enumerate(snapshot.tools) if number % 2}
    return {
        f"{spelling!r} for {name}": answer(snapshot, spelling, within)
        for spelling in spellings(snapshot)
        for name, within in (("all", sees_all), ("some", sees_some))
    }


def spellings(snapshot: CatalogSnapshot) -> set[str]:
    shown = {spelling for tool in snapshot.tools.values() for spelling in (tool.handle, tool.listed)}
    bare = {name for name in TOOLS if name}
    pairs = {(id.server, id.name) for id in snapshot.tools} | {(server, "x") for server in SERVERS}
    paths = {f"/{quote(server, safe='')}/{quote(name, safe='')}" for server, name in pairs}
    exact = shown | bare | paths | {f"{server}{mark}{name}" for server, name in pairs for mark in ("::", "__", ".")}
    return exact | {spelling.swapcase() for spelling in exact} | {f" {spelling}\n" for spelling in shown}


def answer(snapshot: CatalogSnapshot, spelling: str, within: Any) -> str:
    try:
        return snapshot.resolver.resolve(spelling, within).handle
    except CallError as error:
        return f"{error} {error.details} {error.next_call}"


@pytest.mark.requirement("P-NAMES-STABLE", "P-EDITION-AGREES")
@settings(max_examples=60, deadline=None)
@given(changes)
def test_a_changed_catalog_is_the_one_that_a_start_would_make(steps: list[tuple[Any, ...]]) -> None:
    catalog = Catalog()
    for step in steps:
        catalog.change(*step)
    expected = catalog.at_once()
    snapshot = catalog.snapshot
    assert list(snapshot.tools.items()) == list(expected.tools.items())
    assert list(snapshot.servers.items()) == list(expected.servers.items())
    assert snapshot.rejected == expected.rejected
    assert snapshot.items == expected.items
    assert snapshot.categories == expected.categories
    assert answers(snapshot) == answers(expected)


@pytest.mark.requirement("P-EDITION-ONCE")
@settings(max_examples=100, deadline=None)
@given(changes)
def test_what_did_not_change_is_the_same_object_and_old_editions_stay_as_they_were(
    steps: list[tuple[Any, ...]],
) -> None:
    catalog = Catalog()
    kept: list[tuple[CatalogSnapshot, Any]] = []
    for step in steps:
        before = catalog.snapshot
        kept.append((before, contents(before)))
        catalog.change(*step)
        for id, tool in catalog.snapshot.tools.items():
            assert tool is before.tools.get(id) or tool != before.tools.get(id)
    for snapshot, remembered in kept:
        assert contents(snapshot) == remembered


@pytest.mark.requirement("P-NAMES-INJECTIVE", "P-NAMES-COLLISIONS", "P-NAMES-LISTED")
@settings(max_examples=150, deadline=None)
@given(changes)
def test_names_are_those_of_telling_all_tools_apart_at_once(steps: list[tuple[Any, ...]]) -> None:
    catalog = Catalog()
    for step in steps:
        catalog.change(*step)
    snapshot = catalog.snapshot
    names = {server: [id.name for id in snapshot.tools if id.server == server] for server in snapshot.servers}
    identifiers = name_servers(catalog.aliases)
    handles = {
        ToolId(server, name): f"{identifiers[server]}.{spelling}"
        for server, own in names.items()
        for name, spelling in name_tools(own).items()
    }
    wishes = {
        ToolId(server, name): wish
        for server, own in names.items()
        for name, wish in spell_apart(server, wish_names(server, own, source(server)), Owners(identifiers)).items()
    }
    assert {id: tool.handle for id, tool in snapshot.tools.items()} == handles
    assert {id: tool.listed for id, tool in snapshot.tools.items()} == distinct(wishes.items(), set(handles.values()))


def test_a_definition_that_says_the_same_again_is_not_looked_at_again() -> None:
    catalog = Catalog()
    catalog.change("accept", [("a", [("x", "one"), ("y", "one")])])
    first = catalog.snapshot.sections["a"]
    catalog.change("accept", [("b", [("x", "one")])])
    assert catalog.snapshot.sections["a"] is first
    catalog.change("accept", [("a", [("x", "one"), ("y", "two")])])
    changed = catalog.snapshot.sections["a"]
    assert changed is not first
    assert changed.tools[ToolId("a", "x")] is first.tools[ToolId("a", "x")]
    assert catalog.snapshot.items == catalog.at_once().items


@pytest.mark.requirement("F46")
def test_a_failed_index_leaves_the_edition_that_there_was_and_the_next_one_is_whole() -> None:
    def build(snapshot: CatalogSnapshot, previous: Any) -> Any:
        if len(snapshot.tools) == 2:
            raise MemoryError
        return build_index(snapshot, None)

    publisher = Publisher(build_index=build)
    first = publisher.accept([(offering("a", [("x", "one")]), "upstream")])
    with pytest.raises(MemoryError):
        publisher.accept([(offering("b", [("x", "one")]), "upstream")])
    assert publisher.current.snapshot is first
    third = publisher.accept([(offering("c", [("x", "one")]), "upstream")])
    assert [tool.handle for tool in third.tools.values()] == ["a.x", "b.x", "c.x"]
