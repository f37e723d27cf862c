"""Reloads under load: 50 changes of the config while clients make 100 calls a second.

`python bench/reload.py [--reloads 50] [--rate 100]` prints a Markdown table and one JSON line: calls that failed, the
process ids of servers whose entry stayed, how long calls take beside the same load without reloads, and how soon a
new server's tool is found.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from mcp import Client
from tests.journeys.running import client, gateway, text_of, write_config

SERVER = Path(__file__).resolve().parents[1] / "tests/journeys/telling_server.py"
STEADY = ("ash", "beech", "cedar")
CLIENTS = 4
QUIET_S = 5.0


def telling(name: str, **rest: Any) -> dict[str, Any]:
    """The entry of a server whose tool tells its process id."""
    return {"command": sys.executable, "args": ["-S", str(SERVER), name], **rest}


@dataclass(slots=True)
class Load:
    """Calls of unchanged servers at a steady rate, whether or not earlier ones have been answered."""

    agents: list[Client]
    rate: float
    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    pids: set[str] = field(default_factory=set)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Call until it is over."""
        began, number = time.perf_counter(), 0
        async with anyio.create_task_group() as tasks:
            while not is_over():
                tasks.start_soon(self._call, self.agents[number % len(self.agents)], STEADY[number % len(STEADY)])
                number += 1
                await anyio.sleep(max(0.0, began + number / self.rate - time.perf_counter()))

    async def _call(self, agent: Client, server: str) -> None:
        began = time.perf_counter()
        try:
            answer = await agent.call_tool("call_tool", {"name": f"{server}.{server}_pid", "arguments": {}})
        except Exception as error:
            self.failed.append(repr(error))
            return
        self.took.append(time.perf_counter() - began)
        if answer.is_error:
            self.failed.append(text_of(answer))
        else:
            self.pids.add(f"{server} {text_of(answer)}")


async def change(home: Path, agent: Client, number: int) -> float:
    """Write the config with one server changed and one new; the seconds until the new one's tool is found."""
    name = f"fresh{number}"
    servers = {each: telling(each) for each in STEADY}
    servers |= {"other": telling("other", env={"WORD": str(number)}), name: telling(name)}
    began = time.perf_counter()
    write_config(home, servers)
    with anyio.fail_after(30):
        while f"{name}.{name}_pid" not in await _search(agent, f"{name} pid"):  # noqa: ASYNC110  a process makes it so
            await anyio.sleep(0.01)
    return time.perf_counter() - began


async def _search(agent: Client, query: str) -> str:
    return text_of(await agent.call_tool("search_tools", {"query": query}))


async def measure(home: Path, reloads: int, rate: float) -> dict[str, Any]:
    """The same load without reloads and with them."""
    write_config(home, {each: telling(each) for each in STEADY})
    with gateway(home) as running:
        async with AsyncExitStack() as stack:
            agents = [
                await stack.enter_async_context(client("http", "2025-11-25", surface="discover", running=running))
                for _ in range(CLIENTS + 1)
            ]
            quiet, busy = Load(agents[1:], rate), Load(agents[1:], rate)
            until = time.perf_counter() + QUIET_S
            await quiet.run(lambda: time.perf_counter() > until)
            found: list[float] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(busy.run, lambda: len(found) == reloads)
                for number in range(reloads):
                    found.append(await change(home, agents[0], number))  # noqa: PERF401  the load looks at it
    return {
        "reloads": reloads,
        "calls": len(busy.took),
        "failed": len(quiet.failed) + len(busy.failed),
        "first failure": next(iter(quiet.failed + busy.failed), ""),
        "steady servers kept their process": busy.pids == quiet.pids and len(busy.pids) == len(STEADY),
        "found after, median s": round(statistics.median(found), 3),
        "found after, longest s": round(max(found), 3),
        "call p50 with / without": round(statistics.median(busy.took) / statistics.median(quiet.took), 2),
        "call p99 with / without": round(_p99(busy.took) / _p99(quiet.took), 2),
    }


def _p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[98]


def main() -> int:
    """Measure and print; 1 when a call failed or a process was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=50)
    parser.add_argument("--rate", type=float, default=100.0, help="calls a second")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        figures = anyio.run(measure, Path(folder), options.reloads, options.rate)
    print("| reloads under load | |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure} |")
    print(json.dumps({"bench": "reload", **figures}))
    return int(bool(figures["failed"]) or not figures["steady servers kept their process"])


if __name__ == "__main__":
    sys.exit(main())
