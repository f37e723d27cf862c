"""Which tools a caller sees: allow and deny patterns, profiles, and the rights of end users."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from portico.domain.call import Caller
from portico.domain.profile import OPEN, Profile
from portico.domain.server import ToolFilter
from portico.domain.snapshot import CatalogSnapshot, ServerSection
from portico.domain.tool import Tool, ToolId, identifier
from portico.errors import Refused
from portico.protocols import Policy

_SEPARATORS = ("::", "__", ".", "/", ":")
"""What stands between a server and a tool in one of the spellings."""
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
    for separator in _SEPARATORS:
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


@dataclass(slots=True)
class GlobPolicy:
    """What the config's `tools: {allow, deny}` leave of each server, the same for every caller."""

    filters: Mapping[str, ToolFilter] = field(default_factory=dict)
    _visible: WeakKeyDictionary[CatalogSnapshot, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _permitted: WeakKeyDictionary[ServerSection, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """The tools that the globs let through; worked out once per section and put together once per snapshot."""
        found = self._visible.get(snapshot)
        if found is None:
            found = frozenset().union(*map(self._of, snapshot.sections.values()))
            self._visible[snapshot] = found
        return found

    def _of(self, section: ServerSection) -> Iterable[ToolId]:
        if self.filters.get(section.server.name, _OPEN) == _OPEN:
            return section.tools
        found = self._permitted.get(section)
        if found is None:
            found = frozenset(id for id, tool in section.tools.items() if self._permits(tool))
            self._permitted[section] = found
        return found

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Whatever is visible may be called.

        Raises:
            Refused: the tool is filtered out; no honest path leads here, since it is not visible either.
        """
        if not self._permits(tool):
            raise Refused(tool.handle)

    def _permits(self, tool: Tool) -> bool:
        filter = self.filters.get(tool.id.server)
        is_open = filter is None or not (filter.allow or filter.deny)
        return is_open or permits_tool(filter, tool.id.server, tool.id.name, tool.handle)


PROFILES_KEPT = 64
"""How many different sets of the inner policy are remembered for one snapshot."""


@dataclass(slots=True)
class ProfilePolicy:
    """Narrows what an inner policy shows to what a profile offers, the same for every caller."""

    inner: Policy
    profile: Profile = OPEN
    _offered: WeakKeyDictionary[CatalogSnapshot, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _permitted: WeakKeyDictionary[ServerSection, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _visible: WeakKeyDictionary[CatalogSnapshot, dict[frozenset[ToolId], frozenset[ToolId]]] = field(
        default_factory=WeakKeyDictionary
    )

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """What the inner policy shows of what is offered; the same object while both stay the same."""
        shown = self.inner.visible(caller, snapshot)
        if self.profile.tool is None and self.profile.servers is None:
            return shown
        known = self._visible.setdefault(snapshot, {})
        key = frozenset(shown)
        if key not in known:
            if len(known) >= PROFILES_KEPT:
                known.clear()
            known[key] = key & self._offered_by(snapshot)
        return known[key]

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Ask the inner policy about a tool that is offered.

        Raises:
            Refused: the tool is not offered, or the inner policy refuses the call.
        """
        if not self._permits(tool):
            raise Refused(tool.handle)
        self.inner.admit(caller, tool, arguments)

    def permits_prompt(self, name: str) -> bool:
        """Whether a prompt is offered, by its original name."""
        return self.profile.permits_prompt(name)

    def permits_resource(self, uri: str) -> bool:
        """Whether a resource or template is offered, by its original URI."""
        return self.profile.permits_resource(uri)

    def _offered_by(self, snapshot: CatalogSnapshot) -> frozenset[ToolId]:
        found = self._offered.get(snapshot)
        if found is None:
            found = frozenset().union(*map(self._of, snapshot.sections.values()))
            self._offered[snapshot] = found
        return found

    def _of(self, section: ServerSection) -> Iterable[ToolId]:
        found = self._permitted.get(section)
        if found is None:
            found = frozenset(id for id, tool in section.tools.items() if self._permits(tool))
            self._permitted[section] = found
        return found

    def _permits(self, tool: Tool) -> bool:
        return self.profile.permits_server(tool.id.server) and self.profile.permits_tool(tool.id.name, tool.source)


EVERYBODY = "*"
RIGHTS_KEPT = 256
"""How many callers' sets are remembered for one snapshot."""

_Sets = dict[tuple[str, frozenset[ToolId]], frozenset[ToolId]]


@dataclass(slots=True)
class UserPolicy:
    """Narrows what an inner policy shows to what a registry gives to the caller, by name.

    The rights belong to the tools of a snapshot, so that a revoked one is gone with the next, everywhere at once.
    """

    inner: Policy
    _restricted: WeakKeyDictionary[CatalogSnapshot, tuple[Tool, ...]] = field(default_factory=WeakKeyDictionary)
    _visible: WeakKeyDictionary[CatalogSnapshot, _Sets] = field(default_factory=WeakKeyDictionary)

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """What the inner policy shows, without the tools that are others' alone; the same object for the same set."""
        shown = self.inner.visible(caller, snapshot)
        restricted = self._restricted_in(snapshot)
        if not restricted:
            return shown
        known = self._visible.setdefault(snapshot, {})
        key = (caller.name, frozenset(shown))
        if key not in known:
            if len(known) >= RIGHTS_KEPT:
                known.clear()
            left = key[1].difference(tool.id for tool in restricted if not permits(tool, caller))
            known[key] = next((same for same in known.values() if same == left), left)
        return known[key]

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Ask the inner policy about a tool that is the caller's.

        Raises:
            Refused: it is others' alone, or the inner policy refuses the call.
        """
        if not permits(tool, caller):
            raise Refused(tool.handle)
        self.inner.admit(caller, tool, arguments)

    def _restricted_in(self, snapshot: CatalogSnapshot) -> tuple[Tool, ...]:
        found = self._restricted.get(snapshot)
        if found is None:
            found = self._restricted[snapshot] = tuple(_restricted(snapshot.tools.values()))
        return found


def permits(tool: Tool, caller: Caller) -> bool:
    """Whether a caller may see a tool, as far as its registry says."""
    return tool.users is None or caller.name in tool.users or EVERYBODY in tool.users


def _restricted(tools: Iterable[Tool]) -> Iterable[Tool]:
    return (tool for tool in tools if tool.users is not None and EVERYBODY not in tool.users)
