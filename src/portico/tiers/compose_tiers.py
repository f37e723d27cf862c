"""Where each tier is found, and its JSON, composed within its budget of what one caller sees at one moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from portico.catalog.categories_and_order import Order, unwritten
from portico.catalog.view import CatalogView
from portico.domain.search_answers import Card, Findings, Hit, View
from portico.domain.server import Packaging
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage_and_tiers import Usage
from portico.protocols import TokenCounter
from portico.rendering.budget import Variants, fit_between

from .token_budgets import HOT_TOOLS, LARGER_BUDGET, PAGE_SIZE, POPULAR_TOOLS, Allowance
from .tools_as_json import ToolForms, category_forms

ROOT = "/api/v1/tools"
HOT = f"{ROOT}/hot"
CATEGORIES = f"{ROOT}/categories"
SEARCH = f"{ROOT}/search"
CATEGORY = "category"  # stands before the name of a category, where a server's name stands before that of a tool
LONGEST = 300  # characters of a path that is told; a longer one is described
QUOTED_LENGTH = 100  # characters of a value that an answer repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLinks:
    """Where the tiers are found, as one kind of caller asks for them."""

    kind: str  # tells answers with these paths from answers with others
    word: str  # what such a path is called
    hot: str
    categories: str
    category_root: str
    any_category: str
    tool_root: str
    any_tool: str
    taken: frozenset[str] = frozenset()
    """Words that mean something else where a server's name would stand: such a server goes by its identifier."""

    def ask(self, path: str, asked: Mapping[str, Any]) -> str:
        """A path with what is asked of it; where that is too long to be told, what a caller does not know yet."""
        given = {name: value for name, value in asked.items() if value is not None}
        query = urlencode({name: _as_text(value) for name, value in given.items()}, quote_via=quote)
        whole = f"{path}?{query}" if query else path
        if len(whole) <= LONGEST:
            return whole
        numbers = {name: value for name, value in given.items() if type(value) is int}
        return f"the same {self.word} with ?{urlencode(numbers)}" if numbers else f"the same {self.word}"

    def category(self, name: str, **asked: int | None) -> str:
        """The tools of a category."""
        return self.ask(f"{self.category_root}/{quote(name, safe='')}", asked)

    def tool(self, tool: Tool, **asked: int | None) -> str:
        """Everything about a tool."""
        server, name = tool.id.server, tool.name
        server = tool.handle.partition(".")[0] if server in self.taken else server
        return self.ask(f"{self.tool_root}/{quote(server, safe='')}/{quote(name, safe='')}", asked)


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


def search_path(wanted: Mapping[str, Any], **asked: int | None) -> str:
    """A search, which only REST has."""
    return REST.ask(SEARCH, {**wanted, **asked})


def echo(wanted: Mapping[str, Any]) -> str:
    """Filters as `category=files&tag=python`, in the order of their names; long values are cut."""
    shown = {name: _as_text(value) for name, value in sorted(wanted.items())}
    cut = {name: v if len(v) <= QUOTED_LENGTH else f"{v[: QUOTED_LENGTH - 1]}…" for name, v in shown.items()}
    return "&".join(f"{name}={value}" for name, value in cut.items())


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


SMALLEST_ITEM = 5  # tokens below which nothing can be shown of anything
ROUNDED = 50  # a budget that would suffice is told as a multiple of this
ATTEMPTS = 8
LETTERS = 4  # letters that are about a token, for a first guess

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOutline:
    """An answer before it is fitted: what stands around its items, and what to ask next."""

    tier: str
    items: str = ""  # the field of the list; without one, the only item's fields stand among the others
    before: Mapping[str, Any] = field(default_factory=dict)  # fields between the tier and the items
    after: Mapping[str, Any] = field(default_factory=dict)  # fields behind the items
    ids: Sequence[ToolId] = ()  # the tools of the items, in their order; empty where the items are no tools
    total: int = 0  # how many items there are on all pages
    next: str = ""  # what to ask next when nothing was left out
    path: Callable[[int], str] = lambda tokens: f"?budget={tokens}"  # the same question with a budget
    advice: str = "Use pagination or narrower search."  # what to do when not all items could be shown

    def warning(self, shown: int, wanted: int) -> str:
        """A warning that not all that was wanted could be shown."""
        return f"Token budget exhausted at {shown}/{wanted} {self.items}. {self.advice}"


def compose(outline: TierOutline, items: Sequence[Variants], allowed: Allowance, counter: TokenCounter) -> View:
    """The answer with every item as fully as the budget allows, and never above it.

    What stands around the items gives way before the last item does, and at the very end nothing but counts is left.
    """
    writer = _Writer(outline, items, allowed, counter)
    whole = writer.write(_Draft(cards=[item.card(0) for item in items]))
    if whole.tokens <= allowed.tokens:
        return whole
    drafts = writer.drafts(_sufficient(whole.tokens))
    view = next(filter(None, map(writer.fit, drafts)), None) or writer.write_empty(_sufficient(whole.tokens))
    if outline.items and len(view.shown) < len(outline.ids):
        logger.warning("%s", outline.warning(len(view.shown), len(outline.ids)))
    return view


