"""How a tool stands follows from its usage: the formula of seed 001, with what it leaves open settled."""

from __future__ import annotations

import inspect

import pytest

from portico.domain.usage_and_tiers import (
    DAY_SECONDS,
    Standing,
    Tier,
    Usage,
    assign_tier,
    compute_tier_score,
    standing_of,
)

NOW = 20_000.5 * DAY_SECONDS


def score(calls: int, done: int, ms: float | None, week: int, month: int) -> float:
    return compute_tier_score(
        total_invocations=calls, success_count=done, avg_latency_ms=ms, usage_7d=week, usage_30d=month
    )


def evenly_used(calls: int, success: float, ms: float) -> Usage:
    """Calls over the last thirty days, as many on each of them."""
    a_day, today = max(1, calls // 30), int(NOW // DAY_SECONDS)
    return Usage(
        calls=calls,
        done=round(success * calls),
        seconds=calls * ms / 1_000,
        days={today - back: a_day for back in range(30)} if calls else {},
    )


@pytest.mark.requirement("S1-73", "S1-65", "S1-70")
def test_the_designs_own_tool_is_hot():
    standing = standing_of(evenly_used(12_453, 0.987, 47), NOW)
    assert standing == Standing(tier=Tier.HOT, score=0.91)


@pytest.mark.requirement("S1-65", "S1-66", "S1-67", "S1-68", "S1-69", "S1-70")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((10_000, 0, 1_000, 0, 0), 0.40),
        ((20_000, 0, 5_000, 0, 0), 0.40),  # popularity ends at 10,000 calls, slowness at one second
        ((1, 1, 1_000, 0, 0), 0.30),
        ((1, 0, 0, 0, 0), 0.20),
        ((1, 0, 500, 0, 0), 0.10),
        ((1, 0, 1_000, 7, 7), 0.10),
        ((1, 0, 1_000, 7, 14), 0.05),
        ((1, 0, 1_000, 0, 0), 0.00),
        ((10_000, 10_000, 0, 30, 30), 1.00),
    ],
)
def test_each_part_of_the_score_has_its_weight(given: tuple[int, int, float, int, int], expected: float):
    assert score(*given) == pytest.approx(expected)


@pytest.mark.requirement("S1-E10")
@pytest.mark.parametrize(("calls", "expected"), [(7_600, 0.81), (5_000, 0.71), (1_000, 0.55)])
def test_a_good_tool_needs_thousands_of_calls_to_be_hot(calls: int, expected: float):
    assert standing_of(evenly_used(calls, 0.99, 50), NOW).score == expected


@pytest.mark.requirement("S1-E11", "S1-E10", "S1-20")
def test_a_tool_that_was_never_called_is_neither_fast_nor_unreliable():
    assert standing_of(None, NOW) == standing_of(Usage(), NOW) == Standing(tier=Tier.COLD, score=0.25)
    assert score(0, 0, None, 0, 0) == score(0, 0, 0.0, 0, 0) == 0.25


@pytest.mark.requirement("S1-72")
@pytest.mark.parametrize(
    ("points", "tier"),
    [
        (1.0, "hot"),
        (0.80, "hot"),
        (0.79, "warm"),
        (0.60, "warm"),
        (0.59, "standard"),
        (0.30, "standard"),
        (0.29, "cold"),
    ],
)
def test_a_tier_begins_at_its_threshold(points: float, tier: str):
    assert assign_tier(points) == tier


@pytest.mark.requirement("S1-E19", "S1-69")
def test_recency_is_a_trend():
    assert score(100, 100, 0, 5, 5) > score(100, 100, 0, 5, 20) > score(100, 100, 0, 0, 20)
    assert score(100, 100, 0, 0, 0) == score(100, 100, 0, 0, 20)


@pytest.mark.requirement("S1-E4")
def test_the_score_waits_for_nothing():
    assert not inspect.iscoroutinefunction(compute_tier_score)
