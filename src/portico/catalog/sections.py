"""An offering becomes its server's section of the snapshot: tools are named, unchanged ones stay the same."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from portico.domain.foreign_text import strangeness
from portico.domain.items import refusals
from portico.domain.server import Offering, Server
from portico.domain.snapshot import ServerSection
from portico.domain.tool import (
    LISTED_LIMIT,
    META_TOOLS,
    Owners,
    Rejected,
    Tool,
    ToolId,
    distinct,
    identifier,
    listable,
    server_identifier,
)
from portico.errors import InvalidDefinition

from .categories import CategoryRule
from .normalise import Definition, normalise

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """One server's offering after normalising, with the spellings that follow from it alone."""

    offering: Offering
    source: str
    definitions: Mapping[str, Definition]
    """By original name."""
    names: Mapping[str, str]
    """Original names by their identifiers, in the order of the snapshot."""
    wishes: Mapping[str, str]
    """The names in `tools/list` by original name, unless another tool wants one of them too."""
    rejected: tuple[Rejected, ...]
    is_strange: bool = False
    """Whether a name has other letters than plain ones, so that it may look like another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionInputs:
    """All that a section follows from: as long as these are equal, so is the section."""

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
    return ServerSection(server=server, tools=tools, rejected=(*accepted.rejected, *_imitating(server.name, terms)))


def _imitating(server: str, terms: SectionInputs) -> list[Rejected]:
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
