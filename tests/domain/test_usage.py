"""Usage is a fold of invocations, and says what is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.call import Invocation, Outcome
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import DAY_SECONDS, DAYS_KEPT, Usage, bucket_of, latency_of

NOON = 20_000 * DAY_SECONDS + 43_200.0


def ended(outcome: Outcome, seconds: float = 0.1, at: float = NOON, tokens: int = 0) -> Invocation:
    return Invocation(
        tool=ToolId("s", "t"),
        spelled="t",
        caller="",
        surface="",
        outcome=outcome,
        seconds=seconds,
        at=at,
        tokens_in=tokens,
        tokens_out=2 * tokens,
    )


@pytest.mark.requirement("P-USAGE")
def test_what_ended_well_and_what_did_not_are_counted() -> None:
    usage = Usage() + ended(Outcome.DONE, 0.1) + ended(Outcome.FAILED, 0.2) + ended(Outcome.TIMED_OUT, 0.9)
    assert (usage.calls, usage.done) == (3, 1)
    assert usage.success == pytest.approx(1 / 3)
    assert usage.mean_ms == pytest.approx(400)
    assert str(usage) == "3 calls, 33.3% success, 400 ms on average"


@pytest.mark.requirement("P-USAGE", "T38")
@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.INVALID, Outcome.CANCELLED])
def test_what_is_not_the_tools_doing_changes_nothing(outcome: Outcome) -> None:
    usage = Usage() + ended(Outcome.DONE)
    assert usage + ended(outcome) == usage


@pytest.mark.requirement("P-USAGE")
def test_before_the_first_call_nothing_is_known() -> None:
    assert (Usage().success, Usage().mean_ms, str(Usage())) == (None, None, "never called")
    assert str(Usage() + ended(Outcome.DONE)) == "1 call, 100.0% success, 100 ms on average"


@pytest.mark.requirement("S1-52", "S1-71")
def test_calls_of_the_last_days_are_counted_by_the_day() -> None:
    usage = Usage()
    for days_ago in (0, 0, 6, 7, 29, 30, 100):
        usage += ended(Outcome.DONE, at=NOON - days_ago * DAY_SECONDS)
    assert (usage.within(1, NOON), usage.within(7, NOON), usage.within(30, NOON)) == (2, 3, 5)
    assert usage.within(7, NOON + 7 * DAY_SECONDS) == 0
    assert usage.calls == 7


def test_no_more_days_are_kept_than_are_asked_for() -> None:
    usage = Usage()
    for day in range(100):
        usage += ended(Outcome.DONE, at=day * DAY_SECONDS)
    assert len(usage.days) == DAYS_KEPT
    assert usage.within(30, 99 * DAY_SECONDS) == 30


@pytest.mark.requirement("S1-46", "S1-52")
def test_percentiles_are_known_to_a_twentieth() -> None:
    rng = random.Random(1)
    seconds = [rng.lognormvariate(-2, 1) for _ in range(1_000)]
    usage = Usage()
    for taken in seconds:
        usage += ended(Outcome.DONE, taken)
    ordered = sorted(seconds)
    assert usage.p50_ms == pytest.approx(1_000 * ordered[499], rel=0.06)
    assert usage.p95_ms == pytest.approx(1_000 * ordered[949], rel=0.06)
    assert (Usage().p50_ms, Usage().p95_ms) == (None, None)


@given(st.floats(min_value=0, max_value=1e7, allow_nan=False))
def test_every_latency_has_a_bucket_near_to_it(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert 0 <= bucket <= 180
    if 0.0001 < seconds < 2_500:
        assert latency_of(bucket) == pytest.approx(1_000 * seconds, rel=0.05)


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.floats(0, 100), st.integers(0, 40)), max_size=30))
def test_usage_can_be_added_up_in_any_parts(calls: list[tuple[Outcome, float, int]]) -> None:
    written = [ended(outcome, seconds, NOON + day * DAY_SECONDS, tokens=day) for outcome, seconds, day in calls]
    whole, left, right = Usage(), Usage(), Usage()
    for place, call in enumerate(written):
        whole += call
        left, right = (left + call, right) if place % 2 else (left, right + call)
    together = left + right
    assert (together.calls, together.done, together.latencies) == (whole.calls, whole.done, whole.latencies)
    assert (together.tokens_in, together.tokens_out) == (whole.tokens_in, whole.tokens_out)
    assert together.seconds == pytest.approx(whole.seconds)
    now = NOON + 40 * DAY_SECONDS
    assert [together.within(days, now) for days in (1, 7, 30)] == [whole.within(days, now) for days in (1, 7, 30)]
