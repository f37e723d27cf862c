"""Functions are given the request and connections; callers neither see nor forge them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from tests.sample_tools import sample_app

from portico import Connection, RequestContext
from portico.domain.call import Call, Caller
from portico.domain.server import State
from portico.errors import InvalidArguments, InvalidDefinition, UpstreamTimeout
from portico.providers.python import LocalProvider, make_tool
from portico.providers.python.functions import define

ANA = Caller(name="ana", surface="test")


class Session:
    """Something of the user's own that no JSON value can be."""


@dataclass
class Database:
    """Counts what is opened and closed, and in which thread."""

    log: list[tuple[str, str, int]] = field(default_factory=list)

    @contextmanager
    def open(self, context: RequestContext) -> Iterator[str]:
        self.log.append(("open", context.caller.name, threading.get_ident()))
        try:
            yield f"connection of {context.caller.name}"
        finally:
            self.log.append(("close", context.caller.name, threading.get_ident()))

    @property
    def steps(self) -> list[str]:
        return [step for step, _, _ in self.log]


async def call(provider: LocalProvider, name: str, caller: Caller = ANA, **arguments: Any) -> Mapping[str, Any]:
    with anyio.fail_after(10):
        return await provider.call(name, arguments, meta={"trace": 7}, on_progress=None, caller=caller)


