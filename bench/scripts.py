"""What a script costs: `python bench/scripts.py [--runs N]`.

One engine runs scripts whose calls are answered in this process: a warm one with one call, one with ten calls of
100 ms at once, as many as go in a second, and every script of the denial-of-service collection, with a watch on how
long the event loop stood still meanwhile. Prints a Markdown table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.scripting.exhaustion_scripts import DENIALS, MEMORY

from portico.domain.call import Script, ScriptLimits
from portico.errors import CallError, ScriptError
from portico.scripting.engine import LuaEngine

PAUSE = 0.02
"""Seconds between two scripts that must find a warm worker."""
WALL = 0.5
"""The limit that hostile scripts run into."""
ONE_CALL = Script(source="return calculator.add({ a = 1, b = 2 }):await()")
TEN_CALLS = Script(source="local f = {} for i = 1, 10 do f[i] = calculator.wait({}) end return #await_all(f)")


class ScriptApi:
    """Answers at once, or after 100 ms."""

    servers = ("calculator",)

    def __init__(self) -> None:
        self.spent = 0.0
        """Seconds in the calls themselves."""

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Add, wait or give back."""
        began = time.perf_counter()
        try:
            if tool == "wait":
                await asyncio.sleep(0.1)
            if tool == "hang":
                await asyncio.sleep(3600)
            if tool == "text":
                return "x" * int(arguments["size"])
            return arguments
        finally:
            self.spent += time.perf_counter() - began

    async def ask(self, question: str, arguments: Any) -> Any:
        """Nothing is asked here."""
        raise CallError(question)


class Watch:
    """Measures how late the event loop is."""

    async def __aenter__(self) -> Watch:
        self.worst = 0.0
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _look(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, time.perf_counter() - began - 0.005)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="scripts in a round")
    options = parser.parse_args()
    figures = asyncio.run(_measured(options.runs))
    _print(figures)
    print(json.dumps({"bench": "scripts", "cpus": os.cpu_count(), "runs": options.runs, **figures}))
    return 0


async def _measured(runs: int) -> dict[str, float]:
    engine = LuaEngine()
    try:
        began = time.perf_counter()
        await engine.run(ONE_CALL, ScriptApi())
        first = time.perf_counter() - began
        await _full(engine)
        found = {"first_ms": first * 1e3, **await _latency(engine, runs), **await _throughput(engine, runs)}
        found |= {"ten_calls_ms": await _ten_calls(engine), "refill_ms": await _refill(engine)}
        found |= await _denials(engine)
        found |= {"beside_mb": await _beside(engine)}
        return {name: round(value, 2) for name, value in found.items()}
    finally:
        await engine.aclose()


async def _latency(engine: LuaEngine, runs: int) -> dict[str, float]:
    """What a warm script adds to the one call that it makes."""
    added = []
    for _ in range(runs):
        await asyncio.sleep(PAUSE)
        api, began = ScriptApi(), time.perf_counter()
        await engine.run(ONE_CALL, api)
        added.append((time.perf_counter() - began - api.spent) * 1e3)
    added.sort()
    return {"warm_p50_ms": statistics.median(added), "warm_p95_ms": added[int(len(added) * 0.95)]}


async def _throughput(engine: LuaEngine, runs: int) -> dict[str, float]:
    waiting = iter(range(runs))

    async def work() -> None:
        for _ in waiting:
            await engine.run(ONE_CALL, ScriptApi())

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(8)))
    return {"scripts_per_second": runs / (time.perf_counter() - began)}


async def _ten_calls(engine: LuaEngine) -> float:
    took = []
    for _ in range(10):
        await asyncio.sleep(PAUSE)
        began = time.perf_counter()
        await engine.run(TEN_CALLS, ScriptApi())
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


async def _refill(engine: LuaEngine) -> float:
    """Until the pool is full again after it was emptied at once; the worst of five."""
    worst = 0.0
    for _ in range(5):
        await _full(engine)
        scripts = [engine.run(ONE_CALL, ScriptApi()) for _ in range((await engine.sandbox()).size)]
        began = time.perf_counter()
        await asyncio.gather(*scripts)
        await _full(engine)
        worst = max(worst, time.perf_counter() - began)
    return worst * 1e3


async def _full(engine: LuaEngine) -> None:
    while True:
        sandbox = await engine.sandbox()
        if sandbox.ready >= sandbox.size:
            return
        await asyncio.sleep(0.001)


async def _denials(engine: LuaEngine) -> dict[str, float]:
    """How far hostile scripts get beyond their limit, and how long they hold up the gateway."""
    overshoot, ended = 0.0, 0
    limits = ScriptLimits(seconds=WALL, cpu_seconds=60, memory_mb=16, calls=50, output_bytes=50_000)
    async with Watch() as watch:
        for _, source in DENIALS.values():
            began = time.perf_counter()
            with suppress(ScriptError):
                await engine.run(Script(source=source, limits=limits), ScriptApi())
            overshoot = max(overshoot, time.perf_counter() - began - WALL)
            ended += 1
        await _full(engine)
    return {"denials": ended, "overshoot_ms": overshoot * 1e3, "stall_ms": watch.worst * 1e3}


async def _beside(engine: LuaEngine) -> float:
    """Megabytes that the processes of scripts that fill their memory take beyond it, as far as can be seen."""
    limits = ScriptLimits(seconds=WALL, cpu_seconds=60, memory_mb=16, calls=50, output_bytes=50_000)
    worst = 0.0
    for wanted, source in DENIALS.values():
        if MEMORY not in wanted:
            continue
        task = asyncio.create_task(engine.run(Script(source=source, limits=limits), ScriptApi()))
        while not task.done():
            worst = max(worst, *map(_peak, _workers(engine)))
            await asyncio.sleep(0.001)
        with suppress(ScriptError):
            await task
    return worst - limits.memory_mb


def _workers(engine: LuaEngine) -> list[str]:
    server = engine.pool.fork_server
    return Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split() if server else []


def _peak(pid: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), default=0.0)


def _print(figures: dict[str, float]) -> None:
    rows = (
        ("first script, the start of the fork server included, ms", "first_ms", ""),
        ("warm script with one call, added to the call, p50 ms", "warm_p50_ms", "3"),
        ("the same, p95 ms", "warm_p95_ms", "8"),
        ("ten calls of 100 ms at once, ms", "ten_calls_ms", "130"),
        ("scripts in a second, eight at once", "scripts_per_second", "50"),
        ("pool full again after it was emptied, worst ms", "refill_ms", "500"),
        (f"beyond a limit of {WALL:g} s, worst of {figures['denials']:.0f} hostile scripts, ms", "overshoot_ms", "100"),
        ("event loop held up meanwhile, worst ms", "stall_ms", "50"),
        ("memory of a process beyond its script's limit, worst MB", "beside_mb", "64"),
    )
    print("| what | measured | asked |\n|---|---|---|")
    for title, key, asked in rows:
        print(f"| {title} | {figures[key]:.1f} | {asked} |")


if __name__ == "__main__":
    sys.exit(main())
