"""Every call, however it ends, is recorded exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from portico.catalog.view import CatalogPolicy
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
from portico.testing import AGENT, FakeApplication, definition, fake_application, make_test_app

WEATHER = Call(tool="fake.weather", arguments={"city": "Oslo"})
ID = ToolId("fake", "weather")


class Strict(CatalogPolicy):
    """Shows everything and admits nothing."""

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        raise Refused(tool.handle, details=("not today",))


@pytest.fixture
def application() -> FakeApplication:
    return make_test_app({"fake": [definition("weather", city="string")], "other": [definition("weather")]})


def only(application: FakeApplication) -> tuple[ToolId | None, Outcome, str]:
    (invocation,) = application.invocations
    assert invocation.caller == "agent"
    assert invocation.surface == "test"
    assert invocation.seconds >= 0
    return invocation.tool, invocation.outcome, invocation.code


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_call_that_succeeds_is_recorded_as_done(application: FakeApplication) -> None:
    raw = {"content": [], "structuredContent": {"degrees": 5}}
    application.provider().returns("weather", raw)
    result = await application.gateway.call(AGENT, WEATHER)
    assert result.raw is raw
    assert application.provider().calls == [("weather", {"city": "Oslo"})]
    assert only(application) == (ID, Outcome.DONE, "")


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_tool_that_says_no_is_recorded_as_failed(application: FakeApplication) -> None:
    application.provider().returns("weather", {"content": [], "isError": True})
    assert (await application.gateway.call(AGENT, WEATHER)).is_error
    assert only(application) == (ID, Outcome.FAILED, "")


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
    application: FakeApplication, call: Call, expected: type[CallError], recorded: object
) -> None:
    with pytest.raises(expected) as caught:
        await application.gateway.call(AGENT, call)
    assert caught.value.sent is Sent.NOTHING
    assert application.provider().calls == application.provider("other").calls == []
    assert only(application) == recorded


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_refused_call_is_recorded_and_not_sent(application: FakeApplication) -> None:
    application.gateway.executor.policy = Strict()
    with pytest.raises(Refused):
        await application.gateway.call(AGENT, WEATHER)
    assert application.provider().calls == []
    assert only(application) == (ID, Outcome.REFUSED, "refused")


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
    application: FakeApplication, error: CallError, outcome: Outcome
) -> None:
    application.provider().fails(error)
    with pytest.raises(type(error)):
        await application.gateway.call(AGENT, WEATHER)
    assert only(application) == (ID, outcome, error.code)


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_cancelled_call_is_recorded_as_cancelled(application: FakeApplication) -> None:
    application.provider().hold()
    async with create_task_group() as tasks:
        tasks.start_soon(application.gateway.call, AGENT, WEATHER)
        with fail_after(5):
            await application.provider().arrived()
        tasks.cancel_scope.cancel()
    assert only(application) == (ID, Outcome.CANCELLED, "")


@pytest.mark.requirement("P-JOURNAL-ONCE")
async def test_a_bug_in_a_provider_is_recorded_too(application: FakeApplication) -> None:
    application.provider().fails(ZeroDivisionError())  # type: ignore[arg-type]
    with pytest.raises(InternalError) as caught:
        await application.gateway.call(AGENT, WEATHER)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert only(application) == (ID, Outcome.FAILED, "internal_error")


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-CALL-WAITS-FOR-START")
async def test_a_call_of_a_server_that_is_just_starting_waits_for_it_and_counts_once() -> None:
    async with fake_application({"fake": [definition("weather", city="string")]}) as application:
        application.gateway.publisher.withdraw("fake")
        application.provider().hold()
        application.admin.refresher.begin("fake")
        async with create_task_group() as tasks:
            with fail_after(5):
                await application.provider().arrived()
                tasks.start_soon(application.gateway.call, AGENT, WEATHER)
                application.provider().release()
        assert only(application) == (ID, Outcome.DONE, "")


async def test_a_repair_is_reported_with_the_result_and_sent_as_repaired(application: FakeApplication) -> None:
    result = await application.gateway.call(AGENT, Call(tool="fake.weather", arguments={"city": 5}))
    assert result.notes == ('city: took 5 as "5"',)
    assert application.provider().calls == [("weather", {"city": "5"})]


async def test_a_spelling_is_recorded_as_it_came_but_not_at_any_length(application: FakeApplication) -> None:
    with pytest.raises(UnknownTool):
        await application.gateway.call(AGENT, Call(tool="x" * 10_000, arguments={}))
    assert application.invocations[0].spelled == "x" * 200


async def test_the_start_of_a_server_is_no_part_of_the_latency_of_a_call(application: FakeApplication) -> None:
    class Starting:
        """A provider whose server starts for an hour, by its own account."""

        async def call(self, *_: object, **__: object) -> Mapping[str, Any]:
            START_WAIT.set(START_WAIT.get() + 3_600.0)
            return {"content": []}

    application.admin.providers["fake"] = Starting()  # type: ignore[index]
    await application.gateway.call(AGENT, WEATHER)
    await application.gateway.call(AGENT, WEATHER)
    assert [entry.seconds for entry in application.invocations] == [0.0, 0.0]
