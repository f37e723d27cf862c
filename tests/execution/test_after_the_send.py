"""What was carried out is recorded, exactly once, whatever fails after the call was sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from portico.concurrency import Workers
from portico.domain.call import Call, Outcome
from portico.errors import CallError, InternalError, Sent
from portico.execution.executor import Executor
from portico.execution.hooks import hooks_of
from portico.testing import AGENT, FakeApplication, definition, make_test_app

WEATHER = Call(tool="fake.weather", arguments={"city": "Oslo"})
RAW = {"content": [{"type": "text", "text": "5 degrees"}]}


class Hooked:
    """A module with a hook for every event."""

    @staticmethod
    def on_call(*_: object) -> None:
        """See a call."""

    @staticmethod
    def on_result(*_: object) -> None:
        """See a result."""

    @staticmethod
    def on_error(*_: object) -> None:
        """See a failure."""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def faulty(error: Exception) -> Callable[..., Any]:
    def step(*_: object, **__: object) -> Any:
        raise error

    return step


class Broken:
    """Passes everything on to another object, but for one step, which raises."""

    def __init__(self, inner: object, step: str, error: Exception) -> None:
        self.__dict__.update(inner=inner, step=step, error=error)

    def __getattr__(self, name: str) -> Any:
        return faulty(self.error) if name == self.step else getattr(self.inner, name)


STEPS = {
    "hooks.after_call": "passes",
    "learned_schemas.learn": "passes",
    "truncator.truncate": "fails",
    "token_sampler.tokens": "passes",
    "search_rank.take": "passes",
    "counts.observe": "passes",
    "journal.written": "passes",
}
"""Every step after the send, and whether the caller still gets the result when it raises."""
ERRORS = [RecursionError("deep"), ValueError("odd"), MemoryError(), KeyError("x"), TypeError("t")]


def broken(application: FakeApplication, path: str, error: Exception) -> Executor:
    part, step = path.split(".")
    executor = application.gateway.executor
    setattr(executor, part, Broken(getattr(executor, part), step, error))
    return executor


@pytest.mark.requirement("P-EXECUTED-IS-RECORDED")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("path", STEPS)
async def test_a_step_that_fails_after_the_send_leaves_one_entry(
    path: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    application = make_test_app({"fake": [definition("weather", city="string")]}, hooks=hooks_of([Hooked], Workers()))
    application.provider().returns("weather", RAW)
    broken(application, path, error)
    with caplog.at_level(logging.CRITICAL):
        if STEPS[path] == "passes":
            result = await application.gateway.call(AGENT, WEATHER)
            assert result.raw["content"][0] == RAW["content"][0]
        else:
            with pytest.raises(InternalError) as caught:
                await application.gateway.call(AGENT, WEATHER)
            assert caught.value.sent is Sent.ANSWERED
            assert type(error).__name__ in str(caught.value)
    (entry,) = application.invocations
    assert entry.tool is not None
    assert entry.outcome is (Outcome.DONE if STEPS[path] == "passes" else Outcome.FAILED)
    assert application.provider().calls == [("weather", {"city": "Oslo"})]


@pytest.mark.requirement("P-EXECUTED-IS-RECORDED")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_provider_that_raises_something_odd_is_a_typed_error_with_one_entry(error: Exception) -> None:
    application = make_test_app({"fake": [definition("weather", city="string")]}, hooks=hooks_of([Hooked], Workers()))
    application.provider().fails(error)  # type: ignore[arg-type]
    with pytest.raises(CallError) as caught:
        await application.gateway.call(AGENT, WEATHER)
    assert caught.value.code == "internal_error"
    assert caught.value.sent is Sent.UNKNOWN
    assert [entry.code for entry in application.invocations] == ["internal_error"]


@pytest.mark.requirement("P-EXECUTED-IS-RECORDED")
@pytest.mark.parametrize("depth", [100, 300, 1_000, 100_000])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda deep: {"content": [], "structuredContent": {"a": deep}},
        lambda deep: {"content": [{"type": "text", "text": "x", "annotations": deep}]},
        lambda deep: {"content": [], "_meta": {"a": deep}},
        lambda deep: {"content": [deep]},
        lambda deep: {"content": deep},
    ],
)
async def test_a_deeply_nested_answer_is_recorded_and_answered(make: Any, whole: bool, depth: int) -> None:
    application = make_test_app({"fake": [definition("weather", city="string")]})
    application.provider().returns("weather", make(nested(depth)))
    call = Call(tool="fake.weather", arguments={"city": "Oslo"}, whole=whole)
    result = await application.gateway.call(AGENT, call)
    assert len(application.invocations) == 1
    assert whole or json.dumps(result.raw)
