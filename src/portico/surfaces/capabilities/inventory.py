"""The inventory of tools for one caller as JSON that fits its budget, and the schema of each tool on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import orjson

from portico.catalog.categories import Order, Standings
from portico.domain.call import Caller
from portico.domain.disclosure import Card, Level
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Category, JsonObject, Tool, unwritten
from portico.domain.version import VERSION
from portico.errors import CallError, InvalidArguments, NextCall
from portico.protocols import Policy, TokenCounter
from portico.rendering.budget import Variants, balance, fill, fit
from portico.rendering.cache import AnswerCache, PerSnapshot, Sights
from portico.rendering.cards import WORDS_LENGTH, first_sentence, shortened, spelled
from portico.rendering.catalog_map import start_of
from portico.rendering.json_forms import (
    LONGER_LENGTH,
    NAMES_SHOWN,
    Json,
    Make,
    examples,
    forms,
    parameter_names,
    simplify_params,
)

CAPABILITIES, TOOL_SCHEMA = "capabilities", "tool_schema"
"""What the two tools of the surface are called, behind the prefix."""
BUDGET = 500
"""Tokens of an inventory unless the config says otherwise."""
LINE_LENGTH, SHORT_LENGTH, EXAMPLE_LENGTH = 100, 40, 60
"""Characters of a description, of a shortened one, and of an example prompt."""
SOME_NAMES = (24, 12, 4)
"""Tools that are named, as many as there is room for, where there is none for all names of a category."""
SMALLEST_ITEM = 2
"""Tokens below which nothing can be shown of anything."""
ATTEMPTS = 8
STRANGE_CURSOR = "the cursor is not of this list, which may have changed: this is its beginning"

PRESET: Mapping[str, Category] = {
    name: Category(name=name, description=says, order=200 + place)
    for place, (name, says) in enumerate(
        (
            ("query", "Find and filter data"),
            ("explore", "Look at structure and details"),
            ("transcript", "Read and search transcripts"),
            ("mutate", "Create and change data"),
            ("system", "Maintenance and discovery"),
        )
    )
}
"""Categories that say what they are for without anybody having written it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A tool in the inventory: the name that calls it, one line, and a short prompt where its server gives one.

    Texts are cut when they are shown: most of those of a large catalog never are.
    """

    name: str
    description: str
    example: str = ""

    def as_data(self, length: int = LINE_LENGTH, *, example: bool = False) -> Json:
        """The summary ready for JSON, its line cut to so many characters; with none, the name alone."""
        line = first_sentence(self.description, length) if length else ""
        prompt = first_sentence(self.example, EXAMPLE_LENGTH) if example else ""
        told = {"name": self.name, "description": line} if line else {"name": self.name}
        return {**told, "example": prompt} if prompt else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A category with the tools that stand on it."""

    category: Category
    tools: tuple[Summary, ...]

    @property
    def name(self) -> str:
        """The category's name."""
        return self.category.name

    @property
    def heading(self) -> Json:
        """Name and description."""
        return {"name": self.name, "description": first_sentence(self.category.description, LINE_LENGTH)}

    def is_crowded(self, tokens: int, start: int = 0) -> bool:
        """Whether so many tokens can never name all of its tools from a place on."""
        return SMALLEST_ITEM * (len(self.tools) - start) > tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it is sent, and what it costs and shows."""

    text: str
    tokens: int
    shown: int = 1
    """Tools that it names."""
    total: int = 1

    @property
    def body(self) -> bytes:
        """The bytes of the answer."""
        return self.text.encode()

    def as_data(self) -> Json:
        """The answer as data of its own, which may be changed."""
        found: Json = orjson.loads(self.text)
        return found


def summarise(tool: Tool, name: str) -> Summary:
    """A tool as the inventory tells it, under the name that calls it."""
    return Summary(name=name, description=tool.description or tool.title, example=tool.example)


def shelve(tools: Iterable[tuple[str, Summary]], known: Mapping[str, Category]) -> tuple[Shelf, ...]:
    """Summaries, each with the name of its category, as shelves in the order of the categories."""
    found: dict[str, list[Summary]] = {}
    for name, summary in tools:
        found.setdefault(name, []).append(summary)
    categories = sorted(
        (known.get(name) or unwritten(name) for name in found), key=lambda category: (category.order, category.name)
    )
    return tuple(Shelf(category=category, tools=tuple(found[category.name])) for category in categories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that one caller may call in one snapshot."""

    version: str
    shelves: tuple[Shelf, ...]
    quick_actions: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def names(self) -> list[str]:
        """Every tool by name, in the order of the inventory."""
        return [tool.name for shelf in self.shelves for tool in shelf.tools]

    def whole(self, cursor: str, tokens: int, counter: TokenCounter) -> Answer:
        """The inventory from the cursor on, category by category."""
        mark = _mark(shelf.name for shelf in self.shelves)
        start = start_of(cursor, mark, len(self.shelves))
        frame = _Frame(
            head=f'{{"version":{_json(self.version)},"categories":[',
            close="]",
            items=[_shelf_rungs(shelf, tokens) for shelf in self.shelves[start:]],
            total=len(self.names),
            more=lambda shown: self._call({"cursor": f"{start + shown}:{mark}"}),
            closer=lambda handle: self._call({"category": handle}),
            note=STRANGE_CURSOR if cursor and not start else "",
            is_part=start > 0 or any(shelf.is_crowded(tokens) for shelf in self.shelves),
        )
        return _fitted_inventory(frame, self.quick_actions, tokens, counter) or _emptied(frame, counter)

    def shelf(self, name: str, cursor: str, tokens: int, counter: TokenCounter) -> Answer:
        """One category of the inventory: every tool in as much detail as fits, or names page by page."""
        shelf = next(shelf for shelf in self.shelves if shelf.name == name)
        mark = _mark(tool.name for tool in shelf.tools)
        start = start_of(cursor, mark, len(shelf.tools))

        def frame(field: str, variants: Callable[[Summary], Variants], *, is_paged: bool) -> _Frame:
            return _Frame(
                head=f'{{"version":{_json(self.version)},"categories":[{_json(shelf.heading)[:-1]},"{field}":[',
                close="]}]",
                items=[variants(tool) for tool in shelf.tools[start:]],
                total=len(shelf.tools),
                more=lambda shown: self._call({"category": name, "cursor": f"{start + shown}:{mark}"}),
                closer=lambda handle: spelled(f"{self.prefix}{TOOL_SCHEMA}", {"tool": handle}),
                note=STRANGE_CURSOR if cursor and not start else "",
                is_part=is_paged or start > 0,
                is_paged=is_paged,
            )

        told, named = frame("tools", _tool_rungs, is_paged=False), frame("names", _name_rungs, is_paged=True)
        is_crowded = shelf.is_crowded(tokens, start)
        found = None if is_crowded else _fitted_inventory(told, self.quick_actions, tokens, counter)
        return found or _fitted_inventory(named, self.quick_actions, tokens, counter) or _emptied(named, counter)

    def _call(self, arguments: Mapping[str, Any]) -> str:
        return spelled(f"{self.prefix}{CAPABILITIES}", arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The items of an answer, and what stands around them."""

    head: str
    close: str
    items: Sequence[Variants]
    total: int
    """Tools on all pages."""
    more: Callable[[int], str]
    """The call for the next page, after so many items."""
    closer: Callable[[str], str]
    """The call that shows one item in more detail."""
    note: str = ""
    is_part: bool = False
    """Whether something is left out even when every item is shown in full."""
    is_paged: bool = True
    """Whether items may be left for the next page."""

    def text(self, cards: Sequence[Card], quick: Sequence[str], *, is_whole: bool = False, points: bool = True) -> str:
        """The answer with these cards; one that is not whole says so, and points to the rest."""
        told: Json = {"quickActions": list(quick)}
        if not is_whole:
            told |= {"truncated": True, "shown": sum(map(_named, cards)), "total": self.total}
            told |= {"next": self._ahead(cards)} if points and cards else {}
        told |= {"note": self.note} if self.note else {}
        return f"{self.head}{','.join(card.text for card in cards)}{self.close},{_json(told)[1:]}"

    def _ahead(self, cards: Sequence[Card]) -> str:
        if len(cards) < len(self.items):
            return self.more(len(cards))
        pairs = zip(cards, self.items, strict=True)
        short = (card.handle for card, item in pairs if card.text != item.card(0).text or _counts(card))
        return self.closer(next(short, cards[0].handle))


def _fitted_inventory(frame: _Frame, quick: Sequence[str], tokens: int, counter: TokenCounter) -> Answer | None:
    """The answer with every item as fully as the tokens allow; None when it cannot be had in this frame.

    Quick actions give way before the last item does, and then the call for the rest.
    """
    if not frame.is_part:
        cards = [item.card(0) for item in frame.items]
        whole = _answer(frame, frame.text(cards, quick, is_whole=True), cards, counter)
        if whole.tokens <= tokens:
            return whole
    drafts = ((quick, True), ((), True), ((), False))
    return next(filter(None, (_squeezed(frame, *draft, tokens, counter) for draft in drafts)), None)


def _squeezed(frame: _Frame, quick: Sequence[str], points: bool, tokens: int, counter: TokenCounter) -> Answer | None:
    items = frame.items[: tokens // SMALLEST_ITEM]  # more can never be shown, and each costs time
    room = tokens - counter.count(frame.text((), quick))
    for _ in range(ATTEMPTS):
        cards = (
            fit(balance(items, room, counter), tokens=room, counter=counter, separator=",").cards if room > 0 else ()
        )
        cards = tuple(fill(items, cards, room, counter))
        if not cards or (len(cards) < len(frame.items) and not frame.is_paged):
            return None
        found = _answer(frame, frame.text(cards, quick, points=points), cards, counter)
        if found.tokens <= tokens:
            return found
        room -= found.tokens - tokens
    return None


def _emptied(frame: _Frame, counter: TokenCounter) -> Answer:
    """The answer without any item: nothing but counts."""
    return _answer(frame, frame.text((), ()), (), counter)


def _answer(frame: _Frame, text: str, cards: Sequence[Card], counter: TokenCounter) -> Answer:
    return Answer(text=text, tokens=counter.count(text), shown=sum(map(_named, cards)), total=frame.total)


def _shelf_rungs(shelf: Shelf, tokens: int) -> Variants:
    """A category: all of it, without examples, with short lines, with names, with some of them, and counted.

    What can never fit is not even tried: to count the tokens of thousands of tools takes a second.
    """
    name, tools, count = {"name": shelf.name}, shelf.tools, {"count": len(shelf.tools)}

    def some(most: int) -> Make:
        return lambda: {**shelf.heading, "names": [tool.name for tool in tools[:most]], **count}

    every: list[Make] = [
        lambda: {**shelf.heading, "tools": [tool.as_data(example=True) for tool in tools]},
        lambda: {**shelf.heading, "tools": [tool.as_data() for tool in tools]},
        lambda: {**shelf.heading, "tools": [tool.as_data(SHORT_LENGTH) for tool in tools]},
        lambda: {**shelf.heading, "names": [tool.name for tool in tools]},
    ]
    makes: list[Make] = [
        *([] if shelf.is_crowded(tokens) else every),
        *(some(most) for most in SOME_NAMES if most < len(tools)),
        lambda: {**shelf.heading, **count},
        lambda: {**name, **count},
    ]
    return Variants(handle=shelf.name, texts=forms(makes))


def _tool_rungs(tool: Summary) -> Variants:
    makes = [
        lambda: tool.as_data(example=True),
        lambda: tool.as_data(),
        lambda: tool.as_data(SHORT_LENGTH),
        lambda: tool.as_data(0),
    ]
    return Variants(handle=tool.name, texts=forms(makes))


def _name_rungs(tool: Summary) -> Variants:
    return Variants(handle=tool.name, texts=((Level.NAME, _json(tool.name)),))


def _counts(card: Card) -> bool:
    """Whether a card says how many tools there are because it does not name them all."""
    told = orjson.loads(card.text)
    return isinstance(told, dict) and "count" in told


def _named(card: Card) -> int:
    """How many tools a card names: those of a category, or the one that it is about."""
    told = orjson.loads(card.text)
    if not isinstance(told, dict) or not told.keys() & {"tools", "names", "count"}:
        return 1
    return len(told.get("tools") or told.get("names") or ())


def _mark(names: Iterable[str]) -> str:
    """Six characters that tell one list from another, whatever made it another."""
    return f"{crc32(' '.join(names).encode()) & 0xFFFFFF:06x}"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


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
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot of the catalog."""
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
    """Where answers are kept until the next snapshot; nothing of it is ever stale."""
    _inventories: PerSnapshot[Inventory] = field(default_factory=PerSnapshot)
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
        return _fitted(Variants(handle=found["name"], texts=forms([lambda: told])), counter)

    def _found(self, name: str) -> Tool | JsonObject:
        own = self._own().get(name.strip())
        if own is not None:
            return own
        snapshot = self.source.snapshot
        return snapshot.resolver.resolve(name, self.source.policy.visible(self.caller, snapshot))

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
        return self.cache.get_now(kind, (self._mark, key), make, version=self.source.snapshot.number)

    def _view(self) -> tuple[int, int]:
        """What an answer depends on beside the snapshot: which tools the caller sees, and how they stand."""
        snapshot = self.source.snapshot
        visible = frozenset(self.source.policy.visible(self.caller, snapshot))
        return self._sights.number(snapshot, visible), self.source.standings.revision

    def _inventory(self) -> Inventory:
        return self._inventories.get(self.source.snapshot, self._view(), self._taken_stock)

    def _taken_stock(self) -> Inventory:
        snapshot, standings = self.source.snapshot, self.source.standings
        visible = self.source.policy.visible(self.caller, snapshot)
        tools = [tool for id, tool in snapshot.tools.items() if id in visible]
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
        best = order.hottest(tools, self.source.pinned(self.caller), list(self.source.snapshot.servers), QUICK)
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


def _fitted(variants: Variants, counter: TokenCounter) -> Answer:
    found = fit([variants], tokens=SCHEMA_TOKENS, counter=counter)
    return Answer(text=found.text, tokens=found.tokens)


def _schema_rungs(tool: Tool, name: str) -> Variants:
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
    return Variants(handle=name, texts=forms(makes))
