"""A server that fails again and again, or is slow: its breaker, its queue, and what is tried a second time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from upstream_world import QUICK, Upstreams, said, until, use
from web_world import RawServer, answer

from portico.domain.server import ServerLabels, ServerLimits, Timeouts
from portico.domain.tool import Effect, ToolOverride
from portico.errors import Busy, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.providers.mcp.call_gate import BreakerState, CallQueue, CircuitBreaker
from portico.providers.mcp.message_limits_and_errors import Crowded, ExchangeFault, Lost

pytestmark = pytest.mark.anyio
BAD = ExchangeFault("HTTP 503", sent=Sent.UNKNOWN)
READS = ServerLabels(overrides={"look": ToolOverride(effect=Effect.READ), "put": ToolOverride(idempotent=True)})
AT_ONCE = 1.0
"""Seconds within which a refusal comes on the busiest machine; every wait in these tests is longer."""


class Bench:
    """A breaker with a clock that is moved by hand."""

    def __init__(self, **limits: Any) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.breaker = CircuitBreaker(
            ServerLimits(**limits), lambda kind, text: self.told.append(kind), lambda: self.now, lambda: 0.5
        )

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.fail(BAD, is_probe=self.breaker.admit())

    def refusal(self) -> str:
        with pytest.raises(Lost) as caught:
            self.breaker.check()
        assert caught.value.sent is Sent.NOTHING
        return str(caught.value)


@pytest.mark.requirement("F23", "P-BREAKER")
def test_five_failures_in_a_row_open_the_breaker_and_an_answer_between_them_does_not() -> None:
    bench = Bench()
    bench.fail(4)
    bench.breaker.succeed(is_probe=False)
    bench.fail(4)
    assert bench.breaker.state is BreakerState.CLOSED
    bench.fail()
    assert bench.breaker.state is BreakerState.OPEN
    bench.now += 7
    said = bench.refusal()
    assert "the breaker of this server is open for 7.0 s: 5 calls failed in a row" in said
    assert "the last one: HTTP 503" in said
    assert "the next try is possible in 38.0 s" in said


@pytest.mark.requirement("F23", "P-BREAKER")
def test_one_call_is_let_through_after_the_cooldown_and_decides() -> None:
    bench = Bench(failures=2, cooldown_s=10)
    bench.fail(2)
    bench.now += 15
    assert bench.breaker.admit() is True
    assert "when the one call that was let through has ended" in bench.refusal()
    bench.breaker.fail(BAD, is_probe=True)
    assert bench.breaker.state is BreakerState.OPEN
    bench.now += 14.9
    bench.refusal()
    bench.now += 0.1
    assert bench.breaker.admit() is True
    bench.breaker.succeed(is_probe=True)
    assert bench.breaker.admit() is False
    assert bench.told == [
        "breaker_open", "breaker_half_open", "breaker_open", "breaker_half_open", "breaker_closed",
    ]  # fmt: skip


def test_a_probe_that_decides_nothing_leaves_its_place_to_the_next() -> None:
    bench = Bench(failures=1)
    bench.fail()
    bench.now += 60
    assert bench.breaker.admit()
    bench.breaker.end_probe()
    assert bench.breaker.admit()
    assert bench.told.count("breaker_half_open") == 1


def test_calls_from_before_the_opening_change_nothing() -> None:
    bench = Bench(failures=1)
    bench.fail()
    bench.breaker.fail(BAD, is_probe=False)
    bench.breaker.succeed(is_probe=False)
    assert bench.breaker.state is BreakerState.OPEN
    assert bench.told == ["breaker_open"]


def test_without_a_number_of_failures_there_is_no_breaker() -> None:
    bench = Bench(failures=0)
    bench.fail(100)
    assert bench.breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("F23", "P-BREAKER")
def test_the_cooldown_is_between_the_set_time_and_twice_as_long() -> None:
    for seed in range(200):
        now, chance = 0.0, random.Random(seed)
        breaker = CircuitBreaker(ServerLimits(failures=1), lambda *_: None, lambda now=now: now, chance.random)  # type: ignore[misc]
        breaker.fail(BAD, is_probe=False)
        assert 30 <= breaker._until <= 60


def failing(status: int = 503) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status)

    return handler


@pytest.mark.requirement("F23", "P-BREAKER")
async def test_an_open_breaker_sends_nothing_and_closes_when_the_server_is_back(
    raw: RawServer, upstreams: Upstreams
) -> None:
    provider = upstreams.http(raw.url, limits=ServerLimits(failures=5, cooldown_s=0.2))
    await use(provider, "x")
    raw.on["tools/call"] = failing()
    for _ in range(5):
        with pytest.raises(UpstreamGone, match="HTTP 503"):
            await use(provider, "x")
    sent = raw.methods().count("tools/call")
    assert "breaker of this server is open" in provider.health().reason
    for _ in range(50):
        with anyio.fail_after(AT_ONCE), pytest.raises(UpstreamGone, match="breaker of this server is open") as caught:
            await provider.call("x", {}, meta={}, on_progress=None)
        assert caught.value.sent is Sent.NOTHING
    assert raw.methods().count("tools/call") == sent
    del raw.on["tools/call"]
    await until_answered(provider)
    assert provider.health().reason == ""
    kinds = "breaker_open", "breaker_half_open", "breaker_closed"
    assert upstreams.told(*kinds) == [*kinds], "one event for each change, and none for a refused call"
    assert all("\n" not in event.text for event in upstreams.events)


async def until_answered(provider: Any) -> None:
    with anyio.fail_after(10):
        while True:
            try:
                await use(provider, "x")
            except UpstreamGone:
                await asyncio.sleep(0)
            else:
                return


@pytest.mark.requirement("F23", "P-BREAKER")
async def test_of_many_calls_at_the_end_of_a_cooldown_one_reaches_the_server(
    raw: RawServer, upstreams: Upstreams
) -> None:
    provider = upstreams.http(raw.url, limits=ServerLimits(failures=1, cooldown_s=0.05))
    await use(provider, "x")
    raw.on["tools/call"] = failing()
    with pytest.raises(UpstreamGone):
        await use(provider, "x")
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        reached.set()
        await go_on.wait()
        return web.Response(status=503)

    raw.on["tools/call"] = slow
    refused: list[str] = []

    async def call() -> None:
        try:
            await use(provider, "x")
        except UpstreamGone as error:
            refused.append(str(error))

    async with anyio.create_task_group() as group:
        with anyio.fail_after(5):
            while not reached.is_set():
                group.start_soon(call)
                await anyio.lowlevel.checkpoint()
        for _ in range(20):
            await call()
        go_on.set()
    assert raw.methods().count("tools/call") == 3  # one that was answered, one that opened it, and the probe
    assert sum("let through" in each for each in refused) >= 20


async def test_what_is_not_the_servers_fault_opens_no_breaker(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    for _ in range(8):
        with pytest.raises(UpstreamError):
            await use(provider, "rpc_error")
    for _ in range(8):
        with anyio.move_on_after(0.01):
            await use(provider, "hang")
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def test_all_calls_that_one_death_takes_along_are_one_failure(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")

    async def hang() -> None:
        with pytest.raises(UpstreamGone):
            await use(provider, "hang")

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(hang)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(use_and_lose, provider)
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def use_and_lose(provider: Any) -> None:
    with pytest.raises(UpstreamGone):
        await use(provider, "kill")


async def test_timeouts_open_the_breaker_and_somebody_who_mended_it_closes_it(upstreams: Upstreams) -> None:
    hasty = Timeouts(start=10, call=0.05, total=20, idle=0)
    provider = upstreams.provide(replace(upstreams.spec(timeouts=hasty), limits=ServerLimits(failures=3)))
    for _ in range(3):
        with pytest.raises(UpstreamTimeout):
            await use(provider, "hang")
    with pytest.raises(UpstreamGone, match="breaker"):
        await use(provider, "hang")
    provider.retry_now()
    with pytest.raises(UpstreamTimeout):
        await use(provider, "hang")


@pytest.mark.requirement("F24", "P-QUEUE")
async def test_calls_beyond_the_limit_wait_in_order_and_beyond_the_queue_are_refused() -> None:
    queue, order = CallQueue(ServerLimits(calls_at_once=2, queue=3)), list[int]()
    for _ in range(2):
        await queue.enter(5)

    async def wait(number: int) -> None:
        await queue.enter(5)
        order.append(number)
        queue.leave()

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(AT_ONCE), pytest.raises(Crowded, match="3 more wait") as caught:
            await queue.enter(5)
        assert caught.value.sent is Sent.NOTHING
        queue.leave()
    assert order == [0, 1, 2]
    queue.leave()
    assert queue.running == 0


@pytest.mark.requirement("F24", "P-QUEUE")
async def test_who_no_longer_waits_frees_the_place_at_any_moment() -> None:
    queue = CallQueue(ServerLimits(calls_at_once=1, queue=1))
    await queue.enter(5)
    for _ in range(50):
        with anyio.move_on_after(0.0):
            await queue.enter(5)
    task = asyncio.create_task(queue.enter(5))
    await anyio.wait_all_tasks_blocked()
    queue.leave()  # the place is given, and in the same moment nobody wants it any more
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert queue.running == 0
    await queue.enter(5)
    with pytest.raises(Crowded, match=r"none of them has ended for 0\.01 s"):
        await queue.enter(0.01)
    queue.leave()
    assert (queue.running, queue.is_full) == (0, False)


@pytest.mark.requirement("F24", "P-QUEUE")
async def test_a_slow_server_keeps_a_bounded_number_of_calls_waiting(upstreams: Upstreams) -> None:
    limits = ServerLimits(calls_at_once=3, queue=2)
    slow, other = upstreams.provide(replace(upstreams.spec(), limits=limits)), upstreams.stdio()
    await use(slow, "echo")
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(use, slow, "hang")
        await anyio.wait_all_tasks_blocked()
        for _ in range(50):
            with anyio.fail_after(AT_ONCE), pytest.raises(Busy, match="at work on 3 calls") as caught:
                await use(slow, "echo")
            assert caught.value.sent is Sent.NOTHING
        assert said(await use(other, "echo", a=1)) == {"a": 1}
        group.cancel_scope.cancel()
    assert said(await use(slow, "echo", a=2)) == {"a": 2}


@pytest.mark.requirement("P-QUEUE")
async def test_waiting_does_not_count_as_the_servers_time(upstreams: Upstreams) -> None:
    timeouts = Timeouts(start=10, call=1.5, total=1.5, idle=0)
    spec = replace(upstreams.spec(timeouts=timeouts), limits=ServerLimits(calls_at_once=1))
    provider, ended = upstreams.provide(spec), list[Any]()
    await use(provider, "echo")

    async def slow() -> None:
        ended.append(said(await use(provider, "sleep", seconds=0.8)))

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        group.start_soon(slow)
    assert ended == ["slept", "slept"]


class Counting:
    """Executes calls, and breaks some of them before, during or after their execution."""

    def __init__(self, raw: RawServer) -> None:
        self.executed: dict[Any, int] = {}
        self.break_next: Callable[[web.Request], Any] | None = None
        raw.on["tools/call"] = self._handle

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = request["body"]["params"]["arguments"].get("n")
        how, self.break_next = self.break_next, None
        if how is not None and how.__name__ == "before":
            return await how(request)
        self.executed[number] = self.executed.get(number, 0) + 1
        return answer(request, {"n": number}) if how is None else await how(request)


async def before(request: web.Request) -> web.Response:
    return web.Response(status=502)


async def unavailable(request: web.Request) -> web.Response:
    return web.Response(status=503)


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await anyio.sleep_forever()
    raise AssertionError


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc"')
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.requirement("F14", "P-REPEAT")
@pytest.mark.parametrize("how", [before, unavailable, reset], ids=lambda how: how.__name__)
@pytest.mark.parametrize("tool", ["look", "put"])
async def test_a_tool_that_the_operator_says_is_safe_is_called_once_more(
    raw: RawServer, upstreams: Upstreams, how: Any, tool: str
) -> None:
    world, provider = Counting(raw), upstreams.http(raw.url, labels=READS)
    assert await use(provider, "look", n=0) == {"n": 0}
    world.break_next = how
    assert await use(provider, tool, n=1) == {"n": 1}
    assert world.executed[1] == (1 if how is before else 2)


@pytest.mark.requirement("F14", "T40", "P-REPEAT")
@pytest.mark.parametrize("how", [before, unavailable, reset, cut], ids=lambda how: how.__name__)
async def test_no_other_tool_is_called_twice_whatever_its_server_says_of_it(
    raw: RawServer, upstreams: Upstreams, how: Any
) -> None:
    async def hints(request: web.Request) -> web.Response:
        annotations = {"readOnlyHint": True, "idempotentHint": True}
        tool = {"name": "write", "inputSchema": {"type": "object"}, "annotations": annotations}
        return answer(request, {"tools": [tool]})

    raw.on["tools/list"] = hints
    world, provider = Counting(raw), upstreams.http(raw.url, labels=READS)
    await provider.offer()
    assert await use(provider, "write", n=0) == {"n": 0}
    world.break_next = how
    with pytest.raises(UpstreamGone) as caught:
        await use(provider, "write", n=1)
    assert caught.value.sent is Sent.UNKNOWN
    assert caught.value.outcome == "unknown_outcome"
    assert "- unknown_outcome: look whether it took effect" in str(caught.value)
    assert world.executed.get(1, 0) <= 1
    assert raw.methods().count("tools/call") == 2


@pytest.mark.requirement("P-REPEAT")
async def test_the_second_try_is_the_last_and_a_cut_answer_is_not_asked_for_again(
    raw: RawServer, upstreams: Upstreams
) -> None:
    provider = upstreams.http(raw.url, labels=READS)
    await use(provider, "look")
    raw.on["tools/call"] = failing()
    with pytest.raises(UpstreamGone, match="HTTP 503"):
        await use(provider, "look")
    assert raw.methods().count("tools/call") == 3
    raw.on["tools/call"] = cut
    with pytest.raises(UpstreamGone):
        await use(provider, "look")
    assert raw.methods().count("tools/call") == 4


@pytest.mark.requirement("P-REPEAT")
async def test_a_reading_tool_survives_the_death_of_its_process(upstreams: Upstreams) -> None:
    labels = ServerLabels(overrides={"kill": ToolOverride(effect=Effect.READ)})
    provider = upstreams.provide(replace(upstreams.spec(), labels=labels))
    with pytest.raises(UpstreamGone) as caught:
        await use(provider, "kill")  # it dies of the second try too
    assert caught.value.sent is Sent.UNKNOWN
    assert len(upstreams.spawned()) == 2


@pytest.mark.requirement("F14", "P-REPEAT")
async def test_a_thousand_faulted_writes_are_executed_at_most_once(raw: RawServer, upstreams: Upstreams) -> None:
    world, chance = Counting(raw), random.Random(14)
    provider = upstreams.http(raw.url, limits=ServerLimits(failures=0))
    await use(provider, "write", n=-1)
    outcomes: dict[int, str] = {}
    for number in range(1000):
        world.break_next = chance.choice((before, unavailable, reset, cut))
        try:
            await use(provider, "write", n=number)
        except UpstreamGone as error:
            outcomes[number] = error.outcome
    assert set(outcomes.values()) == {"unknown_outcome"}
    assert len(outcomes) == 1000, "none is told as a success"
    assert max(world.executed.values()) == 1


@pytest.mark.requirement("F13")
async def test_a_hundred_writes_survive_a_server_that_forgets_every_session(
    raw: RawServer, upstreams: Upstreams
) -> None:
    executed: list[int] = []
    provider = upstreams.http(raw.url)

    async def run(request: web.Request) -> web.Response:
        if request.headers.get("Mcp-Session-Id") != raw.session:
            return web.Response(status=404)
        executed.append(request["body"]["params"]["arguments"]["n"])
        return answer(request, {"done": True})

    raw.on["tools/call"] = run
    for number in range(100):
        raw.session = f"s-{number}"
        assert await use(provider, "write", n=number) == {"done": True}
    assert executed == list(range(100))
    posts = raw.methods()
    assert posts.count("initialize") == 100
    assert posts.count("tools/call") == 199  # each but the first met the 404 once, and was sent once more


@pytest.mark.requirement("F16")
async def test_a_connection_into_nowhere_is_not_used_again(raw: RawServer, upstreams: Upstreams) -> None:
    """A proxy that keeps its connections open and passes nothing on: no reset is ever seen."""
    open_ones: list[dict[str, bool]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state = {"passes": True}
        open_ones.append(state)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", raw.port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if state["passes"]:
                    sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    provider = upstreams.http(url, timeouts=Timeouts(start=5, call=0.5, total=60, idle=0))
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(use, provider, "x")
    assert len(open_ones) >= 2
    for each in open_ones:
        each["passes"] = False
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout):
        await use(provider, "x")
    assert "ok" in await use(provider, "x")
    await provider.aclose()
    server.close()


def test_a_server_without_a_word_has_the_limits_of_the_docs() -> None:
    limits = ServerLimits()
    assert (limits.calls_at_once, limits.queue, limits.failures, limits.cooldown_s) == (256, 256, 5, 30)
    assert QUICK.idle == 0


async def test_the_breaker_waits_for_nobody_while_the_server_is_down(upstreams: Upstreams) -> None:
    provider = upstreams.provide(replace(upstreams.spec(), limits=ServerLimits(failures=2)))
    for _ in range(2):
        with pytest.raises(UpstreamGone):
            await use(provider, "die")
    await until(lambda: provider.health().pid is None)
    with pytest.raises(UpstreamGone, match="breaker of this server is open"):
        await use(provider, "echo")
    assert len(upstreams.spawned()) == 2
