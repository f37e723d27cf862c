"""The inventory of tools for one caller, and the schema of each tool on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

from portico.catalog.standings import Order, Standings
from portico.domain.call import Caller
from portico.domain.snapshot import Edition
from portico.domain.tool import Category, JsonObject, Tool
from portico.domain.version import VERSION
from portico.errors import CallError, InvalidArguments, NextCall
from portico.protocols import Policy, TokenCounter
from portico.rendering.budget import Rungs, fit
from portico.rendering.cache import AnswerCache, PerEdition, Sights
from portico.rendering.cards import WORDS_LENGTH, shortened
from portico.rendering.json_forms import LONGER_LENGTH, NAMES_SHOWN, Json, examples, forms, parameter_names
from portico.rendering.schemas import simplify_params
from portico.rendering.summaries import first_sentence

from .inventory_json import BUDGET, CAPABILITIES, PRESET, TOOL_SCHEMA, Answer, Inventory, Summary, shelve, summarise

SCHEMA_TOKENS = 2_000
"""Tokens of the schema of one tool."""
INVENTORY, SCHEMA = "inventory", "schema"
"""The two kinds of answers that the cache counts."""
QUICK = 3
"""Tools that are quick actions when the config names none."""
QUICK_LENGTH = 40
ENUM_MOST = 32
"""Categories that a definition lists; more would cost every client more than they tell it."""
NAMED = 20
"""Categories that an error names."""
SHOWN_LENGTH = 80
"""Characters of a category that is not known which an error repeats."""
SYSTEM = "system"
"""The category in which the registry's own tools stand, where there is one."""

LIBRARY = Caller()


