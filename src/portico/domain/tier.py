"""Tiers: how well a tool stands, from what is known of its use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .usage import Usage


class Tier(StrEnum):
    """How near to the front a tool stands."""

    HOT = "hot"
    WARM = "warm"
    STANDARD = "standard"
    COLD = "cold"


_LOWEST: Mapping[Tier, float] = {Tier.HOT: 0.80, Tier.WARM: 0.60, Tier.STANDARD: 0.30}
POPULAR = 10_000
"""Calls beyond which a tool is as popular as can be."""
SLOW_MS = 1_000
"""A mean latency from which on a tool is as slow as can be."""
UNKNOWN = 0.5
"""What a tool that was never called counts as where nothing is known: neither good nor bad."""


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
