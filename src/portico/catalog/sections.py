"""An offering becomes its server's section of the snapshot: overridden, named, and the same where nothing changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

from portico.domain.server import Offering, Server
from portico.domain.suggestions import LONGEST_NAME, nearest_names
from portico.domain.tool import OverriddenTool, Rejected, Tool, ToolId, ToolOverride
from portico.errors import ConfigError, InvalidDefinition

from .categories_and_order import CategoryRule
from .naming import identifier, name_tools, strangeness, wish_names
from .normalise import Definition, fingerprint_of, normalise, override_definition
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

    __slots__ = ("identifiers", "names", "originals", "whole")

    def __init__(self, tools: Collection[Tool], fold: Callable[[str], str]) -> None:
        handles = ((fold(tool.handle), tool) for tool in tools)
        listed = ((fold(tool.listed), tool) for tool in tools)
        names = ((fold(tool.name), tool) for tool in tools)
        originals = (
            (fold(name), tool)
            for tool in tools
            if tool.name != tool.id.name
            for name in {tool.id.name, identifier(tool.id.name)}
        )
        identifiers = ((fold(tool.handle.partition(".")[2]), tool) for tool in tools)
        self.whole = SpellingTable(chain(handles, listed))
        """Those that need no server beside them."""
        self.names = SpellingTable(names)
        """The names as the server spells them, or overrides do."""
        self.originals = SpellingTable(originals)
        """The server's own names of those that overrides give another."""
        self.identifiers = SpellingTable(identifiers)


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSection:
    """What one server gives to a snapshot; the same object in every snapshot until something in it changes."""

    server: Server
    tools: Mapping[ToolId, Tool]
    rejected: tuple[Rejected, ...] = ()
    switched_off: tuple[Tool, ...] = ()
    """What overrides take away, as the server defines it."""
    overrides: AppliedOverrides = field(default_factory=lambda: AppliedOverrides())

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
        return tools, handles, [identifier(tool.name).casefold()[:LONGEST_NAME] for tool in tools]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """One server's offering after normalising, with the spellings that follow from it alone."""

    offering: Offering
    source: str
    definitions: Mapping[str, Definition]  # by original name, as agents are to see them
    names: Mapping[str, str]  # original names by their identifiers, in the order of the snapshot
    wishes: Mapping[str, str]  # the names in `tools/list` by original name, unless another tool wants one of them too
    rejected: tuple[Rejected, ...]
    originals: Mapping[str, Definition]  # the same before overrides, those that are switched off included
    overrides: AppliedOverrides
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedOverrides:
    """What holds of a server's overrides, by original name, and what is to be said of the rest."""

    holding: Mapping[str, ToolOverride] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()
    """What cannot hold, each with its place."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Tools that are left out because what hides a parameter of theirs cannot hold."""
    changed: tuple[str, ...] = ()
    """Tools whose servers define them otherwise than when their overrides were first applied."""