class Source(Protocol):
    """What a registry needs to know of a gateway."""

    @property
    def edition(self) -> Edition:
        """The current edition of the catalog."""
        ...

    @property
    def policy(self) -> Policy:
        """Which tools a caller sees."""
        ...

    @property
    def standings(self) -> Standings:
        """How tools stand, and what was written of categories."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """What counts tokens."""
        ...

    def pinned(self, caller: Caller) -> list[Tool]:
        """The tools that are always listed."""
        ...


@runtime_checkable
class Fronted(Protocol):
    """What has a gateway, such as a `Catalog`."""

    @property
    def gateway(self) -> Source:
        """The gateway."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRegistry:
    """What one caller may call: an inventory by category, and each schema when it is asked for."""

    source: Source
    caller: Caller = LIBRARY
    prefix: str | None = None
    """What stands before the names of the registry's own two tools; None when it has none."""
    quick_actions: tuple[str, ...] = ()
    budget: int = BUDGET
    shipped: Mapping[str, Category] = field(default_factory=dict)
    """Categories that are known without having been written down."""
    version: str = VERSION
    cache: AnswerCache = field(default_factory=AnswerCache)
    """Where answers are kept until the next edition; nothing of it is ever stale."""
    _inventories: PerEdition[Inventory] = field(default_factory=PerEdition)
    _sights: Sights = field(default_factory=Sights)
    _mark: object = field(default_factory=object)
    """What tells these answers from those of another registry in the same cache."""

    def seen_by(self, caller: Caller) -> ToolRegistry:
        """The same registry for another caller."""
        return self if caller == self.caller else replace(self, caller=caller)

    def get_capabilities(self, category: str | None = None, *, cursor: str = "") -> Json:
        """The inventory, or one category of it, within the budget.

        Raises:
            InvalidArguments: no tool stands in that category; those that there are are named.
        """
        return self.capabilities(category, cursor=cursor).as_data()

    def get_tool_schema(self, name: str) -> Json | None:
        """The schema of one tool by any spelling, what it returns, and examples; None when there is no such tool."""
        try:
            return self.schema(name).as_data()
        except CallError:
            return None

    def has_tool(self, name: str) -> bool:
        """Whether a spelling means one tool."""
        try:
            return bool(self._found(name))
        except CallError:
            return False

    has_tools = has_tool

    def list_tool_names(self) -> list[str]:
        """Every tool by the name that calls it, in the order of the inventory; the registry's own included."""
        names = self._inventory().names
        return [*names, *(own for own in self._own() if own not in names)]

    def categories(self) -> list[str]:
        """The categories that hold tools, in their order."""
        return [shelf.name for shelf in self._inventory().shelves]

    def definitions(self) -> list[JsonObject]:
        """The registry's own tools, as a surface lists them; the choices of `category` come from the catalog."""
        return list(self._own().values())

    def capabilities(self, category: str | None = None, *, cursor: str = "") -> Answer:
        """The inventory, or one category of it, ready to be sent.

        Raises:
            InvalidArguments: no tool stands in that category.
        """
        inventory, counter = self._inventory(), self.source.counter
        if category is None:
            key, make = None, lambda: inventory.whole(cursor, self.budget, counter)
        else:
            name = self._known(category)
            key, make = name, lambda: inventory.shelf(name, cursor, self.budget, counter)
        return self._kept(INVENTORY, (*self._view(), key, cursor[:SHOWN_LENGTH]), make)

    def schema(self, name: str) -> Answer:
        """The schema of one tool, ready to be sent.

        Raises:
            UnknownTool: there is no such tool that this caller may see; the nearest are named.
            AmbiguousTool: several tools are spelled so.
        """
        found, counter = self._found(name), self.source.counter
        if isinstance(found, Tool):
            return self._kept(SCHEMA, found.id, lambda: _fitted(_schema_rungs(found, self._name(found)), counter))
        told = {"tool": found["name"], "schema": found["inputSchema"]}
        return _fitted(Rungs(handle=found["name"], texts=forms([lambda: told])), counter)

    def _found(self, name: str) -> Tool | JsonObject:
        own = self._own().get(name.strip())
        if own is not None:
            return own
        edition = self.source.edition
        return edition.resolver.resolve(name, self.source.policy.visible(self.caller, edition))

    def _known(self, category: str) -> str:
        """The category that is meant, whatever its case."""
        names = self.categories()
        folded = {name.casefold(): name for name in reversed(names)}
        found = category if category in names else folded.get(category.strip().casefold())
        if found is not None:
            return found
        near = get_close_matches(category[:SHOWN_LENGTH].casefold(), folded, n=NAMED, cutoff=0.0)
        listed = ", ".join(repr(folded[name][:SHOWN_LENGTH]) for name in near) or "none yet"
        more = f" and {len(folded) - len(near)} more" if len(folded) > len(near) else ""
        raise InvalidArguments(
            f"{self.prefix or ''}{CAPABILITIES}",
            details=(
                f"category: no tool stands in {category[:SHOWN_LENGTH]!r}",
                f"categories, nearest first: {listed}{more}",
            ),
            next_call=NextCall("search", {"category": folded[near[0]]} if near else {}),
        )

    def _kept(self, kind: str, key: Hashable, make: Callable[[], Answer]) -> Answer:
        return self.cache.get_now(kind, (self._mark, key), make, version=self.source.edition.number)

    def _view(self) -> tuple[int, int]:
        """What an answer depends on beside the edition: which tools the caller sees, and how they stand."""
        edition = self.source.edition
        visible = frozenset(self.source.policy.visible(self.caller, edition))
        return self._sights.number(edition, visible), self.source.standings.revision

    def _inventory(self) -> Inventory:
        return self._inventories.get(self.source.edition, self._view(), self._taken_stock)

    def _taken_stock(self) -> Inventory:
        edition, standings = self.source.edition, self.source.standings
        visible = self.source.policy.visible(self.caller, edition)
        tools = [tool for id, tool in edition.tools.items() if id in visible]
        rows = [(tool.category, summarise(tool, self._name(tool))) for tool in tools]
        if SYSTEM in standings.categories or any(category in PRESET for category, _ in rows):
            rows += [(SYSTEM, Summary(name=name, description=says)) for name, says in self._own_texts().items()]
        return Inventory(
            version=self.version,
            shelves=shelve(rows, {**PRESET, **self.shipped, **standings.categories}),
            quick_actions=tuple(map(_printable, self.quick_actions)) or self._hottest(tools),
            prefix=self.prefix or "",
        )

    def _hottest(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """The pins, then the tools that stand best by what was written down: a call does not change the answer."""
        order = Order(tiers=self.source.standings.tiers, usage={}, now=0.0)
        best = order.hottest(tools, self.source.pinned(self.caller), list(self.source.edition.servers), QUICK)
        return tuple(_phrase(tool, self.prefix or "") for tool in best)

    def _name(self, tool: Tool) -> str:
        """What calls a tool: its listed name, unless the registry's own tools have taken that."""
        return tool.handle if tool.listed in self._own_texts() else tool.listed

    def _own_texts(self) -> dict[str, str]:
        """The registry's own tools, and what each does."""
        if self.prefix is None:
            return {}
        return {
            f"{self.prefix}{CAPABILITIES}": "Inventory of all tools by category",
            f"{self.prefix}{TOOL_SCHEMA}": "Schema of one tool: parameters, result, examples",
        }

    def _own(self) -> dict[str, JsonObject]:
        """The definitions of the registry's own tools by name."""
        inventory = self._inventory()
        example = next(iter(inventory.names), f"{self.prefix}search")
        names = [shelf.name for shelf in inventory.shelves]
        schemas = (_inventory_schema(names), _tool_schema(example))
        rows = zip(self._own_texts().items(), schemas, (START, THEN), strict=False)
        return {name: _definition(name, f"{says}. {then}", schema) for (name, says), schema, then in rows}


def create_tool_registry(
    source: Source | Fronted,
    *,
    caller: Caller = LIBRARY,
    prefix: str | None = None,
    quick_actions: Sequence[str] = (),
    budget: int = BUDGET,
    shipped: Mapping[str, Category] | None = None,
    version: str = VERSION,
    cache: AnswerCache | None = None,
) -> ToolRegistry:
    """A registry over a gateway or a catalog, for one caller; with a prefix it has two tools of its own."""
    return ToolRegistry(
        source=source.gateway if isinstance(source, Fronted) else source,
        caller=caller,
        prefix=prefix,
        quick_actions=tuple(quick_actions),
        budget=budget,
        shipped=shipped or {},
        version=version,
        cache=cache if cache is not None else AnswerCache(),
    )


START = (
    "Start here, then read one tool's schema, then call it by its own name: every tool can be called, listed or not."
)
THEN = "Any spelling of the name will do."
_READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def _definition(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": _READS,
        "_meta": {"anthropic/alwaysLoad": True},
    }


def _inventory_schema(categories: Sequence[str]) -> JsonObject:
    choices = {"enum": list(categories)} if 0 < len(categories) <= ENUM_MOST else {}
    return {
        "type": "object",
        "properties": {
            "category": {"type": "string", **choices, "description": "Filter to specific category"},
            "cursor": {"type": "string", "description": "from `next` of the last answer"},
        },
    }


def _tool_schema(example: str) -> JsonObject:
    name = {"type": "string", "minLength": 1, "description": f'Tool name (e.g., "{example}")'}
    return {"type": "object", "properties": {"tool": name}, "required": ["tool"]}


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def _phrase(tool: Tool, prefix: str) -> str:
    """A tool as a quick action: `search: find nodes by text`."""
    name = tool.id.name.removeprefix(prefix) or tool.id.name
    line = first_sentence(tool.description or tool.title, QUICK_LENGTH)
    line = line[:1].lower() + line[1:] if line[1:2].islower() else line
    return f"{name[:QUICK_LENGTH]}: {line}" if line else name[:QUICK_LENGTH]


def _fitted(rungs: Rungs, counter: TokenCounter) -> Answer:
    found = fit([rungs], tokens=SCHEMA_TOKENS, counter=counter)
    return Answer(text=found.text, tokens=found.tokens)


def _schema_rungs(tool: Tool, name: str) -> Rungs:
    """One tool with all that a call needs, and then with less and less; what is shortened says so."""
    named: Json = {"tool": name}
    schema, output, cut = tool.input_schema, tool.output_schema, {"truncated": True}
    returns = {"returns": output} if output else {}
    every = parameter_names(tool)

    def texts(words: int) -> Json:
        return {**named, "schema": shortened(schema, words), **cut}

    makes = [
        lambda: {**named, "schema": schema, **returns, "examples": [told["query"] for told in examples(tool)]},
        lambda: {**named, "schema": schema, **returns, **cut},
        lambda: {**named, "schema": schema, **cut},
        lambda: texts(LONGER_LENGTH),
        lambda: texts(WORDS_LENGTH),
        lambda: texts(0),
        lambda: {**named, "params": simplify_params(schema), **cut},
        lambda: {**named, "params": every, **cut},
        lambda: {**named, "params": [p[:SHOWN_LENGTH] for p in every[:NAMES_SHOWN]], "total": len(every), **cut},
    ]
    return Rungs(handle=name, texts=forms(makes))
