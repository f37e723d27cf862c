"""Every server and tool gets its spellings: injective, deterministic, the same after a restart."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from itertools import chain

from portico.domain.names import LISTED_LIMIT, META_TOOLS, Owners, distinct, identifier, listable, server_identifier
from portico.domain.tool import ToolId

BARE = frozenset({"local", "database"})
"""The sources whose tools are listed without their server."""


def name_servers(aliases: Mapping[str, str]) -> dict[str, str]:
    """Identifiers for servers; `aliases` maps each configured name to its alias, or to an empty string."""
    return distinct((name, server_identifier(alias or name)) for name, alias in aliases.items())


def name_tools(names: Iterable[str]) -> dict[str, str]:
    """Identifiers for the tools of one server, in sorted order of their names."""
    return distinct((name, identifier(name)) for name in names)


def wish_names(server: str, names: Iterable[str], source: str) -> dict[str, str]:
    """The name that each tool of a server has in `tools/list`, unless another tool wants it too.

    A tool of our own or of a registry is listed bare, unless a surface lists a tool of its own under that name.
    """
    prefix = f"{listable(server)}__"
    return {name: _wish(prefix, ToolId(server, name), source) for name in names}


def prefixed(server: str, name: str) -> str:
    """The name in `tools/list` that tells the server too."""
    return _fitted(f"{listable(server)}__{listable(name)}", ToolId(server, name))


class Apart:
    """Names in `tools/list` that speak for no other server; worked out again only for servers that have changed."""

    def __init__(self) -> None:
        self._identifiers: Mapping[str, str] = {}
        self._owners = Owners({})
        self._known: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {}

    def of(
        self, wishes: Mapping[str, Mapping[str, str]], identifiers: Mapping[str, str]
    ) -> dict[str, Mapping[str, str]]:
        """The names of every server's tools, by server."""
        if identifiers != self._identifiers:
            self._identifiers, self._owners, self._known = identifiers, Owners(identifiers), {}
        known = self._known
        self._known = {
            server: known[server]
            if server in known and known[server][0] is own
            else (own, spell_apart(server, own, self._owners))
            for server, own in wishes.items()
        }
        return {server: found for server, (_, found) in self._known.items()}


def spell_apart(server: str, wishes: Mapping[str, str], owners: Owners) -> Mapping[str, str]:
    """The same names, but for those that would speak for another server, which say whose they really are."""
    begin = f"{listable(server)}__"
    if all(wish.startswith(begin) for wish in wishes.values()) and not owners.begins_another(listable(server), server):
        return wishes
    foreign = {name for name, wish in wishes.items() if owners.speaks_for_another(wish, server)}
    if not foreign:
        return wishes
    return {name: _marked(server, name) if name in foreign else wish for name, wish in wishes.items()}


def _marked(server: str, name: str) -> str:
    id = ToolId(server, name)
    return f"{prefixed(server, name)[: LISTED_LIMIT - 21]}_{_hash(id)}"


def tell_apart(wishes: Mapping[str, Mapping[str, str]], handles: Container[str]) -> dict[str, dict[str, str]]:
    """Other names, by server and tool, for those that cannot be listed as they wish.

    Two tools are never listed under one name, and none under the handle of any tool. Only a contested wish is looked
    at again: which suffix it leads to depends on those who share it, and on what all others want.
    """
    wanted = Counter(chain.from_iterable(own.values() for own in wishes.values()))
    contested = {wish for wish, count in wanted.items() if count > 1 or ("." in wish and wish in handles)}
    shared = {
        (server, name): wish
        for server, own in (wishes.items() if contested else ())
        for name, wish in own.items()
        if wish in contested
    }
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (server, name), listed in distinct(shared.items(), taken=handles, wanted=wanted).items():
        if listed != shared[server, name]:
            found[server][name] = listed
    return found


class Handles:
    """Every handle there is, known by its two halves: a server's identifier, and one among its tools' identifiers."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Mapping[str, Container[str]]) -> None:
        self._tools = tools

    def __contains__(self, spelling: object) -> bool:
        server, _, tool = str(spelling).partition(".")
        return tool in self._tools.get(server, ())


def _wish(prefix: str, id: ToolId, source: str) -> str:
    bare = listable(id.name)
    if source in BARE and identifier(bare) not in META_TOOLS:
        return _fitted(bare, id)
    return _fitted(prefix + bare, id)


def _fitted(spelling: str, id: ToolId) -> str:
    """A name over the limit is cut and marked with a hash of the whole, so that no cut merges two tools."""
    room = LISTED_LIMIT - 8  # for the `_2` of a collision
    if len(spelling) <= room:
        return spelling
    return f"{spelling[: room - 13]}_{_hash(id)}"


def _hash(id: ToolId) -> str:
    return hashlib.sha256(f"{id.server}\0{id.name}".encode()).hexdigest()[:12]
