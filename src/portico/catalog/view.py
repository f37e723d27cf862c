"""What one caller sees of one snapshot: the tools, their facets, the pins, and what filters leave of them."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from portico.domain.call import Caller
from portico.domain.search_answers import Query
from portico.domain.server import ToolFilter
from portico.domain.suggestions import nearest_names
from portico.domain.tool import OPEN, Effect, Profile, Tool, ToolId
from portico.domain.usage_and_tiers import Usage
from portico.errors import CallError, InvalidArguments, NextCall, Refused, UnknownFilter
from portico.protocols import Index

from .naming import identifier
from .sections import ServerSection
from .snapshot import CatalogSnapshot

SETS_KEPT = 256  # different visible sets of one snapshot whose derived values are kept
VALUES_KEPT = 64  # derived values of one visible set
NAMED = 10  # values that an error names
COMPARED = 2_000  # values that are compared with a misspelled one
SHOWN_LENGTH = 80

_FACETS = {"server": "servers", "category": "categories", "tag": "tags", "source": "sources"}  # each with its plural

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """The values by which visible tools can be told apart, each with the tools that have it."""

    having: Mapping[str, Mapping[str, frozenset[ToolId]]]  # by facet, then by value in lower case
    names: Mapping[str, tuple[str, ...]]  # by facet: every value as it is shown, in order
    reading: frozenset[ToolId]
    servers: Mapping[str, int]  # tools of each server, by its original name
    categories: Mapping[str, int]


@dataclass(slots=True)
class VisibleTools:
    """The tools of a snapshot that some callers see, with everything that is derived from this set once."""

    snapshot: CatalogSnapshot
    ids: frozenset[ToolId]
    number: int  # tells this set from the other sets of its snapshot
    _kept: dict[Hashable, Any] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # answers of the tiers are made in worker threads

    def keep(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value under a key, made once; of very many, the one that was not asked for longest is dropped."""
        with self._lock:
            if key in self._kept:
                self._kept[key] = value = self._kept.pop(key)
                return value  # type: ignore[no-any-return]
        value = make()
        with self._lock:
            self._kept[key] = value
            if len(self._kept) > VALUES_KEPT:
                del self._kept[next(iter(self._kept))]
        return value

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools themselves, in the order of the snapshot."""
        return self.keep("tools", lambda: tuple(t for id, t in self.snapshot.tools.items() if id in self.ids))

    @property
    def facets(self) -> Facets:
        """The values by which the tools can be told apart."""
        return self.keep("facets", lambda: _facets_of(self.snapshot, self.tools))

    def pinned(self, pins: Iterable[str]) -> list[Tool]:
        """The tools of these spellings; a pin that means nothing here is left out, and two may mean one tool."""
        found: dict[ToolId, Tool] = {}
        for spelling in pins:
            with suppress(CallError):
                tool = self.snapshot.resolver.resolve(spelling, self.ids)
                found[tool.id] = tool
        return list(found.values())

    def narrow(self, query: Query, usage: Mapping[ToolId, Usage]) -> frozenset[ToolId]:
        """The tools that pass all filters of a query; the same object for the same filters, so that an index knows it.

        Raises:
            UnknownFilter: no visible tool has that server, category, tag or source; the nearest are named.
            InvalidArguments: a number that cannot be meant.
        """
        if not query.filters:
            return self.ids
        poor = _poor(query, usage)
        values = {facet: value.casefold() for facet in _FACETS if (value := getattr(query, facet))}

        def select() -> frozenset[ToolId]:
            found = self.facets.reading if query.read_only else self.ids
            for facet, value in values.items():
                if value not in self.facets.having[facet]:
                    raise _unknown(facet, query, self.facets.names[facet])
                found &= self.facets.having[facet][value]
            found -= poor
            return self.ids if found == self.ids else found

        return self.keep(("narrow", *values.items(), query.read_only, poor), select)


@dataclass(slots=True, eq=False)
class CatalogView:
    """What one caller sees of one snapshot: made once per request, asked by everything after."""

    caller: Caller
    snapshot: CatalogSnapshot
    index: Index
    visible: frozenset[ToolId]  # the tools that the caller sees, and so may call
    shared: VisibleTools  # what all callers have in common who see the same tools
    pins: tuple[str, ...] = ()
    _found: dict[str, Tool] = field(default_factory=dict)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The visible tools, in the order of the snapshot."""
        return self.shared.tools

    @property
    def facets(self) -> Facets:
        """The values by which these tools can be told apart."""
        return self.shared.facets

    @property
    def pinned(self) -> list[Tool]:
        """The tools that are always listed."""
        return list(self.shared.keep(("pins", self.pins), lambda: self.shared.pinned(self.pins)))

    def tool(self, spelling: str, within: Set[ToolId] | None = None) -> Tool:
        """The tool of a spelling, among some of the visible ones where told; each spelling is resolved once.

        Raises:
            UnknownTool: there is none that this caller sees; the nearest are named.
            AmbiguousTool: several tools are spelled so.
        """
        if within is not None and within is not self.visible:
            return self.snapshot.resolver.resolve(spelling, within)
        found = self._found.get(spelling)
        if found is None:
            found = self._found[spelling] = self.snapshot.resolver.resolve(spelling, self.visible)
        return found

    def find(self, spelling: str, within: Set[ToolId] | None = None) -> Tool | None:
        """The same, or None."""
        try:
            return self.tool(spelling, within)
        except CallError:
            return None


