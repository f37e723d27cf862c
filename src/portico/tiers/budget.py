"""The budgets of the four tiers, whether answers keep to them, and which tools have the largest definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from heapq import nlargest
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import orjson

from portico.domain.snapshot import CatalogSnapshot, ServerSection
from portico.domain.tool import Tool, ToolId
from portico.errors import InvalidArguments
from portico.rendering.json_forms import SUMMARY_LENGTH

HOT_TOOLS = 15
"""The most tools of T0."""
POPULAR_TOOLS = 2
LARGEST_TOOLS = 10
"""Schemas of T3 that a way through the tiers reads at most."""
PAGE_SIZE = 20
LARGEST_PAGE = 50
SMALLEST_BUDGET = 50
LARGER_BUDGET = "Use a larger budget."
"""What to do about an answer that has no pages."""
LATER = 200
"""Tokens that are left free in T3: calls that come in later give tools a latency and a success rate."""
APART = 20
"""Tokens by which a level stays below what would be too much, since costs change a little with every call."""


class Step(StrEnum):
    """The tiers of disclosure in the order in which they are read."""

    HOT = "T0"
    CATEGORIES = "T1"
    SUMMARIES = "T2"
    SCHEMA = "T3"

    @property
    def limit(self) -> int:
        """Tokens that this tier and those before it may cost together."""
        return _LIMITS[self]


_LIMITS = {Step.HOT: 2_000, Step.CATEGORIES: 4_000, Step.SUMMARIES: 8_000, Step.SCHEMA: 12_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one answer may cost, and what was read before it."""

    step: Step
    tokens: int
    """Of this answer alone."""
    before: int = 0
    """Of the answers that a caller reads on the way to this one."""


def allowance(step: Step, before: int, budget: int | None = None) -> Allowance:
    """What is left of a tier's limit, unless the caller says what the answer may cost.

    Raises:
        InvalidArguments: a budget in which no answer fits.
    """
    if budget is not None and budget < SMALLEST_BUDGET:
        raise InvalidArguments("budget", details=(f"budget is a number of tokens, at least {SMALLEST_BUDGET}",))
    return Allowance(step=step, tokens=step.limit - before if budget is None else budget, before=before)


def check_page(page: int, page_size: int) -> None:
    """Return when there can be such a page.

    Raises:
        InvalidArguments: with what is allowed.
    """
    wrong = []
    if page < 1:
        wrong.append(f"page is a number from 1, not {page}")
    if not 1 <= page_size <= LARGEST_PAGE:
        wrong.append(f"page_size is a number from 1 to {LARGEST_PAGE}, not {page_size}")
    if wrong:
        raise InvalidArguments("page", details=wrong)


def raised_level(level: int, ladders: Sequence[Sequence[int]], room: int, most: int = LARGEST_TOOLS) -> int:
    """A level that is raised as long as any so many answers, shortened as they are, still fit a room together.

    Each answer is given by what its variants cost, the fullest first. One too large is shown at its next variant that
    fits, which may leave a great deal of its share to the others.
    """
    steps = sorted({cost for variants in ladders for cost in variants if cost > level})
    for higher in (*(step - APART for step in steps), *(step + APART for step in steps[-1:])):
        if sum(nlargest(most, (served_cost(variants, higher) for variants in ladders))) > room:
            break
        level = max(level, higher)
    return level


