"""What one caller sees at one moment, and the answer of each tier that is made of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from portico.catalog.standings import Order
from portico.domain.disclosure import Hit, View
from portico.domain.server import Packaging
from portico.domain.snapshot import Edition
from portico.domain.tool import Category, Tool, ToolId, unwritten
from portico.protocols import TokenCounter
from portico.rendering.json_forms import Shown, category_forms, hot_forms, schema_forms, short_name, summary_forms

from .budget import HOT_TOOLS, LARGER_BUDGET, PAGE_SIZE, POPULAR_TOOLS, Allowance
from .compose import REST, Outline, Paths, compose, echo, rung_costs, search_path

CALL_IT = "call it by its handle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
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


def paged(tools: Sequence[Tool], page: int, size: int) -> Page:
    """One page of a list of tools."""
    return Page(tools=tools[(page - 1) * size : page * size], total=len(tools), page=page, size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one caller sees at one moment."""

    edition: Edition
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
    paths: Paths = REST
    learned: Callable[[Tool], Mapping[str, Any] | None] = lambda tool: None
    """What the results of a tool have looked like, where that is known."""

    @property
    def tools(self) -> list[Tool]:
        """The tools that the caller sees, in the order of the catalog."""
        return [tool for id, tool in self.edition.tools.items() if id in self.visible]

    def shelf(self, category: str) -> list[Tool]:
        """The tools of a category, best first."""
        return self.order.best_first(tool for tool in self.tools if tool.category == category)

    def hot(self, pins: Sequence[Tool], allowed: Allowance) -> View:
        """T0."""
        chosen = self.order.hottest(self.tools, pins, list(self.aliases), HOT_TOOLS)
        outline = Outline(
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
        outline = Outline(
            tier="category_overview",
            items="categories",
            total=len(items),
            next=self.paths.any_category,
            path=lambda tokens: self.paths.asking(self.paths.categories, {"budget": tokens}),
            advice=LARGER_BUDGET,
        )
        return compose(outline, items, allowed, self.counter)

    def category(self, name: str, page: Page, allowed: Allowance) -> View:
        """T2 of a category."""
        following = {**page.asked, "page": page.following}
        last = self.paths.any_tool if page.total else self.paths.categories
        outline = Outline(
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
        self, wanted: Mapping[str, Any], page: Page, hits: Sequence[Hit], fits: bool, allowed: Allowance
    ) -> View:
        """T2 of a search; hits stand for the tools of the page where words were searched for."""
        told = {hit.tool.id: {"score": hit.score, "why": dict(hit.why)} for hit in hits}
        items = [summary_forms(self._shown(tool, told.get(tool.id, {}))) for tool in page.tools]
        further = search_path(wanted, **{**page.asked, "page": page.following}) if page.following else ""
        retry = "fewer filters" if wanted.keys() - {"text"} else "other words for one thing to do"
        outline = Outline(
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

    def _whole(self, tool: Tool) -> Outline:
        return Outline(
            tier="full_schema",
            ids=[tool.id],
            total=1,
            next=CALL_IT,
            path=lambda tokens: self.paths.tool(tool, budget=tokens),
        )

    def _shown(self, tool: Tool, extra: Mapping[str, Any] | None = None) -> Shown:
        server = self.edition.servers[tool.id.server]
        return Shown(
            tool=tool,
            server=server,
            short=short_name(server, self.aliases),
            usage=self.order.usage.get(tool.id),
            packaging=self.packaging.get(server.name, Packaging()),
            extra=extra or {},
            learned=self.learned(tool),
        )
