"""How tools have done so far, aggregated from their invocations, and the tiers that follow from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from .call import Invocation, Outcome
from .journal_entries import DayLine, Report, ToolLine, bounded
from .tool import ToolId

DAY_SECONDS = 86_400
DAYS_KEPT = 30  # days of which the number of calls is known one by one

_COUNTED = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT})
"""A call that was refused, invalid or given up by its caller says nothing about the tool."""
_STEP = math.log(1.1)
_SHORTEST_MS = 0.1
_LAST_BUCKET = 180  # nearly an hour


def day_of(at: float) -> int:
    """The day of a moment, counted from 1970 in UTC."""
    return int(at // DAY_SECONDS)


def bucket_of(seconds: float) -> int:
    """The bucket of a latency: each is a tenth wider than the one before, so that percentiles are known to 5 %."""
    ms = 1_000 * seconds
    return min(_LAST_BUCKET, math.ceil(math.log(ms / _SHORTEST_MS) / _STEP)) if ms > _SHORTEST_MS else 0


def latency_of(bucket: int) -> float:
    """The latency in the middle of a bucket, in milliseconds."""
    return _SHORTEST_MS * math.exp(_STEP * (bucket - 0.5)) if bucket else _SHORTEST_MS


def counts(outcome: Outcome) -> bool:
    """Whether a call with this outcome says something about its tool."""
    return outcome in _COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What became of a tool's calls; one that was never called has none."""

    calls: int = 0  # those that ended well, ended badly or timed out
    done: int = 0
    seconds: float = 0.0  # how long callers have waited, all calls together
    tokens_in: int = 0
    tokens_out: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)  # how many calls fell into each bucket
    days: Mapping[int, int] = field(default_factory=dict)  # how many calls there were on each of the last days

    def __add__(self, more: Invocation | Usage) -> Usage:
        """The same with one invocation, or another usage, more; what says nothing about the tool changes nothing."""
        if isinstance(more, Invocation):
            if more.outcome not in _COUNTED:
                return self
            more = _usage_of(bounded(more))
        return Usage(
            calls=self.calls + more.calls,
            done=self.done + more.done,
            seconds=self.seconds + more.seconds,
            tokens_in=self.tokens_in + more.tokens_in,
            tokens_out=self.tokens_out + more.tokens_out,
            latencies=_added(self.latencies, more.latencies),
            days=_newest(_added(self.days, more.days)),
        )

    @property
    def success(self) -> float | None:
        """The share of calls that ended well, from 0 to 1; None before the first call."""
        return self.done / self.calls if self.calls else None

    @property
    def mean_ms(self) -> float | None:
        """How long a call takes on average; None before the first call."""
        return 1_000 * self.seconds / self.calls if self.calls else None

    @property
    def p50_ms(self) -> float | None:
        """Half of the calls take no longer, to within 5 %; None before the first call."""
        return self._percentile(0.50)

    @property
    def p95_ms(self) -> float | None:
        """Nineteen of twenty calls take no longer, to within 5 %; None before the first call."""
        return self._percentile(0.95)

    def within(self, days: int, now: float) -> int:
        """Calls of the last days, today included; at most 30 days are known."""
        today = day_of(now)
        return sum(calls for day, calls in self.days.items() if today - days < day <= today)

    def _percentile(self, share: float) -> float | None:
        left = math.ceil(share * sum(self.latencies.values()))
        for bucket in sorted(self.latencies):
            left -= self.latencies[bucket]
            if left <= 0:
                return latency_of(bucket)
        return None

    def __str__(self) -> str:
        if not self.calls:
            return "never called"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"{calls}, {self.success:.1%} success, {self.mean_ms:.0f} ms on average"


def _usage_of(invocation: Invocation) -> Usage:
    return Usage(
        calls=1,
        done=int(invocation.outcome is Outcome.DONE),
        seconds=invocation.seconds,
        tokens_in=invocation.tokens_in,
        tokens_out=invocation.tokens_out,
        latencies={bucket_of(invocation.seconds): 1},
        days={day_of(invocation.at): 1},
    )


