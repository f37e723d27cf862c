"""The four tiers of disclosure, each within what the ones before it have left."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from heapq import nlargest
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import checkpoint

from portico.catalog.categories import FALLBACK, SHIPPED, Order, Standings
from portico.domain.call import Caller
from portico.domain.disclosure import Disclosure, Findings, Query, View
from portico.domain.journal import Look
from portico.domain.tool import Category, Tool, ToolId
from portico.errors import CallError, NextCall, UnknownFilter
from portico.gateway import Gateway
from portico.rendering.budget import water_level
from portico.rendering.cache import AnswerCache, Sights
from portico.rendering.catalog_map import worded
from portico.search.index import settle

from .budget import (
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
    raised_level,
    report,
)
from .view import CATEGORY, RESOURCES, REST, TierLinks, TierView, ToolPage, paged

HOUR = 3_600.0
KEPT = {"hot": HOUR, "categories": 6 * HOUR, "category": HOUR, "search": HOUR, "tool": HOUR, "cap": HOUR}
"""How long an answer of each kind is kept, in seconds."""
CATEGORIES_MEASURED, CATEGORIES_CHOSEN = 50, 10
"""Categories whose first pages are all measured to find the one that costs most; of more, the roughly largest are."""
CANDIDATES = LARGEST_TOOLS
"""Tools by their rough size, of which the largest are found by counting."""
ENORMOUS = 100_000
"""Bytes of a definition beyond which it is taken for larger than any budget and not counted."""
HIGHEST = ENORMOUS // 20
"""Tokens that a schema may cost where another is too large to be counted: that one must not fit by chance."""
NAMED = 10
COMPARED, ALIKE = 2_000, 0.3
"""How many categories are compared with a misspelled one, and how alike those are that it is answered with."""
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
    paths: TierLinks = REST
    """How answers spell what to ask next."""
    is_quiet: bool = False
    """Whether looks are neither counted nor written to the journal."""
    _sizes: Sizes = field(default_factory=Sizes)
    _sights: Sights = field(default_factory=Sights)
    _writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))

    def as_resources(self, *, is_quiet: bool = False) -> TierAnswers:
        """The same walk for callers who read resources: answers lead on by URIs."""
        return replace(self, paths=RESOURCES, is_quiet=is_quiet)

    async def hot(self, caller: Caller, *, budget: int | None = None) -> View:
        """T0: pinned tools, then those that stand best; at most 15.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        view = await self._hot(self._scene(caller), budget, counted=True)
        return self._looked(caller, view, Look.BROWSE, "", started)

    async def categories(self, caller: Caller, *, budget: int | None = None) -> View:
        """T1: every category, also an empty one, with its numbers and its two best tools.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        view = await self._categories(self._scene(caller), budget, counted=True)
        return self._looked(caller, view, Look.BROWSE, "", started)

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
        tier_view = self._scene(caller)
        known = self._known_category(tier_view, name)
        view = await self._category(tier_view, known, page=page, page_size=page_size, budget=budget, counted=True)
        return self._looked(caller, view, Look.BROWSE, known, started)

    async def tool(self, caller: Caller, server: str, tool: str, *, budget: int | None = None) -> View:
        """T3: everything about one tool; server and tool by original name, alias or identifier.

        Raises:
            UnknownTool: there is no such tool that this caller may see.
            AmbiguousTool: several tools are spelled so.
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        tier_view = self._scene(caller)
        found = self._known_tool(tier_view, server, tool)
        view = await self._tool(tier_view, found, budget, counted=True)
        return self._looked(caller, view, Look.DESCRIBE, found.handle, started)

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
        await self.gateway.warm(query.text)
        tier_view = self._scene(caller)
        if not query.text.strip():
            view = await self._filtered(tier_view, query, page, page_size, budget)
            return self._looked(caller, view, Look.BROWSE, worded(query), started, fits=view.total > 0)
        place = (page - 1) * page_size + 1
        found = self._findings(caller, query)
        if (hooks := self.gateway.executor.hooks) is not None and not self.is_quiet:
            hooks.searched(caller, query.text, found)
        allowed = await self._left(tier_view, budget)
        hits = tuple(settle(found.hits[place - 1 : place - 1 + page_size], tier_view.order.usage))
        shown = ToolPage(tools=[hit.tool for hit in hits], total=len(found.hits), page=page, size=page_size)
        view = tier_view.answer({**query.filters, "text": query.text}, shown, hits, found.fits, allowed)
        return self._looked(caller, view, Look.SEARCH, worded(query), started, place=place, fits=found.fits)

    async def load_tools_with_budget(self, caller: Caller, category: str, max_tokens: int = LOADED_TOKENS) -> View:
        """As many tools of a category as fit, at least one of them however short; what was left out is told.

        Raises:
            UnknownFilter: there is no such category; the nearest are named.
            InvalidArguments: the budget is too small.
        """
        return await self.category(caller, category, page_size=LARGEST_PAGE, budget=max_tokens)

    async def prepare(self, caller: Caller) -> None:
        """Make what every walk begins with, before somebody asks; nothing is counted or written to the journal."""
        for tier_answers in (self, self.as_resources()):
            tier_view = tier_answers._scene(caller)
            await tier_answers._cap(tier_view, await tier_answers._left(tier_view))

    async def verify(self, caller: Caller) -> BudgetReport:
        """What the tiers cost as they are served: T2 of the largest category, T3 of the ten largest tools."""
        tier_view = self._scene(caller)
        category = await self._largest_category(tier_view)
        tools = [tool for _, tool in await self._largest(tier_view, LARGEST_TOOLS)]
        costs = [
            (await self._hot(tier_view)).tokens,
            (await self._categories(tier_view)).tokens,
            (await self._category(tier_view, category)).tokens if category else 0,
            sum([(await self._tool(tier_view, tool)).tokens for tool in tools]),
        ]
        ids = [tool.id for tool in tools]
        names = [self.gateway.spelled(id) for id in ids]
        found = report(costs, counter=self.gateway.counter.name, category=category, tools=ids, names=names)
        logger.log(logging.INFO if found.ok else logging.ERROR, "%s", "; ".join([str(found), *found.failures]))
        return found

    async def get_largest_category(self, caller: Caller) -> str:
        """The category whose first page costs most, or nothing; of very many, only those are counted that look so."""
        return await self._largest_category(self._scene(caller))

    async def get_largest_tools(self, caller: Caller, limit: int = LARGEST_TOOLS) -> list[Tool]:
        """The tools with the largest schemas, largest first."""
        return [tool for _, tool in await self._largest(self._scene(caller), limit)]

    def estimate_tokens(self, text: str) -> int:
        """What a text costs, by the counter that every answer names."""
        return self.gateway.counter.count(text)

    verify_tier_budget = verify

    def _scene(self, caller: Caller) -> TierView:
        gateway, snapshot = self.gateway, self.gateway.snapshot
        visible = frozenset(gateway.policy.visible(caller, snapshot))
        usage = gateway.executor.journal.usage()
        return TierView(
            snapshot=snapshot,
            visible=visible,
            key=(snapshot.number, self._sights.number(snapshot, visible), self.standings.revision, self.paths.kind),
            called=gateway.first_calls.noticed(usage),
            order=Order(tiers=self.standings.tiers, usage=usage, now=time.time()),
            counter=gateway.counter,
            aliases=gateway.publisher.aliases,
            packaging=self.standings.packaging,
            known=self.standings.known(SHIPPED, gateway.named_categories),
            paths=self.paths,
            learned=gateway.shape_of,
        )

    async def _hot(self, tier_view: TierView, budget: int | None = None, *, counted: bool = False) -> View:
        allowed = allowance(Step.HOT, 0, budget)

        def make() -> View:
            # Of the tier_view's own snapshot: another one may have been published since.
            return tier_view.hot(self.gateway.pins_within(tier_view.snapshot, tier_view.visible), allowed)

        version = (tier_view.called, allowed)
        return await self._kept("hot", tier_view.key, make, version, is_kept=budget is None, counted=counted)

    async def _categories(self, tier_view: TierView, budget: int | None = None, *, counted: bool = False) -> View:
        allowed = allowance(Step.CATEGORIES, (await self._hot(tier_view)).tokens, budget)

        def make() -> View:
            return tier_view.categories(self._shelves(tier_view), allowed)

        version = (tier_view.called, allowed)
        return await self._kept("categories", tier_view.key, make, version, is_kept=budget is None, counted=counted)

    async def _category(
        self,
        tier_view: TierView,
        name: str,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        budget: int | None = None,
        counted: bool = False,
    ) -> View:
        allowed = await self._left(tier_view, budget)

        def make() -> View:
            return tier_view.category(name, paged(tier_view.shelf(name), page, page_size), allowed)

        key, version = (tier_view.key, name, page, page_size), (tier_view.called, allowed)
        return await self._kept("category", key, make, version, is_kept=budget is None, counted=counted)

    async def _filtered(self, tier_view: TierView, query: Query, page: int, page_size: int, budget: int | None) -> View:
        within = self.gateway.within(tier_view.snapshot, tier_view.visible, query)
        allowed = await self._left(tier_view, budget)

        def make() -> View:
            passed = tier_view.order.best_first(tool for id, tool in tier_view.snapshot.tools.items() if id in within)
            return tier_view.answer(query.filters, paged(passed, page, page_size), (), bool(passed), allowed)

        # Which tools are fast or good enough changes with every call.
        is_kept = budget is None and not (query.max_latency_ms or query.min_success)
        key, version = (tier_view.key, tuple(query.filters.items()), page, page_size), (tier_view.called, allowed)
        return await self._kept("search", key, make, version, is_kept=is_kept, counted=True)

    async def _tool(self, tier_view: TierView, tool: Tool, budget: int | None = None, *, counted: bool = False) -> View:
        left = await self._left(tier_view)
        before = left.before + (await self._category(tier_view, tool.category)).tokens
        allowed = allowance(Step.SCHEMA, before, budget or await self._cap(tier_view, left))
        usage = tier_view.order.usage.get(tool.id)
        return await self._kept(
            "tool",
            (tier_view.key, tool.id),
            lambda: tier_view.schema(tool, allowed),
            (usage.calls if usage else 0, allowed),
            is_kept=budget is None,
            counted=counted,
        )

    async def _left(self, tier_view: TierView, budget: int | None = None) -> Allowance:
        """What T2 may cost, after T0 and T1 as this caller gets them."""
        before = (await self._hot(tier_view)).tokens + (await self._categories(tier_view)).tokens
        return allowance(Step.SUMMARIES, before, budget)

    async def _cap(self, tier_view: TierView, left: Allowance) -> int:
        """What one schema of T3 may cost, so that any ten of them fit what the other tiers leave."""

        async def make() -> int:
            category = await self._largest_category(tier_view)
            first = (await self._category(tier_view, category)).tokens if category else 0
            worst = left.tokens if len(self._used(tier_view)) > CATEGORIES_MEASURED else first
            return await self._filling(tier_view, Step.SCHEMA.limit - left.before - worst - LATER)

        version = (tier_view.called, left)
        return await self.cache.get("cap", tier_view.key, make, KEPT["cap"], version=version, counted=False)

    async def _filling(self, tier_view: TierView, room: int) -> int:
        """What each schema may cost so that any ten of them, shortened as they then are, fill a room."""
        measured = await self._measured(tier_view, LARGEST_TOOLS)
        level = water_level([size for size, _ in measured[:LARGEST_TOOLS]], room)
        if not measured or measured[0][0] <= level:
            return level
        ladders = [await self._rungs(tier_view, tool) if size > level else (size,) for size, tool in measured]
        others = min(LARGEST_TOOLS, len(tier_view.visible) - len(measured))
        ladders += [(measured[-1][0],)] * others  # which cost no more than the smallest of those that were measured
        return max(level, min(raised_level(level, ladders, room), HIGHEST))

    async def _largest_category(self, tier_view: TierView) -> str:
        used = list(self._used(tier_view))
        measured = used if len(used) <= CATEGORIES_MEASURED else self._seemingly_largest(tier_view)
        costs = {name: (await self._category(tier_view, name)).tokens for name in measured}
        return min(costs, key=lambda name: (-costs[name], name), default="")

    def _seemingly_largest(self, tier_view: TierView) -> list[str]:
        """The categories whose first pages have most letters, about."""
        shelves: dict[str, list[Tool]] = {}
        for tool in tier_view.tools:
            shelves.setdefault(tool.category, []).append(tool)

        def letters(name: str) -> int:
            first = tier_view.order.best_first(shelves[name])[:PAGE_SIZE]
            return sum(self._sizes.summary(tier_view.snapshot, tool) for tool in first)

        return nlargest(CATEGORIES_CHOSEN, sorted(shelves), key=letters)

    async def _largest(self, tier_view: TierView, limit: int) -> list[tuple[int, Tool]]:
        return (await self._measured(tier_view, limit))[:limit]

    async def _measured(self, tier_view: TierView, limit: int) -> list[tuple[int, Tool]]:
        """The tools whose schemas cost most, and some more; those that are far too large are not counted.

        This takes a while in a new snapshot, so that others have their turn in between.
        """

        async def cost(tool: Tool) -> int:
            made, count = self.gateway.results_learned(tool), partial(tier_view.schema, tool, UNLIMITED)
            counted = partial(self._sizes.counted, tier_view.snapshot, tool, made, lambda: count().tokens)
            return await self._turn(tool, counted)

        rough = self._sizes.largest(tier_view.snapshot, tier_view.visible, limit + CANDIDATES)
        sizes = [(size if size > ENORMOUS else await cost(tool), tool) for size, tool in rough]
        return sorted(sizes, key=lambda row: (-row[0], row[1].id))

    async def _rungs(self, tier_view: TierView, tool: Tool) -> tuple[int, ...]:
        made, count = (
            self.gateway.results_learned(tool),
            partial(tier_view.schema_costs, tool, UNLIMITED, longest=ENORMOUS),
        )
        return await self._turn(tool, partial(self._sizes.variants, tier_view.snapshot, tool, made, count))

    async def _turn(self, tool: Tool, count: Callable[[], T]) -> T:
        """Count what a tool costs, in a thread where that may take long, and let others have their turn."""
        if is_large(tool):
            return await to_thread.run_sync(count, limiter=self._writers)
        await checkpoint()
        return count()

    async def _kept(
        self,
        kind: str,
        key: Hashable,
        make: Callable[[], View],
        version: Hashable,
        *,
        is_kept: bool,
        counted: bool,
    ) -> View:
        """An answer from the cache; one that was asked for in a budget of its own is of no use to others."""

        async def made() -> View:
            # A server may offer tools with thousands of parameters: writing those must not hold up everybody else.
            return await to_thread.run_sync(make, limiter=self._writers)

        if not is_kept:
            return await made()
        return await self.cache.get(kind, key, made, KEPT[kind], version=version, counted=counted and not self.is_quiet)

    def _shelves(self, tier_view: TierView) -> dict[str, Category]:
        """The categories that are shown also when nothing stands on them."""
        used = self._used(tier_view)
        return {name: category for name, category in tier_view.known.items() if name != FALLBACK or name in used}

    def _used(self, tier_view: TierView) -> Mapping[str, int]:
        """The categories that visible tools stand on, with the number of tools."""
        return self.gateway.filters.facets(tier_view.snapshot, tier_view.visible).categories

    def _known_category(self, tier_view: TierView, name: str) -> str:
        used = self._used(tier_view)
        if name in used or name in tier_view.known:
            return name
        every = [*dict.fromkeys((*used, *tier_view.known))]
        folded = {other.casefold(): other for other in reversed(every)}
        if name.casefold() in folded:
            return folded[name.casefold()]
        compared = {other.casefold(): other for other in every[:COMPARED]}
        near = get_close_matches(name[:SHOWN_LENGTH].casefold(), compared, n=NAMED, cutoff=ALIKE)
        nearest = [compared[other] for other in near]
        listed = ", ".join(other[:SHOWN_LENGTH] for other in nearest)
        error = UnknownFilter(
            f"category {name[:SHOWN_LENGTH]!r}",
            details=(
                *([f"categories, nearest first: {listed}"] if nearest else []),
                f"all of them: {tier_view.paths.categories}",
            ),
            next_call=NextCall("search", {"query": "", **({"category": nearest[0]} if nearest else {})}),
        )
        if tool := self._namesake(tier_view, name):
            error.add(f"the server {CATEGORY!r} has such a tool: {tier_view.paths.tool(tool)}")
            error.next_call = NextCall("describe", {"names": [tool.handle]})
        raise error

    def _namesake(self, tier_view: TierView, name: str) -> Tool | None:
        """The tool of a server that is called like the word before a category's name, where that hides the server."""
        if CATEGORY in tier_view.paths.taken:
            with suppress(CallError):
                found = self._known_tool(tier_view, CATEGORY, name)
                server = found.id.server
                return found if CATEGORY in (server, tier_view.aliases.get(server)) else None
        return None

    def _known_tool(self, tier_view: TierView, server: str, tool: str) -> Tool:
        """The pair as it is spelled by the source, or as the resolver reads it."""
        by_alias = {alias: name for name, alias in tier_view.aliases.items() if alias}
        for name in (server, by_alias.get(server, server)):
            if (id := ToolId(name, tool)) in tier_view.visible:
                return tier_view.snapshot.tools[id]
        spelling = f"{by_alias.get(server, server)}::{tool}"
        return tier_view.snapshot.resolver.resolve(spelling, tier_view.visible)

    def _findings(self, caller: Caller, query: Query) -> Findings:
        found = self.gateway.hits(caller, query)
        return found if found.fits else Findings(hits=tuple(self.gateway.nearest(caller, query)))

    def _looked(
        self,
        caller: Caller,
        view: View,
        look: Look,
        text: str,
        started: float,
        *,
        place: int = 0,
        fits: bool = True,
    ) -> View:
        """The view, after a note of who has seen it; `place` is where its first tool stands among all of them."""
        if not self.is_quiet:
            if place:
                self.gateway.executor.search_rank.showed(caller, view.shown, place)
            seen = Disclosure(text="", tokens=view.tokens, shown=len(view.shown), total=view.total, fits=fits)
            self.gateway.record_lookup(caller, look, text, seen, since=started)
        return view
