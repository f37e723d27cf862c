"""Server sections are put together to the next snapshot, indexed, and only then published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from portico.domain.foreign_text import imitations
from portico.domain.items import Items, collect
from portico.domain.profile import CODE
from portico.domain.server import Offering, Server
from portico.domain.snapshot import EMPTY, CatalogSnapshot, ServerSection, bind
from portico.domain.tool import META_TOOLS, ToolId
from portico.protocols import Index, IndexBuilder

from .categories import CategoryRule
from .sections import (
    Accepted,
    Apart,
    Handles,
    SectionInputs,
    accept_offering,
    name_servers,
    prefixed,
    tell_apart,
    write,
)

REGISTRY = "database"
"""The source of registered tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Which code tools give way, and what all tools of a snapshot would like to be listed as then."""

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


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Published:
    """A snapshot and its index, which always agree."""

    snapshot: CatalogSnapshot
    index: Index


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Holds the current snapshot and replaces it whole; readers keep the one they took."""

    build_index: IndexBuilder
    rule: CategoryRule = field(default_factory=CategoryRule)
    aliases: dict[str, str] = field(default_factory=dict)
    """Configured servers and their aliases; a server keeps its spelling while it offers nothing."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """What the config says of servers, which counts more than what they say of themselves."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example prompts that the config gives, by handle."""
    overriding: set[str] = field(default_factory=set)
    """Databases whose registered tools take the place of code tools of the same name."""
    _overridden: Mapping[ToolId, ToolId] = field(default_factory=dict)
    _accepted: dict[str, Accepted] = field(default_factory=dict)
    _terms: dict[str, SectionInputs] = field(default_factory=dict)
    """Those of the current snapshot's sections."""
    _shelves: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _apart: Apart = field(default_factory=Apart)
    _current: Published | None = None
    _listeners: list[Callable[[CatalogSnapshot], None]] = field(default_factory=list)

    @property
    def current(self) -> Published:
        """The newest snapshot with its index."""
        if self._current is None:
            self._current = Published(snapshot=EMPTY, index=self.build_index(EMPTY, None))
        return self._current

    def accept(self, offerings: Iterable[tuple[Offering, str]]) -> CatalogSnapshot:
        """Take in whole offerings, each with its provider's source, and publish one snapshot for all of them."""
        changed = False
        for offering, source in offerings:
            known = self._accepted.get(offering.server)
            if known is None or known.offering != offering:
                self._accepted[offering.server] = accept_offering(offering, source, known)
                self.aliases.setdefault(offering.server, "")
                changed = True
        return self._publish() if changed else self.current.snapshot

    def withdraw(self, server: str) -> CatalogSnapshot:
        """Publish a snapshot without a server."""
        self.aliases.pop(server, None)
        return self._publish() if self._accepted.pop(server, None) else self.current.snapshot

    def shelve(self, id: ToolId, category: str) -> CatalogSnapshot:
        """Put one tool on a shelf whatever the rule says, at once or when it comes."""
        self._shelves[id.server] = {**self._shelves.get(id.server, {}), id.name: category}
        same = self.current.snapshot.tools.get(id)
        return self._publish() if same and same.category != category else self.current.snapshot

    def subscribe(self, listener: Callable[[CatalogSnapshot], None]) -> None:
        """Call a listener with each new snapshot."""
        self._listeners.append(listener)

    def _publish(self) -> CatalogSnapshot:
        terms = self._settle()
        sections = self._write(terms)
        snapshot = bind(self.current.snapshot.number + 1, sections, self._items(sections))
        index = self.build_index(snapshot, self.current.index)
        self._current, self._terms = Published(snapshot=snapshot, index=index), terms
        for listener in self._listeners:
            listener(snapshot)
        return snapshot

    def _settle(self) -> dict[str, SectionInputs]:
        """What each section follows from; only here does one server's offering matter to another's."""
        accepted = dict(sorted(self._accepted.items()))
        identifiers = name_servers(self.aliases)
        overrides = settle_overrides(accepted, self.overriding)
        self._tell(overrides)
        imitating = self._imitations(accepted, identifiers)
        wishes = self._apart.of(overrides.wishes, identifiers)
        told_apart = tell_apart(
            wishes,
            Handles({identifiers[name]: a.names for name, a in accepted.items()}),
        )
        return {
            name: SectionInputs(
                accepted=a,
                identifier=identifiers[name],
                description=self.descriptions.get(name, ""),
                wishes={} if wishes[name] is a.wishes else wishes[name],
                told_apart=told_apart.get(name, {}),
                shelves=self._shelves.get(name, {}),
                examples=self.examples,
                without=overrides.without(name),
                instead=overrides.instead(name),
                imitations=imitating.get(name, {}),
            )
            for name, a in accepted.items()
        }

    def _imitations(
        self, accepted: Mapping[str, Accepted], identifiers: Mapping[str, str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Tools whose names look like others'; names in plain letters are not even compared."""
        if not any(a.is_strange for a in accepted.values()):
            return {}
        known = [*identifiers, *identifiers.values(), *META_TOOLS]
        return imitations({name: a.definitions for name, a in accepted.items()}, known)

    def _tell(self, overrides: Overrides) -> None:
        """Say which tools have given way since the last snapshot."""
        for id, by in overrides.taken.items():
            if self._overridden.get(id) != by:
                logger.warning("%s from the registry takes the place of the code tool %s", by, id)
        self._overridden = overrides.taken

    def _write(self, terms: Mapping[str, SectionInputs]) -> dict[str, ServerSection]:
        """The sections, in a fixed order; one whose terms are the same is not written again."""
        before = self.current.snapshot.sections
        return {
            name: before[name] if own == self._terms.get(name) else write(own, self.rule, before.get(name))
            for name, own in terms.items()
        }

    def _items(self, sections: Mapping[str, ServerSection]) -> Items:
        """Prompts and resources, gathered again only when one of their servers has changed."""
        now, before = _givers(sections), _givers(self.current.snapshot.sections)
        identifiers = name_servers(self.aliases)
        known = self.current.snapshot.items
        return known if now == before and identifiers == known.identifiers else collect(now, identifiers)


def _givers(sections: Mapping[str, ServerSection]) -> list[Server]:
    """The servers that offer something beside tools, be it what they say of themselves."""
    servers = (section.server for section in sections.values())
    return [own for own in servers if own.prompts or own.resources or own.templates or own.instructions]