def _added(some: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    found = dict(some)
    for key, count in more.items():
        found[key] = found.get(key, 0) + count
    return found


def _newest(days: dict[int, int]) -> dict[int, int]:
    if len(days) <= DAYS_KEPT:
        return days
    return {day: days[day] for day in sorted(days)[-DAYS_KEPT:]}


def summed_up(usage: Mapping[ToolId, Usage], *, days: int, limit: int, now: float) -> Report:
    """The tools that were called in the last days, at most 30 of them.

    Calls are those of the days; how well and how fast they went is known of all calls together only. What was searched
    for, and what became of calls that say nothing about a tool, is not known.
    """
    days = min(days, DAYS_KEPT)
    lines = [_line(tool, found, called) for tool, found in usage.items() if (called := found.within(days, now))]
    return Report(
        days=days,
        calls=sum(line.calls for line in lines),
        top=tuple(sorted(lines, key=lambda line: (-line.calls, line.tool))[:limit]),
        failing=tuple(sorted((x for x in lines if x.done < x.calls), key=lambda x: (x.success, x.tool))[:limit]),
        slow=tuple(sorted(lines, key=lambda line: (-line.p95_ms, line.tool))[:limit]),
        by_day=tuple(_days(usage, days, day_of(now))),
    )


def _line(tool: ToolId, usage: Usage, calls: int) -> ToolLine:
    share = calls / usage.calls
    return ToolLine(
        tool=tool,
        calls=calls,
        done=round(usage.done * share),
        mean_ms=usage.mean_ms or 0.0,
        p95_ms=usage.p95_ms or 0.0,
        tokens_out=round(usage.tokens_out * share),
    )


def _days(usage: Mapping[ToolId, Usage], days: int, today: int) -> Iterator[DayLine]:
    for day in range(today - days + 1, today + 1):
        date = datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()
        yield DayLine(day=date.isoformat(), calls=sum(found.days.get(day, 0) for found in usage.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the results of one tool have looked like."""

    fingerprint: str  # of the tool's definition: one that has changed may return something else
    shape: Mapping[str, Any] = field(default_factory=dict)
    results: int = 0  # how many results it was learned from


class Tier(StrEnum):
    """How near to the front a tool stands."""

    HOT = "hot"
    WARM = "warm"
    STANDARD = "standard"
    COLD = "cold"


_LOWEST: Mapping[Tier, float] = {Tier.HOT: 0.80, Tier.WARM: 0.60, Tier.STANDARD: 0.30}
POPULAR = 10_000  # calls beyond which a tool is as popular as can be
SLOW_MS = 1_000  # a mean latency from which on a tool is as slow as can be
UNKNOWN = 0.5  # what a tool that was never called counts as where nothing is known: neither good nor bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A tool's score and the tier that follows from it."""

    tier: Tier
    score: float


def compute_tier_score(
    *, total_invocations: int, success_count: int, avg_latency_ms: float | None, usage_7d: int, usage_30d: int
) -> float:
    """Popularity 40 %, reliability 30 %, performance 20 %, recency 10 %, to two places.

    Recency is a trend: the share of the last 30 days' calls that fell into the last 7, so it is 1 for a tool that was
    first used yesterday. A tool that was never called is neither reliable nor unreliable, neither fast nor slow.
    """
    popularity = min(total_invocations / POPULAR, 1.0)
    reliability = success_count / total_invocations if total_invocations else UNKNOWN
    is_timed = total_invocations > 0 and avg_latency_ms is not None
    performance = max(0.0, 1 - (avg_latency_ms or 0.0) / SLOW_MS) if is_timed else UNKNOWN
    recency = usage_7d / usage_30d if usage_30d else 0.0
    return round(0.40 * popularity + 0.30 * reliability + 0.20 * performance + 0.10 * recency, 2)


def assign_tier(score: float) -> Tier:
    """The tier of a score."""
    return next((tier for tier, lowest in _LOWEST.items() if score >= lowest), Tier.COLD)


def standing_of(usage: Usage | None, now: float) -> Standing:
    """How a tool stands by its usage; None is a tool that was never called."""
    usage = usage or Usage()
    score = compute_tier_score(
        total_invocations=usage.calls,
        success_count=usage.done,
        avg_latency_ms=usage.mean_ms,
        usage_7d=usage.within(7, now),
        usage_30d=usage.within(30, now),
    )
    return Standing(tier=assign_tier(score), score=score)
