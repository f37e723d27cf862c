"""Fair shares: one client that asks for everything does not keep another one waiting."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel
import pytest

from portico.application import Application
from portico.domain.call import Call, Outcome
from portico.errors import Busy
from portico.execution.executor import FairLimiter
from portico.providers.python.decorator_and_injection import Connection
from portico.providers.python.functions import make_tool
from portico.providers.python.provider import CONNECTIONS, LocalProvider
from portico.testing import AGENT
from portico.wiring import Parts, assemble

pytestmark = pytest.mark.requirement("P-FAIR-SHARES")


@dataclass
class Holders:
    """Tasks that hold a place until they are released; remembers the order in which they got it."""

    begun: list[str] = field(default_factory=list)
    _gates: dict[str, anyio.Event] = field(default_factory=dict)
    _is_open: bool = False

    async def hold(self, limiter: FairLimiter, client: str, name: str) -> None:
        """Hold a place until it is released."""
        async with limiter.turn(client, name):
            self.begun.append(name)
            if not self._is_open:
                await self._gates.setdefault(name, anyio.Event()).wait()

    async def until(self, number: int) -> None:
        """Wait until so many have had a place."""
        while len(self.begun) < number:
            await anyio.lowlevel.checkpoint()

    def release(self, name: str) -> None:
        """Let one go."""
        self._gates[name].set()

    def release_all(self) -> None:
        """Let everybody go, also those to come."""
        self._is_open = True
        for gate in self._gates.values():
            gate.set()


def application_of(provider: LocalProvider) -> Application:
    """An application with one server of functions."""
    application = assemble(Parts(providers={provider.server: provider}))
    application.gateway.publisher.accept([(provider.offering(), provider.source)])
    return application


async def test_a_second_client_is_next_however_many_of_the_first_wait():
    limiter, holders = FairLimiter(4), Holders()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(holders.hold, limiter, "a", f"a{number}")
            await holders.until(3)
            assert (limiter.running, limiter.waiting) == (3, 197), "one place is left for somebody else"
            tasks.start_soon(holders.hold, limiter, "b", "b0")
            await holders.until(4)
            assert holders.begun[3] == "b0"
            for number in range(1, 3):
                tasks.start_soon(holders.hold, limiter, "b", f"b{number}")
            while limiter.waiting < 199:
                await anyio.lowlevel.checkpoint()
            holders.release("a0")
            await holders.until(5)
            holders.release("a1")
            await holders.until(6)
            assert holders.begun[4:6] == ["a3", "b1"], "those who wait take turns"
            holders.release_all()
    assert (limiter.running, limiter.waiting) == (0, 0)
    assert [name for name in holders.begun if name.startswith("a")] == [f"a{n}" for n in range(200)], "first come"


async def test_who_has_no_name_may_use_everything():
    limiter, holders = FairLimiter(4), Holders()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(holders.hold, limiter, "", str(number))
            await holders.until(4)
            holders.release_all()


async def test_a_queue_is_bounded_for_all_and_for_each():
    limiter, holders = FairLimiter(1, queue=4), Holders()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(holders.hold, limiter, "a", f"a{number}")
            await holders.until(1)
            while limiter.waiting < 3:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Busy, match="try again"):
                await holders.hold(limiter, "a", "a4")
            tasks.start_soon(holders.hold, limiter, "b", "b0")
            while limiter.waiting < 4:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(Busy):
                await holders.hold(limiter, "c", "c0")
            holders.release_all()
    assert "b0" in holders.begun[:3]


async def test_waiting_has_an_end_and_leaves_nothing_behind():
    limiter, holders = FairLimiter(1), Holders()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holders.hold, limiter, "a", "a0")
            await holders.until(1)
            with pytest.raises(Busy, match=r"0\.01 s"):
                async with limiter.turn("b", "x", seconds=0.01):
                    pass
            with anyio.move_on_after(0.01):
                await holders.hold(limiter, "c", "c0")
            assert limiter.waiting == 0
            holders.release_all()
            tasks.start_soon(holders.hold, limiter, "b", "b1")
    assert limiter.running == 0
    assert holders.begun == ["a0", "b1"]


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
    application = application_of(provider)
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
    application = application_of(provider)
    limiter, holders = application.gateway.executor.limiter("tools", provider.workers.limit), Holders()
    limiter.queue = 0
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(provider.workers.limit):
                tasks.start_soon(holders.hold, limiter, "", str(number))
            await holders.until(provider.workers.limit)
            with pytest.raises(Busy):
                await application.gateway.call(AGENT, Call(tool="tools.plain", arguments={}))
            holders.release_all()
    assert application.gateway.executor.counts.calls == {("tools", Outcome.REFUSED): 1}
