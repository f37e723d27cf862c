"""Lifecycle of workers and of their fork server: what is cancelled, killed or closed leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import anyio
import pytest

from portico.domain.call import Script, ScriptLimits
from portico.errors import ScriptError, Sent
from portico.scripting import worker_pool
from portico.scripting.engine import LuaEngine, start_frame
from portico.scripting.protocol import ALLOWANCE
from tests.house.source import ROOT
from tests.scripting.fake_api import BOUND, FakeApi, children, fork_servers, is_running, killed, until

HANGING = Script(source="calculator.hang():await()")
LOOPING = Script(source="print('on its way') while true do end", limits=ScriptLimits(cpu_seconds=60))


@pytest.mark.requirement("T65")
async def test_a_cancelled_run_takes_its_script_and_its_calls_with_it(engine: LuaEngine):
    fake = FakeApi()
    fork_server = await _full_pool(engine)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, Script(source="for i = 1, 5 do calculator.hang() end while true do end"), fake)
            await until(lambda: fake.in_flight == 5)
            assert len(children(fork_server)) >= 1
            tasks.cancel_scope.cancel()
    assert (fake.in_flight, fake.cancelled) == (0, 5)
    await until(lambda: len(children(fork_server)) == 2)
    assert (await engine.sandbox()).running == 0


async def test_no_worker_is_used_twice(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    for _ in range(4):
        used = children(fork_server)
        await engine.run(Script(source="return 1"), FakeApi())
        await engine.run(Script(source="return 1"), FakeApi())
        # A process that is not ready yet was not used: the next round must not take it for one.
        await until(lambda used=used: engine.pool.ready == len(children(fork_server)) == 2)
        assert not children(fork_server) & used


@pytest.mark.requirement("F43")
async def test_a_killed_worker_fails_its_script_alone(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    warm = children(fork_server)
    fake = FakeApi()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, engine, Script(source="calculator.hang():await()"), fake, "killed from outside")
            await until(lambda: fake.in_flight == 1)
            await killed(warm, signal.SIGKILL)
    assert fake.cancelled == 1
    assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1
    assert fork_servers() >= {fork_server}


async def test_a_worker_that_crashes_is_distinguished_from_one_that_used_its_time(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    fake = FakeApi()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, engine, HANGING, fake, "its process was lost (signal 11)")
            await until(lambda: fake.in_flight == 1)
            await killed(children(fork_server), signal.SIGSEGV)
    await _expect(engine, Script(source="while true do end", limits=ScriptLimits(cpu_seconds=0.05)), fake, "CPU time")


@pytest.mark.requirement("F43")
async def test_idle_workers_that_die_are_replaced(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    old = children(fork_server)
    await killed(old, signal.SIGKILL)
    await until(lambda: len(children(fork_server) - old) == 2)
    assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1


async def test_a_stopped_worker_is_ended_by_the_clock(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    fake = FakeApi()
    script = Script(source="calculator.wait():await() return 1", limits=ScriptLimits(seconds=2.0))
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, engine, script, fake, "it was stopped after 2 s")
            await until(lambda: fake.in_flight == 1)
            frozen = children(fork_server)
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            fake.opened.set()
    await killed(frozen, signal.SIGKILL)
    await until(lambda: len(children(fork_server) - frozen) == 2)


async def test_a_killed_fork_server_is_started_again(engine: LuaEngine):
    fork_server = await _full_pool(engine)
    fake = FakeApi()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, engine, HANGING, fake, "run the script again")
            await until(lambda: fake.in_flight == 1)
            workers = children(fork_server)
            os.kill(fork_server, signal.SIGKILL)
        await until(lambda: not any(map(is_running, workers)))
        assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1
    assert await _full_pool(engine) != fork_server


async def test_closing_ends_what_runs(engine: LuaEngine):
    before = fork_servers()
    fake = FakeApi()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_expect, engine, Script(source="calculator.echo():await() while true do end"), fake, "")
            await until(lambda: len(fake.calls) == 1)
            (fork_server,) = fork_servers() - before
            workers = children(fork_server)
            await engine.aclose()
    assert fork_servers() == before
    assert not any(map(is_running, workers))
    with pytest.raises(ScriptError, match="closing"):
        await engine.run(Script(source="return 1"), FakeApi())


@pytest.mark.requirement("F09")
def test_a_killed_gateway_leaves_no_process():
    code = """
