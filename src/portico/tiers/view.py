"""What one caller sees at one moment, and the JSON of each tier that is made of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from portico.catalog.categories import Order
from portico.domain.disclosure import Card, Hit, View
from portico.domain.server import Packaging
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Category, Tool, ToolId, unwritten
from portico.protocols import TokenCounter
from portico.rendering.budget import Variants, balance, fit
from portico.rendering.json_forms import ToolForm, category_forms, hot_forms, schema_forms, short_name, summary_forms

from .budget import HOT_TOOLS, LARGER_BUDGET, PAGE_SIZE, POPULAR_TOOLS, Allowance

ROOT = "/api/v1/tools"
LONGEST = 300
"""Characters of a path that is told; a longer one is described."""
QUOTED_LENGTH = 100
"""Characters of a value that an answer repeats."""

HOT = f"{ROOT}/hot"
CATEGORIES = f"{ROOT}/categories"
SEARCH = f"{ROOT}/search"
CATEGORY = "category"
"""Stands before the name of a category, where a server's name stands before that of a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLinks:
    """Where the tiers are found, as one kind of caller asks for them."""

    kind: str
    """Tells answers with these paths from answers with others."""
    word: str
    """What such a path is called."""
    hot: str
    categories: str
    category_root: str
    any_category: str
    tool_root: str
    any_tool: str
    taken: frozenset[str] = frozenset()
    """Words that mean something else where a server's name would stand: such a server goes by its identifier."""

    def asking(self, path: str, asked: Mapping[str, Any]) -> str:
        """A path with what is asked of it; where that is too long to be told, what a caller does not know yet."""
        return _asking(path, asked, self.word)

    def category(self, name: str, **asked: int | None) -> str:
        """The tools of a category."""
        return self.asking(f"{self.category_root}/{quote(name, safe='')}", asked)

    def tool(self, tool: Tool, **asked: int | None) -> str:
        """Everything about a tool."""
        server, name = tool.id
        server = tool.handle.partition(".")[0] if server in self.taken else server
        return self.asking(f"{self.tool_root}/{quote(server, safe='')}/{quote(name, safe='')}", asked)


REST = TierLinks(
    kind="rest",
    word="path",
    hot=HOT,
    categories=CATEGORIES,
    category_root=f"{ROOT}/{CATEGORY}",
    any_category=f"{ROOT}/{CATEGORY}/{{category}}",
    tool_root=ROOT,
    any_tool=f"{ROOT}/{{server}}/{{tool}}",
    taken=frozenset({CATEGORY}),
)
RESOURCES = TierLinks(
    kind="resources",
    word="URI",
    hot="catalog://hot",
    categories="catalog://categories",
    category_root="catalog://category",
    any_category="catalog://category/{name}",
    tool_root="catalog://tool",
    any_tool="catalog://tool/{server}/{tool}",
)


def tool_path(tool: Tool) -> str:
    """Everything about a tool, over REST."""
    return REST.tool(tool)


def search_path(wanted: Mapping[str, Any], **asked: int | None) -> str:
    """A search, which only REST has."""
    return REST.asking(SEARCH, {**wanted, **asked})


def _asking(path: str, asked: Mapping[str, Any], word: str) -> str:
    query = urlencode({name: spelled(value) for name, value in asked.items() if value is not None}, quote_via=quote)
    whole = f"{path}?{query}" if query else path
    if len(whole) <= LONGEST:
        return whole
    numbers = {name: value for name, value in asked.items() if isinstance(value, int) and not isinstance(value, bool)}
    return f"the same {word} with ?{urlencode(numbers)}" if numbers else f"the same {word}"


def echo(wanted: Mapping[str, Any]) -> str:
    """What was asked for, as `category=files&tag=python`, in the order of the names; long values are cut."""
    shown = {name: spelled(value) for name, value in sorted(wanted.items())}
    return "&".join(f"{name}={_cut(value)}" for name, value in shown.items())


