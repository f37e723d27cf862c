"""Calls for a long time, one in a hundred with a fault: `python tests/chaos/soak.py [--minutes 60] [--rate 50]`.

Clients come and go meanwhile. Samples of what the gateway holds are taken all along; prints the slopes of memory,
descriptors, threads and tasks after the first fifth, and exits with 1 when one of them rises.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.chaos.clients import serving
from tests.chaos.watching import Holdings, RawClient, Verdict, Watched, show

CLIENTS, STAY = 20, 40
"""Clients at one time, and the calls after which one goes and another comes."""
FAULTS = 0.01
SAMPLES = 40
WARM = 0.2
"""The part of the time that is left out."""
MOST_MEMORY = 1.0
"""Megabytes an hour."""
LONG_MINUTES = 20.0
"""A time in which so small a slope can be told from what memory does anyway."""


def run(options: argparse.Namespace) -> list[Verdict]:
    """Call, and look what grows."""
    seconds = 60 * options.minutes
    with serving({"session_idle_s": max(2.0, min(60.0, seconds / 20))}) as gateway:
        samples, wrong, calls = asyncio.run(_soak(gateway, seconds, options.rate))
    kept = [one for one in samples if one[0] >= WARM * seconds]
    memory = 3_600 * _slope(kept, lambda held: held.rss) / 2**20
    grown = (kept[-1][1].rss - kept[0][1].rss) / 2**20
    rows = [
        Verdict(f"{calls:,} calls in {options.minutes:g} minutes: wrong ones", f"{wrong}", holds=not wrong),
        Verdict(
            "memory rises by",
            f"{memory:+.1f} MB an hour ({grown:+.1f} MB in all)",
            holds=memory <= MOST_MEMORY or options.minutes < LONG_MINUTES,
            is_noisy=True,
        ),
    ]
    for name, count in _COUNTED.items():
        first, last = _least(kept[: len(kept) // 4 + 1], count), _least(kept[-len(kept) // 4 :], count)
        rows.append(
            Verdict(
                f"{name}, the least of the first and the last quarter", f"{first:.0f} -> {last:.0f}", last <= first + 4
            )
        )
    return rows


_COUNTED: dict[str, Callable[[Holdings], float]] = {
    "descriptors": lambda held: held.fds,
    "threads": lambda held: held.threads,
    "tasks without those of sessions": lambda held: held.tasks - 2 * held.sessions,
}


def _slope(samples: Sequence[tuple[float, Holdings]], value: Callable[[Holdings], float]) -> float:
    """By how much a value rises in a second, as the straight line that fits best says."""
    middle = sum(at for at, _ in samples) / len(samples)
    spread = sum((at - middle) ** 2 for at, _ in samples)
    return sum((at - middle) * value(held) for at, held in samples) / spread if spread else 0.0


def _least(samples: Sequence[tuple[float, Holdings]], value: Callable[[Holdings], float]) -> float:
    return min(value(held) for _, held in samples)


async def _soak(gateway: Watched, seconds: float, rate: float) -> tuple[list[tuple[float, Holdings]], int, int]:
    """Samples with their times, wrong answers, and calls."""
    start, samples = time.monotonic(), []
    counts = [0, 0]

    async def client(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() - start < seconds:
            raw = await RawClient(gateway.port, name=f"c{number}", is_modern=number % 4 == 3).open()
            for count in range(STAY):
                if time.monotonic() - start >= seconds:
                    break
                counts[1] += 1
                counts[0] += not await _call(raw, chance, count)
                await asyncio.sleep(chance.uniform(0.5, 1.5) * CLIENTS / rate)
            raw.drop()

    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(client(number))
        while (now := time.monotonic() - start) < seconds:
            samples.append((now, await asyncio.to_thread(gateway.holdings)))
            await asyncio.sleep(seconds / SAMPLES)
    return samples, counts[0], counts[1]


async def _call(raw: RawClient, chance: random.Random, count: int) -> bool:
    """One call, seldom with a fault; whether its answer is what it must be."""
    fault = chance.random() < FAULTS
    tool = chance.choice(("one.one_work", "two.two_work"))
    if fault and chance.random() < 0.5:
        await raw.send("tools/call", {"name": tool, "arguments": {"word": "x", "wait": 0.5}}, id=count)
        raw.drop()
        return True
    if fault:
        return "unknown_tool" in (await raw.call("one.nothing", {}, id=count)).body.decode()
    reply = await raw.call(tool, {"word": f"w{count}"}, id=count)
    return reply.text == f"{tool[:3]} {f'w{count}'[::-1]}"


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second")
    return show(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