class FitValues(Protocol):
    """Says which values the properties of a schema take."""

    def __call__(
        self, schema: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """The values as they are to be sent, and what is wrong with the others."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverrides:
    """The overrides of the config, by server and original name."""

    servers: Mapping[str, Mapping[str, ToolOverride]] = field(default_factory=dict)
    fit: FitValues = lambda schema, values: (values, {})

    def stamp(self, offering: Offering, before: Offering | None) -> Offering:
        """The offering with what overrides met first: what is noted stays until the override is written anew."""
        own = self.servers.get(offering.server, {})
        if not own:
            return replace(offering, seen={}) if offering.seen else offering
        tools, earlier = _by_name(offering), _by_name(before) if before else {}
        seen: dict[str, str] = {}
        for name, override in own.items():
            noted = (each.seen.get(name, "") for each in (offering, before) if each)
            if kept := next((note for note in noted if note.startswith(f"{override.mark}:")), ""):
                seen[name] = kept  # also of a tool that is away for a while
            elif name in tools:
                seen[name] = f"{override.mark}:{_mark(earlier.get(name, tools[name]))}"
        return replace(offering, seen=seen) if seen != offering.seen else offering

    def apply(self, offering: Offering, definitions: Mapping[str, Definition]) -> AppliedOverrides:
        """What holds of a server's overrides."""
        own = self.servers.get(offering.server, {})
        if not own:
            return AppliedOverrides()
        problems: list[ConfigError] = []
        refused: dict[str, str] = {}
        holding: dict[str, ToolOverride] = {}
        for name, override in own.items():
            if name not in definitions:
                problems.append(_not_offered(override, name, definitions))
                continue
            holding[name], own_problems = self._fitted(override, definitions[name])
            problems += own_problems
            if override.hidden.keys() != holding[name].hidden.keys():
                refused[name] = f"its override hides a parameter that cannot be set: {own_problems[-1].problem}"
                holding[name] = replace(override, enabled=False)
        named, clashes = _without_clashes(holding, definitions)
        changed = tuple(
            name
            for name in named
            if (noted := offering.seen.get(name)) and noted.partition(":")[2] != _mark(definitions[name].given)
        )
        return AppliedOverrides(
            holding=named, problems=(*problems, *clashes), refused=refused, changed=tuple(sorted(changed))
        )

    def _fitted(self, override: ToolOverride, definition: Definition) -> tuple[ToolOverride, list[ConfigError]]:
        """The override with the values that its tool takes; what hides a parameter is looked at last."""
        problems: list[ConfigError] = []
        found: dict[str, Mapping[str, Any]] = {}
        properties = definition.input_schema.get("properties", {})
        for key in ("defaults", "hidden"):
            given: Mapping[str, Any] = getattr(override, key)
            known = {name: value for name, value in given.items() if name in properties}
            for name in sorted(given.keys() - known.keys()):
                fix = _suggested(name, properties) if properties else "Delete it: the tool has no parameters."
                problems.append(_problem(override, "the tool has no such parameter", key, name, fix=fix))
            values, misfits = self.fit(definition.input_schema, known) if known else ({}, {})
            for name, said in misfits.items():
                fix = "Write a value that its schema allows: portico describe --original shows it."
                problems.append(_problem(override, f"its schema refuses this value: {said}", key, name, fix=fix))
            found[key] = {name: value for name, value in values.items() if name not in misfits}
        return replace(override, defaults=found["defaults"], hidden=found["hidden"]), problems


def _without_clashes(
    overrides: Mapping[str, ToolOverride], definitions: Mapping[str, Definition]
) -> tuple[dict[str, ToolOverride], list[ConfigError]]:
    """The overrides without the names that another tool has; a tool that gets its own name back may clash anew."""
    holding, problems = dict(overrides), list[ConfigError]()
    while True:
        shown = {name: holding.get(name, _NOTHING) for name in definitions}
        names = {name: identifier(own.name or name) for name, own in shown.items() if own.enabled}
        shared = Counter(names.values())
        clashes = sorted(
            name for name in names.keys() & holding.keys() if holding[name].name and shared[names[name]] > 1
        )
        if not clashes:
            return holding, problems
        for name in clashes:
            others = ", ".join(sorted(repr(other) for other in names if names[other] == names[name] and other != name))
            fix = f"Choose another name; {name!r} keeps its own until then."
            problems.append(_problem(holding[name], f"this is the name of {others} too", "name", fix=fix))
            holding[name] = replace(holding[name], name="")


_NOTHING = ToolOverride()


def _not_offered(override: ToolOverride, name: str, definitions: Mapping[str, Definition]) -> ConfigError:
    fix = _suggested(name, definitions) if definitions else "Delete it: the server has no tools."
    return _problem(override, "the server offers no such tool", fix=fix)


def _suggested(name: str, known: Iterable[str]) -> str:
    """What to write instead of a name that nothing has: the nearest ones, or some that there are."""
    names = sorted(known)
    near = nearest_names(name, names, limit=3)
    some = ", ".join(names[:SUGGESTED]) + (", ..." if len(names) > SUGGESTED else "")
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else f"There are: {some}."


SUGGESTED = 10  # names that a problem lists where none is near


def _problem(override: ToolOverride, problem: str, *key: str, fix: str) -> ConfigError:
    """A problem with one key of an override, and where that stands."""
    written = override.written
    line = written.lines.get(".".join(key)) or written.lines.get("")
    where = ".".join((written.where, *key))
    return ConfigError(problem, file=written.file or None, line=line, where=where, fix=fix)


def _by_name(offering: Offering) -> dict[str, Mapping[str, Any]]:
    """The first definition of each name, which is the one that counts."""
    found: dict[str, Mapping[str, Any]] = {}
    for raw in offering.tools:
        if isinstance(raw, Mapping) and isinstance(raw.get("name"), str):
            found.setdefault(raw["name"], raw)
    return found


def _mark(definition: Mapping[str, Any]) -> str:
    with suppress(TypeError, RecursionError):  # what is no JSON is refused where it is normalised
        return fingerprint_of(definition)
    return ""


NO_OVERRIDES = ToolOverrides()


def accept_offering(
    offering: Offering, source: str, known: Accepted | None = None, overrides: ToolOverrides = NO_OVERRIDES
) -> Accepted:
    """Normalise an offering and apply overrides; a definition that is known already is not looked at again."""
    before = known.originals if known else {}
    originals: dict[str, Definition] = {}
    rejected: list[Rejected] = []
    for raw in offering.tools:
        try:
            definition = _known(before, raw) or normalise(raw)
            if definition.name in originals:
                raise InvalidDefinition("a second tool of this name: the first one is kept")
            originals[definition.name] = definition
        except InvalidDefinition as error:
            rejected.append(Rejected(server=offering.server, name=_shown(raw), reason=str(error)))
    for template, reason in refusals(offering.templates):
        rejected.append(Rejected(server=offering.server, name=template, reason=reason))
    applied = overrides.apply(offering, originals)
    rejected += [Rejected(server=offering.server, name=name, reason=why) for name, why in applied.refused.items()]
    definitions = _overridden(originals, applied.holding)
    shown = {definition.name: name for name, definition in definitions.items()}
    wishes = wish_names(offering.server, shown, source)
    return Accepted(
        offering=offering,
        source=source,
        definitions=definitions,
        names={identifier: shown[name] for name, identifier in name_tools(shown).items()},
        wishes={shown[name]: wish for name, wish in wishes.items()},
        rejected=tuple(rejected),
        originals=originals,
        overrides=applied,
        is_strange=any(map(strangeness, shown)),
    )


def _overridden(originals: Mapping[str, Definition], overrides: Mapping[str, ToolOverride]) -> Mapping[str, Definition]:
    """The definitions as agents see them; the same object where nothing is overridden."""
    if not overrides:
        return originals
    return {
        name: override_definition(definition, overrides[name]) if name in overrides else definition
        for name, definition in originals.items()
        if name not in overrides or overrides[name].enabled
    }


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
        handle, definition = f"{server.identifier}.{spelling}", accepted.definitions[name]
        if name in terms.without or definition.name in terms.imitations:
            continue
        if instead := terms.instead.get(name):
            definition = definition._replace(notes=(*definition.notes, f"takes the place of {instead}"))
        override = accepted.overrides.holding.get(name)
        tool = _tool(
            definition,
            ToolId(server.name, name),
            handle=handle,
            listed=terms.told_apart.get(name) or terms.wishes.get(name) or accepted.wishes[name],
            category=(override.category if override else "") or terms.shelves.get(name) or categories[name],
            source=accepted.source,
            users=None if users is None else frozenset(users.get(name, ())),
            example=terms.examples.get(f"{server.name}.{name}") or terms.examples.get(handle),
        )
        if override is not None:
            tool = _with_override(tool, override, _original(terms, name, rule))
        same = before.get(tool.id)
        tools[tool.id] = same if same is not None and same == tool else tool
    return ServerSection(
        server=server,
        tools=tools,
        rejected=(*accepted.rejected, *_imitating(server.name, terms)),
        switched_off=tuple(
            _original(terms, name, rule) for name, own in accepted.overrides.holding.items() if not own.enabled
        ),
        overrides=accepted.overrides,
    )


def _with_override(tool: Tool, override: ToolOverride, original: Tool) -> OverriddenTool:
    fields = {name: getattr(tool, name) for name in Tool.__dataclass_fields__}
    return OverriddenTool(**fields, override=override, original=original)


def _original(terms: SectionInputs, name: str, rule: CategoryRule) -> Tool:
    """A tool as its server defines it, under the names that it would have then."""
    accepted, server = terms.accepted, terms.accepted.offering.server
    return _tool(
        accepted.originals[name],
        ToolId(server, name),
        handle=f"{terms.identifier}.{identifier(name)}",
        listed=wish_names(server, (name,), accepted.source)[name],
        category=rule.categories(server, (name,), accepted.source, accepted.offering.title)[name],
        source=accepted.source,
        users=None,
        example=None,
    )


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
        name=d.name,
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
