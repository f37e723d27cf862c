"""What operators read of the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .journal import Losses
from .tool import ToolId


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLine:
    """How one tool did in the days of a report."""

    tool: ToolId
    calls: int
    done: int
    mean_ms: float
    p95_ms: float
    tokens_out: int = 0

    @property
    def success(self) -> float:
        """The share of calls that ended well."""
        return self.done / self.calls if self.calls else 0.0

    def as_data(self, tool: str) -> dict[str, Any]:
        """The line, ready for JSON, with the tool as it is spelled there."""
        return {
            "tool": tool,
            "server": self.tool.server,
            "calls": self.calls,
            "success_rate": round(100 * self.success, 1),
            "avg_latency_ms": self.mean_ms,
            "p95_latency_ms": self.p95_ms,
            "tokens_out": self.tokens_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLine:
    """One day: calls, looks, and the tokens that were not spent on listing every tool."""

    day: str
    """As 2026-11-15, in UTC."""
    calls: int = 0
    failed: int = 0
    searches: int = 0
    tokens_saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLine:
    """A search that no tool fitted, as often as it was asked."""

    query: str
    """What was asked, as far as it is kept, without control characters."""
    count: int
    last: str
    """When it was asked last, as 2026-11-15T09:30:00Z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The journal of the last days, summed up."""

    days: int
    """How many are summed up; fewer than were asked for when no more are kept one by one."""
    calls: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How calls ended; of days whose entries are gone, every call that did not end well counts as failed."""
    top: tuple[ToolLine, ...] = ()
    """Called most."""
    failing: tuple[ToolLine, ...] = ()
    """With the largest share of calls that did not end well."""
    slow: tuple[ToolLine, ...] = ()
    """With the longest p95."""
    by_day: tuple[DayLine, ...] = ()
    """Oldest first; days without an entry included."""
    searches: int = 0
    unanswered: int = 0
    """Searches that no tool fitted."""
    unanswered_searches: tuple[SearchLine, ...] = ()
    """Which they were, those asked most first."""
    ranks: Mapping[int, int] = field(default_factory=dict)
    """How many calls were of a tool that the caller's search had shown at this place; 0 is without a search."""
    caches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Hits and misses of each cache."""
    losses: Losses = field(default_factory=Losses)

    def as_data(self, spelled: Callable[[ToolId], str]) -> dict[str, Any]:
        """The report, ready for JSON, the same through every door; `spelled` says what tools are called there."""
        return {
            **asdict(self),
            **{
                name: [line.as_data(spelled(line.tool)) for line in lines]
                for name, lines in (("top", self.top), ("failing", self.failing), ("slow", self.slow))
            },
            "ranks": dict(sorted(self.ranks.items())),
            "caches": {name: {"hits": hits, "misses": misses} for name, (hits, misses) in sorted(self.caches.items())},
        }
