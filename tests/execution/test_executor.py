"""Every call, however it ends, is recorded exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from portico.catalog.policies import GlobPolicy
from portico.domain.call import START_WAIT, Call, Caller, Outcome
from portico.domain.tool import Tool, ToolId
from portico.errors import (
    AmbiguousTool,
    CallError,
    InternalError,
    InvalidArguments,
    Refused,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.testing import AGENT, FakeHouse, definition, fake_house, furnish

WEATHER = Call(tool="fake.weather", arguments={"city": "Oslo"})
ID = ToolId("fake", "weather")


class Strict(GlobPolicy):
    """Shows everything and admits nothing."""

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        raise Refused(tool.handle, details=("not today",))


@pytest.fixture
def house() -> FakeHouse:
    return furnish({"fake": [definition("weather", city="string")], "other": [definition("weather")]})


def only(house: FakeHouse) -> tuple[ToolId | None, Outcome, str]:
    (invocation,) = house.invocations
    assert invocation.caller == "agent"
    assert invocation.surface == "test"
    assert invocation.seconds >= 0
    return invocation.tool, invocation.outcome, invocation.code


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_call_that_succeeds_is_recorded_as_done(house: FakeHouse) -> None:
    raw = {"content": [], "structuredContent": {"degrees": 5}}
    house.provider().returns("weather", raw)
    result = await house.gateway.call(AGENT, WEATHER)
    assert result.raw is raw
    assert house.provider().calls == [("weather", {"city": "Oslo"})]
    assert only(house) == (ID, Outcome.DONE, "")


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_tool_that_says_no_is_recorded_as_failed(house: FakeHouse) -> None:
    house.provider().returns("weather", {"content": [], "isError": True})
    assert (await house.gateway.call(AGENT, WEATHER)).is_error
    assert only(house) == (ID, Outcome.FAILED, "")


@pytest.mark.requirement("P-JOURNAL-ONCE")
@pytest.mark.parametrize(
    ("call", "expected", "recorded"),
    [
        (Call(tool="fake.nothing", arguments={}), UnknownTool, (None, Outcome.INVALID, "unknown_tool")),
        (Call(tool="weather", arguments={}), AmbiguousTool, (None, Outcome.INVALID, "ambiguous_tool")),
        (Call(tool="fake.weather", arguments={}), InvalidArguments, (ID, Outcome.INVALID, "invalid_arguments")),
    ],
)
async def test_a_call_that_never_left_is_recorded_as_invalid(
    house: FakeHouse, call: Call, expected: type[CallError], recorded: object
) -> None:
    with pytest.raises(expected) as caught:
        await house.gateway.call(AGENT, call)
    assert caught.value.sent is Sent.NOTHING
    assert house.provider().calls == house.provider("other").calls == []
    assert only(house) == recorded


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_refused_call_is_recorded_and_not_sent(house: FakeHouse) -> None:
    house.gateway.executor.policy = Strict()
    with pytest.raises(Refused):
        await house.gateway.call(AGENT, WEATHER)
    assert house.provider().calls == []
    assert only(house) == (ID, Outcome.REFUSED, "refused")


@pytest.mark.requirement("P-JOURNAL-ONCE")
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UpstreamGone("fake", sent=Sent.UNKNOWN), Outcome.FAILED),
        (UpstreamTimeout("fake", sent=Sent.UNKNOWN), Outcome.TIMED_OUT),
        (UpstreamError("fake", rpc_code=-32603, message="no"), Outcome.FAILED),
    ],
)
async def test_an_upstream_failure_is_recorded_as_what_it_was(
    house: FakeHouse, error: CallError, outcome: Outcome
) -> None:
    house.provider().fails(error)
    with pytest.raises(type(error)):
        await house.gateway.call(AGENT, WEATHER)
    assert only(house) == (ID, outcome, error.code)


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_cancelled_call_is_recorded_as_cancelled(house: FakeHouse) -> None:
    house.provider().hold()
    async with create_task_group() as tasks:
        tasks.start_soon(house.gateway.call, AGENT, WEATHER)
        with fail_after(5):
            await house.provider().arrived()
        tasks.cancel_scope.cancel()
    assert only(house) == (ID, Outcome.CANCELLED, "")


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_bug_in_a_provider_is_recorded_too(house: FakeHouse) -> None:
    house.provider().fails(ZeroDivisionError())  # type: ignore[arg-type]
    with pytest.raises(InternalError) as caught:
        await house.gateway.call(AGENT, WEATHER)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert only(house) == (ID, Outcome.FAILED, "internal_error")


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-CALL-WAITS-FOR-START")
async def test_a_call_of_a_server_that_is_just_starting_waits_for_it_and_counts_once() -> None:
    async with fake_house({"fake": [definition("weather", city="string")]}) as house:
        house.gateway.editions.withdraw("fake")
        house.provider().hold()
        house.admin.intake.begin("fake")
        async with create_task_group() as tasks:
            with fail_after(5):
                await house.provider().arrived()
                tasks.start_soon(house.gateway.call, AGENT, WEATHER)
                house.provider().release()
        assert only(house) == (ID, Outcome.DONE, "")


async def test_a_repair_is_told_with_the_result_and_sent_as_repaired(house: FakeHouse) -> None:
    result = await house.gateway.call(AGENT, Call(tool="fake.weather", arguments={"city": 5}))
    assert result.notes == ('city: took 5 as "5"',)
    assert house.provider().calls == [("weather", {"city": "5"})]


async def test_a_spelling_is_recorded_as_it_came_but_not_at_any_length(house: FakeHouse) -> None:
    with pytest.raises(UnknownTool):
        await house.gateway.call(AGENT, Call(tool="x" * 10_000, arguments={}))
    assert house.invocations[0].spelled == "x" * 200


async def test_the_start_of_a_server_is_no_part_of_the_latency_of_a_call(house: FakeHouse) -> None:
    class Starting:
        """A provider whose server starts for an hour, by its own account."""

        async def call(self, *_: object, **__: object) -> Mapping[str, Any]:
            START_WAIT.set(START_WAIT.get() + 3_600.0)
            return {"content": []}

    house.gateway.executor.provider_of = lambda _: Starting()  # type: ignore[assignment,return-value]
    await house.gateway.call(AGENT, WEATHER)
    await house.gateway.call(AGENT, WEATHER)
    assert [entry.seconds for entry in house.invocations] == [0.0, 0.0]
