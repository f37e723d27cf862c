"""Many faults by plan: what nobody delivers wrongly, runs twice or fails to survive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from upstream_world import Upstreams, said, use

from portico.application import Application
from portico.catalog import publisher
from portico.config.settings import GatewaySettings, InstallationPaths
from portico.domain.server import ServerSpec, Timeouts
from portico.errors import CallError
from portico.providers.mcp import UpstreamProvider
from portico.testing import FaultPlan, FaultyServer, PlannedFault, faulty_http, parts_of
from portico.wiring import open_app, watch

pytestmark = pytest.mark.anyio

MUTATIONS = int(os.environ.get("PORTICO_MUTATIONS", "2000"))
"""Damaged answers of one test; 100000 takes minutes."""
AT_ONCE = 50
COLD, COLD_SECONDS = 100, 0.5
METACHARACTERS = ("$({})", "`{}`", "; {}", "| {}", "&& {}", "\n{}\n", "' ; {} '", '" ; {} "')


@asynccontextmanager
async def serving(
    plan: FaultPlan, transport: str, upstreams: Upstreams, **timeouts: float
) -> AsyncIterator[tuple[FaultyServer, UpstreamProvider]]:
    """A faulty server over one transport, and its provider."""
    limits = Timeouts(**{"start": 20, "call": 20, "total": 30, "idle": 0, **timeouts})
    async with AsyncExitStack() as stack:
        if transport == "http":
            server = await stack.enter_async_context(faulty_http(plan))
            provider = upstreams.http(server.url, timeouts=limits)
        else:
            server = FaultyServer(plan, upstreams.log)
            provider = upstreams.provide(spec_of(server, "s", limits))
        stack.push_async_callback(provider.aclose)
        yield server, provider


def spec_of(server: FaultyServer, name: str, timeouts: Timeouts) -> ServerSpec:
    """The config of one that runs as a process."""
    entry = server.stdio()
    return ServerSpec(
        name=name, transport="stdio", command=entry["command"], args=tuple(entry["args"]), timeouts=timeouts
    )


async def in_parallel(count: int, work: Callable[[int], Awaitable[None]], *, at_once: int = AT_ONCE) -> None:
    """Do the same many times, some at once."""
    numbers = iter(range(count))

    async def take_turns() -> None:
        for number in numbers:
            await work(number)

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(take_turns)


@pytest.mark.requirement("F20", "T16")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_of_ten_thousand_odd_messages_none_is_delivered_wrongly(transport: str, upstreams: Upstreams) -> None:
    odd = (
        PlannedFault(kind="late", tool="late"),
        PlannedFault(kind="unknown_ids", chance=0.5, count=2),
        PlannedFault(kind="twice", chance=0.5, count=4),
        PlannedFault(kind="swap", chance=0.5),
    )
    plan = FaultPlan(tools=("echo", "late"), faults=odd)
    found: dict[int, Any] = {}
    async with serving(plan, transport, upstreams) as (server, provider):

        async def call(number: int) -> None:
            if number % 10 == 0:
                with anyio.move_on_after(0.02):
                    await use(provider, "late", n=number)
            found[number] = said(await use(provider, "echo", n=number))

        await in_parallel(1_000, call)
        assert found == {number: {"n": number} for number in range(1_000)}
        assert server.executions["echo"] == 1_000


@pytest.mark.requirement("F21")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_damaged_answers_are_results_or_typed_errors(transport: str, upstreams: Upstreams) -> None:
    plan = FaultPlan(tools=("echo", "plain"), faults=(PlannedFault(kind="mutate", tool="echo", count=2),))
    ended: Counter[str] = Counter()
    async with serving(plan, transport, upstreams, call=1) as (_, provider):

        async def call(number: int) -> None:
            try:
                await provider.call("echo", {"n": number, "text": "é [1, 2]"}, meta={}, on_progress=None)
                ended["a result"] += 1
            except CallError as error:
                ended[error.code] += 1

        # Many: an answer whose id is damaged is waited for until the timeout.
        await in_parallel(MUTATIONS, call, at_once=200)
        assert ended.total() == MUTATIONS
        provider.retry_now()
        assert said(await use(provider, "plain", n=1)) == {"n": 1}


@pytest.mark.requirement("F14")
async def test_no_call_of_a_thousand_that_go_wrong_runs_twice(upstreams: Upstreams) -> None:
    wrong = ("reset", "cut", "respond", "garbage", "hang", "leave", "no_result")
    faults = (
        *(PlannedFault(kind="crash", numbers=range(50, 1_000, 100), after=after) for after in (False, True)),
        PlannedFault(kind="lose_session", numbers=range(100, 1_000, 100)),
        *(PlannedFault(kind=kind, status=503, after=after, chance=0.05) for kind in wrong for after in (False, True)),
    )
    async with serving(FaultPlan(faults=faults, seed=7), "http", upstreams, call=0.5) as (server, provider):

        async def call(number: int) -> None:
            try:
                result = await provider.call("echo", {"n": number}, meta={}, on_progress=None)
                assert said(result) == {"n": number}
            except CallError:
                pass

        await in_parallel(1_000, call)
        runs = Counter(arguments["n"] for _, arguments in server.runs)
    assert [number for number, times in runs.items() if times > 1] == []
    assert len(runs) > 500


def settings_in(folder: Path, servers: list[ServerSpec]) -> GatewaySettings:
    """Settings with these servers, and their state in a folder."""
    home = InstallationPaths(config=folder, data=folder)
    return replace(parts_of(servers=tuple(servers)).settings, home=home)


@pytest.mark.requirement("F03")
@pytest.mark.timeout(180)
async def test_a_hundred_cold_servers_are_all_connected_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "TURN_SECONDS", 600)
    slow = FaultyServer(
        FaultPlan(faults=(PlannedFault(kind="delay", at="start", seconds=COLD_SECONDS),)), tmp_path / "log"
    )
    limits = Timeouts(start=30, call=30, total=30, idle=0)
    settings = settings_in(tmp_path, [spec_of(slow, f"s{n}", limits) for n in range(COLD)])
    async with open_app(settings) as application, anyio.create_task_group() as tasks:
        watch(application, tasks)
        with anyio.fail_after(120):
            assert await application.admin.refresher.wait_until_ready(120) == set()
        assert len(application.admin.snapshot.servers) == COLD
        assert application.admin.refresher.failures == {}
        tasks.cancel_scope.cancel()
    starting = most = 0
    for entry in slow.log.all():
        starting += ("start" in entry) - (entry.get("got", {}).get("method") == "tools/list")
        most = max(most, starting)
    assert most <= publisher.PARALLEL_OFFERS


@pytest.mark.requirement("F01")
async def test_servers_that_hang_at_their_start_hold_up_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "TURN_SECONDS", 0.1)
    limits = Timeouts(start=100, call=30, total=30, idle=0)
    hanging = FaultyServer(FaultPlan(faults=(PlannedFault(kind="hang", at="start"),)), tmp_path / "log")
    fine = FaultyServer(FaultPlan(), tmp_path / "other")
    servers = [spec_of(hanging, f"a{n}", limits) for n in range(2 * publisher.PARALLEL_OFFERS)]
    servers += [spec_of(fine, f"b{n}", limits) for n in range(5)]
    async with open_app(settings_in(tmp_path, servers)) as application, anyio.create_task_group() as tasks:
        watch(application, tasks)
        await appeared(application, 5)
        assert len(application.admin.refresher.starting()) == 2 * publisher.PARALLEL_OFFERS
        tasks.cancel_scope.cancel()


async def appeared(application: Application, count: int) -> None:
    """Wait until so many servers have answered."""
    with anyio.fail_after(60):
        while len(application.admin.snapshot.servers) < count:
            published = anyio.Event()
            application.gateway.publisher.subscribe(lambda _, event=published: event.set())  # type: ignore[misc]
            await published.wait()


@pytest.mark.requirement("T47")
async def test_no_shell_reads_an_argument_of_a_server(upstreams: Upstreams, tmp_path: Path) -> None:
    names = tuple(f"{n}{signs.format('touch canary')}" for n in range(5) for signs in METACHARACTERS)
    server = FaultyServer(FaultPlan(tools=names), tmp_path / "log")
    spec = replace(spec_of(server, "s", Timeouts(start=20, idle=0)), cwd=str(tmp_path))
    assert [tool["name"] for tool in (await upstreams.provide(spec).offer()).tools] == list(names)
    assert len(names) == 40
    assert os.listdir(tmp_path) == ["log"]
