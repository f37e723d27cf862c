"""An offering becomes its server's section of the snapshot: tools are named, unchanged ones stay the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from portico.domain.server import Offering, Server
from portico.domain.suggestions import LONGEST_NAME
from portico.domain.tool import Rejected, Tool, ToolId
from portico.errors import InvalidDefinition

from .categories_and_order import CategoryRule
from .naming import identifier, name_tools, strangeness, wish_names
from .normalise import Definition, normalise
from .prompts_and_resources import refusals


class SpellingTable:
    """Tools by spelling; nearly every spelling means one tool only, and the others of a shared one stand aside."""

    __slots__ = ("_first", "_others")

    def __init__(self, spelled: Iterable[tuple[str, Tool]]) -> None:
        self._first: dict[str, Tool] = {}
        self._others: dict[str, list[Tool]] = {}
        for spelling, tool in spelled:
            if self._first.setdefault(spelling, tool) is not tool:
                self._others.setdefault(spelling, []).append(tool)

    def find(self, spelling: str) -> Sequence[Tool]:
        """Every tool that is spelled so."""
        first = self._first.get(spelling)
        return () if first is None else (first, *self._others.get(spelling, ()))


class Spellings:
    """How one server's tools can be spelled, under one way of folding letters."""

    __slots__ = ("identifiers", "names", "whole")

    def __init__(self, tools: Collection[Tool], fold: Callable[[str], str]) -> None:
        handles = ((fold(tool.handle), tool) for tool in tools)
        listed = ((fold(tool.listed), tool) for tool in tools)
        names = ((fold(tool.id.name), tool) for tool in tools)
        identifiers = ((fold(tool.handle.partition(".")[2]), tool) for tool in tools)
        self.whole = SpellingTable(chain(handles, listed))
        """Those that need no server beside them."""
        self.names = SpellingTable(names)
        """The names as the server spells them."""
        self.identifiers = SpellingTable(identifiers)


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSection:
    """What one server gives to a snapshot; the same object in every snapshot until something in it changes."""

    server: Server
    tools: Mapping[ToolId, Tool]
    rejected: tuple[Rejected, ...] = ()

    @cached_property
    def exact(self) -> Spellings:
        """The spellings, letter by letter."""
        return Spellings(self.tools.values(), str)

    @cached_property
    def folded(self) -> Spellings:
        """The spellings without regard to case."""
        return Spellings(self.tools.values(), str.casefold)

    @cached_property
    def compared(self) -> tuple[list[Tool], list[str], list[str]]:
        """The tools, their handles and their bare names, as they are compared with a wrong name."""
        tools = [*self.tools.values()]
        handles = [tool.handle.casefold().replace(".", "_")[:LONGEST_NAME] for tool in tools]
        return tools, handles, [identifier(tool.id.name).casefold()[:LONGEST_NAME] for tool in tools]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """One server's offering after normalising, with the spellings that follow from it alone."""

    offering: Offering
    source: str
    definitions: Mapping[str, Definition]  # by original name
    names: Mapping[str, str]  # original names by their identifiers, in the order of the snapshot
    wishes: Mapping[str, str]  # the names in `tools/list` by original name, unless another tool wants one of them too
    rejected: tuple[Rejected, ...]
    is_strange: bool = False  # whether a name has other letters than plain ones, so that it may look like another


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionInputs:
    """All that a section follows from: as long as these are equal, so is the section."""

    accepted: Accepted
    identifier: str
    description: str  # what the config says of the server, which counts more than what it says of itself
    wishes: Mapping[str, str] = field(default_factory=dict)
    """The names in `tools/list` where they are others than the offering alone would lead to."""
    told_apart: Mapping[str, str] = field(default_factory=dict)
    """Tools that cannot be listed as they wish, with the names that they have instead."""
    shelves: Mapping[str, str] = field(default_factory=dict)  # tools that were put on a shelf one by one
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example prompts of the config by handle, which count more than those that tools bring."""
    without: frozenset[str] = frozenset()  # tools that a registered one takes the place of
    instead: Mapping[str, str] = field(default_factory=dict)
    """Registered tools that take the place of others, with whose."""
    imitations: Mapping[str, str] = field(default_factory=dict)
    """Tools whose names look like others, with those; they are refused."""


def accept_offering(offering: Offering, source: str, known: Accepted | None = None) -> Accepted:
    """Normalise an offering; a definition that is known already is not looked at again."""
    before = known.definitions if known else {}
    definitions: dict[str, Definition] = {}
    rejected: list[Rejected] = []
    for raw in offering.tools:
        try:
            definition = _known(before, raw) or normalise(raw)
            if definition.name in definitions:
                raise InvalidDefinition("a second tool of this name: the first one is kept")
            definitions[definition.name] = definition
        except InvalidDefinition as error:
            rejected.append(Rejected(server=offering.server, name=_shown(raw), reason=str(error)))
    for template, reason in refusals(offering.templates):
        rejected.append(Rejected(server=offering.server, name=template, reason=reason))
    return Accepted(
        offering=offering,
        source=source,
        definitions=definitions,
        names={identifier: name for name, identifier in name_tools(definitions).items()},
        wishes=wish_names(offering.server, definitions, source),
        rejected=tuple(rejected),
        is_strange=any(map(strangeness, definitions)),
    )


def write(terms: SectionInputs, rule: CategoryRule, known: ServerSection | None = None) -> ServerSection:
    """The section that follows from its terms; tools that say the same as before are the same objects."""
    accepted = terms.accepted
    before = known.tools if known else {}
    users = accepted.offering.users
    server = _server(terms)
    tags = {name: d.tags for name, d in accepted.definitions.items()} if accepted.source == "database" else {}
    categories = rule.categories(server.name, accepted.definitions, accepted.source, accepted.offering.title, tags)
    tools: dict[ToolId, Tool] = {}
    for spelling, name in accepted.names.items():
        if name in terms.without or name in terms.imitations:
            continue
        handle, definition = f"{server.identifier}.{spelling}", accepted.definitions[name]
        if instead := terms.instead.get(name):
            definition = definition._replace(notes=(*definition.notes, f"takes the place of {instead}"))
        tool = _tool(
            definition,
            ToolId(server.name, name),
            handle=handle,
            listed=terms.told_apart.get(name) or terms.wishes.get(name) or accepted.wishes[name],
            category=terms.shelves.get(name) or categories[name],
            source=accepted.source,
            users=None if users is None else frozenset(users.get(name, ())),
            example=terms.examples.get(f"{server.name}.{name}") or terms.examples.get(handle),
        )
        same = before.get(tool.id)
        tools[tool.id] = same if same is not None and same == tool else tool
    return ServerSection(server=server, tools=tools, rejected=(*accepted.rejected, *_imitating(server.name, terms)))


def _imitating(server: str, terms: SectionInputs) -> list[Rejected]:
    reason = "its name looks like {!r}, which is another one's: rename it in letters that cannot be mistaken"
    return [
        Rejected(server=server, name=ascii(name)[1:-1][:80], reason=reason.format(like))
        for name, like in sorted(terms.imitations.items())
    ]


def _known(before: Mapping[str, Definition], raw: object) -> Definition | None:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    found = before.get(name) if isinstance(name, str) else None
    return found if found is not None and found.given == raw else None


def _shown(raw: object) -> str:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    return name[:80] if isinstance(name, str) and name else "(no name)"


def _server(terms: SectionInputs) -> Server:
    offering = terms.accepted.offering
    return Server(
        name=offering.server,
        identifier=terms.identifier,
        source=terms.accepted.source,
        title=offering.title,
        version=offering.version,
        description=terms.description or offering.description,
        instructions=offering.instructions,
        protocol=offering.protocol,
        capabilities=offering.capabilities,
        prompts=offering.prompts,
        resources=offering.resources,
        templates=offering.templates,
        limited=offering.limited,
    )


def _tool(
    d: Definition,
    id: ToolId,
    *,
    handle: str,
    listed: str,
    category: str,
    source: str,
    users: frozenset[str] | None,
    example: str | None,
) -> Tool:
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
        tags=d.tags,
        example=example or _own_example(d),
        users=users,
    )


def _own_example(d: Definition) -> str:
    meta = d.raw.get("_meta")
    example = meta.get("example") if isinstance(meta, Mapping) else None
    return example if isinstance(example, str) else ""
