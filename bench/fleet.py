"""Do sick servers harm healthy ones? `python bench/fleet.py [--quick] [--healthy N] [--sick N] [--rounds N]`.

One gateway has healthy servers and, of each kind, some that hang, crash in a loop, are slow or send garbage; another
one has the healthy ones alone. Both are asked in turn, so that a slow minute of the machine hits both: read the ratio.
The sick ones also take cores from everybody, so the second gateway is asked once more while the first is in trouble.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import orjson

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import MODERN, Target
from bench.processes import free_port, listening

from portico.testing import FaultPlan, FaultyServer, PlannedFault

READY_S, P99_RATIO, SUCCESS = 2.0, 1.2, 0.9995
"""What is asked for: seconds until ready, p99 beside that of the healthy ones alone, calls that succeed."""
PATIENCE_S = 60
PAUSE_S = 0.5
"""Seconds between two calls of one sick server, on average."""
SICK: Mapping[str, Sequence[PlannedFault]] = {
    "hangs at its start": [PlannedFault(kind="hang", at="start")],
    "hangs in a call": [PlannedFault(kind="hang")],
    "ends at its start": [PlannedFault(kind="exit", at="start", text="no license")],
    "ends in a call": [PlannedFault(kind="crash")],
    "is slow": [PlannedFault(kind="delay", seconds=1.0)],
    "is slow to start": [
        PlannedFault(kind="delay", at="start", seconds=1.0),
        PlannedFault(kind="delay", seconds=1.0),
    ],
    "sends garbage": [
        PlannedFault(kind="write", at="start", text="Loading 99 %\r\n", count=1_000),
        PlannedFault(kind="mutate", count=5),
    ],
    "floods": [PlannedFault(kind="notify", count=500)],
}
"""Half of each kind goes wrong in one way, half in another."""
LIMITS = {"start": 30, "call": 5, "total": 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway, and how long it took."""

    url: str
    pid: int
    listened_s: float
    ready_s: float
    listed_s: float
    """Until every healthy server had its tools in the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The calls of healthy servers in one round."""

    latencies: Sequence[float]
    failed: int

    @property
    def p99_ms(self) -> float:
        """The latency that one in a hundred exceeds."""
        return statistics.quantiles(self.latencies, n=100)[-1] * 1e3


def servers(healthy: int, sick: int) -> dict[str, dict[str, Any]]:
    """Config entries: `good-N`, and so many of each pair of ways to go wrong."""
    found = {f"good{n}": FaultyServer(FaultPlan()).stdio() for n in range(healthy)}
    for way, (name, faults) in enumerate(SICK.items()):
        count = sick // 2 + (sick % 2 if way % 2 else 0)
        plan = FaultPlan(faults=tuple(faults), seed=way)
        found |= {f"{name.replace(' ', '-')}{n}": FaultyServer(plan).stdio() for n in range(count)}
    return {name: {**entry, "timeouts": LIMITS} for name, entry in found.items()}


@contextmanager
def serving(config: Mapping[str, Any], healthy: int) -> Iterator[Gateway]:
    """A gateway of its own that has asked its healthy servers."""
    port = free_port()
    with TemporaryDirectory() as home:
        (Path(home) / "portico.yaml").write_text(json.dumps({"servers": config}))
        command = [sys.executable, "-m", "portico", "serve", "--port", str(port), "--config", f"{home}/portico.yaml"]
        began = time.perf_counter()
        with listening(command, port, {"PORTICO_HOME": home}) as pid:
            listened, url = time.perf_counter() - began, f"http://127.0.0.1:{port}"
            ready, listed = asyncio.run(_wait(url, healthy, began))
            yield Gateway(url=url, pid=pid, listened_s=listened, ready_s=ready, listed_s=listed)


async def _wait(url: str, healthy: int, began: float) -> tuple[float, float]:
    ready = listed = 0.0
    async with _session() as session, asyncio.timeout(4 * PATIENCE_S):
        while not ready or not listed:
            async with session.get(f"{url}/readyz") as answer:
                if answer.status == 200 and not ready:
                    ready = time.perf_counter() - began
            async with session.get(f"{url}/api/v1/servers") as answer:
                known = [one for one in (await answer.json())["servers"] if one["tools"]]
                if sum(one["name"].startswith("good") for one in known) == healthy:
                    listed = listed or time.perf_counter() - began
            await asyncio.sleep(0.02)
    return ready, listed


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))


async def call(session: aiohttp.ClientSession, url: str, server: str, number: int) -> bool:
    """Whether one call came back with its own argument."""
    mark = f"call {number} of {server}"
    target = Target(
        url=f"{url}/mcp", tool="call_tool", arguments={"name": f"{server}.echo", "arguments": {"text": mark}}
    )
    headers = await target.headers(MODERN)
    async with session.post(target.url, data=next(target.bodies(MODERN)), headers=headers) as response:
        result = orjson.loads(await response.read()).get("result", {})
    return not result.get("isError") and mark in str(result)


