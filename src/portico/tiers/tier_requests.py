"""The four tiers of disclosure, each within what the ones before it have left."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint

from portico.catalog.categories_and_order import FALLBACK, SHIPPED, Order, Standings
from portico.domain.call import Caller
from portico.domain.journal_entries import Look
from portico.domain.search_answers import AnswerSize, Findings, Query, View
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, NextCall, UnknownFilter
from portico.gateway import Gateway
from portico.rendering.budget import equal_share
from portico.rendering.cache import AnswerCache
from portico.search.groups_and_doubt import settle

from .compose_tiers import CATEGORY, RESOURCES, REST, TierLinks, TierView, ToolPage, page_of
from .token_budgets import (
    LARGEST_PAGE,
    LARGEST_TOOLS,
    LATER,
    PAGE_SIZE,
    Allowance,
    BudgetReport,
    Sizes,
    Step,
    allowance,
    check_page,
    is_large,
    raise_level,
    report,
)

HOUR = 3_600.0
KEPT = {"hot": HOUR, "categories": 6 * HOUR, "category": HOUR, "search": HOUR, "tool": HOUR, "cap": HOUR}
"""Seconds for which an answer of each kind is kept."""
CATEGORIES_MEASURED, CATEGORIES_CHOSEN = 50, 10
"""Categories whose first pages are all measured to find the one that costs most; of more, the roughly largest are."""
CANDIDATES = LARGEST_TOOLS  # tools by their rough size, of which the largest are found by counting
ENORMOUS = 100_000  # bytes of a definition beyond which it is taken for larger than any budget and not counted
HIGHEST = ENORMOUS // 20
"""Tokens that a schema may cost where another is too large to be counted: that one must not fit by chance."""
NAMED = 10
COMPARED, ALIKE = 2_000, 30
"""Categories that are compared with a misspelled one, and percent of letters that agree in those named."""
SHOWN_LENGTH = 80
LOADED_TOKENS = 6_000

UNLIMITED = Allowance(step=Step.SCHEMA, tokens=sys.maxsize, before=Step.SUMMARIES.limit)

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class TierAnswers:
    """Answers the four tiers of disclosure as JSON; each answer says what it costs and what to ask next."""

    gateway: Gateway
    standings: Standings = field(default_factory=Standings)
    cache: AnswerCache = field(default_factory=AnswerCache)
    paths: TierLinks = REST  # how answers spell what to ask next
    is_quiet: bool = False  # whether looks are neither counted nor written to the journal
    _sizes: Sizes = field(default_factory=Sizes)
    _writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    def as_resources(self, *, is_quiet: bool = False) -> TierAnswers:
        """The same for callers who read resources: answers lead on by URIs."""
        return replace(self, paths=RESOURCES, is_quiet=is_quiet)

    async def hot(self, caller: Caller, *, budget: int | None = None) -> View:
        """T0: pinned tools, then those that stand best; at most 15.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        tiers = self._tier_view(caller)
        return self._record(tiers, await self._hot(tiers, budget, counted=True), Look.BROWSE, "", started)

    async def categories(self, caller: Caller, *, budget: int | None = None) -> View:
        """T1: every category, also an empty one, with its numbers and its two best tools.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        tiers = self._tier_view(caller)
        return self._record(tiers, await self._categories(tiers, budget, counted=True), Look.BROWSE, "", started)

    async def category(
        self, caller: Caller, name: str, *, page: int = 1, page_size: int = PAGE_SIZE, budget: int | None = None
    ) -> View:
        """T2: the tools of one category, best first; a page beyond the last one is empty.

        Raises:
            UnknownFilter: there is no such category; the nearest are named.
            InvalidArguments: a page, page size or budget that cannot be.
        """
        started = time.perf_counter()
        check_page(page, page_size)
        tiers = self._tier_view(caller)
        known = self._known_category(tiers, name)
        view = await self._category(tiers, known, page=page, page_size=page_size, budget=budget, counted=True)
        return self._record(tiers, view, Look.BROWSE, known, started)

    async def tool(self, caller: Caller, server: str, tool: str, *, budget: int | None = None) -> View:
        """T3: everything about one tool; server and tool by original name, alias or identifier.

        Raises:
            UnknownTool: there is no such tool that this caller may see.
            AmbiguousTool: several tools are spelled so.
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        tiers = self._tier_view(caller)
        found = self._known_tool(tiers, server, tool)
        view = await self._tool(tiers, found, budget, counted=True)
        return self._record(tiers, view, Look.DESCRIBE, found.handle, started)

    async def search(
        self, caller: Caller, query: Query, *, page: int = 1, page_size: int = PAGE_SIZE, budget: int | None = None
    ) -> View:
        """T2 at once: the tools that answer a question or pass filters; where none fits, the nearest ones.

        Without words, all tools that pass the filters, best first.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
            InvalidArguments: a page, page size, budget or filter that cannot be.
        """
        started = time.perf_counter()
        check_page(page, page_size)
        await self.gateway.prefetch_embedding(query.text)
        tiers = self._tier_view(caller)
        found, place = None, (page - 1) * page_size + 1
        if query.text.strip():
            found = self.gateway.hits(tiers.seen, query)
            if not found.fits:
                found = replace(found, hits=tuple(self.gateway.nearest(tiers.seen, query)))
            allowed = await self._left(tiers, budget)
            hits = found.hits[place - 1 : place - 1 + page_size]
            hits = tuple(settle(hits, tiers.order.usage, found.learned))
            shown = ToolPage(tools=[hit.tool for hit in hits], total=len(found.hits), page=page, size=page_size)
            view = tiers.search({**query.filters, "text": query.text}, shown, replace(found, hits=hits), allowed)
        else:
            view = await self._filtered(tiers, query, page, page_size, budget)
        if not self.is_quiet:
            answer = _size(view, fits=found.fits if found else view.total > 0)
            self.gateway.record_search(tiers.seen, query, found, answer, shown=view.shown, place=place, since=started)
        return view

    async def load_tools_with_budget(self, caller: Caller, category: str, max_tokens: int = LOADED_TOKENS) -> View:
        """As many tools of a category as fit, at least one of them however short; what was left out is told.

        Raises:
            UnknownFilter: there is no such category; the nearest are named.
            InvalidArguments: the budget is too small.
        """
        return await self.category(caller, category, page_size=LARGEST_PAGE, budget=max_tokens)

    async def prepare(self, caller: Caller) -> None:
        """Make what every way through the tiers begins with; nothing is counted or written to the journal."""
        for answers in (self, self.as_resources()):
            tiers = answers._tier_view(caller)
            await answers._cap(tiers, await answers._left(tiers))

    async def verify(self, caller: Caller) -> BudgetReport:
        """Measure the tiers as they are served: T2 of the largest category, T3 of the ten largest tools."""
        tiers = self._tier_view(caller)
        category = await self._largest_category(tiers)
        tools = [tool for _, tool in (await self._measure(tiers, LARGEST_TOOLS))[:LARGEST_TOOLS]]
        costs = [
            (await self._hot(tiers)).tokens,
            (await self._categories(tiers)).tokens,
            (await self._category(tiers, category)).tokens if category else 0,
            sum([(await self._tool(tiers, tool)).tokens for tool in tools]),
        ]
        ids = [tool.id for tool in tools]
        names = [self.gateway.spell_id(id) for id in ids]
        found = report(costs, counter=self.gateway.counter.name, category=category, tools=ids, names=names)
        logger.log(logging.INFO if found.ok else logging.ERROR, "%s", "; ".join([str(found), *found.failures]))
        return found

    async def get_largest_category(self, caller: Caller) -> str:
        """The category whose first page costs most, or nothing; of very many, only those are counted that look so."""
        return await self._largest_category(self._tier_view(caller))

    async def get_largest_tools(self, caller: Caller, limit: int = LARGEST_TOOLS) -> list[Tool]:
        """The tools with the largest schemas, largest first."""
        return [tool for _, tool in (await self._measure(self._tier_view(caller), limit))[:limit]]

    def estimate_tokens(self, text: str) -> int:
        """Tokens of a text, by the counter that every answer names."""
        return self.gateway.counter.count(text)

    verify_tier_budget = verify

    def _tier_view(self, caller: Caller) -> TierView:
        gateway, seen = self.gateway, self.gateway.view(caller)
        usage = gateway.executor.journal.usage()
        return TierView(
            seen=seen,
            key=(seen.snapshot.number, seen.shared.number, self.standings.revision, self.paths.kind),
            called=gateway.standings.first_calls.noticed(usage),
            order=Order(tiers=self.standings.tiers, usage=usage, now=time.time()),
            counter=gateway.counter,
            aliases=gateway.publisher.aliases,
            packaging=self.standings.packaging,
            known=self.standings.known(SHIPPED, gateway.publisher.rule.named),
            paths=self.paths,
            learned=gateway.executor.learned_schemas.shape_of,
        )

    async def _hot(self, tiers: TierView, budget: int | None = None, *, counted: bool = False) -> View:
        return await self._keep(tiers, "hot", (), tiers.hot, allowance(Step.HOT, 0, budget), budget, counted=counted)

    async def _categories(self, tiers: TierView, budget: int | None = None, *, counted: bool = False) -> View:
        used = tiers.seen.facets.categories
        shown = {name: category for name, category in tiers.known.items() if name != FALLBACK or name in used}
        make = partial(tiers.categories, shown)
        allowed = allowance(Step.CATEGORIES, (await self._hot(tiers)).tokens, budget)
        return await self._keep(tiers, "categories", (), make, allowed, budget, counted=counted)

    async def _category(
        self,
        tiers: TierView,
        name: str,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        budget: int | None = None,
        counted: bool = False,
    ) -> View:
        def make(allowed: Allowance) -> View:
            return tiers.category(name, page_of(tiers.tools_of(name), page, page_size), allowed)

        allowed = await self._left(tiers, budget)
        return await self._keep(tiers, "category", (name, page, page_size), make, allowed, budget, counted=counted)

    async def _filtered(self, tiers: TierView, query: Query, page: int, page_size: int, budget: int | None) -> View:
        within = self.gateway.narrow(tiers.seen, query)

        def make(allowed: Allowance) -> View:
            passed = tiers.order.best_first(tool for tool in tiers.seen.tools if tool.id in within)
            return tiers.search(query.filters, page_of(passed, page, page_size), Findings(fits=bool(passed)), allowed)

        key, allowed = (tuple(query.filters.items()), page, page_size), await self._left(tiers, budget)
        # Which tools are fast or good enough changes with every call.
        is_kept = not (query.max_latency_ms or query.min_success)
        return await self._keep(tiers, "search", key, make, allowed, budget, is_kept=is_kept, counted=True)

    async def _tool(self, tiers: TierView, tool: Tool, budget: int | None = None, *, counted: bool = False) -> View:
        left = await self._left(tiers)
        before = left.before + (await self._category(tiers, tool.category)).tokens
        allowed = allowance(Step.SCHEMA, before, budget or await self._cap(tiers, left))
        usage = tiers.order.usage.get(tool.id)
        called = usage.calls if usage else 0
        make = partial(tiers.schema, tool)
        return await self._keep(tiers, "tool", (tool.id,), make, allowed, budget, called=called, counted=counted)

    async def _keep(
        self,
        tiers: TierView,
        kind: str,
        key: tuple[Hashable, ...],
        make: Callable[[Allowance], View],
        allowed: Allowance,
        budget: int | None,
        *,
        called: int | None = None,
        is_kept: bool = True,
        counted: bool,
    ) -> View:
        """An answer from the cache; one that was asked for in a budget of its own is of no use to others."""

        async def made() -> View:
            # A server may offer tools with thousands of parameters: writing those must not hold up everybody else.
            return await to_thread.run_sync(make, allowed, limiter=self._writers)

        if budget is not None or not is_kept:
            return await made()
        version = (tiers.called if called is None else called, allowed)
        counted = counted and not self.is_quiet
        return await self.cache.get(kind, (tiers.key, *key), made, KEPT[kind], version=version, counted=counted)

    async def _left(self, tiers: TierView, budget: int | None = None) -> Allowance:
        """The budget of T2, after T0 and T1 as this caller gets them."""
        before = (await self._hot(tiers)).tokens + (await self._categories(tiers)).tokens
        return allowance(Step.SUMMARIES, before, budget)

    async def _cap(self, tiers: TierView, left: Allowance) -> int:
        """The budget of one schema of T3, so that any ten of them fit what the other tiers leave."""

        async def make() -> int:
            category = await self._largest_category(tiers)
            first = (await self._category(tiers, category)).tokens if category else 0
            worst = left.tokens if len(tiers.seen.facets.categories) > CATEGORIES_MEASURED else first
            return await self._share(tiers, Step.SCHEMA.limit - left.before - worst - LATER)

        version = (tiers.called, left)
        return await self.cache.get("cap", tiers.key, make, KEPT["cap"], version=version, counted=False)

    async def _share(self, tiers: TierView, room: int) -> int:
        """The share of each schema, so that any ten of them, shortened as they then are, fill a room."""
        measured = await self._measure(tiers, LARGEST_TOOLS)
        level = equal_share([size for size, _ in measured[:LARGEST_TOOLS]], room)
        if not measured or measured[0][0] <= level:
            return level
        costs = [await self._variants(tiers, tool) if size > level else (size,) for size, tool in measured]
        others = min(LARGEST_TOOLS, len(tiers.seen.visible) - len(measured))
        costs += [(measured[-1][0],)] * others  # which cost no more than the smallest of those that were measured
        return max(level, min(raise_level(level, costs, room), HIGHEST))

    async def _largest_category(self, tiers: TierView) -> str:
        measured = list(tiers.seen.facets.categories)
        if len(measured) > CATEGORIES_MEASURED:
            measured = self._roughly_largest(tiers)
        costs = {name: (await self._category(tiers, name)).tokens for name in measured}
        return min(costs, key=lambda name: (-costs[name], name), default="")

    def _roughly_largest(self, tiers: TierView) -> list[str]:
        """The categories whose first pages have most letters, about."""
        tools: dict[str, list[Tool]] = {}
        for tool in tiers.seen.tools:
            tools.setdefault(tool.category, []).append(tool)
        sections = tiers.seen.snapshot.sections

        def letters(name: str) -> int:
            first = tiers.order.best_first(tools[name])[:PAGE_SIZE]
            return sum(self._sizes.summary(sections[tool.id.server], tool) for tool in first)

        return nlargest(CATEGORIES_CHOSEN, sorted(tools), key=letters)

    async def _measure(self, tiers: TierView, limit: int) -> list[tuple[int, Tool]]:
        """The tools whose schemas cost most, and some more; those that are far too large are not counted.

        This takes a while in a new snapshot, so that others have their turn in between.
        """

        async def cost(tool: Tool) -> int:
            return await self._count(tiers, "cost", tool, lambda: tiers.schema(tool, UNLIMITED).tokens)

        rough = self._sizes.largest(tiers.seen.snapshot, tiers.seen.visible, limit + CANDIDATES)
        sizes = [(size if size > ENORMOUS else await cost(tool), tool) for size, tool in rough]
        return sorted(sizes, key=lambda row: (-row[0], row[1].id))

    async def _variants(self, tiers: TierView, tool: Tool) -> tuple[int, ...]:
        make = partial(tiers.schema_costs, tool, UNLIMITED, longest=ENORMOUS)
        return await self._count(tiers, "variants", tool, make)

    async def _count(self, tiers: TierView, kind: str, tool: Tool, make: Callable[[], T]) -> T:
        """The cost of a tool, counted once, and again when more is learned of its results.

        It is counted in a thread where that may take long, and others have their turn.
        """
        section, learned = (
            tiers.seen.snapshot.sections[tool.id.server],
            self.gateway.executor.learned_schemas.results_of(tool),
        )
        count = partial(self._sizes.keep, section, (kind, tool.id), make, learned)
        if is_large(tool):
            return await to_thread.run_sync(count, limiter=self._writers)
        await checkpoint()
        return count()

    def _known_category(self, tiers: TierView, name: str) -> str:
        every = [*dict.fromkeys((*tiers.seen.facets.categories, *tiers.known))]
        if name in every:
            return name
        folded = {other.casefold(): other for other in reversed(every)}
        if name.casefold() in folded:
            return folded[name.casefold()]
        nearest = nearest_names(name, every[:COMPARED], NAMED, cutoff=ALIKE)
        listed = ", ".join(other[:SHOWN_LENGTH] for other in nearest)
        error = UnknownFilter(
            f"category {name[:SHOWN_LENGTH]!r}",
            details=(
                *([f"categories, nearest first: {listed}"] if nearest else []),
                f"all of them: {tiers.paths.categories}",
            ),
            next_call=NextCall("search", {"query": "", **({"category": nearest[0]} if nearest else {})}),
        )
        if tool := self._namesake(tiers, name):
            error.add(f"the server {CATEGORY!r} has such a tool: {tiers.paths.tool(tool)}")
            error.next_call = NextCall("describe", {"names": [tool.handle]})
        raise error

    def _namesake(self, tiers: TierView, name: str) -> Tool | None:
        """The tool of a server that is called like the word before a category's name, where that hides the server."""
        if CATEGORY in tiers.paths.taken:
            with suppress(CallError):
                found = self._known_tool(tiers, CATEGORY, name)
                server = found.id.server
                return found if CATEGORY in (server, tiers.aliases.get(server)) else None
        return None

    def _known_tool(self, tiers: TierView, server: str, tool: str) -> Tool:
        """The pair as it is spelled by the source, or as the resolver reads it."""
        named = next((name for name, alias in tiers.aliases.items() if alias == server and alias), server)
        for name in (server, named):
            if (id := ToolId(name, tool)) in tiers.seen.visible:
                return tiers.seen.snapshot.tools[id]
        return tiers.seen.tool(f"{named}::{tool}")

    def _record(self, tiers: TierView, view: View, look: Look, text: str, started: float) -> View:
        if not self.is_quiet:
            self.gateway.record_lookup(tiers.seen, look, text, _size(view), since=started)
        return view


def _size(view: View, *, fits: bool = True) -> AnswerSize:
    return AnswerSize(tokens=view.tokens, shown=len(view.shown), total=view.total, fits=fits)
