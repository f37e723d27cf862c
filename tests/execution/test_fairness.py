"""Fair shares: one client that asks for everything does not keep another one waiting."""

from __future__ import annotations

import threading
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from tests.fairness import Crowd

from portico.application import Application
from portico.domain.call import Call, Outcome
from portico.errors import Busy
from portico.execution.executor import FairLimiter
from portico.providers.python.decorator import Connection
from portico.providers.python.functions import make_tool
from portico.providers.python.provider import CONNECTIONS, LocalProvider
from portico.testing import AGENT
from portico.wiring import Parts, assemble

pytestmark = pytest.mark.requirement("P-FAIR-SHARES")


def house_of(provider: LocalProvider) -> Application:
    """A house with one server of functions."""
    application = assemble(Parts(providers={provider.server: provider}))
    application.gateway.publisher.accept([(provider.offering(), provider.source)])
    return application


async def test_a_second_client_is_next_however_many_of_the_first_wait():
    limiter, crowd = FairLimiter(4), Crowd()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(crowd.hold, limiter, "a", f"a{number}")
            await crowd.until(3)
            assert (limiter.running, limiter.waiting) == (3, 197), "one place is left for somebody else"
            tasks.start_soon(crowd.hold, limiter, "b", "b0")
            await crowd.until(4)
            assert crowd.begun[3] == "b0"
            for number in range(1, 3):
                tasks.start_soon(crowd.hold, limiter, "b", f"b{number}")
            while limiter.waiting < 199:
                await anyio.lowlevel.checkpoint()
            crowd.release("a0")
            await crowd.until(5)
            crowd.release("a1")
            await crowd.until(6)
            assert crowd.begun[4:6] == ["a3", "b1"], "those who wait take turns"
            crowd.release_all()
    assert (limiter.running, limiter.waiting) == (0, 0)
    assert [name for name in crowd.begun if name.startswith("a")] == [f"a{n}" for n in range(200)], "first come"


async def test_who_has_no_name_may_use_everything():
    limiter, crowd = FairLimiter(4), Crowd()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(crowd.hold, limiter, "", str(number))
            await crowd.until(4)
            crowd.release_all()


async def test_a_queue_is_bounded_for_all_and_for_each():
    limiter, crowd = FairLimiter(1, queue=4), Crowd()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(crowd.hold, limiter, "a", f"a{number}")
            await crowd.until(1)
            while limiter.waiting < 3:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Busy, match="try again"):
                await crowd.hold(limiter, "a", "a4")
            tasks.start_soon(crowd.hold, limiter, "b", "b0")
            while limiter.waiting < 4:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Busy):
                await crowd.hold(limiter, "c", "c0")
            crowd.release_all()
    assert "b0" in crowd.begun[:3]


async def test_waiting_has_an_end_and_leaves_nothing_behind():
    limiter, crowd = FairLimiter(1), Crowd()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(crowd.hold, limiter, "a", "a0")
            await crowd.until(1)
            with pytest.raises(Busy, match=r"0\.01 s"):
                async with limiter.turn("b", "x", seconds=0.01):
                    pass
            with anyio.move_on_after(0.01):
                await crowd.hold(limiter, "c", "c0")
            assert limiter.waiting == 0
            crowd.release_all()
            tasks.start_soon(crowd.hold, limiter, "b", "b1")
    assert limiter.running == 0
    assert crowd.begun == ["a0", "b1"]


async def test_slow_functions_of_one_client_leave_threads_to_another():
    gate, begun = threading.Event(), []

    def slow(number: int) -> int:
        begun.append(number)
        gate.wait(20)
        return number

    def quick() -> str:
        return "done"

    provider = LocalProvider(server="tools")
    provider.add_tool(make_tool(slow))
    provider.add_tool(make_tool(quick))
    application = house_of(provider)
    ann, ben = replace(AGENT, client="a"), replace(AGENT, client="b")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(application.gateway.call, ann, Call(tool="tools.slow", arguments={"number": number}))
            while len(begun) < provider.workers.limit * 3 // 4:
                await anyio.lowlevel.checkpoint()
            result = await application.gateway.call(ben, Call(tool="tools.quick", arguments={}))
            assert "done" in result.text
            assert len(begun) == provider.workers.limit * 3 // 4, "those of the first still wait"
            gate.set()
    assert len(begun) == 200


def test_tools_that_hold_a_connection_are_bounded_by_the_connections():
    def reading(conn: Connection) -> str:
        return str(conn)

    async def waiting() -> str:
        return ""

    provider = LocalProvider(server="tools", inject={Connection: lambda caller: None})  # type: ignore[dict-item]
    provider.add_tool(make_tool(reading))
    provider.add_tool(make_tool(waiting))
    provider.add({"name": "plain", "inputSchema": {"type": "object"}}, lambda name, arguments: None)
    bounds = [provider.calls_at_once(name) for name in ("reading", "waiting", "plain", "none")]
    assert bounds == [CONNECTIONS, 0, provider.workers.limit, 0]


async def test_a_call_that_finds_no_room_is_no_failure_of_its_tool():
    provider = LocalProvider(server="tools")
    provider.add({"name": "plain", "inputSchema": {"type": "object"}}, lambda name, arguments: {"a": 1})
    application = house_of(provider)
    limiter, crowd = application.gateway.executor.turns.of("tools", provider.workers.limit), Crowd()
    limiter.queue = 0
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(provider.workers.limit):
                tasks.start_soon(crowd.hold, limiter, "", str(number))
            await crowd.until(provider.workers.limit)
            with pytest.raises(Busy):
                await application.gateway.call(AGENT, Call(tool="tools.plain", arguments={}))
            crowd.release_all()
    assert application.gateway.executor.counts.calls == {("tools", Outcome.REFUSED): 1}
