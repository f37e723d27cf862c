"""Starts one server again and again, or cancels its start at random moments, and counts what is left.

`python tests/chaos/restarts.py [--rounds N]` prints the figures of N restarts and exits with 1 when anything is
left; the tests do the same with fewer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from portico.domain.server import ServerSpec
from portico.providers.child_process_supervisor import read_processes
from portico.providers.mcp import UpstreamProvider

SCRIPTED = str(Path(__file__).parents[1] / "providers" / "mcp" / "scripted_server.py")
LONGEST = 0.25
"""Seconds after which a start is cancelled at the latest: about as long as one takes."""
AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is there more than before."""

    descriptors: int
    tasks: int
    zombies: int


def _count() -> tuple[int, int, int]:
    family = {os.getpid()}
    processes = read_processes()
    while grown := {each.pid for each in processes if each.parent in family} - family:
        family |= grown
    zombies = sum(each.is_zombie for each in processes if each.pid in family)
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), zombies


async def _measured(cycle: Callable[[], Awaitable[None]], rounds: int) -> Left:
    await cycle()  # the supervisor stays
    before = _count()
    places = anyio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with places:
            await cycle()

    async with anyio.create_task_group() as group:
        for _ in range(rounds):
            group.start_soon(one)
    descriptors, tasks, zombies = _count()
    return Left(descriptors=descriptors - before[0], tasks=tasks - before[1], zombies=zombies)


async def restarts(make: Callable[[], UpstreamProvider], rounds: int) -> Left:
    """Start a server, call it and stop it, so many times."""

    async def cycle() -> None:
        provider = make()
        with anyio.fail_after(30):
            await provider.call("echo", {}, meta={}, on_progress=None)
            await provider.aclose()

    return await _measured(cycle, rounds)


async def cancelled_starts(make: Callable[[], UpstreamProvider], rounds: int, chance: random.Random) -> Left:
    """Cancel the first call of a server at so many random moments."""

    async def cycle() -> None:
        provider = make()
        with anyio.move_on_after(chance.uniform(0, LONGEST)):
            await provider.call("echo", {}, meta={}, on_progress=None)
        with anyio.fail_after(30):
            await provider.aclose()

    return await _measured(cycle, rounds)


def _make() -> UpstreamProvider:
    args = ("-S", "-E", SCRIPTED, json.dumps({}))
    spec = ServerSpec(name="s", transport="stdio", command=sys.executable, args=args)
    return UpstreamProvider(spec, on_change=print, on_notice=lambda *_: None, client_version="1")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    rounds = parser.parse_args().rounds
    found = asyncio.run(restarts(_make, rounds))
    print(f"{rounds} restarts leave {found}")
    sys.exit(found.descriptors > 2 or found.tasks > 0 or found.zombies > 0)


if __name__ == "__main__":
    main()