def text(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


def handle_annotated(sql: str, where: Connection, who: RequestContext | None = None) -> str:
    """Ask."""
    assert who is not None
    return f"{sql} over {where} for {who.caller.name} {who.meta['trace']}"


def handle_named(conn, sql: str, ctx=None, _request_context: Any = None):  # type: ignore[no-untyped-def]
    """Ask."""
    return f"{sql} over {conn} for {ctx.caller.name} {_request_context.meta['trace']}"


@pytest.mark.requirement("S0-16", "S0-E9")
@pytest.mark.parametrize("function", [handle_annotated, handle_named])
async def test_a_function_is_given_what_callers_never_see(function: Any) -> None:
    database = Database()
    provider = LocalProvider(inject={Connection: database.open})
    made = make_tool(function)
    provider.add_tool(made)
    assert list(define(function)["inputSchema"]["properties"]) == ["sql"]
    assert text(await call(provider, made.name, sql="SELECT")) == "SELECT over connection of ana for ana 7"


@pytest.mark.requirement("S0-51")
async def test_a_connection_is_opened_and_closed_around_each_call_in_the_functions_own_thread() -> None:
    database, threads = Database(), []

    def handle_read(conn: Connection) -> None:
        """Read."""
        threads.append(threading.get_ident())
        if len(threads) == 2:
            raise ValueError("no")

    provider = LocalProvider(inject={Connection: database.open})
    provider.add_tool(make_tool(handle_read))
    await call(provider, "read")
    assert (await call(provider, "read"))["isError"]
    assert database.steps == ["open", "close", "open", "close"]
    assert [ident for _, _, ident in database.log] == [threads[0]] * 2 + [threads[1]] * 2
    assert threading.get_ident() not in threads


async def test_a_connection_of_an_async_function_does_not_hold_the_loop() -> None:
    database = Database()

    async def handle_read(conn: Connection) -> str:
        """Read."""
        return f"over {conn}"

    provider = LocalProvider(inject={Connection: database.open})
    provider.add_tool(make_tool(handle_read))
    assert text(await call(provider, "read")) == "over connection of ana"
    assert database.steps == ["open", "close"]
    assert threading.get_ident() not in [ident for _, _, ident in database.log]


async def test_what_is_opened_is_closed_when_an_async_function_hangs() -> None:
    database = Database()

    async def handle_hang(conn: Connection) -> None:
        """Hang."""
        await anyio.Event().wait()

    provider = LocalProvider(inject={Connection: database.open}, timeout=0.05)
    provider.add_tool(make_tool(handle_hang))
    with pytest.raises(UpstreamTimeout):
        await call(provider, "hang")
    assert database.steps == ["open", "close"]


async def test_an_async_source_serves_async_functions_and_says_so_to_others() -> None:
    @asynccontextmanager
    async def open_session(context: RequestContext) -> AsyncIterator[str]:
        yield f"session of {context.caller.name}"

    async def handle_use(session: Session) -> str:
        """Use."""
        return str(session)

    def handle_block(session: Session) -> str:
        """Block."""
        return str(session)

    provider = LocalProvider(inject={Session: open_session})
    for function in (handle_use, handle_block):
        provider.add_tool(make_tool(function))
    assert text(await call(provider, "use")) == "session of ana"
    assert "write `async def`" in text(await call(provider, "block"))


async def test_a_connection_with_a_class_of_its_own_is_the_connection() -> None:
    def handle_read(tdconn: Session) -> str:
        """Read."""
        return str(tdconn)

    database = Database()
    provider = LocalProvider(inject={Connection: database.open})
    provider.add_tool(make_tool(handle_read))
    assert text(await call(provider, "read")) == "connection of ana"


@pytest.mark.requirement("S0-E9", "P-PYTHON-SAFE")
@pytest.mark.parametrize("forged", ["_request_context", "ctx", "conn"])
async def test_no_caller_can_pass_what_only_the_gateway_gives(forged: str) -> None:
    def handle_open(ctx, conn=None, _request_context=None, **more):  # type: ignore[no-untyped-def]
        """Open."""
        return ctx.caller.name

    provider = LocalProvider()
    provider.add_tool(make_tool(handle_open))
    with pytest.raises(InvalidArguments, match=f"unknown: {forged}"):
        await call(provider, "open", **{forged: {"caller": "root"}})
    assert text(await call(provider, "open", other=1)) == "ana"


@pytest.mark.requirement("S0-E9")
async def test_the_callers_identity_reaches_the_function_through_the_one_executor() -> None:
    def handle_who(ctx: RequestContext) -> str:
        """Say who asks."""
        return f"{ctx.caller.name} by {ctx.caller.surface}"

    application = sample_app(handle_who)
    result = await application.gateway.call(ANA, Call(tool="local.who", arguments={}))
    assert result.text == "ana by test"


def test_a_function_that_nobody_can_serve_is_not_offered_and_the_others_are() -> None:
    def handle_frame(data: Session) -> None:
        """Needs something."""

    def handle_read(conn, sql: str) -> None:  # type: ignore[no-untyped-def]
        """Needs a connection."""

    def handle_hidden(_key: str) -> None:
        """Needs what nobody passes."""

    def handle_default(data: Session | None = None, conn=None) -> str:  # type: ignore[no-untyped-def]
        """Needs nothing."""
        return "fine"

    functions = (handle_frame, handle_read, handle_hidden, handle_default)
    provider = LocalProvider()
    provider.take(map(make_tool, functions))
    assert [tool["name"] for tool in provider.offering().tools] == ["default"]
    reasons = [str(problem) for problem in provider.problems]
    assert len(reasons) == 3
    assert "'frame' cannot be called: its parameter 'data' needs a Session, which no JSON value can be" in reasons[0]
    assert "'read' cannot be called: its parameter 'conn' needs a connection" in reasons[1]
    assert "'hidden' cannot be called: its parameter '_key' begins with '_'" in reasons[2]
    assert all(__file__ in reason for reason in reasons)
    assert provider.health().state is State.RUNNING
    assert "needs a connection" in provider.health().reason
    with pytest.raises(InvalidDefinition, match="nobody provides"):
        provider.add_tool(make_tool(handle_frame))
    alone = LocalProvider()
    alone.take([make_tool(handle_frame)])
    assert alone.health().state is State.FAILED


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_reports_its_progress_in_order(is_async: bool) -> None:
    def handle_count(ctx: RequestContext) -> str:
        """Count."""
        for step in range(3):
            ctx.report(step, 3, f"step {step}")
        return "done"

    async def handle_count_async(ctx: RequestContext) -> str:
        """Count."""
        return handle_count(ctx)

    told: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        told.append((progress, total, message))

    provider = LocalProvider()
    provider.add_tool(make_tool(handle_count_async if is_async else handle_count, "count"))
    with anyio.fail_after(10):
        result = await provider.call("count", {}, meta={}, on_progress=on_progress, caller=ANA)
    assert text(result) == "done"
    assert told == [(0, 3, "step 0"), (1, 3, "step 1"), (2, 3, "step 2")]


async def test_a_client_that_no_longer_listens_costs_no_result_and_a_timeout_stays_one() -> None:
    async def handle_work(ctx: RequestContext, hang: bool) -> str:
        """Work."""
        ctx.report(0.5)
        if hang:
            await anyio.Event().wait()
        return "done"

    async def deaf(progress: float, total: float | None, message: str | None) -> None:
        raise ConnectionError("gone")

    provider = LocalProvider(timeout=0.1)
    provider.add_tool(make_tool(handle_work))
    with anyio.fail_after(10):
        assert text(await provider.call("work", {"hang": False}, meta={}, on_progress=deaf)) == "done"
        with pytest.raises(UpstreamTimeout):
            await provider.call("work", {"hang": True}, meta={}, on_progress=deaf)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_report_is_a_sign_of_life_and_the_whole_call_is_bounded_all_the_same(is_heard: bool) -> None:
    async def handle_work(ctx: RequestContext, seconds: float) -> str:
        """Work, and say so."""
        end = anyio.current_time() + seconds
        while anyio.current_time() < end:
            ctx.report(1)
            await anyio.sleep(0.01)
        return "done"

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        return None

    async def call(provider: LocalProvider, seconds: float) -> Mapping[str, Any]:
        provider.add_tool(make_tool(handle_work))
        heard = on_progress if is_heard else None
        with anyio.fail_after(10):
            return await provider.call("work", {"seconds": seconds}, meta={}, on_progress=heard)

    assert text(await call(LocalProvider(timeout=0.5), 0.8)) == "done"
    with pytest.raises(UpstreamTimeout, match=r"no result after 0\.3 s"):
        await call(LocalProvider(timeout=0.2, total=0.3), 60)


async def test_a_function_that_falls_silent_is_given_up() -> None:
    def handle_work(ctx: RequestContext) -> None:
        """Say one thing, and hang."""
        ctx.report(1)
        gate.wait()

    gate = threading.Event()
    provider = LocalProvider(timeout=0.2)
    provider.add_tool(make_tool(handle_work))
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match=r"no result, and no report after 0\.2 s"):
        await provider.call("work", {}, meta={}, on_progress=None)
    gate.set()