import anyio
from portico.domain.call import Script, ScriptLimits
from portico.scripting.engine import LuaEngine
from tests.house.source import ROOT
from tests.scripting.fake_api import FakeApi, children, until

async def main():
    engine = LuaEngine(pool_size=2)
    await engine.wake()
    await until(lambda: engine.pool.ready == 2)
    print(engine.pool.fork_server.pid, *children(engine.pool.fork_server.pid), flush=True)
    await engine.run(Script(source="while true do end", limits=ScriptLimits(seconds=100, cpu_seconds=100)), FakeApi())

anyio.run(main)
"""
    gateway = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    with gateway:
        assert gateway.stdout is not None
        pids = [int(pid) for pid in gateway.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(is_running, pids))
        gateway.kill()
    anyio.run(until, lambda: not any(map(is_running, pids)))


async def test_a_failed_script_is_there_until_its_last_word_was_heard(engine: LuaEngine):
    """Otherwise an answer that is sent to it meanwhile fails, and closes the wire before its error is read."""
    await _full_pool(engine)
    worker, fork_server = await engine.pool.take()
    script = Script(source="calculator.echo() error('its own')")
    worker.allow(100_000)
    worker.send_raw(ALLOWANCE.pack(5.0, 64 << 20))
    worker.send(start_frame(script, ["calculator"]))
    with anyio.fail_after(BOUND):
        said = [await worker.frame(), await worker.frame()]
    poll = select.poll()
    poll.register(worker._transport.get_extra_info("socket").fileno(), select.POLLHUP)
    assert b"its own" in (said[1] or b"")
    assert poll.poll(200) == []
    with anyio.fail_after(BOUND):
        await fork_server.end(worker)


async def test_what_had_been_sent_is_reported(engine: LuaEngine):
    for source, sent in (
        ("error('x')", Sent.NOTHING),
        ("calculator.echo():await() error('x')", Sent.ANSWERED),
        ("calculator.hang() error('x')", Sent.UNKNOWN),
    ):
        with pytest.raises(ScriptError) as caught:
            await engine.run(Script(source=source), FakeApi())
        assert caught.value.sent is sent


async def test_a_source_beyond_its_limit_is_not_even_sent():
    engine = LuaEngine()
    with pytest.raises(ScriptError) as caught:
        await engine.run(Script(source="x" * 1_000_000), FakeApi())
    assert caught.value.limit == "source_bytes"
    assert "1,000,000 bytes, and 256,000 are allowed" in caught.value.reason
    await engine.aclose()


async def test_arguments_that_are_no_json_are_refused(engine: LuaEngine):
    with pytest.raises(ScriptError, match="arguments are not JSON"):
        await engine.run(Script(source="return 1", arguments={"x": {1}}), FakeApi())


async def test_a_fault_in_the_gateway_is_not_reported_as_the_scripts(engine: LuaEngine):
    class Broken(FakeApi):
        async def call(self, server, tool, arguments):
            raise LookupError("a fault of ours")

    with pytest.raises(LookupError, match="a fault of ours"):
        await engine.run(Script(source="calculator.echo():await()"), Broken())


async def test_the_sandbox_tells_what_it_has(engine: LuaEngine):
    sandbox = await engine.sandbox()
    assert (sandbox.size, sandbox.problem) == (2, "")
    with anyio.fail_after(BOUND):
        while (await engine.sandbox()).ready < 2:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_fork_server_that_cannot_start_is_a_problem_with_a_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_pool, "COMMAND", ("/nowhere/python",))
    engine = LuaEngine()
    sandbox = await engine.sandbox()
    assert "cannot be started" in sandbox.problem
    assert sandbox.is_degraded
    with pytest.raises(ScriptError, match="cannot be started"):
        await engine.run(Script(source="return 1"), FakeApi())
    monkeypatch.setattr(worker_pool, "COMMAND", ("/bin/false",))
    assert "ended at its start" in (await engine.sandbox()).problem
    await engine.aclose()


async def _full_pool(engine: LuaEngine) -> int:
    """The process id of an engine's fork server, with its pool full."""
    await engine.wake()
    await until(lambda: engine.pool.ready == 2)
    assert engine.pool.fork_server is not None
    return engine.pool.fork_server.pid


async def _expect(engine: LuaEngine, script: Script, fake: FakeApi, reason: str) -> None:
    with pytest.raises(ScriptError) as caught:
        await engine.run(script, fake)
    assert reason in caught.value.reason
