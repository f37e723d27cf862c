"""Filters of a search: which of the visible tools it looks at, and what to say of a value that none of them has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeVar
from weakref import WeakKeyDictionary

from portico.domain.disclosure import Query
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Effect, ToolId
from portico.domain.usage import Usage
from portico.errors import InvalidArguments, NextCall, UnknownFilter

SELECTIONS_KEPT = 64
FACETS_KEPT = 16
NAMED = 10
"""How many values an error names."""
COMPARED = 2_000
"""How many values are compared with a misspelled one."""
ALIKE = 0.6
SHOWN_LENGTH = 80

_FACETS = {"server": "servers", "category": "categories", "tag": "tags", "source": "sources"}
"""The filters that name a value, and the word for all of its values."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """What visible tools can be told apart by: each value with the tools that have it."""

    having: Mapping[str, Mapping[str, frozenset[ToolId]]]
    """By facet, then by value in lower case; a server has two spellings."""
    names: Mapping[str, tuple[str, ...]]
    """By facet: every value as it is shown, in order."""
    reading: frozenset[ToolId]
    servers: Mapping[str, int]
    """How many tools each server has, by its original name."""
    categories: Mapping[str, int]


@dataclass(slots=True)
class Filters:
    """Narrows a visible set; each selection is made once and stays the same object, so that an index can know it."""

    _selections: WeakKeyDictionary[CatalogSnapshot, dict[Hashable, frozenset[ToolId]]] = field(
        default_factory=WeakKeyDictionary
    )
    _facets: WeakKeyDictionary[CatalogSnapshot, dict[frozenset[ToolId], Facets]] = field(
        default_factory=WeakKeyDictionary
    )

    def narrow(
        self, snapshot: CatalogSnapshot, visible: frozenset[ToolId], query: Query, usage: Mapping[ToolId, Usage]
    ) -> frozenset[ToolId]:
        """The visible tools that pass all filters of a query.

        Raises:
            UnknownFilter: no visible tool has that server, category, tag or source; the nearest are named.
            InvalidArguments: a number that cannot be meant.
        """
        if not query.filters:
            return visible
        poor = _poor(query, usage)
        values = {facet: value.casefold() for facet in _FACETS if (value := getattr(query, facet))}
        kept = self._selections.setdefault(snapshot, {})
        key = (visible, *values.items(), query.read_only, poor)
        found = _taken(kept, key)
        if found is None:
            found = self._select(snapshot, visible, query, values) - poor
            found = visible if found == visible else found
        return _put(kept, key, found, SELECTIONS_KEPT)

    def facets(self, snapshot: CatalogSnapshot, visible: frozenset[ToolId]) -> Facets:
        """What the visible tools can be told apart by; worked out once."""
        kept = self._facets.setdefault(snapshot, {})
        return _put(kept, visible, _taken(kept, visible) or _facets_of(snapshot, visible), FACETS_KEPT)

    def _select(
        self, snapshot: CatalogSnapshot, visible: frozenset[ToolId], query: Query, values: Mapping[str, str]
    ) -> frozenset[ToolId]:
        facets = self.facets(snapshot, visible)
        found = facets.reading if query.read_only else visible
        for facet, value in values.items():
            if value not in facets.having[facet]:
                raise _unknown(facet, query, facets.names[facet])
            found &= facets.having[facet][value]
        return found


def _poor(query: Query, usage: Mapping[ToolId, Usage]) -> frozenset[ToolId]:
    """The tools whose calls have gone worse than the query allows; no calls are no reason."""
    if not 0 <= query.min_success <= 1:
        raise InvalidArguments("search", details=("min_success is a share from 0 to 1, such as 0.95",))
    if not query.max_latency_ms >= 0:
        raise InvalidArguments("search", details=("max_latency_ms is a number of milliseconds, such as 200",))
    if not query.min_success and not query.max_latency_ms:
        return frozenset()
    slowest = query.max_latency_ms or float("inf")
    return frozenset(
        id
        for id, found in list(usage.items())
        if found.calls and ((found.success or 0) < query.min_success or (found.mean_ms or 0) > slowest)
    )


def _facets_of(snapshot: CatalogSnapshot, visible: frozenset[ToolId]) -> Facets:
    having: dict[str, dict[str, set[ToolId]]] = {facet: defaultdict(set) for facet in _FACETS}
    names: dict[str, dict[str, str]] = {facet: {} for facet in _FACETS}
    servers: dict[str, int] = defaultdict(int)
    categories: dict[str, int] = defaultdict(int)
    reading: set[ToolId] = set()
    for id, tool in snapshot.tools.items():
        if id not in visible:
            continue
        servers[id.server] += 1
        categories[tool.category] += 1
        if tool.effect is Effect.READ:
            reading.add(id)
        identifier = snapshot.servers[id.server].identifier
        having["server"][id.server.casefold()].add(id)
        shown = [("server", identifier), ("category", tool.category), ("source", tool.source)]
        for facet, value in [*shown, *(("tag", tag) for tag in tool.tags)]:
            having[facet][value.casefold()].add(id)
            names[facet].setdefault(value.casefold(), value)
    return Facets(
        having={facet: {value: frozenset(ids) for value, ids in by.items()} for facet, by in having.items()},
        names={facet: tuple(sorted(shown.values())) for facet, shown in names.items()},
        reading=frozenset(reading),
        servers=dict(sorted(servers.items())),
        categories=dict(sorted(categories.items())),
    )


def _unknown(facet: str, query: Query, names: tuple[str, ...]) -> UnknownFilter:
    wanted = str(getattr(query, facet))[:SHOWN_LENGTH]
    alike = {name: SequenceMatcher(None, wanted.casefold(), name.casefold()).ratio() for name in names[:COMPARED]}
    nearest = sorted(alike, key=lambda name: (-alike[name], name))[:NAMED]
    more = len(names) - len(nearest)
    listed = ", ".join(name[:SHOWN_LENGTH] for name in nearest) + (f" and {more} more" if more else "")
    is_near = bool(nearest) and alike[nearest[0]] >= ALIKE
    mended = {"query": query.text[:200], **query.filters, facet: nearest[0]} if is_near else {"query": ""}
    return UnknownFilter(
        f"{facet} {wanted!r}",
        details=(f"{_FACETS[facet]}, nearest first: {listed}" if nearest else f"no tool has a {facet}",),
        next_call=NextCall("search", mended),
    )


def _taken(kept: dict[Key, Value], key: Key) -> Value | None:
    return kept.pop(key, None)


def _put(kept: dict[Key, Value], key: Key, value: Value, bound: int) -> Value:
    """Keep a value as the newest one, and let go of the one that was not asked for longest."""
    kept[key] = value
    if len(kept) > bound:
        del kept[next(iter(kept))]
    return value
