"""An offering becomes its server's section of the snapshot; unchanged tools stay the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from portico.domain.foreign_text import strangeness
from portico.domain.items import refusals
from portico.domain.section import Chapter
from portico.domain.server import Offering, Server
from portico.domain.tool import Rejected, Tool, ToolId
from portico.errors import InvalidDefinition

from .categories import CategoryRule
from .naming import name_tools, wish_names
from .normalise import Definition, normalise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """One server's offering after normalising, with the spellings that follow from it alone."""

    offering: Offering
    source: str
    definitions: Mapping[str, Definition]
    """By original name."""
    names: Mapping[str, str]
    """Original names by their identifiers, in the order of the edition."""
    wishes: Mapping[str, str]
    """The names in `tools/list` by original name, unless another tool wants one of them too."""
    rejected: tuple[Rejected, ...]
    is_strange: bool = False
    """Whether a name has other letters than plain ones, so that it may look like another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """All that a chapter follows from: as long as these are equal, so is the chapter."""

    accepted: Accepted
    identifier: str
    description: str
    """What the config says of the server, which counts more than what it says of itself."""
    wishes: Mapping[str, str] = field(default_factory=dict)
    """The names in `tools/list` where they are others than the offering alone would lead to."""
    told_apart: Mapping[str, str] = field(default_factory=dict)
    """Tools that cannot be listed as they wish, with the names that they have instead."""
    shelves: Mapping[str, str] = field(default_factory=dict)
    """Tools that were put on a shelf one by one."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example prompts of the config by handle, which count more than those that tools bring."""
    without: frozenset[str] = frozenset()
    """Tools that a registered one takes the place of."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Registered tools that take the place of others, with whose."""
    imitations: Mapping[str, str] = field(default_factory=dict)
    """Tools whose names look like others, with those; they are refused."""


def take_in(offering: Offering, source: str, known: Accepted | None = None) -> Accepted:
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


def write(terms: Terms, rule: CategoryRule, known: Chapter | None = None) -> Chapter:
    """The chapter that follows from its terms; tools that say the same as before are the same objects."""
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
        handle = f"{server.identifier}.{spelling}"
        tool = _tool(
            _noted(accepted.definitions[name], terms.instead.get(name)),
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
    return Chapter(server=server, tools=tools, rejected=(*accepted.rejected, *_imitating(server.name, terms)))


def _imitating(server: str, terms: Terms) -> list[Rejected]:
    reason = "its name looks like {!r}, which is another one's: rename it in letters that cannot be mistaken"
    return [
        Rejected(server=server, name=ascii(name)[1:-1][:80], reason=reason.format(like))
        for name, like in sorted(terms.imitations.items())
    ]


def _noted(definition: Definition, instead: str | None) -> Definition:
    if not instead:
        return definition
    return definition._replace(notes=(*definition.notes, f"takes the place of {instead}"))


def _known(before: Mapping[str, Definition], raw: object) -> Definition | None:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    found = before.get(name) if isinstance(name, str) else None
    return found if found is not None and found.given == raw else None


def _shown(raw: object) -> str:
    name = raw.get("name") if isinstance(raw, Mapping) else None
    return name[:80] if isinstance(name, str) and name else "(no name)"


def _server(terms: Terms) -> Server:
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
