"""The budgets of the four tiers, whether answers keep to them, and which tools have the largest definitions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from heapq import nlargest
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import orjson

from portico.catalog.sections import ServerSection
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.tool import Tool, ToolId
from portico.errors import InvalidArguments

from .tools_as_json import SUMMARY_LENGTH

HOT_TOOLS = 15  # the most tools of T0
POPULAR_TOOLS = 2
LARGEST_TOOLS = 10  # schemas of T3 that a way through the tiers reads at most
PAGE_SIZE = 20
LARGEST_PAGE = 50
SMALLEST_BUDGET = 50
LARGER_BUDGET = "Use a larger budget."  # what to do about an answer that has no pages
LATER = 200  # tokens that are left free in T3: calls that come in later give tools a latency and a success rate
APART = 20  # tokens by which a level stays below what would be too much, since costs change a little with every call


class Step(StrEnum):
    """The tiers of disclosure in the order in which they are read."""

    HOT = "T0"
    CATEGORIES = "T1"
    SUMMARIES = "T2"
    SCHEMA = "T3"

    @property
    def limit(self) -> int:
        """Tokens that this tier and those before it may cost together."""
        return {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The budget of one answer, and the tokens that were read before it."""

    step: Step
    tokens: int  # of this answer alone
    before: int = 0  # of the answers that a caller reads on the way to this one


def allowance(step: Step, before: int, budget: int | None = None) -> Allowance:
    """The rest of a tier's limit, unless the caller says what the answer may cost.

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
    wrong = [f"page is a number from 1, not {page}"] if page < 1 else []
    if not 1 <= page_size <= LARGEST_PAGE:
        wrong.append(f"page_size is a number from 1 to {LARGEST_PAGE}, not {page_size}")
    if wrong:
        raise InvalidArguments("page", details=wrong)


def raise_level(level: int, ladders: Sequence[Sequence[int]], room: int, most: int = LARGEST_TOOLS) -> int:
    """The level, raised as long as any so many answers, shortened as they are, still fit a room together.

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
    """The most that an answer costs at a level: its first variant that fits, or all that it may."""
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
    """The cost of the tiers as they are served: T2 of the largest category, T3 of the largest tools."""

    rows: tuple[BudgetRow, ...]
    counter: str  # what counted the tokens
    category: str = ""  # the category that was measured
    tools: tuple[ToolId, ...] = ()  # the tools that were measured
    names: tuple[str, ...] = ()  # the same as they are spelled for callers, with the aliases of their servers

    @property
    def ok(self) -> bool:
        """Whether every tier fits."""
        return all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[str, ...]:
        """The tiers that do not fit, one line each."""
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


TYPED = 20  # letters of a parameter's type, and of what stands around it
LARGE = 20_000  # bytes of a definition from which on it takes long to write it out in all its forms

T = TypeVar("T")


@dataclass(slots=True)
class Sizes:
    """Costs of tools, each measured once and kept as long as its server offers the same."""

    _kept: WeakKeyDictionary[ServerSection, dict[Hashable, tuple[Hashable, Any]]] = field(
        default_factory=WeakKeyDictionary
    )

    def keep(self, section: ServerSection, key: Hashable, make: Callable[[], T], version: Hashable = None) -> T:
        """The value under a key; made when there is none of this version."""
        kept = self._kept.setdefault(section, {})
        if key not in kept or kept[key][0] != version:
            kept[key] = (version, make())
        value: T = kept[key][1]
        return value

    def largest(self, snapshot: CatalogSnapshot, visible: Set[ToolId], limit: int) -> list[tuple[int, Tool]]:
        """The visible tools with the largest definitions, largest first, with their sizes in bytes."""
        sizes = (row for section in snapshot.sections.values() for row in self._definitions(section))
        found = nlargest(limit, (row for row in sizes if row[1] in visible))
        return [(size, snapshot.tools[id]) for size, id in found]

    def summary(self, section: ServerSection, tool: Tool) -> int:
        """About how many letters a tool has in a list of summaries."""

        def measure() -> int:
            naming = 2 * len(tool.id.server) + len(tool.name) + min(len(tool.description), SUMMARY_LENGTH)
            return naming + sum(len(name) + TYPED for name in tool.properties)

        return self.keep(section, ("summary", tool.id), measure)

    def _definitions(self, section: ServerSection) -> list[tuple[int, ToolId]]:
        def measure() -> list[tuple[int, ToolId]]:
            return [(len(orjson.dumps(tool.definition)), id) for id, tool in section.tools.items()]

        return self.keep(section, "definitions", measure)


def is_large(tool: Tool) -> bool:
    """Whether a tool takes long to write out, so that it is done in a worker thread."""
    return len(orjson.dumps(tool.definition)) > LARGE
