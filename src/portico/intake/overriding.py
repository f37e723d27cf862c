"""Tools of a registry may take the place of code tools that are called the same; other servers' tools never change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from portico.domain.profile import CODE
from portico.domain.tool import ToolId

from .chapters import Accepted
from .naming import prefixed

REGISTRY = "database"
"""The source of registered tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Which code tools give way, and what all tools of an edition would like to be listed as then."""

    taken: Mapping[ToolId, ToolId] = field(default_factory=dict)
    """Code tools, each with the registered tool that takes its place."""
    wishes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def without(self, server: str) -> frozenset[str]:
        """The tools of a server that are not offered."""
        return frozenset(id.name for id in self.taken if id.server == server)

    def instead(self, server: str) -> dict[str, str]:
        """The tools of a server that stand in another's place, each with whose."""
        return {by.name: f"{id.server}.{id.name}" for id, by in self.taken.items() if by.server == server}


def settle_overrides(accepted: Mapping[str, Accepted], overriding: Collection[str]) -> Overrides:
    """Settle who is listed under a name that code and a registry share.

    Where a registry may not override, the code tool keeps the name and the registered one is listed with its server.
    """
    registries = [name for name, own in accepted.items() if own.source == REGISTRY]
    if not registries:
        return Overrides(wishes={name: own.wishes for name, own in accepted.items()})
    code: dict[str, list[ToolId]] = {}
    for server, own in accepted.items():
        for name, wish in own.wishes.items() if own.source in CODE else ():
            code.setdefault(wish, []).append(ToolId(server, name))
    taken = {
        id: ToolId(server, name)
        for server in reversed(registries)  # of several the first in order wins
        if server in overriding
        for name, wish in accepted[server].wishes.items()
        for id in code.get(wish, ())
    }
    kept = {wish for wish, ids in code.items() if ids[0] not in taken}
    return Overrides(taken=taken, wishes={name: _wishes(name, own, taken, kept) for name, own in accepted.items()})


def _wishes(server: str, own: Accepted, taken: Mapping[ToolId, ToolId], kept: Collection[str]) -> Mapping[str, str]:
    """The same object where nothing is contested."""
    if own.source == REGISTRY:
        contested = {name: prefixed(server, name) for name, wish in own.wishes.items() if wish in kept}
        return {**own.wishes, **contested} if contested else own.wishes
    gone = {id.name for id in taken if id.server == server}
    return {name: wish for name, wish in own.wishes.items() if name not in gone} if gone else own.wishes