def variant_costs(
    outline: TierOutline, item: Variants, allowed: Allowance, counter: TokenCounter, *, longest: int
) -> tuple[int, ...]:
    """The cost of the answer with this one item, in each variant; longer texts are not counted letter by letter."""
    writer = _Writer(outline, [item], allowed, counter)
    costs: list[int] = []
    for card in item.cards:
        draft = _Draft(cards=[card], is_whole=not costs, next=outline.path(_sufficient(costs[0])) if costs else "")
        costs.append(len(card.text) if len(card.text) > longest else writer.write(draft).tokens)
    return tuple(costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """One way to write an answer."""

    cards: Sequence[Card] = ()
    is_whole: bool = True
    is_bare: bool = False  # without what a caller knows or can do without
    next: str = ""


class _Writer:
    """Writes one outline in different ways."""

    def __init__(
        self, outline: TierOutline, items: Sequence[Variants], allowed: Allowance, counter: TokenCounter
    ) -> None:
        self._outline, self._allowed, self._counter = outline, allowed, counter
        self._wanted = len(items)
        self._items = items[: allowed.tokens // SMALLEST_ITEM]  # more can never be shown, and each costs time

    def drafts(self, sufficient: int) -> Iterator[_Draft]:
        """Drafts with less and less around the items."""
        yield _Draft(is_whole=False, next=self._outline.path(sufficient))
        yield _Draft(is_whole=False, is_bare=True, next=f"?budget={sufficient}")
        yield _Draft(is_whole=False, is_bare=True)

    def fit(self, draft: _Draft) -> View | None:
        """The answer with the items that there is room for; None when there is room for none of them."""

        def write(cards: Sequence[Card]) -> tuple[View, int]:
            view = self.write(replace(draft, cards=cards))
            return view, view.tokens

        least = min(1, len(self._items))
        return fit_between(self._items, self._allowed.tokens, self._counter, write, least=least)

    def write_empty(self, sufficient: int) -> View:
        """The answer without any item, and what to ask where there is room for that."""
        view = self.write(_Draft(is_whole=False, is_bare=True, next=f"?budget={sufficient}"))
        return view if view.tokens <= self._allowed.tokens else self.write(_Draft(is_whole=False, is_bare=True))

    def write(self, draft: _Draft) -> View:
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
        outline = self._outline
        head = _json({"tier": outline.tier, **({} if draft.is_bare else outline.before)})[:-1]
        if outline.items:
            items = f',"{outline.items}":[{",".join(card.text for card in draft.cards)}],'
        else:
            items = f",{''.join(f'{card.text[1:-1]},' for card in draft.cards)}"
        tokens = (len(head) + len(items)) // LETTERS
        for _ in range(ATTEMPTS):
            text = f"{head}{items}{_json(self._numbers(draft, tokens))[1:]}"
            counted = self._counter.count(text)
            if counted == tokens:
                break
            tokens = counted
        return text, tokens

    def _numbers(self, draft: _Draft, tokens: int) -> dict[str, Any]:
        """Fields behind the items: those of the outline, and those that every answer has."""
        outline, shown = self._outline, len(draft.cards)
        told: dict[str, Any] = {**({} if draft.is_bare else outline.after), "tokens": tokens}
        if not draft.is_bare:
            told["budget"] = {
                "limit": self._allowed.step.limit,
                "cumulative": self._allowed.before + tokens,
                "counter": self._counter.name,
            }
        told["truncated"] = not draft.is_whole
        if outline.items:
            told |= {"shown": shown, "total": outline.total}
            if not (draft.is_whole or draft.is_bare) and shown < self._wanted:
                told["warning"] = outline.warning(shown, self._wanted)
        following = outline.next if draft.is_whole else draft.next
        return {**told, **({"next": following} if following else {})}


def _sufficient(tokens: int) -> int:
    """The budget in which an answer of so many tokens fits, as it is told."""
    return -(-(tokens + 1) // ROUNDED) * ROUNDED


def _json(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values).decode()


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
        """Parameters that lead to this page, without those that have their default."""
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


def page_of(tools: Sequence[Tool], page: int, size: int) -> ToolPage:
    """One page of a list of tools."""
    return ToolPage(tools=tools[(page - 1) * size : page * size], total=len(tools), page=page, size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """The tools that one caller sees at one moment, as each tier shows them."""

    seen: CatalogView
    key: Hashable  # tells this view from one with other tools or other standings
    called: int = 0  # how many tools were called so far: their order, and what is told of them, follow
    order: Order
    counter: TokenCounter
    aliases: Mapping[str, str] = field(default_factory=dict)  # servers in the order of the config, and their aliases
    packaging: Mapping[str, Packaging] = field(default_factory=dict)
    known: Mapping[str, Category] = field(default_factory=dict)
    """Every category that was written down, shipped or named."""
    paths: TierLinks = REST
    learned: Callable[[Tool], Mapping[str, Any] | None] = lambda tool: None
    """The learned schema of a tool's results, where there is one."""

    def tools_of(self, category: str) -> list[Tool]:
        """The tools of a category, best first."""
        return self.order.best_first(tool for tool in self.seen.tools if tool.category == category)

    def hot(self, allowed: Allowance) -> View:
        """T0."""
        chosen = self.order.hottest(self.seen.tools, self.seen.pinned, list(self.aliases), HOT_TOOLS)
        outline = TierOutline(
            tier="hot",
            items="tools",
            ids=[tool.id for tool in chosen],
            total=len(self.seen.visible),
            next=self.paths.categories,
            path=lambda tokens: self.paths.ask(self.paths.hot, {"budget": tokens}),
            advice=LARGER_BUDGET,
        )
        return compose(outline, [self._forms(tool).hot() for tool in chosen], allowed, self.counter)

    def categories(self, shown: Mapping[str, Category], allowed: Allowance) -> View:
        """T1, of these categories and of those of visible tools."""
        tools: dict[str, list[Tool]] = {name: [] for name in shown}
        for tool in self.seen.tools:
            tools.setdefault(tool.category, []).append(tool)
        found = [shown.get(name) or unwritten(name) for name in tools]
        items = []
        for category in sorted(found, key=lambda category: (category.order, category.name)):
            own = tools[category.name]
            popular = [self._forms(tool).name for tool in self.order.best_first(own)[:POPULAR_TOOLS]]
            items.append(category_forms(category, len(own), len({tool.id.server for tool in own}), popular))
        outline = TierOutline(
            tier="category_overview",
            items="categories",
            total=len(items),
            next=self.paths.any_category,
            path=lambda tokens: self.paths.ask(self.paths.categories, {"budget": tokens}),
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
        return compose(outline, [self._forms(tool).summary() for tool in page.tools], allowed, self.counter)

    def search(self, wanted: Mapping[str, Any], page: ToolPage, found: Findings, allowed: Allowance) -> View:
        """T2 of a search; its hits stand for the tools of the page where words were searched for."""
        told = {hit.tool.id: _told_of(hit) for hit in found.hits}
        items = [self._forms(tool, told.get(tool.id, {})).summary() for tool in page.tools]
        further = search_path(wanted, **{**page.asked, "page": page.following}) if page.following else ""
        retry = "fewer filters" if wanted.keys() - {"text"} else "other words for one thing to do"
        outline = TierOutline(
            tier="tool_summaries",
            items="tools",
            before={"filter": echo(wanted)},
            after={"fits": found.fits, **_doubt(found), "pagination": page.as_data},
            ids=[tool.id for tool in page.tools],
            total=page.total,
            next=(further or self.paths.any_tool) if found.fits else f"{retry}, or {self.paths.categories}",
            path=lambda tokens: search_path(wanted, **page.asked, budget=tokens),
        )
        return compose(outline, items, allowed, self.counter)

    def schema(self, tool: Tool, allowed: Allowance) -> View:
        """T3."""
        return compose(self._whole(tool), [self._forms(tool).schema()], allowed, self.counter)

    def schema_costs(self, tool: Tool, allowed: Allowance, *, longest: int) -> tuple[int, ...]:
        """The cost of T3 in each of its forms, the fullest first; longer ones are not counted letter by letter."""
        return variant_costs(self._whole(tool), self._forms(tool).schema(), allowed, self.counter, longest=longest)

    def _whole(self, tool: Tool) -> TierOutline:
        return TierOutline(
            tier="full_schema",
            ids=[tool.id],
            total=1,
            next="call it by its handle",
            path=lambda tokens: self.paths.tool(tool, budget=tokens),
        )

    def _forms(self, tool: Tool, extra: Mapping[str, Any] | None = None) -> ToolForms:
        server = self.seen.snapshot.servers[tool.id.server]
        return ToolForms(
            tool=tool,
            name=f"{server.short_name(self.aliases)}::{tool.name}",
            server_title=server.title,
            usage=self.order.usage.get(tool.id, Usage()),
            packaging=self.packaging.get(server.name, Packaging()),
            extra=extra or {},
            learned=self.learned(tool),
        )


def _told_of(hit: Hit) -> dict[str, Any]:
    """What a search tells of a tool beside the tool itself."""
    need = {"need": hit.need} if hit.need else {}
    return {"score": hit.score, "also": list(hit.also), **need, "why": dict(hit.why)}


def _doubt(found: Findings) -> dict[str, Any]:
    """That the hits may not do what was asked for, and which words no tool has."""
    weak = {"weak": True} if found.weak else {}
    return {**weak, "unmatched": list(found.unmatched)} if found.unmatched else weak