def spelled(value: object) -> str:
    """A value as it stands in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cut(value: str) -> str:
    return value if len(value) <= QUOTED_LENGTH else f"{value[: QUOTED_LENGTH - 1]}…"


SMALLEST_ITEM = 5
"""Tokens below which nothing can be shown of anything."""
ROUNDED = 50
"""A budget that would suffice is told as a multiple of this."""
ATTEMPTS = 8
LETTERS = 4
"""Letters that are about a token, for a first guess."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOutline:
    """An answer before it is fitted: what stands around its items, and what to ask next."""

    tier: str
    items: str = ""
    """The field of the list; without one, the only item's fields stand among the others."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Fields between the tier and the items."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """Fields behind the items."""
    ids: Sequence[ToolId] = ()
    """The tools of the items, in their order; empty where the items are no tools."""
    total: int = 0
    """How many items there are on all pages."""
    next: str = ""
    """What to ask next when nothing was left out."""
    path: Callable[[int], str] = lambda tokens: f"?budget={tokens}"
    """The same question with a budget."""
    advice: str = "Use pagination or narrower search."
    """What to do when not all items could be shown."""

    def exhausted(self, shown: int, wanted: int) -> str:
        """What is said when not all that was wanted could be shown."""
        return f"Token budget exhausted at {shown}/{wanted} {self.items}. {self.advice}"


def compose(outline: TierOutline, items: Sequence[Variants], allowed: Allowance, counter: TokenCounter) -> View:
    """The answer with every item as fully as the budget allows, and never above it.

    What stands around the items gives way before the last item does, and at the very end nothing but counts is left.
    """
    writing = _Writing(outline, items, allowed, counter)
    whole = writing.written(_Draft(cards=[item.card(0) for item in items]))
    if whole.tokens <= allowed.tokens:
        return whole
    enough = _enough(whole.tokens)
    found = next(filter(None, map(writing.fitted, writing.drafts(enough))), None)
    view = found or writing.emptied(enough)
    if outline.items and len(view.shown) < len(outline.ids):
        logger.warning("%s", outline.exhausted(len(view.shown), len(outline.ids)))
    return view


def rung_costs(
    outline: TierOutline, item: Variants, allowed: Allowance, counter: TokenCounter, *, longest: int
) -> tuple[int, ...]:
    """What the answer with this one item costs in each variant; longer texts are not counted letter by letter."""
    writing = _Writing(outline, [item], allowed, counter)
    costs: list[int] = []
    for card in map(item.card, range(len(item.texts))):
        following = outline.path(_enough(costs[0])) if costs else ""
        draft = _Draft(cards=[card], is_whole=not costs, next=following)
        costs.append(len(card.text) if len(card.text) > longest else writing.written(draft).tokens)
    return tuple(costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """One way to write an answer."""

    cards: Sequence[Card] = ()
    is_whole: bool = True
    is_bare: bool = False
    """Without what a caller knows or can do without."""
    next: str = ""


class _Writing:
    """Writes one outline in different ways."""

    def __init__(
        self, outline: TierOutline, items: Sequence[Variants], allowed: Allowance, counter: TokenCounter
    ) -> None:
        self._outline, self._allowed, self._counter = outline, allowed, counter
        self._wanted = len(items)
        self._items = items[: allowed.tokens // SMALLEST_ITEM]  # more can never be shown, and each costs time

    def drafts(self, enough: int) -> Iterator[_Draft]:
        """What may stand around the items, in falling detail."""
        yield _Draft(is_whole=False, next=self._outline.path(enough))
        yield _Draft(is_whole=False, is_bare=True, next=f"?budget={enough}")
        yield _Draft(is_whole=False, is_bare=True)

    def fitted(self, draft: _Draft) -> View | None:
        """The answer with the items that there is room for; None when there is room for none of them."""
        room = self._allowed.tokens - self._settle(draft)[1]
        for _ in range(ATTEMPTS):
            if room <= 0:
                return None
            even = balance(self._items, room, self._counter)
            cards = fit(even, tokens=room, counter=self._counter, separator=",").cards
            view = self.written(_Draft(cards=cards, is_whole=False, is_bare=draft.is_bare, next=draft.next))
            if view.tokens <= self._allowed.tokens:
                return view if cards or not self._items else None
            room -= view.tokens - self._allowed.tokens
        return None

    def emptied(self, enough: int) -> View:
        """The answer without any item, and what to ask where there is room for that."""
        view = self.written(_Draft(is_whole=False, is_bare=True, next=f"?budget={enough}"))
        return view if view.tokens <= self._allowed.tokens else self.written(_Draft(is_whole=False, is_bare=True))

    def written(self, draft: _Draft) -> View:
        """The answer written like this, whatever it costs."""
        text, tokens = self._settle(draft)
        return View(
            body=text.encode(),
            tokens=tokens,
            cumulative=self._allowed.before + tokens,
            shown=tuple(self._outline.ids[: len(draft.cards)]),
            total=self._outline.total,
            truncated=not draft.is_whole,
        )

    def _settle(self, draft: _Draft) -> tuple[str, int]:
        """The text and its tokens, which it tells itself: more digits can only cost more, so this comes to rest."""
        head, tail = self._around(draft)
        items = ",".join(card.text if self._outline.items else card.text[1:-1] for card in draft.cards)
        tokens = (len(head) + len(items)) // LETTERS
        for _ in range(ATTEMPTS):
            text = f"{head}{items}{tail(tokens)}"
            counted = self._counter.count(text)
            if counted == tokens:
                break
            tokens = counted
        return text, tokens

    def _around(self, draft: _Draft) -> tuple[str, Callable[[int], str]]:
        """What stands before the items, and what stands behind them given the tokens of the whole."""
        outline = self._outline
        before = {"tier": outline.tier, **({} if draft.is_bare else outline.before)}
        after = {} if draft.is_bare else outline.after

        def tail(tokens: int) -> str:
            return f"{closing}{_fields({**after, **self._numbers(draft, tokens)})[1:]}"

        opened = _fields(before)[:-1]
        if outline.items:
            closing = "],"
            return f'{opened},"{outline.items}":[', tail
        closing = "," if draft.cards else ""
        return f"{opened},", tail

    def _numbers(self, draft: _Draft, tokens: int) -> dict[str, Any]:
        """What every answer says of itself."""
        told: dict[str, Any] = {"tokens": tokens}
        if not draft.is_bare:
            told["budget"] = {
                "limit": self._allowed.step.limit,
                "cumulative": self._allowed.before + tokens,
                "counter": self._counter.name,
            }
        told["truncated"] = not draft.is_whole
        if self._outline.items:
            told |= {"shown": len(draft.cards), "total": self._outline.total}
            if not (draft.is_whole or draft.is_bare) and len(draft.cards) < self._wanted:
                told["warning"] = self._outline.exhausted(len(draft.cards), self._wanted)
        following = self._outline.next if draft.is_whole else draft.next
        return {**told, **({"next": following} if following else {})}


def _enough(tokens: int) -> int:
    """The budget in which an answer of so many tokens fits, as it is told."""
    return -(-(tokens + 1) // ROUNDED) * ROUNDED


def _fields(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values).decode()


CALL_IT = "call it by its handle"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPage:
    """One page of tools, and how many there are on all pages."""

    tools: Sequence[Tool]
    total: int
    page: int = 1
    size: int = PAGE_SIZE

    @property
    def as_data(self) -> dict[str, int]:
        """The page, ready for JSON."""
        pages = ceil(self.total / self.size)
        return {"page": self.page, "page_size": self.size, "total_count": self.total, "total_pages": pages}

    @property
    def asked(self) -> dict[str, int | None]:
        """What leads to this page; what goes without saying is not said."""
        return {
            "page": self.page if self.page > 1 else None,
            "page_size": self.size if self.size != PAGE_SIZE else None,
        }

    @property
    def following(self) -> int:
        """The number of the next page; 1 when this one is beyond the last, 0 when it is the last."""
        if self.page * self.size < self.total:
            return self.page + 1
        return 1 if self.page > 1 and not self.tools else 0


def paged(tools: Sequence[Tool], page: int, size: int) -> ToolPage:
    """One page of a list of tools."""
    return ToolPage(tools=tools[(page - 1) * size : page * size], total=len(tools), page=page, size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """What one caller sees at one moment."""

    snapshot: CatalogSnapshot
    visible: frozenset[ToolId]
    key: Hashable
    """Tells this scene from one with other tools or other standings."""
    called: int = 0
    """How many tools were called so far: their order, and what is told of them, follow."""
    order: Order
    counter: TokenCounter
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Servers in the order of the config, and their aliases."""
    packaging: Mapping[str, Packaging] = field(default_factory=dict)
    known: Mapping[str, Category] = field(default_factory=dict)
    """Every category that was written down, shipped or named."""
    paths: TierLinks = REST
    learned: Callable[[Tool], Mapping[str, Any] | None] = lambda tool: None
    """What the results of a tool have looked like, where that is known."""

    @property
    def tools(self) -> list[Tool]:
        """The tools that the caller sees, in the order of the catalog."""
        return [tool for id, tool in self.snapshot.tools.items() if id in self.visible]

    def shelf(self, category: str) -> list[Tool]:
        """The tools of a category, best first."""
        return self.order.best_first(tool for tool in self.tools if tool.category == category)

    def hot(self, pins: Sequence[Tool], allowed: Allowance) -> View:
        """T0."""
        chosen = self.order.hottest(self.tools, pins, list(self.aliases), HOT_TOOLS)
        outline = TierOutline(
            tier="hot",
            items="tools",
            ids=[tool.id for tool in chosen],
            total=len(self.visible),
            next=self.paths.categories,
            path=lambda tokens: self.paths.asking(self.paths.hot, {"budget": tokens}),
            advice=LARGER_BUDGET,
        )
        return compose(outline, [hot_forms(self._shown(tool)) for tool in chosen], allowed, self.counter)

    def categories(self, known: Mapping[str, Category], allowed: Allowance) -> View:
        """T1, of these categories and of those that visible tools stand on."""
        shelves: dict[str, list[Tool]] = {name: [] for name in known}
        for tool in self.tools:
            shelves.setdefault(tool.category, []).append(tool)
        found = [known.get(name) or unwritten(name) for name in shelves]
        found.sort(key=lambda category: (category.order, category.name))
        items = []
        for category in found:
            own = shelves[category.name]
            popular = [self._shown(tool).name for tool in self.order.best_first(own)[:POPULAR_TOOLS]]
            items.append(category_forms(category, len(own), len({tool.id.server for tool in own}), popular))
        outline = TierOutline(
            tier="category_overview",
            items="categories",
            total=len(items),
            next=self.paths.any_category,
            path=lambda tokens: self.paths.asking(self.paths.categories, {"budget": tokens}),
            advice=LARGER_BUDGET,
        )
        return compose(outline, items, allowed, self.counter)

    def category(self, name: str, page: ToolPage, allowed: Allowance) -> View:
        """T2 of a category."""
        following = {**page.asked, "page": page.following}
        last = self.paths.any_tool if page.total else self.paths.categories
        outline = TierOutline(
            tier="tool_summaries",
            items="tools",
            before={"filter": echo({"category": name})},
            after={"pagination": page.as_data},
            ids=[tool.id for tool in page.tools],
            total=page.total,
            next=self.paths.category(name, **following) if page.following else last,
            path=lambda tokens: self.paths.category(name, **page.asked, budget=tokens),
        )
        return compose(outline, [summary_forms(self._shown(tool)) for tool in page.tools], allowed, self.counter)

    def answer(
        self, wanted: Mapping[str, Any], page: ToolPage, hits: Sequence[Hit], fits: bool, allowed: Allowance
    ) -> View:
        """T2 of a search; hits stand for the tools of the page where words were searched for."""
        told = {hit.tool.id: {"score": hit.score, "why": dict(hit.why)} for hit in hits}
        items = [summary_forms(self._shown(tool, told.get(tool.id, {}))) for tool in page.tools]
        further = search_path(wanted, **{**page.asked, "page": page.following}) if page.following else ""
        retry = "fewer filters" if wanted.keys() - {"text"} else "other words for one thing to do"
        outline = TierOutline(
            tier="tool_summaries",
            items="tools",
            before={"filter": echo(wanted)},
            after={"fits": fits, "pagination": page.as_data},
            ids=[tool.id for tool in page.tools],
            total=page.total,
            next=(further or self.paths.any_tool) if fits else f"{retry}, or {self.paths.categories}",
            path=lambda tokens: search_path(wanted, **page.asked, budget=tokens),
        )
        return compose(outline, items, allowed, self.counter)

    def schema(self, tool: Tool, allowed: Allowance) -> View:
        """T3."""
        return compose(self._whole(tool), [schema_forms(self._shown(tool))], allowed, self.counter)

    def schema_costs(self, tool: Tool, allowed: Allowance, *, longest: int) -> tuple[int, ...]:
        """What T3 costs in each of its forms, the fullest first; longer ones are not counted letter by letter."""
        forms = schema_forms(self._shown(tool))
        return rung_costs(self._whole(tool), forms, allowed, self.counter, longest=longest)

    def _whole(self, tool: Tool) -> TierOutline:
        return TierOutline(
            tier="full_schema",
            ids=[tool.id],
            total=1,
            next=CALL_IT,
            path=lambda tokens: self.paths.tool(tool, budget=tokens),
        )

    def _shown(self, tool: Tool, extra: Mapping[str, Any] | None = None) -> ToolForm:
        server = self.snapshot.servers[tool.id.server]
        return ToolForm(
            tool=tool,
            server=server,
            short=short_name(server, self.aliases),
            usage=self.order.usage.get(tool.id),
            packaging=self.packaging.get(server.name, Packaging()),
            extra=extra or {},
            learned=self.learned(tool),
        )