class Policy(Protocol):
    """Answers which tools a caller sees, and whether a call may go ahead; each link only narrows."""

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """The tools that this caller may see, and so may call."""
        ...

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Return when the call may go ahead.

        Raises:
            Refused: with the reason.
        """
        ...


@dataclass(slots=True, kw_only=True)
class CatalogViews:
    """Makes the view of each request; the policy is asked here and nowhere else which tools are visible."""

    policy: Policy
    pins: tuple[str, ...] = ()
    _current: tuple[CatalogSnapshot | None, dict[frozenset[ToolId], VisibleTools]] = (None, {})
    """The newest snapshot with its visible sets; requests that still read an older one hold their own."""
    _made: int = 0

    def configure(self, pins: tuple[str, ...]) -> None:
        """List these tools always from now on."""
        self.pins = pins

    def view(self, caller: Caller, snapshot: CatalogSnapshot, index: Index) -> CatalogView:
        """What a caller sees of a snapshot."""
        ids = frozenset(self.policy.visible(caller, snapshot))
        return CatalogView(caller, snapshot, index, ids, self._shared_by(snapshot, ids), self.pins)

    def _shared_by(self, snapshot: CatalogSnapshot, ids: frozenset[ToolId]) -> VisibleTools:
        if self._current[0] is not snapshot:
            self._current = (snapshot, {})
        known = self._current[1]
        found = known.get(ids)
        if found is None:
            self._made += 1
            found = known[ids] = VisibleTools(snapshot, ids, self._made)
            if len(known) > SETS_KEPT:
                del known[next(iter(known))]
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


def _facets_of(snapshot: CatalogSnapshot, tools: Iterable[Tool]) -> Facets:
    having: dict[str, dict[str, set[ToolId]]] = {facet: defaultdict(set) for facet in _FACETS}
    names: dict[str, dict[str, str]] = {facet: {} for facet in _FACETS}
    servers: dict[str, int] = defaultdict(int)
    categories: dict[str, int] = defaultdict(int)
    for tool in tools:
        id = tool.id
        servers[id.server] += 1
        categories[tool.category] += 1
        identifier = snapshot.servers[id.server].identifier
        having["server"][id.server.casefold()].add(id)
        shown = [("server", identifier), ("category", tool.category), ("source", tool.source)]
        for facet, value in [*shown, *(("tag", tag) for tag in tool.tags)]:
            having[facet][value.casefold()].add(id)
            names[facet].setdefault(value.casefold(), value)
    return Facets(
        having={facet: {value: frozenset(ids) for value, ids in by.items()} for facet, by in having.items()},
        names={facet: tuple(sorted(shown.values())) for facet, shown in names.items()},
        reading=frozenset(tool.id for tool in tools if tool.effect is Effect.READ),
        servers=dict(sorted(servers.items())),
        categories=dict(sorted(categories.items())),
    )


def _unknown(facet: str, query: Query, names: tuple[str, ...]) -> UnknownFilter:
    wanted = str(getattr(query, facet))[:SHOWN_LENGTH]
    nearest = nearest_names(wanted, names[:COMPARED], NAMED, cutoff=0)
    more = len(names) - len(nearest)
    listed = ", ".join(name[:SHOWN_LENGTH] for name in nearest) + (f" and {more} more" if more else "")
    near = nearest_names(wanted, nearest, 1)
    mended = {"query": query.text[:200], **query.filters, facet: near[0]} if near else {"query": ""}
    return UnknownFilter(
        f"{facet} {wanted!r}",
        details=(f"{_FACETS[facet]}, nearest first: {listed}" if nearest else f"no tool has a {facet}",),
        next_call=NextCall("search", mended),
    )


_SERVER_SEPARATORS = ("::", "__", ".", "/", ":")  # what stands between a server and a tool in one of the spellings
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CLASS = re.compile(r"\[[^\]]+\]")
_OTHER = re.compile(r"[^a-z0-9*?]+")
_INVISIBLE = frozenset({"Mn", "Cf", "Cc"})
_LOOK_ALIKES = str.maketrans(
    "аеорсухкмнтвіјѕһԁԛԝɡıοαεικνρτυχωβł",
    "aeopcyxkmhtbijshdqwgioaeiknptuxwbl",
)


@lru_cache(maxsize=20_000)
def permits_tool(filter: ToolFilter, server: str, name: str, handle: str = "") -> bool:
    """Whether a filter lets a tool through; deny wins, an empty allow means all."""
    if filter.deny and _is_denied(filter.deny, server, name, handle):
        return False
    return not filter.allow or any(fnmatchcase(name, glob) for glob in filter.allow)


def _is_denied(globs: Iterable[str], server: str, name: str, handle: str) -> bool:
    alias, _, shown = handle.partition(".")
    names = dict.fromkeys((name, identifier(name), shown or name))
    folded = {form for spelling in names for form in folds(spelling)}
    servers = {form for spelling in (server, alias or server) for form in folds(spelling)}
    return any(
        any(fnmatchcase(spelling, part) for spelling in names)
        or any(fnmatchcase(spelling, form) for form in folds(part) for spelling in folded)
        for glob in globs
        for part in _without_server(glob, servers)
    )


def _without_server(glob: str, servers: Iterable[str]) -> Iterator[str]:
    """A glob as it is, and without the server before it where it names this one, as in `github.delete_*`."""
    yield glob
    for separator in _SERVER_SEPARATORS:
        before, found, after = glob.removeprefix("/").partition(separator)
        if found and after and not set(folds(before)).isdisjoint(servers):
            yield after


@lru_cache(maxsize=50_000)
def folds(text: str) -> tuple[str, ...]:
    """The forms in which a name or a glob is compared: with its words run together as written, and told apart."""
    shown = "".join(
        sign for sign in unicodedata.normalize("NFKD", text) if unicodedata.category(sign) not in _INVISIBLE
    )
    return tuple(dict.fromkeys(_folded(form) for form in (shown, _HUMP.sub("_", shown))))


def _folded(text: str) -> str:
    """Small letters and digits with one underscore between words; classes of a glob stay as they are."""
    parts, at = list[str](), 0
    lower = text.casefold().translate(_LOOK_ALIKES)
    for found in _CLASS.finditer(lower):
        parts += (_OTHER.sub("_", lower[at : found.start()]), found.group())
        at = found.end()
    return "".join((*parts, _OTHER.sub("_", lower[at:])))


_OPEN = ToolFilter()
EVERYBODY = "*"
CALLERS_KEPT = 256  # callers whose sets are kept for one snapshot


@dataclass(slots=True, kw_only=True)
class CatalogPolicy:
    """The one decision: the globs of the config, then the profile, then the rights that a registry gives by name.

    Rights belong to the tools of a snapshot, so that a revoked one is gone with the next, everywhere at once.
    """

    filters: Mapping[str, ToolFilter] = field(default_factory=dict)
    """What `tools: {allow, deny}` of each server lets through."""
    profile: Profile = OPEN
    _sections: WeakKeyDictionary[ServerSection, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _offered: WeakKeyDictionary[CatalogSnapshot, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _restricted: WeakKeyDictionary[CatalogSnapshot, tuple[Tool, ...]] = field(default_factory=WeakKeyDictionary)
    _own: WeakKeyDictionary[CatalogSnapshot, dict[str, frozenset[ToolId]]] = field(default_factory=WeakKeyDictionary)

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """The tools that this caller may see, and so may call; the same object for equal sets of a snapshot."""
        offered = self._offered.get(snapshot)
        if offered is None:
            offered = self._offered[snapshot] = frozenset().union(*map(self._of, snapshot.sections.values()))
            self._restricted[snapshot] = tuple(
                tool for tool in snapshot.tools.values() if tool.users is not None and EVERYBODY not in tool.users
            )
        restricted = self._restricted[snapshot]
        return self._left(caller, snapshot, offered, restricted) if restricted else offered

    def configure(self, filters: Mapping[str, ToolFilter]) -> None:
        """Let these globs decide from now on; what is visible follows with the next snapshot, calls at once."""
        self.filters, self._sections = filters, WeakKeyDictionary()

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Return when the call may go ahead: whatever is visible may be called.

        Raises:
            Refused: the tool is not visible; no honest path leads here.
        """
        if not self._offers(tool) or not has_right(tool, caller):
            raise Refused(tool.handle)

    def _left(
        self, caller: Caller, snapshot: CatalogSnapshot, offered: frozenset[ToolId], restricted: tuple[Tool, ...]
    ) -> frozenset[ToolId]:
        known = self._own.setdefault(snapshot, {})
        if caller.name not in known:
            if len(known) >= CALLERS_KEPT:
                known.clear()
            left = offered.difference(tool.id for tool in restricted if not has_right(tool, caller))
            known[caller.name] = next((same for same in known.values() if same == left), left)
        return known[caller.name]

    def _of(self, section: ServerSection) -> Iterable[ToolId]:
        if self._has_open_profile and self.filters.get(section.server.name, _OPEN) == _OPEN:
            return section.tools
        found = self._sections.get(section)
        if found is None:
            found = self._sections[section] = frozenset(id for id, tool in section.tools.items() if self._offers(tool))
        return found

    def _offers(self, tool: Tool) -> bool:
        """Whether the globs and the profile let a tool through, for whoever asks."""
        filter, id = self.filters.get(tool.id.server, _OPEN), tool.id
        if (filter.allow or filter.deny) and not permits_tool(filter, id.server, id.name, tool.handle):
            return False
        if self._has_open_profile:
            return True
        return self.profile.permits_server(id.server) and self.profile.permits_tool(id.name, tool.source)

    @property
    def _has_open_profile(self) -> bool:
        return self.profile.tool is None and self.profile.servers is None


def has_right(tool: Tool, caller: Caller) -> bool:
    """Whether a caller may see a tool, as far as its registry says."""
    return tool.users is None or caller.name in tool.users or EVERYBODY in tool.users
