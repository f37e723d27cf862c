"""What a script takes of the machine's memory, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from portico.domain.call import Script, ScriptLimits
from portico.scripting.engine import LuaEngine
from tests.scripting.fake_api import BOUND, FakeApi, children, until

MEGABYTES = 32
BESIDE = 64
"""Megabytes that the interpreter may take beside the script's own."""
FILLERS = {
    "texts": "keep[#keep + 1] = ('x'):rep(1000) .. #keep",
    "long texts": "keep[#keep + 1] = ('x'):rep(1e6) .. #keep",
    "tables": "keep[#keep + 1] = { #keep }",
    "keys": "keep['k' .. next_number()] = true",
    "closures": "local a, b, c = {}, {}, {} keep[#keep + 1] = function() return a, b, c end",
    "coroutines": "local co = coroutine.wrap(function() coroutine.yield() end) co() keep[#keep + 1] = co",
    "answers": "keep[#keep + 1] = calculator.text({ size = 8e6 }):await() .. #keep",
    "frames": "keep[#keep + 1] = json.encode({ ('x'):rep(9e5), #keep })",
}


@pytest.mark.requirement("T55")
@pytest.mark.parametrize("name", FILLERS)
async def test_a_full_script_takes_little_more_than_its_limit(engine: LuaEngine, name: str):
    source = f"""
    local keep, number = {{}}, 0
    local function next_number() number = number + 1 return number end
    pcall(function() for _ = 1, {8 if name == "answers" else "math.huge"} do {FILLERS[name]} end end)
    for key in next, keep do keep[key] = nil if collectgarbage("count") < 28000 then break end end
    calculator.hang():await()
    """
    await engine.wake()
    fork_server, fake = engine.pool.fork_server.pid, FakeApi()
    assert fork_server is not None
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            limits = ScriptLimits(memory_mb=MEGABYTES, cpu_seconds=15)
            tasks.start_soon(engine.run, Script(source=source, limits=limits), fake)
            await until(lambda: fake.calls and fake.calls[-1][1] == "hang")
            most = max(map(_peak, children(fork_server)))
            tasks.cancel_scope.cancel()
    assert MEGABYTES // 2 < most <= MEGABYTES + BESIDE


def _peak(pid: int) -> float:
    """The most memory that a process has ever had, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