@asynccontextmanager
async def troubled(session: aiohttp.ClientSession, gateway: Gateway, sick: Sequence[str]) -> AsyncIterator[None]:
    """Every sick server has a call under way most of the time."""

    async def bother(server: str) -> None:
        chance = random.Random(server)
        for number in itertools.count():
            await asyncio.sleep(chance.uniform(0, 2 * PAUSE_S))  # never all of them at one moment
            await call(session, gateway.url, server, number)

    tasks = [asyncio.create_task(bother(server)) for server in sick]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask(session: aiohttp.ClientSession, gateway: Gateway, healthy: int, calls: int, clients: int) -> Round:
    """So many calls, over all healthy servers in turn, by some clients at once."""
    latencies: list[float] = []
    failed = 0
    numbers = iter(range(calls))

    async def client() -> None:
        nonlocal failed
        for number in numbers:
            sent = time.perf_counter()
            failed += not await call(session, gateway.url, f"good{number % healthy}", number)
            latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(clients)))
    return Round(latencies=latencies, failed=failed)


async def measure(
    mixed: Gateway, alone: Gateway, sick: Sequence[str], options: argparse.Namespace
) -> list[tuple[Round, Round, Round]]:
    """Rounds of both gateways in turn: among sick servers, alone, and alone on a machine that is as busy."""
    rounds = []
    size = (options.healthy, options.calls, options.clients)
    async with _session() as one, _session() as other, _session() as trouble:
        await ask(one, mixed, *size)  # the first calls pay for connections and caches
        await ask(other, alone, *size)
        for _ in range(options.rounds):
            async with troubled(trouble, mixed, sick):
                among_sick, beside = await ask(one, mixed, *size), await ask(other, alone, *size)
            rounds.append((among_sick, await ask(other, alone, *size), beside))
    return rounds


def main() -> int:
    """Measure, print the table and the JSON line."""
    options = _options()
    config = servers(options.healthy, options.sick)
    sick = [name for name in config if not name.startswith("good")]
    healthy = {name: entry for name, entry in config.items() if name not in sick}
    with serving(healthy, len(healthy)) as alone, serving(config, len(healthy)) as mixed:
        rounds = asyncio.run(measure(mixed, alone, sick, options))
    ratios = [among.p99_ms / quiet.p99_ms for among, quiet, _ in rounds]
    as_busy = [among.p99_ms / beside.p99_ms for among, _, beside in rounds]
    calls = sum(len(among.latencies) for among, _, _ in rounds)
    success = 1 - sum(among.failed for among, _, _ in rounds) / calls
    found = {
        "listened_s": round(mixed.listened_s, 2),
        "ready_s": round(mixed.ready_s, 2),
        "ready_after_listening_s": round(mixed.ready_s - mixed.listened_s, 2),
        "healthy_listed_s": round(mixed.listed_s, 2),
        "alone_ready_s": round(alone.ready_s, 2),
        "calls": calls,
        "success": round(success, 5),
        "p99_ms": round(statistics.median(among.p99_ms for among, _, _ in rounds), 2),
        "alone_p99_ms": round(statistics.median(quiet.p99_ms for _, quiet, _ in rounds), 2),
        "as_busy_p99_ms": round(statistics.median(beside.p99_ms for _, _, beside in rounds), 2),
        "p99_ratio": round(statistics.median(ratios), 2),
        "p99_ratios": [round(ratio, 2) for ratio in ratios],
        "as_busy_ratio": round(statistics.median(as_busy), 2),
        "as_busy_ratios": [round(ratio, 2) for ratio in as_busy],
    }
    print(f"{len(healthy)} healthy servers among {len(config)}, {options.clients} clients, {options.rounds} rounds\n")
    print("| what | is | asked for |\n|---|---:|---:|")
    print(f"| seconds from listening to ready | {found['ready_after_listening_s']} | {READY_S} |")
    print(f"| seconds from the start until all healthy ones are listed | {found['healthy_listed_s']} | |")
    print(f"| calls of healthy servers that succeed | {success:.3%} of {calls} | {SUCCESS:.2%} |")
    print(f"| p99 in ms (alone; as busy) | {found['p99_ms']} ({found['alone_p99_ms']}; {found['as_busy_p99_ms']}) | |")
    print(f"| p99 beside the healthy ones alone | {found['p99_ratio']} {found['p99_ratios']} | {P99_RATIO} |")
    print(
        f"| the same on a machine that is as busy | {found['as_busy_ratio']} {found['as_busy_ratios']} | {P99_RATIO} |"
    )
    print(json.dumps({"bench": "fleet", "healthy": len(healthy), "sick": len(sick), **found}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=60, help="servers that do well")
    parser.add_argument("--sick", type=int, default=10, help="servers of each of the four kinds that do not")
    parser.add_argument("--calls", type=int, default=1_500, help="calls of healthy servers in each round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median of their ratios counts")
    parser.add_argument("--clients", type=int, default=4, help="clients at once")
    parser.add_argument("--quick", action="store_true", help="a small fleet and two rounds, to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.healthy, options.sick, options.calls, options.rounds = 12, 2, 300, 2
    return options


if __name__ == "__main__":
    sys.exit(main())
