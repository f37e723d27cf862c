"""What tools of one's own cost: `python bench/local.py [--quick] [--fleet definitions.json]`.

The first table is the CPU time of one call of a function, by itself, in a thread or task of asyncio's own, through the
library and through the gateway; the function adds two numbers, so that what is left is Portico. Where two cores are
idle, to wake a thread on the other one costs more than on a busy machine: `taskset -c 0` shows the same without it. The
second is what a client reads before its first question from the surfaces `search` and `capabilities`, beside `static`:
of 120 functions, of a server with 16 tools, and of real definitions where a file is given. Prints Markdown tables and
one JSON line. Exits with 1 when a surface is above what it may cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import anyio

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import tana_server
from tests.catalogue import load_fleet
from tests.sample_tools import handle_base_readQuery, reports, sample_app

from portico import Catalog
from portico.domain.call import Call
from portico.gateway import Gateway
from portico.server.run import surface_tokens
from portico.surfaces.capabilities.inventory import BUDGET
from portico.surfaces.capabilities.surface import Capabilities
from portico.testing import AGENT, make_test_app

ROUNDS = 5
SEARCH_SHARE, SCHEMA_MOST = 0.01, 300
"""What `search` may cost of `static` for 120 functions, and a schema of the 16 tools in tokens."""
ARGUMENTS = {"a": 2, "b": 3}

Once = Callable[[], Awaitable[object]]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add two numbers, on the event loop."""
    return a + b


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls, coarser figures")
    parser.add_argument("--fleet", help="a file of real definitions to measure as well")
    options = parser.parse_args()
    calls = anyio.run(_calls, 500 if options.quick else 3_000)
    tokens = _tokens(load_fleet(options.fleet))
    _print_calls(calls)
    _print_tokens(tokens)
    failures = _failures(tokens)
    print(json.dumps({"bench": "local", "cpu_us": calls, "tokens": tokens, "failures": failures}))
    return 1 if failures else 0


async def _calls(count: int) -> dict[str, dict[str, float]]:
    """Microseconds of CPU of one call on each way, sync and async."""
    catalog = Catalog()
    for function in (add, add_async):
        catalog.register_tool(function)
    gateway = sample_app(add, add_async).gateway

    async def directly() -> int:
        return add(**ARGUMENTS)

    ways: dict[str, dict[str, Once]] = {
        "the function itself": {"sync": directly, "async": lambda: add_async(**ARGUMENTS)},
        "a task, a thread (`asyncio`)": {
            "sync": lambda: asyncio.to_thread(add, **ARGUMENTS),
            "async": lambda: asyncio.create_task(add_async(**ARGUMENTS)),
        },
        "`Catalog.call`": {kind: _through(catalog, name) for kind, name in _NAMES.items()},
        "`Gateway.call`": {kind: _through(gateway, name) for kind, name in _NAMES.items()},
    }
    found = {way: {kind: await _cpu(once, count) for kind, once in kinds.items()} for way, kinds in ways.items()}
    found["the function itself"]["sync"] = _bare(count)
    return found


_NAMES = {"sync": "add", "async": "add_async"}


def _through(door: Catalog | Gateway, name: str) -> Once:
    if isinstance(door, Catalog):
        return lambda: door.call(name, ARGUMENTS)
    return lambda: door.call(AGENT, Call(tool=name, arguments=ARGUMENTS))


async def _cpu(once: Once, count: int) -> float:
    """The median over the rounds; threads that run the function count too."""
    await once()
    found = []
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(count):
            await once()
        found.append(1e6 * (process_time() - started) / count)
    return round(statistics.median(found), 2)


def _bare(count: int) -> float:
    """The same for a plain call, which nothing awaits."""
    found = []
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(100 * count):
            add(**ARGUMENTS)
        found.append(1e4 * (process_time() - started) / count)
    return round(statistics.median(found), 2)


def _tokens(fleet: Mapping[str, list[dict[str, Any]]] | None) -> dict[str, dict[str, int]]:
    """What each surface costs before the first question, and what the inventory and the largest schema cost then."""
    catalogues = {
        "120 functions": sample_app(handle_base_readQuery, *reports(119), pins=("base_readQuery",)).gateway,
        "16 tools": tana_server.tana_app().gateway,
    }
    if fleet:
        catalogues["the given definitions"] = make_test_app(fleet).gateway
    return {title: _costs(gateway) for title, gateway in catalogues.items()}


def _costs(gateway: Gateway) -> dict[str, int]:
    registry = Capabilities(gateway, prefix=tana_server.PREFIX).registry.seen_by(AGENT)
    schemas = [registry.schema(name).tokens for name in registry.list_tool_names()]
    surfaces = {surface: surface_tokens(gateway, surface) for surface in ("static", "search", "capabilities")}
    return {
        "tools": len(gateway.view(AGENT).tools),
        **surfaces,
        "inventory": registry.capabilities().tokens,
        "largest_schema": max(schemas),
    }


def _failures(tokens: Mapping[str, Mapping[str, int]]) -> list[str]:
    found = [f"{title}: the inventory is above {BUDGET}" for title, row in tokens.items() if row["inventory"] > BUDGET]
    if tokens["120 functions"]["search"] > SEARCH_SHARE * tokens["120 functions"]["static"]:
        found.append(f"120 functions: `search` costs more than {SEARCH_SHARE:.0%} of `static`")
    if tokens["16 tools"]["largest_schema"] >= SCHEMA_MOST:
        found.append(f"16 tools: a schema costs {SCHEMA_MOST} tokens or more")
    return found


def _print_calls(calls: Mapping[str, Mapping[str, float]]) -> None:
    bare = calls["the function itself"]
    print("| one call, CPU µs | sync | times the function | async | times the function |\n|---|---:|---:|---:|---:|")
    for way, row in calls.items():
        cells = [f"{row[kind]:,.2f} | {row[kind] / bare[kind]:,.0f}" for kind in ("sync", "async")]
        print(f"| {way} | {' | '.join(cells)} |")


def _print_tokens(tokens: Mapping[str, Mapping[str, int]]) -> None:
    print("\n| tokens | tools | `static` | `search` | `capabilities` | its inventory | its largest schema |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for title, row in tokens.items():
        shares = [f"{row[surface]:,} ({row[surface] / row['static']:.1%})" for surface in ("search", "capabilities")]
        rest = f"{row['inventory']:,} | {row['largest_schema']:,}"
        print(f"| {title} | {row['tools']:,} | {row['static']:,} | {' | '.join(shares)} | {rest} |")
    print()


if __name__ == "__main__":
    sys.exit(main())
