"""The walk from the hot list to one tool: four tiers of disclosure, each within what the ones before it have left."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from weakref import WeakKeyDictionary

from anyio.lowlevel import checkpoint

from portico.discovery.cache import AnswerCache
from portico.discovery.pages import worded
from portico.discovery.paths import CATEGORIES
from portico.discovery.ranking import settle
from portico.discovery.scenes import Page, Scene, paged
from portico.discovery.sizes import Sizes
from portico.discovery.standings import Order, Standings
from portico.discovery.tiers import (
    LARGEST_PAGE,
    LARGEST_TOOLS,
    LATER,
    PAGE_SIZE,
    Allowance,
    BudgetReport,
    Step,
    allowance,
    check_page,
    report,
    water_level,
)
from portico.domain.caller import Caller
from portico.domain.category import Category
from portico.domain.disclosure import Findings, Hit
from portico.domain.edition import Edition
from portico.domain.journal import Look, Lookup
from portico.domain.query import Query
from portico.domain.tool import Tool, ToolId
from portico.domain.view import View
from portico.errors import NextCall, UnknownFilter
from portico.gateway import Gateway
from portico.intake.shelves import FALLBACK, SHIPPED

HOUR = 3_600.0
KEPT = {"hot": HOUR, "categories": 6 * HOUR, "category": HOUR, "tool": HOUR, "cap": HOUR}
"""How long an answer of each kind is kept, in seconds."""
CATEGORIES_MEASURED = 50
"""Categories whose first pages are measured to find the one that costs most."""
CANDIDATES = LARGEST_TOOLS
"""Tools by their rough size, of which the largest are found by counting."""
ENORMOUS = 100_000
"""Bytes of a definition beyond which it is taken for larger than any budget and not counted."""
NAMED = 10
SHOWN_LENGTH = 80
TEXT_KEPT = 200
"""Characters of a question that are written to the journal."""
LOADED_TOKENS = 6_000

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Walk:
    """Answers the four tiers of disclosure as JSON; each answer says what it costs and what to ask next."""

    gateway: Gateway
    standings: Standings = field(default_factory=Standings)
    cache: AnswerCache = field(default_factory=AnswerCache)
    _sizes: Sizes = field(default_factory=Sizes)
    _marks: WeakKeyDictionary[Edition, dict[frozenset[ToolId], int]] = field(default_factory=WeakKeyDictionary)
    """A number for each set of tools that a caller sees, so that no answer keeps the set of an edition long gone."""

    async def hot(self, caller: Caller, *, budget: int | None = None) -> View:
        """T0: pinned tools, then those that stand best; at most 15.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        view = await self._hot(caller, self._scene(caller), budget, counted=True)
        return self._journalled(caller, view, Look.BROWSE, "", started)

    async def categories(self, caller: Caller, *, budget: int | None = None) -> View:
        """T1: every category, also an empty one, with its numbers and its two best tools.

        Raises:
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        view = await self._categories(caller, self._scene(caller), budget, counted=True)
        return self._journalled(caller, view, Look.BROWSE, "", started)

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
        scene = self._scene(caller)
        known = self._known_category(scene, name)
        view = await self._category(caller, scene, known, page=page, page_size=page_size, budget=budget, counted=True)
        self.gateway.executor.trail.showed(caller, view.shown, (page - 1) * page_size + 1)
        return self._journalled(caller, view, Look.BROWSE, known, started)

    async def tool(self, caller: Caller, server: str, tool: str, *, budget: int | None = None) -> View:
        """T3: everything about one tool; server and tool by original name, alias or identifier.

        Raises:
            UnknownTool: there is no such tool that this caller may see.
            AmbiguousTool: several tools are spelled so.
            InvalidArguments: the budget is too small.
        """
        started = time.perf_counter()
        scene = self._scene(caller)
        found = self._known_tool(scene, server, tool)
        view = await self._tool(caller, scene, found, budget, counted=True)
        return self._journalled(caller, view, Look.DESCRIBE, found.handle, started)

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
        scene = self._scene(caller)
        found = self._findings(caller, scene, query)
        allowed = await self._left(caller, scene, budget)
        wanted = {**query.filters, **({"text": query.text} if query.text.strip() else {})}
        hits = found.hits[(page - 1) * page_size : page * page_size]
        if query.text.strip():
            hits = tuple(settle(hits, self.gateway.executor.journal.usage()))
        shown = Page(tools=[hit.tool for hit in hits], total=len(found.hits), page=page, size=page_size)
        view = scene.answer(wanted, shown, hits if query.text.strip() else (), found.fits, allowed)
        self.gateway.executor.trail.showed(caller, view.shown, (page - 1) * page_size + 1)
        look = Look.SEARCH if query.text.strip() else Look.BROWSE
        return self._journalled(caller, view, look, worded(query), started, fits=found.fits)

    async def load_tools_with_budget(self, caller: Caller, category: str, max_tokens: int = LOADED_TOKENS) -> View:
        """As many tools of a category as fit, at least one of them however short; what was left out is told.

        Raises:
            UnknownFilter: there is no such category; the nearest are named.
            InvalidArguments: the budget is too small.
        """
        return await self.category(caller, category, page_size=LARGEST_PAGE, budget=max_tokens)

    async def prepare(self, caller: Caller) -> None:
        """Make what every walk begins with, before somebody asks; nothing is counted or written to the journal."""
        scene = self._scene(caller)
        await self._cap(caller, scene, await self._left(caller, scene))

    async def verify(self, caller: Caller) -> BudgetReport:
        """What the tiers cost as they are served: T2 of the largest category, T3 of the ten largest tools."""
        scene = self._scene(caller)
        category = await self.get_largest_category(caller)
        tools = await self.get_largest_tools(caller)
        costs = [
            (await self._hot(caller, scene)).tokens,
            (await self._categories(caller, scene)).tokens,
            (await self._category(caller, scene, category)).tokens if category else 0,
            sum([(await self._tool(caller, scene, tool)).tokens for tool in tools]),
        ]
        ids = [tool.id for tool in tools]
        found = report(costs, counter=self.gateway.counter.name, category=category, tools=ids)
        logger.log(logging.INFO if found.ok else logging.ERROR, "%s", "; ".join([str(found), *found.failures]))
        return found

    async def get_largest_category(self, caller: Caller) -> str:
        """The category whose first page costs most; of very many, the one with most tools. Empty without tools."""
        scene = self._scene(caller)
        counts = self._used(scene)
        if len(counts) > CATEGORIES_MEASURED:
            return min(counts, key=lambda name: (-counts[name], name))
        costs = {name: (await self._category(caller, scene, name)).tokens for name in counts}
        return min(costs, key=lambda name: (-costs[name], name), default="")

    async def get_largest_tools(self, caller: Caller, limit: int = LARGEST_TOOLS) -> list[Tool]:
        """The tools with the largest schemas, largest first."""
        return [tool for _, tool in await self._largest(self._scene(caller), limit)]

    def estimate_tokens(self, text: str) -> int:
        """What a text costs, by the counter that every answer names."""
        return self.gateway.counter.count(text)

    verify_tier_budget = verify

    def _scene(self, caller: Caller) -> Scene:
        gateway, edition = self.gateway, self.gateway.edition
        visible = frozenset(gateway.policy.visible(caller, edition))
        marks = self._marks.setdefault(edition, {})
        return Scene(
            edition=edition,
            visible=visible,
            key=(edition.number, marks.setdefault(visible, len(marks)), self.standings.revision),
            order=Order(tiers=self.standings.tiers, usage=gateway.executor.journal.usage(), now=time.time()),
            counter=gateway.counter,
            aliases=gateway.editions.aliases,
            packaging=self.standings.packaging,
        )

    async def _hot(self, caller: Caller, scene: Scene, budget: int | None = None, *, counted: bool = False) -> View:
        allowed = allowance(Step.HOT, 0, budget)
        return await self._kept(
            "hot", scene, (), allowed, lambda: scene.hot(self.gateway.pinned(caller), allowed), counted
        )

    async def _categories(
        self, caller: Caller, scene: Scene, budget: int | None = None, *, counted: bool = False
    ) -> View:
        allowed = allowance(Step.CATEGORIES, (await self._hot(caller, scene)).tokens, budget)
        return await self._kept(
            "categories", scene, (), allowed, lambda: scene.categories(self._shelves(scene), allowed), counted
        )

    async def _category(
        self,
        caller: Caller,
        scene: Scene,
        name: str,
        *,
        page: int = 1,
        page_size: int = PAGE_SIZE,
        budget: int | None = None,
        counted: bool = False,
    ) -> View:
        allowed = await self._left(caller, scene, budget)

        def make() -> View:
            return scene.category(name, paged(scene.shelf(name), page, page_size), allowed)

        return await self._kept("category", scene, (name, page, page_size), allowed, make, counted)

    async def _tool(
        self, caller: Caller, scene: Scene, tool: Tool, budget: int | None = None, *, counted: bool = False
    ) -> View:
        left = await self._left(caller, scene)
        before = left.before + (await self._category(caller, scene, tool.category)).tokens
        allowed = allowance(Step.SCHEMA, before, budget or await self._cap(caller, scene, left))
        usage = scene.order.usage.get(tool.id)
        key = (tool.id, usage.calls if usage else 0)
        return await self._kept("tool", scene, key, allowed, lambda: scene.schema(tool, allowed), counted)

    async def _left(self, caller: Caller, scene: Scene, budget: int | None = None) -> Allowance:
        """What T2 may cost, after T0 and T1 as this caller gets them."""
        before = (await self._hot(caller, scene)).tokens + (await self._categories(caller, scene)).tokens
        return allowance(Step.SUMMARIES, before, budget)

    async def _cap(self, caller: Caller, scene: Scene, left: Allowance) -> int:
        """What one schema of T3 may cost, so that any ten of them fit what the other tiers leave."""

        async def make() -> int:
            category = await self.get_largest_category(caller)
            first = (await self._category(caller, scene, category)).tokens if category else 0
            worst = left.tokens if len(self._used(scene)) > CATEGORIES_MEASURED else first
            room = Step.SCHEMA.limit - left.before - worst - LATER
            return water_level([size for size, _ in await self._largest(scene, LARGEST_TOOLS)], room)

        return await self.cache.get("cap", (scene.key, left), make, KEPT["cap"], counted=False)

    async def _largest(self, scene: Scene, limit: int) -> list[tuple[int, Tool]]:
        """The tools whose schemas cost most; those that are far too large are not counted letter by letter.

        This takes a while in a new edition, so that others have their turn in between.
        """
        unlimited = Allowance(step=Step.SCHEMA, tokens=sys.maxsize, before=Step.SUMMARIES.limit)

        async def cost(tool: Tool) -> int:
            await checkpoint()
            return self._sizes.counted(scene.edition, tool, lambda: scene.schema(tool, unlimited).tokens)

        rough = self._sizes.largest(scene.edition, scene.visible, limit + CANDIDATES)
        sizes = [(size if size > ENORMOUS else await cost(tool), tool) for size, tool in rough]
        return sorted(sizes, key=lambda row: (-row[0], row[1].id))[:limit]

    async def _kept(
        self, kind: str, scene: Scene, key: Hashable, allowed: Allowance, make: Callable[[], View], counted: bool
    ) -> View:
        async def made() -> View:
            await checkpoint()
            return make()

        return await self.cache.get(kind, (scene.key, key, allowed), made, KEPT[kind], counted=counted)

    def _shelves(self, scene: Scene) -> dict[str, Category]:
        """Every category that is known: shipped, named by the config, or written down."""
        rule = self.gateway.editions.rule
        named = {name: Category(name=name) for name in (*rule.explicit.values(), *rule.servers.values())}
        found = {**named, **SHIPPED, **self.standings.categories}
        return {name: category for name, category in found.items() if name != FALLBACK or name in self._used(scene)}

    def _used(self, scene: Scene) -> Mapping[str, int]:
        """The categories that visible tools stand on, with the number of tools."""
        return self.gateway.filters.facets(scene.edition, scene.visible).categories

    def _known_category(self, scene: Scene, name: str) -> str:
        known = {**self._shelves(scene), **self._used(scene), FALLBACK: None}
        if name in known:
            return name
        folded = {other.casefold(): other for other in reversed(known)}
        if name.casefold() in folded:
            return folded[name.casefold()]
        near = get_close_matches(name[:SHOWN_LENGTH].casefold(), folded, n=NAMED, cutoff=0.0)
        nearest = [folded[other] for other in near]
        listed = ", ".join(other[:SHOWN_LENGTH] for other in nearest)
        raise UnknownFilter(
            f"category {name[:SHOWN_LENGTH]!r}",
            details=(f"categories, nearest first: {listed}", f"all of them: {CATEGORIES}"),
            next_call=NextCall("search", {"query": "", "category": nearest[0]}),
        )

    def _known_tool(self, scene: Scene, server: str, tool: str) -> Tool:
        """The pair as it is spelled by the source, or as the resolver reads it."""
        by_alias = {alias: name for name, alias in scene.aliases.items() if alias}
        for name in (server, by_alias.get(server, server)):
            if (id := ToolId(name, tool)) in scene.visible:
                return scene.edition.tools[id]
        spelling = f"{by_alias.get(server, server)}::{tool}"
        return scene.edition.resolver.resolve(spelling, scene.visible)

    def _findings(self, caller: Caller, scene: Scene, query: Query) -> Findings:
        if query.text.strip():
            found = self.gateway.hits(caller, query)
            return found if found.fits else Findings(hits=tuple(self.gateway.nearest(caller, query)))
        passed = self.gateway.hits(caller, query).hits if query.filters else ()
        tools = [hit.tool for hit in passed] if query.filters else scene.tools
        hits = tuple(Hit(tool=tool, score=scene.order.score(tool.id)) for tool in scene.order.best_first(tools))
        return Findings(hits=hits, fits=bool(hits))

    def _journalled(
        self, caller: Caller, view: View, look: Look, text: str, started: float, *, fits: bool = True
    ) -> View:
        seconds = time.perf_counter() - started
        self.gateway.executor.record(
            Lookup(
                look=look,
                caller=caller.name,
                surface=caller.surface,
                at=time.time() - seconds,
                seconds=seconds,
                text=text[:TEXT_KEPT],
                shown=len(view.shown),
                found=view.total,
                fits=fits,
                tokens=view.tokens,
            )
        )
        return view
