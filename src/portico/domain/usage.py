"""How tools have done so far: a fold of their invocations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .call import Invocation, Outcome
from .journal import bounded

DAY_SECONDS = 86_400
DAYS_KEPT = 30
"""Days of which the number of calls is known one by one."""

_COUNTED = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT})
"""A call that was refused, invalid or given up by its caller says nothing about the tool."""
_STEP = math.log(1.1)
_SHORTEST_MS = 0.1
_LAST_BUCKET = 180
"""Nearly an hour."""


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

    calls: int = 0
    """Those that ended well, ended badly or timed out."""
    done: int = 0
    seconds: float = 0.0
    """How long callers have waited, all calls together."""
    tokens_in: int = 0
    tokens_out: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)
    """How many calls fell into each bucket."""
    days: Mapping[int, int] = field(default_factory=dict)
    """How many calls there were on each of the last days."""

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
