"""Machines that give less, and processes that stop: scripts still run, or say why not, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from portico.domain.call import Script, ScriptLimits
from portico.errors import ScriptError
from portico.scripting import worker_pool
from portico.scripting.engine import LuaEngine
from tests.house.source import ROOT
from tests.scripting.fake_api import BOUND, FakeApi, children, is_running, until

ONE = Script(source="return 1")
GATEWAY = """
import sys

import anyio

from portico.domain.call import Script, ScriptLimits
from portico.errors import ScriptError
from portico.scripting.engine import LuaEngine
from tests.scripting.fake_api import FakeApi


async def main():
    engine = LuaEngine(pool_size=1)
    for _ in range(3):
        print((await engine.run(Script(source="return calculator.echo({ value = 1 }):await()"), FakeApi())).value)
    try:
        limits = ScriptLimits(seconds=20, cpu_seconds=0.05)
        await engine.run(Script(source="while true do end", limits=limits), FakeApi())
    except ScriptError as error:
        print(error.limit)
    await engine.aclose()


anyio.run(main, backend_options={"use_uvloop": "uvloop" in sys.argv})
"""


@pytest.mark.parametrize(
    "start",
    [
        "exec {python} -c {code}",
        "exec {python} -c {code} uvloop",
        "trap '' CHLD PROF XCPU; exec {python} -c {code}",
        "exec 0<&-; exec {python} -c {code}",
        "ulimit -n 30; exec {python} -c {code}",
        "export PYTHONSTARTUP=/nowhere HOME=/nowhere TMPDIR=/nowhere; exec {python} -c {code}",
    ],
    ids=["plain", "uvloop", "ignored signals", "no stdin", "few files", "no home"],
)
def test_scripts_run_however_the_gateway_was_started(start: str):
    command = start.format(python=sys.executable, code='"$CODE"')
    environment = {**os.environ, "CODE": GATEWAY}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["1", "1", "1", "cpu_seconds"], "")


async def test_a_stopped_fork_server_is_replaced(engine: LuaEngine, monkeypatch: pytest.MonkeyPatch):
    fork_server = await _full(engine)
    monkeypatch.setattr(worker_pool, "READY_SECONDS", 0.5)
    workers = children(fork_server)
    os.kill(fork_server, signal.SIGSTOP)
    with anyio.fail_after(BOUND):
        for _ in range(4):  # two find a warm worker, and then there are none
            assert (await engine.run(ONE, FakeApi())).value == 1
        await until(lambda: not any(map(is_running, {fork_server, *workers})))
    assert await _full(engine) != fork_server


@pytest.mark.requirement("F30")
async def test_a_gateway_without_free_descriptors_says_so_and_recovers():
    engine = LuaEngine(pool_size=1)
    with _no_descriptors():
        with pytest.raises(ScriptError, match="Too many open files"):
            await engine.run(ONE, FakeApi())
        assert "Too many open files" in (await engine.sandbox()).problem
    await _full(engine)
    hanging = FakeApi()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            with _no_descriptors():
                tasks.start_soon(engine.run, Script(source="calculator.hang():await()"), hanging)
                await until(lambda: hanging.in_flight == 1)
                with pytest.raises(ScriptError, match="Too many open files"):
                    await engine.run(ONE, FakeApi())
            tasks.cancel_scope.cancel()
        assert (await engine.run(ONE, FakeApi())).value == 1
    await engine.aclose()


async def test_a_fork_that_is_cancelled_leaves_no_process(engine: LuaEngine):
    await _full(engine)
    fork_server = engine.pool.fork_server
    assert fork_server is not None
    for _ in range(20):
        forking = asyncio.create_task(fork_server.fork())
        await asyncio.sleep(0)
        forking.cancel()
        await asyncio.wait([forking])
    await until(lambda: _with_zombies(fork_server.pid) == 2)


def test_a_place_without_proc_is_degraded():
    code = "import sys; from portico.scripting.hardening import *; sys.exit(NO_SPACE not in seal(5.0, 1 << 26, 0))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


def test_limits_that_the_gateway_has_itself_are_kept():
    code = """
import resource
from portico.scripting.hardening import address_space, seal
space = address_space()
resource.setrlimit(resource.RLIMIT_AS, (space + (32 << 20),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
missing = seal(5.0, 1 << 26, space)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


async def test_a_lost_worker_is_noticed_while_its_calls_are_too_large_to_hear_more(engine: LuaEngine):
    source = """
    local text = ("x"):rep(1900000)
    for i = 1, 3 do calculator.hang({ value = text }) end
    while true do end
    """
    fake = FakeApi()
    with anyio.fail_after(BOUND), pytest.raises(ScriptError) as caught:
        await engine.run(Script(source=source, limits=ScriptLimits(seconds=100, cpu_seconds=1.0)), fake)
    assert caught.value.limit == "cpu_seconds"
    assert fake.in_flight == 0


@contextmanager
def _no_descriptors() -> Iterator[None]:
    """Take all descriptors that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def _full(engine: LuaEngine) -> int:
    """The process id of an engine's fork server, with its pool full."""
    await engine.wake()
    await until(lambda: engine.pool.ready == engine.pool.size)
    assert engine.pool.fork_server is not None
    return engine.pool.fork_server.pid


def _with_zombies(pid: int) -> int:
    """Processes that a process has started and not yet asked for their end."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
