"""Offerings are merged into the next edition, indexed, and only then published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from portico.domain.edition import EMPTY, Edition
from portico.domain.items import collect
from portico.domain.resolver import Resolver
from portico.domain.server import Offering, Server
from portico.domain.tool import Rejected, Tool, ToolId
from portico.errors import InvalidDefinition
from portico.ports import Index, IndexBuilder

from .categories import CategoryRule
from .naming import list_names, name_servers, name_tools
from .normalise import Definition, normalise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Published:
    """An edition and its index, which always agree."""

    edition: Edition
    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """One server's offering after normalising."""

    offering: Offering
    source: str
    definitions: Mapping[str, Definition]
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True, kw_only=True)
class Editions:
    """Holds the current edition and replaces it whole; readers keep the one they took."""

    build_index: IndexBuilder
    rule: CategoryRule = field(default_factory=CategoryRule)
    aliases: dict[str, str] = field(default_factory=dict)
    """Configured servers and their aliases; a server keeps its spelling while it offers nothing."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """What the config says of servers, which counts more than what they say of themselves."""
    _accepted: dict[str, _Accepted] = field(default_factory=dict)
    _current: Published | None = None
    _listeners: list[Callable[[Edition], None]] = field(default_factory=list)

    @property
    def current(self) -> Published:
        """The newest edition with its index."""
        if self._current is None:
            self._current = Published(edition=EMPTY, index=self.build_index(EMPTY, None))
        return self._current

    def accept(self, offerings: Iterable[tuple[Offering, str]]) -> Edition:
        """Take in whole offerings, each with its provider's source, and publish one edition for all of them."""
        changed = False
        for offering, source in offerings:
            known = self._accepted.get(offering.server)
            if known is None or known.offering != offering:
                self._accepted[offering.server] = _take_in(offering, source)
                self.aliases.setdefault(offering.server, "")
                changed = True
        return self._publish() if changed else self.current.edition

    def withdraw(self, server: str) -> Edition:
        """Publish an edition without a server."""
        self.aliases.pop(server, None)
        return self._publish() if self._accepted.pop(server, None) else self.current.edition

    def subscribe(self, listener: Callable[[Edition], None]) -> None:
        """Call a listener with each new edition."""
        self._listeners.append(listener)

    def _publish(self) -> Edition:
        edition = self._merge()
        previous = self._current.index if self._current else None
        self._current = Published(edition=edition, index=self.build_index(edition, previous))
        for listener in self._listeners:
            listener(edition)
        return edition

    def _merge(self) -> Edition:
        identifiers = name_servers(self.aliases)
        servers = {
            name: _server(a, identifiers[name], self.descriptions.get(name, ""))
            for name, a in sorted(self._accepted.items())
        }
        handles = {
            ToolId(name, tool): f"{server.identifier}.{spelling}"
            for name, server in servers.items()
            for tool, spelling in sorted(name_tools(self._accepted[name].definitions).items())
        }
        listed = list_names(((id, servers[id.server].source) for id in handles), set(handles.values()))
        tools = {id: self._tool(id, handle, listed[id]) for id, handle in handles.items()}
        return Edition(
            number=self.current.edition.number + 1,
            tools=tools,
            servers=servers,
            rejected=tuple(refusal for _, a in sorted(self._accepted.items()) for refusal in a.rejected),
            items=collect(servers.values()),
            resolver=Resolver(tools.values(), servers),
        )

    def _tool(self, id: ToolId, handle: str, listed: str) -> Tool:
        accepted = self._accepted[id.server]
        category = self.rule.category(id.server, id.name, accepted.source)
        tool = _tool(
            accepted.definitions[id.name], id, handle=handle, listed=listed, category=category, source=accepted.source
        )
        same = self.current.edition.tools.get(id)
        return same if same == tool else tool  # the same object, so that an index can tell what is new by identity


def _take_in(offering: Offering, source: str) -> _Accepted:
    definitions: dict[str, Definition] = {}
    rejected: list[Rejected] = []
    for raw in offering.tools:
        try:
            definition = normalise(raw)
            if definition.name in definitions:
                raise InvalidDefinition("a second tool of this name: the first one is kept")
            definitions[definition.name] = definition
        except InvalidDefinition as error:
            name = raw.get("name") if isinstance(raw, Mapping) else None
            shown = name[:80] if isinstance(name, str) and name else "(no name)"
            rejected.append(Rejected(server=offering.server, name=shown, reason=str(error)))
    return _Accepted(offering=offering, source=source, definitions=definitions, rejected=tuple(rejected))


def _server(accepted: _Accepted, identifier: str, description: str) -> Server:
    offering = accepted.offering
    return Server(
        name=offering.server,
        identifier=identifier,
        source=accepted.source,
        title=offering.title,
        version=offering.version,
        description=description or offering.description,
        instructions=offering.instructions,
        protocol=offering.protocol,
        capabilities=offering.capabilities,
        prompts=offering.prompts,
        resources=offering.resources,
        templates=offering.templates,
        limited=offering.limited,
    )


def _tool(d: Definition, id: ToolId, *, handle: str, listed: str, category: str, source: str) -> Tool:
    return Tool(
        id=id,
        handle=handle,
        listed=listed,
        description=d.description,
        input_schema=d.input_schema,
        definition={**d.raw, "name": listed},
        title=d.title,
        output_schema=d.output_schema,
        effect=d.effect,
        category=category,
        source=source,
        notes=d.notes,
    )
