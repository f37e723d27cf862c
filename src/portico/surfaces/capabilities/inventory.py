"""The inventory of tools for one caller as JSON that fits its budget, and the schema of each tool on demand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import orjson

from portico.catalog.categories_and_order import Order, unwritten
from portico.catalog.view import CatalogView
from portico.domain import VERSION
from portico.domain.call import Caller
from portico.domain.search_answers import Card
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Category, JsonObject, Tool
from portico.errors import CallError, InvalidArguments, NextCall
from portico.gateway import Gateway
from portico.protocols import TokenCounter
from portico.rendering.budget import Variants, fit, fit_between, list_mark, start_of
from portico.rendering.cache import AnswerCache
from portico.rendering.cards import WORDS_LENGTH, argument_fields, first_sentence, shorten_schema, spell_call
from portico.tiers.tools_as_json import NAMES_SHOWN, Json, examples, json_variants, simplify_params

CAPABILITIES, TOOL_SCHEMA = "capabilities", "tool_schema"
"""Names of the two tools of the surface, behind the prefix."""
BUDGET = 500  # tokens of an inventory unless the config says otherwise
LINE_LENGTH, SHORT_LENGTH, EXAMPLE_LENGTH = 100, 40, 60
"""Characters of a description, of a shortened one, and of an example prompt."""
SOME_NAMES = (24, 12, 4)
"""Tools that are named, as many as there is room for, where there is none for all names of a category."""
SMALLEST_ITEM = 2  # tokens below which nothing can be shown of anything
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
class InventoryTool:
    """A tool in the inventory: the name that calls it, one line, and a short prompt where its server gives one.

    Texts are cut when they are shown: most of those of a large catalog never are.
    """

    name: str
    description: str
    example: str = ""

    def as_data(self, length: int = LINE_LENGTH, *, example: bool = False) -> Json:
        """The tool ready for JSON, its line cut to so many characters; with none, the name alone."""
        line = first_sentence(self.description, length) if length else ""
        prompt = first_sentence(self.example, EXAMPLE_LENGTH) if example else ""
        told = {"name": self.name, "description": line} if line else {"name": self.name}
        return {**told, "example": prompt} if prompt else told

    def variants(self) -> Variants:
        """The tool in falling detail: without its example, with a short line, and as a name."""
        return json_variants(
            self.name, lambda: self.as_data(example=True), self.as_data, *map(self._cut, (SHORT_LENGTH, 0))
        )

    def _cut(self, length: int) -> Callable[[], Json]:
        return lambda: self.as_data(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryCategory:
    """A category with its tools."""

    category: Category
    tools: tuple[InventoryTool, ...]

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

    def variants(self, tokens: int) -> Variants:
        """The category in falling detail: no examples, short lines, names, some of them, and a count.

        What can never fit is not even tried: to count the tokens of thousands of tools takes a second.
        """
        tools, count = self.tools, {"count": len(self.tools)}

        def told(*length: int, example: bool = False) -> Json:
            return {**self.heading, "tools": [tool.as_data(*length, example=example) for tool in tools]}

        def names(most: int | None = None, more: Mapping[str, int] = count) -> Json:
            return {**self.heading, "names": [tool.name for tool in tools[:most]], **more}

        every = (partial(told, example=True), told, partial(told, SHORT_LENGTH), lambda: names(more={}))
        return json_variants(
            self.name,
            *(() if self.is_crowded(tokens) else every),
            *(partial(names, most) for most in SOME_NAMES if most < len(tools)),
            lambda: {**self.heading, **count},
            lambda: {"name": self.name, **count},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryAnswer:
    """An answer as it is sent, and what it costs and shows."""

    text: str
    tokens: int
    shown: int = 1  # tools that it names
    total: int = 1

    @property
    def body(self) -> bytes:
        """The bytes of the answer."""
        return self.text.encode()

    def as_data(self) -> Json:
        """The answer as data of its own, which may be changed."""
        found: Json = orjson.loads(self.text)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that one caller may call in one snapshot."""

    version: str
    categories: tuple[InventoryCategory, ...]
    quick_actions: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def names(self) -> list[str]:
        """Every tool by name, in the order of the inventory."""
        return [tool.name for category in self.categories for tool in category.tools]

    def whole(self, cursor: str, tokens: int, counter: TokenCounter) -> InventoryAnswer:
        """The inventory from the cursor on, category by category."""
        mark = list_mark(category.name for category in self.categories)
        start = start_of(cursor, mark, len(self.categories))
        page = _Page(
            head=f'{{"version":{_json(self.version)},"categories":[',
            close="]",
            items=[category.variants(tokens) for category in self.categories[start:]],
            total=len(self.names),
            more=lambda shown: self._call({"cursor": f"{start + shown}:{mark}"}),
            closer=lambda handle: self._call({"category": handle}),
            note=STRANGE_CURSOR if cursor and not start else "",
            is_part=start > 0 or any(category.is_crowded(tokens) for category in self.categories),
        )
        return page.fit(self.quick_actions, tokens, counter) or page.answer((), (), counter)

    def category(self, name: str, cursor: str, tokens: int, counter: TokenCounter) -> InventoryAnswer:
        """One category of the inventory: every tool in as much detail as fits, or names page by page."""
        category = next(category for category in self.categories if category.name == name)
        mark = list_mark(tool.name for tool in category.tools)
        start = start_of(cursor, mark, len(category.tools))

        def page(field: str, items: Sequence[Variants], *, is_paged: bool) -> _Page:
            return _Page(
                head=f'{{"version":{_json(self.version)},"categories":[{_json(category.heading)[:-1]},"{field}":[',
                close="]}]",
                items=items,
                total=len(category.tools),
                more=lambda shown: self._call({"category": name, "cursor": f"{start + shown}:{mark}"}),
                closer=lambda handle: spell_call(f"{self.prefix}{TOOL_SCHEMA}", {"tool": handle}),
                note=STRANGE_CURSOR if cursor and not start else "",
                is_part=is_paged or start > 0,
                is_paged=is_paged,
            )

        if not category.is_crowded(tokens, start):
            told = page("tools", [tool.variants() for tool in category.tools[start:]], is_paged=False)
            if found := told.fit(self.quick_actions, tokens, counter):
                return found
        items = [json_variants(tool.name, partial(str, tool.name)) for tool in category.tools[start:]]
        named = page("names", items, is_paged=True)
        return named.fit(self.quick_actions, tokens, counter) or named.answer((), (), counter)

    def _call(self, arguments: Mapping[str, Any]) -> str:
        return spell_call(f"{self.prefix}{CAPABILITIES}", arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The items of an answer, and what stands around them."""

    head: str
    close: str
    items: Sequence[Variants]
    total: int  # tools on all pages
    more: Callable[[int], str]  # the call for the next page, after so many items
    closer: Callable[[str], str]  # the call that shows one item in more detail
    note: str = ""
    is_part: bool = False  # whether something is left out even when every item is shown in full
    is_paged: bool = True  # whether items may be left for the next page

    def fit(self, quick: Sequence[str], tokens: int, counter: TokenCounter) -> InventoryAnswer | None:
        """The answer with every item as fully as the tokens allow; None when it cannot be had in this way.

        Quick actions give way before the last item does, and then the call for the rest.
        """
        if not self.is_part:
            whole = self.answer([item.card(0) for item in self.items], quick, counter, is_whole=True)
            if whole.tokens <= tokens:
                return whole
        items = self.items[: tokens // SMALLEST_ITEM]  # more can never be shown, and each costs time
        for actions, points in ((quick, True), ((), True), ((), False)):

            def write(
                cards: Sequence[Card], actions: Sequence[str] = actions, points: bool = points
            ) -> tuple[InventoryAnswer, int]:
                answer = self.answer(cards, actions, counter, points=points)
                return answer, answer.tokens

            least = 1 if self.is_paged else max(1, len(self.items))
            if found := fit_between(items, tokens, counter, write, least=least, is_filled=True):
                return found
        return None

    def answer(
        self, cards: Sequence[Card], quick: Sequence[str], counter: TokenCounter, **how: bool
    ) -> InventoryAnswer:
        """The answer with these cards; without any, nothing but counts."""
        text = self._text(cards, quick, **how)
        return InventoryAnswer(
            text=text, tokens=counter.count(text), shown=sum(map(_count_names, cards)), total=self.total
        )

    def _text(self, cards: Sequence[Card], quick: Sequence[str], *, is_whole: bool = False, points: bool = True) -> str:
        """The answer with these cards; one that is not whole says so, and points to the rest."""
        told: Json = {"quickActions": list(quick)}
        if not is_whole:
            told |= {"truncated": True, "shown": sum(map(_count_names, cards)), "total": self.total}
            told |= {"next": self._ahead(cards)} if points and cards else {}
        told |= {"note": self.note} if self.note else {}
        return f"{self.head}{','.join(card.text for card in cards)}{self.close},{_json(told)[1:]}"

    def _ahead(self, cards: Sequence[Card]) -> str:
        if len(cards) < len(self.items):
            return self.more(len(cards))
        pairs = zip(cards, self.items, strict=True)
        short = (card.handle for card, item in pairs if card.text != item.card(0).text or "count" in _data(card))
        return self.closer(next(short, cards[0].handle))


def _data(card: Card) -> Json:
    """The data of a card; nothing where it is a bare name."""
    told = orjson.loads(card.text)
    return told if isinstance(told, dict) else {}


def _count_names(card: Card) -> int:
    """The number of tools that a card names: those of a category, or the one that it is about."""
    told = _data(card)
    if not told.keys() & {"tools", "names", "count"}:
        return 1
    return len(told.get("tools") or told.get("names") or ())


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


SCHEMA_TOKENS = 2_000  # tokens of the schema of one tool
INVENTORY, SCHEMA = "inventory", "schema"  # the two kinds of answers that the cache counts
QUICK = 3  # tools that are quick actions when the config names none
QUICK_LENGTH = 40
ENUM_MOST = 32  # categories that a definition lists; more would cost every client more than they tell it
NAMED = 20  # categories that an error names
SHOWN_LENGTH = 80  # characters of a category that is not known which an error repeats
SYSTEM = "system"  # the category in which the registry's own tools stand, where there is one
OWN_TEXTS = {
    CAPABILITIES: "Inventory of all tools by category",
    TOOL_SCHEMA: "Schema of one tool: parameters, result, examples",
}
START = (
    "Start here, then read one tool's schema, then call it by its own name: every tool can be called, listed or not."
)
THEN = "Any spelling of the name will do."

LIBRARY = Caller()


class HasGateway(Protocol):
    """Something with a gateway, such as a `Catalog`."""

    @property
    def gateway(self) -> Gateway:
        """The gateway."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRegistry:
    """The tools that one caller may call: an inventory by category, and each schema when it is asked for."""

    gateway: Gateway
    caller: Caller | CatalogView = LIBRARY
    prefix: str | None = None  # what stands before the names of the registry's own two tools; None when it has none
    quick_actions: tuple[str, ...] = ()
    budget: int = BUDGET
    shipped: Mapping[str, Category] = field(default_factory=dict)
    """Categories that are known without having been written down."""
    version: str = VERSION
    cache: AnswerCache = field(default_factory=AnswerCache)
    """Where answers are kept until the next snapshot; nothing of it is ever stale."""
    _mark: object = field(default_factory=object)
    """Tells these answers from those of another registry in the same cache."""

    def seen_by(self, caller: Caller | CatalogView) -> ToolRegistry:
        """The same registry for another caller, or for one request with its view."""
        return self if caller == self.caller else replace(self, caller=caller)

    @property
    def _view(self) -> CatalogView:
        return self.gateway.view(self.caller)

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
        return name.strip() in self._own() or self._view.find(name) is not None

    has_tools = has_tool

    def list_tool_names(self) -> list[str]:
        """Every tool by the name that calls it, in the order of the inventory; the registry's own included."""
        names = self._inventory().names
        return [*names, *(own for own in self._own() if own not in names)]

    def categories(self) -> list[str]:
        """The categories that hold tools, in their order."""
        return [category.name for category in self._inventory().categories]

    def definitions(self) -> list[JsonObject]:
        """The registry's own tools, as a surface lists them; the choices of `category` come from the catalog."""
        return list(self._own().values())

    def capabilities(self, category: str | None = None, *, cursor: str = "") -> InventoryAnswer:
        """The inventory, or one category of it, ready to be sent.

        Raises:
            InvalidArguments: no tool stands in that category.
        """
        inventory, counter = self._inventory(), self.gateway.counter
        name = None if category is None else self._known_category(category)

        def make() -> InventoryAnswer:
            if name is None:
                return inventory.whole(cursor, self.budget, counter)
            return inventory.category(name, cursor, self.budget, counter)

        seen = (self._view.shared.number, self.gateway.standings.revision)
        return self._keep(INVENTORY, (*seen, name, cursor[:SHOWN_LENGTH]), make)

    def schema(self, name: str) -> InventoryAnswer:
        """The schema of one tool, ready to be sent.

        Raises:
            UnknownTool: there is no such tool that this caller may see; the nearest are named.
            AmbiguousTool: several tools are spelled so.
        """

        def make(variants: Variants) -> InventoryAnswer:
            found = fit([variants], tokens=SCHEMA_TOKENS, counter=self.gateway.counter)
            return InventoryAnswer(text=found.text, tokens=found.tokens)

        own = self._own().get(name.strip())
        if own is not None:
            told = {"tool": own["name"], "schema": own["inputSchema"]}
            return make(json_variants(own["name"], lambda: told))
        tool = self._view.tool(name)
        return self._keep(SCHEMA, tool.id, lambda: make(_schema_variants(tool, self._name(tool))))

    def _known_category(self, category: str) -> str:
        """The category that is meant, whatever its case."""
        names = self.categories()
        folded = {name.casefold(): name for name in reversed(names)}
        found = category if category in names else folded.get(category.strip().casefold())
        if found is not None:
            return found
        near = nearest_names(category[:SHOWN_LENGTH], folded, NAMED, cutoff=0)
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

    def _keep(self, kind: str, key: Hashable, make: Callable[[], InventoryAnswer]) -> InventoryAnswer:
        return self.cache.get_now(kind, (self._mark, key), make, version=self._view.snapshot.number)

    def _inventory(self) -> Inventory:
        return self._view.shared.keep((self._mark, self.gateway.standings.revision), self._take_inventory)

    def _take_inventory(self) -> Inventory:
        tools, standings = self._view.tools, self.gateway.standings
        found: dict[str, list[InventoryTool]] = {}
        for tool in tools:
            line = InventoryTool(
                name=self._name(tool), description=tool.description or tool.title, example=tool.example
            )
            found.setdefault(tool.category, []).append(line)
        if SYSTEM in standings.categories or not PRESET.keys().isdisjoint(found):
            own = (InventoryTool(name=name, description=says) for name, says in self._own_texts().items())
            found.setdefault(SYSTEM, []).extend(own)
        known = {**PRESET, **self.shipped, **standings.categories}
        categories = [known.get(name) or unwritten(name) for name in found if found[name]]
        return Inventory(
            version=self.version,
            categories=tuple(
                InventoryCategory(category=category, tools=tuple(found[category.name]))
                for category in sorted(categories, key=lambda category: (category.order, category.name))
            ),
            quick_actions=self._quick_actions(tools),
            prefix=self.prefix or "",
        )

    def _quick_actions(self, tools: Iterable[Tool]) -> tuple[str, ...]:
        """Those of the config, or pins and the tools that stand best by what was written down.

        A call does not change the answer.
        """
        if self.quick_actions:
            return tuple("".join(filter(str.isprintable, text)) for text in self.quick_actions)
        order = Order(tiers=self.gateway.standings.tiers, usage={}, now=0.0)
        best = order.hottest(tools, self._view.pinned, list(self._view.snapshot.servers), QUICK)
        return tuple(_quick_action(tool, self.prefix or "") for tool in best)

    def _name(self, tool: Tool) -> str:
        """The name that calls a tool: the listed one, unless the registry's own tools have taken that."""
        return tool.handle if tool.listed in self._own_texts() else tool.listed

    def _own_texts(self) -> dict[str, str]:
        return {} if self.prefix is None else {f"{self.prefix}{name}": says for name, says in OWN_TEXTS.items()}

    def _own(self) -> dict[str, JsonObject]:
        inventory = self._inventory()
        names = [category.name for category in inventory.categories]
        choices = {"enum": names} if 0 < len(names) <= ENUM_MOST else {}
        category = {"type": "string", **choices, "description": "Filter to specific category"}
        cursor = {"type": "string", "description": "from `next` of the last answer"}
        example = next(iter(inventory.names), f"{self.prefix}search")
        tool = {"type": "string", "minLength": 1, "description": f'Tool name (e.g., "{example}")'}
        schemas = (
            {"type": "object", "properties": {"category": category, "cursor": cursor}},
            {"type": "object", "properties": {"tool": tool}, "required": ["tool"]},
        )
        return {
            name: {
                "name": name,
                "description": f"{says}. {then}",
                "inputSchema": schema,
                "annotations": {
                    "readOnlyHint": True,
                    "destructiveHint": False,
                    "idempotentHint": True,
                    "openWorldHint": False,
                },
                "_meta": {"anthropic/alwaysLoad": True},
            }
            for (name, says), schema, then in zip(self._own_texts().items(), schemas, (START, THEN), strict=False)
        }


def create_tool_registry(
    source: Gateway | HasGateway,
    *,
    caller: Caller | CatalogView = LIBRARY,
    prefix: str | None = None,
    quick_actions: Sequence[str] = (),
    budget: int = BUDGET,
    shipped: Mapping[str, Category] | None = None,
    version: str = VERSION,
    cache: AnswerCache | None = None,
) -> ToolRegistry:
    """A registry over a gateway or a catalog, for one caller; with a prefix it has two tools of its own."""
    return ToolRegistry(
        gateway=source if isinstance(source, Gateway) else source.gateway,
        caller=caller,
        prefix=prefix,
        quick_actions=tuple(quick_actions),
        budget=budget,
        shipped=shipped or {},
        version=version,
        cache=cache if cache is not None else AnswerCache(),
    )


def _quick_action(tool: Tool, prefix: str) -> str:
    """A tool as a quick action: `search: find nodes by text`."""
    name = tool.name.removeprefix(prefix) or tool.name
    line = first_sentence(tool.description or tool.title, QUICK_LENGTH)
    line = line[:1].lower() + line[1:] if line[1:2].islower() else line
    return f"{name[:QUICK_LENGTH]}: {line}" if line else name[:QUICK_LENGTH]


def _schema_variants(tool: Tool, name: str) -> Variants:
    """One tool with all that a call needs, and then with less and less; what is shortened says so."""
    schema, output = tool.input_schema, tool.output_schema
    returns = {"returns": output} if output else {}
    every = argument_fields(tool).names

    def cut(**told: Any) -> Json:
        return {"tool": name, **told, "truncated": True}

    return json_variants(
        name,
        lambda: {"tool": name, "schema": schema, **returns, "examples": [told["query"] for told in examples(tool)]},
        lambda: cut(schema=schema, **returns),
        lambda: cut(schema=shorten_schema(schema, WORDS_LENGTH)),
        lambda: cut(schema=shorten_schema(schema)),
        lambda: cut(params=simplify_params(schema)),
        lambda: cut(params=[parameter[:SHOWN_LENGTH] for parameter in every[:NAMES_SHOWN]], total=len(every)),
    )
