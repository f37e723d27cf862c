"""Usage is a fold of invocations, and says what is known."""

from __future__ import annotations

import pytest

from portico.domain.call import Invocation, Outcome
from portico.domain.tool import ToolId
from portico.domain.usage import Usage


def ended(outcome: Outcome, seconds: float = 0.1) -> Invocation:
    return Invocation(tool=ToolId("s", "t"), spelled="t", caller="", surface="", outcome=outcome, seconds=seconds)


@pytest.mark.requirement("P-USAGE")
def test_what_ended_well_and_what_did_not_are_counted() -> None:
    usage = Usage() + ended(Outcome.DONE, 0.1) + ended(Outcome.FAILED, 0.2) + ended(Outcome.TIMED_OUT, 0.9)
    assert (usage.calls, usage.done) == (3, 1)
    assert usage.success == pytest.approx(1 / 3)
    assert usage.mean_ms == pytest.approx(400)
    assert str(usage) == "3 calls, 33.3% success, 400 ms on average"


@pytest.mark.requirement("P-USAGE")
@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.INVALID, Outcome.CANCELLED])
def test_what_is_not_the_tools_doing_changes_nothing(outcome: Outcome) -> None:
    usage = Usage() + ended(Outcome.DONE)
    assert usage + ended(outcome) == usage


@pytest.mark.requirement("P-USAGE")
def test_before_the_first_call_nothing_is_known() -> None:
    assert (Usage().success, Usage().mean_ms, str(Usage())) == (None, None, "never called")
    assert str(Usage() + ended(Outcome.DONE)) == "1 call, 100.0% success, 100 ms on average"
