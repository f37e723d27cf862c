"""What tools that live in a database cost, and what they withstand: `python bench/registry.py [--quick]`.

Loads 2,000 registered tools from PostgreSQL and from SQLite, looks at them again with nothing new, waits for a new row
that PostgreSQL tells of, and compares a call through the gateway with the same prepared statement through the driver.
Then every injection string goes as every type through every door into both engines, and twenty users call ten thousand
times among each other, one call in ten failing in the database or cancelled while it runs there. Prints a Markdown
table and one JSON line. Exits with 1 when a figure is above its limit, a database has changed, or a call was seen as
another user's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import psycopg

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.concurrent_users import USERS, ConcurrentUsers, roles_and_functions
from tests.databases import Postgres, postgres_server
from tests.injection_attack import TEXTS, InjectionAttack, create_attacked_tables, state
from tests.providers.sql.registry.registry_world import INJECTIONS
from tests.registries import Shop, postgres_shop, registry_house, sqlite_shop, until_tool

from portico.domain.call import Call, Caller
from portico.providers.sql.registry.provider import RegistryProvider

TOOLS = 2_000
LIMITS = {"load_s": 2.0, "nothing_new_ms": 50.0, "notify_s": 2.0, "added_ms": 1.0}
SELECT = 'SELECT * FROM "mcp"."sample_revenue"(CAST(%s AS text)) AS result'

Figures = dict[str, Any]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls and attacks")
    options = parser.parse_args()
    with postgres_server() as server, tempfile.TemporaryDirectory() as folder:
        figures = anyio.run(_measure, server, Path(folder), options.quick)
    failures = _failures(figures)
    _print(figures)
    print(json.dumps({"bench": "registry", **figures, "failures": failures}))
    return 1 if failures else 0


async def _measure(server: Postgres, folder: Path, quick: bool) -> Figures:
    large = postgres_shop(server.fresh())
    _register_many(large)
    file = sqlite_shop(folder / "large.db")
    _register_many(file)
    found: Figures = {"tools": TOOLS}
    found["postgresql"] = await _loading(large)
    found["sqlite"] = await _loading(file)
    found["notify_s"] = await _notified(large, folder)
    found |= await _calls(large, folder, 300 if quick else 3_000)
    attacked = (postgres_shop(server.fresh()), sqlite_shop(folder / "attacked.db"))
    for shop in attacked:
        create_attacked_tables(shop)
        found[f"attacks_{shop.dialect}"] = await _attacked(shop, folder, 20 if quick else 1)
    found["identity"] = await _identity(postgres_shop(server.fresh()), 1_000 if quick else 10_000)
    return found


def _register_many(shop: Shop) -> None:
    """Every tool with three parameters, over the sample table and function."""
    params = ("region", "product", "amount")
    tools, columns, users, grants = [], [], [], []
    for number in range(TOOLS):
        name = f"sales_{number:04}"
        tools.append(f"('{name}', '{shop.home}', 'sample_sales', 'T', 'Sales, view {number}', 'sales, finance')")
        columns += [f"('{name}', '{param}', 'CV', {place}, 'N')" for place, param in enumerate(params, 1)]
        users.append(f"('{name}', 'PUBLIC')")
        grants.append(f"('{name}', '*')")
    named = "ToolName, DataBaseName, TableName, ToolType, docstring, Tags"
    typed = "ToolName, ParamName, ParamType, ParamPosition, ParamRequired"
    shop.run(f"INSERT INTO mcp.mcp_tools ({named}) VALUES {', '.join(tools)}")
    shop.run(f"INSERT INTO mcp.mcp_tool_params ({typed}) VALUES {', '.join(columns)}")
    shop.run(f"INSERT INTO mcp.mcp_user_grants (ToolName, UserName) VALUES {', '.join(grants)}")
    if not shop.file:
        shop.run(f"INSERT INTO mcp.mcp_tool_users (ToolName, DatabaseUser) VALUES {', '.join(users)}")
        shop.run("ANALYZE")  # what a server does by itself, and this one was told not to


async def _loading(shop: Shop) -> Figures:
    """The first load, connection included, and looks with nothing new."""
    provider = RegistryProvider(shop.spec())
    started = perf_counter()
    offering = await provider.offer()
    seconds = perf_counter() - started
    assert len(offering.tools) >= TOOLS
    await anyio.sleep(1.5)  # a file that was just written is not taken at a glance
    await provider.offer()
    looks = [await _timed(provider.has_changed) for _ in range(10)]
    await provider.aclose()
    return {"load_s": round(seconds, 3), "nothing_new_ms": round(1_000 * statistics.median(looks), 1)}


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    started = perf_counter()
    await work()
    return perf_counter() - started


async def _notified(shop: Shop, folder: Path) -> float:
    """From the commit of a new row to a call of it that has an answer, the slowest of five."""
    found = []
    async with registry_house(folder, shop.spec(refresh_s=3_600), watched=True) as application:
        await anyio.sleep(1.5)  # until it listens
        for number in range(5):
            name = f"fresh_{number}"
            await anyio.to_thread.run_sync(lambda name=name: shop.register(name, "sample_sales", "T", "region CV?"))
            started = perf_counter()
            with anyio.fail_after(20):
                await until_tool(application, name)
                await application.gateway.call(Caller(), Call(tool=name, arguments={"limit": 1}))
            found.append(perf_counter() - started)
    return round(max(found), 3)


async def _calls(shop: Shop, folder: Path, count: int) -> Figures:
    """Medians of a call through the gateway and of the same statement through the driver, taken in turns."""
    through, direct = [], []
    call = Call(tool="sample_revenue", arguments={"region": "north"})
    async with registry_house(folder, shop.spec()) as application:
        with psycopg.connect(shop.url) as connection:
            for _ in range(count):
                through.append(await _timed(lambda: application.gateway.call(Caller(), call)))
                started = perf_counter()
                connection.execute(SELECT, ("north",), prepare=True).fetchall()
                direct.append(perf_counter() - started)
    medians = [1_000 * statistics.median(times[count // 10 :]) for times in (through, direct)]
    return {
        "call_ms": round(medians[0], 3),
        "driver_ms": round(medians[1], 3),
        "added_ms": round(medians[0] - medians[1], 3),
    }


async def _attacked(shop: Shop, folder: Path, step: int) -> Figures:
    async with registry_house(folder, shop.spec()) as application:
        before, attack = state(shop), InjectionAttack(application)
        await attack.run(INJECTIONS[::step], ["direct", "call_tool", "execute_tool", "script"])
        wrong = [column for _, column, _ in attack.let_through if column not in TEXTS]
    return {
        "texts": len(INJECTIONS[::step]),
        "tried": attack.tried,
        "sent_for_other_types": len(wrong) + attack.sent - len(attack.let_through),
        "unchanged": state(shop) == before,
    }


async def _identity(shop: Shop, calls: int) -> Figures:
    """Calls of many users among each other; a tenth fails in the database, or is cancelled while it runs there."""
    with roles_and_functions(shop) as roles:
        provider = RegistryProvider(shop.spec(roles=roles))
        run = ConcurrentUsers(provider, shop, roles)
        await run.run(calls, seed=11)
        await provider.aclose()
    names = ("answered", "failed", "cancelled", "another_user")
    return {"calls": calls, **{name: run.counts[name] for name in names}}


def _failures(figures: Figures) -> list[str]:
    measured = {**figures["postgresql"], "notify_s": figures["notify_s"], "added_ms": figures["added_ms"]}
    found = [f"{name}: {measured[name]} > {limit}" for name, limit in LIMITS.items() if measured[name] > limit]
    for engine in ("postgresql", "sqlite"):
        attacks = figures[f"attacks_{engine}"]
        if attacks["sent_for_other_types"] or not attacks["unchanged"]:
            found.append(f"attacks on {engine}: {attacks}")
    identity = figures["identity"]
    is_whole = identity["answered"] + identity["failed"] + identity["cancelled"] == identity["calls"]
    if identity["another_user"] or not is_whole:
        found.append(f"identity: {identity}")
    return found


def _print(figures: Figures) -> None:
    print("\n| | PostgreSQL | SQLite | limit |\n|---|---|---|---|")
    one, other = figures["postgresql"], figures["sqlite"]
    print(f"| {TOOLS:,} tools load | {one['load_s']} s | {other['load_s']} s | {LIMITS['load_s']} s |")
    nothing = f"| nothing new | {one['nothing_new_ms']} ms | {other['nothing_new_ms']} ms |"
    print(f"{nothing} {LIMITS['nothing_new_ms']} ms |")
    print(f"| a new row is callable after NOTIFY | {figures['notify_s']} s | | {LIMITS['notify_s']} s |")
    added = f"{figures['added_ms']} ms ({figures['call_ms']} against {figures['driver_ms']})"
    print(f"| a call adds, median | {added} | | {LIMITS['added_ms']} ms |")
    for name in ("tried", "sent_for_other_types", "unchanged"):
        cells = [str(figures[f"attacks_{engine}"][name]) for engine in ("postgresql", "sqlite")]
        print(f"| attacks: {name.replace('_', ' ')} | {cells[0]} | {cells[1]} | |")
    identity = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in figures["identity"].items())
    print(f"| calls of {USERS} users | {identity} | | 0 as another user |\n")


if __name__ == "__main__":
    sys.exit(main())