def served_cost(variants: Sequence[int], level: int) -> int:
    """What an answer costs at most at a level: its first variant that fits, or all that it may."""
    return next((cost for cost in variants if cost <= level), level)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """One tier as it was measured."""

    tier: str
    tokens: int
    cumulative: int
    limit: int

    @property
    def ok(self) -> bool:
        """Whether the tiers up to this one fit."""
        return self.cumulative <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """What the tiers cost as they are served: T2 of the largest category, T3 of the largest tools."""

    rows: tuple[BudgetRow, ...]
    counter: str
    """What counted the tokens."""
    category: str = ""
    """The category that was measured."""
    tools: tuple[ToolId, ...] = ()
    """The tools that were measured."""
    names: tuple[str, ...] = ()
    """The same as they are spelled for callers, with the aliases of their servers."""

    @property
    def ok(self) -> bool:
        """Whether every tier fits."""
        return all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[str, ...]:
        """What does not fit, one line each."""
        return tuple(f"{row.tier} exceeds budget: {row.cumulative} tokens" for row in self.rows if not row.ok)

    def __str__(self) -> str:
        return "Budget verification: " + ", ".join(f"{row.tier}={row.cumulative}" for row in self.rows)

    def as_data(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        return {
            "ok": self.ok,
            "counter": self.counter,
            "tiers": [{**asdict(row), "ok": row.ok} for row in self.rows],
            "category": self.category,
            "tools": list(self.names) or [str(id) for id in self.tools],
            "failures": list(self.failures),
            "text": str(self),
        }


def report(
    tokens: Sequence[int],
    *,
    counter: str,
    category: str = "",
    tools: Sequence[ToolId] = (),
    names: Sequence[str] = (),
) -> BudgetReport:
    """The report of what each tier costs, T0 first."""
    rows, cumulative = [], 0
    for step, cost in zip(Step, tokens, strict=True):
        cumulative += cost
        rows.append(BudgetRow(tier=step.value, tokens=cost, cumulative=cumulative, limit=step.limit))
    return BudgetReport(rows=tuple(rows), counter=counter, category=category, tools=tuple(tools), names=tuple(names))


TYPED = 20
"""Letters of a parameter's type, and of what stands around it."""

LARGE = 20_000
"""Bytes of a definition from which on it takes long to write it out in all its forms."""

T = TypeVar("T")


@dataclass(slots=True)
class Sizes:
    """How large definitions are, in bytes: enough to tell those apart that are worth counting."""

    _kept: WeakKeyDictionary[ServerSection, list[tuple[int, ToolId]]] = field(default_factory=WeakKeyDictionary)
    _counted: WeakKeyDictionary[ServerSection, dict[ToolId, tuple[int, int]]] = field(default_factory=WeakKeyDictionary)
    _rungs: WeakKeyDictionary[ServerSection, dict[ToolId, tuple[int, tuple[int, ...]]]] = field(
        default_factory=WeakKeyDictionary
    )
    _summaries: WeakKeyDictionary[ServerSection, dict[ToolId, int]] = field(default_factory=WeakKeyDictionary)

    def largest(self, snapshot: CatalogSnapshot, visible: Set[ToolId], limit: int) -> list[tuple[int, Tool]]:
        """The visible tools with the largest definitions, largest first, with their sizes."""
        sizes = (row for section in snapshot.sections.values() for row in self._of(section) if row[1] in visible)
        return [(size, snapshot.tools[id]) for size, id in nlargest(limit, sizes)]

    def counted(self, snapshot: CatalogSnapshot, tool: Tool, learned: int, count: Callable[[], int]) -> int:
        """What a tool costs by a count that is made once, and again when more is learned of its results."""
        return _once(self._counted, snapshot, tool, lambda: (learned, count()), lambda kept: kept[0] == learned)[1]

    def variants(
        self, snapshot: CatalogSnapshot, tool: Tool, learned: int, count: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """What a tool costs in each of its forms, counted as often as what it costs."""
        return _once(self._rungs, snapshot, tool, lambda: (learned, count()), lambda kept: kept[0] == learned)[1]

    def summary(self, snapshot: CatalogSnapshot, tool: Tool) -> int:
        """About how many letters a tool has in a list of summaries."""
        return _once(self._summaries, snapshot, tool, lambda: _summed_up(tool))

    def _of(self, section: ServerSection) -> list[tuple[int, ToolId]]:
        found = self._kept.get(section)
        if found is None:
            found = [(len(orjson.dumps(tool.definition)), id) for id, tool in section.tools.items()]
            self._kept[section] = found
        return found


def is_large(tool: Tool) -> bool:
    """Whether a tool takes long to write out, so that it is done in a worker thread."""
    return len(orjson.dumps(tool.definition)) > LARGE


def _once(
    kept: WeakKeyDictionary[ServerSection, dict[ToolId, T]],
    snapshot: CatalogSnapshot,
    tool: Tool,
    make: Callable[[], T],
    is_good: Callable[[T], bool] = lambda kept: True,
) -> T:
    known = kept.setdefault(snapshot.sections[tool.id.server], {})
    if tool.id not in known or not is_good(known[tool.id]):
        known[tool.id] = make()
    return known[tool.id]


def _summed_up(tool: Tool) -> int:
    naming = 2 * len(tool.id.server) + len(tool.id.name)
    return naming + min(len(tool.description), SUMMARY_LENGTH) + sum(len(name) + TYPED for name in tool.properties)
