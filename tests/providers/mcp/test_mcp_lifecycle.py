"""When connections are opened, kept, closed and opened again."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.chaos.restarts import cancelled_starts, restarts
from upstream_world import SCRIPTED, Upstreams, said, until, use

from portico.domain.journal_entries import FleetEvent
from portico.domain.server import ServerLabels, ServerSpec, State, Timeouts, ToolFilter
from portico.errors import Sent, UpstreamGone
from portico.providers.mcp import UpstreamProvider
from portico.providers.mcp import lifecycle as backoff
from portico.providers.mcp.lifecycle import Backoff, IdleTime

pytestmark = pytest.mark.anyio


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def test_nothing_starts_before_the_first_use(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    assert (provider.server, provider.source) == ("s", "upstream")
    assert provider.health().state is State.UNKNOWN
    await provider.aclose()
    assert upstreams.spawned() == []


async def test_fifty_first_calls_start_one_process(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(use, provider, "echo")
    assert len(upstreams.spawned()) == 1
    assert provider.health().state is State.RUNNING
    assert provider.health().pid == upstreams.spawned()[0]


async def test_cancelled_first_caller_does_not_stop_the_start_for_others(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(start_delay=0.3)
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.1):
            await use(provider, "echo")
        group.start_soon(use, provider, "echo")
    assert len(upstreams.spawned()) == 1


async def test_disabled_server_is_not_started(upstreams: Upstreams) -> None:
    spec = ServerSpec(name="s", transport="stdio", command=sys.executable, enabled=False)
    provider = upstreams.provide(spec)
    with pytest.raises(UpstreamGone, match="enabled: true"):
        await use(provider, "echo")
    assert provider.health().state is State.DISABLED


async def test_unused_server_is_stopped_and_starts_again(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=10, total=20, idle=0.3))
    await provider.offer()
    pid = provider.health().pid
    assert pid is not None
    await until(lambda: provider.health().state is State.READY and not is_running(pid))
    assert said(await use(provider, "echo", a=1)) == {"a": 1}
    assert len(upstreams.spawned()) == 2


async def test_call_in_flight_counts_as_use(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=10, total=20, idle=0.2))
    assert said(await use(provider, "sleep", seconds=0.8)) == "slept"
    assert len(upstreams.spawned()) == 1


async def test_watched_resource_keeps_the_server(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=10, total=20, idle=0.2))
    await provider.request("resources/subscribe", {"uri": "x://1"})
    with anyio.move_on_after(0.7):
        await upstreams.news.wait_for(changes=1)
    assert provider.health().state is State.RUNNING


@pytest.mark.requirement("F07")
async def test_crash_loop_backs_off_and_says_when_it_tries_again(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", 60.0)
    provider = upstreams.stdio(exit_at_start=1, words="broken")
    for _ in range(3):
        with pytest.raises(UpstreamGone, match="exited with code 1"):
            await use(provider, "echo")
        provider_spawns = len(upstreams.spawned())
    with anyio.fail_after(10), pytest.raises(UpstreamGone) as caught:
        await use(provider, "echo")
    assert caught.value.sent is Sent.NOTHING
    assert "exited with code 1" in str(caught.value)
    assert "the next try is possible in" in str(caught.value)
    assert len(upstreams.spawned()) == provider_spawns
    provider.retry_now()
    with pytest.raises(UpstreamGone):
        await use(provider, "echo")
    assert len(upstreams.spawned()) > provider_spawns


async def test_server_that_answers_between_deaths_restarts_at_once(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    for _ in range(4):
        assert said(await use(provider, "echo", a=1)) == {"a": 1}
        with pytest.raises(UpstreamGone):
            await use(provider, "kill")
    assert len(upstreams.spawned()) == 4


@pytest.mark.requirement("F07")
def test_backoff_is_bounded_to_25_starts_an_hour() -> None:
    schedule, now, starts = Backoff(jitter=lambda: 0.0), 0.0, 0
    while now < 3600:
        starts += 1
        schedule.fail(now)
        now += schedule.wait(now) or 0.05
    assert starts <= 25


def test_backoff_begins_free_then_doubles_to_its_cap() -> None:
    schedule = Backoff(jitter=lambda: 0.0)
    waits = []
    for _ in range(14):
        schedule.fail(0.0)
        waits.append(schedule.wait(0.0))
    assert waits[:4] == [0, 0.5, 1, 2]
    assert waits[-1] == backoff.CAP
    schedule.reset()
    assert schedule.wait(0.0) == 0


@pytest.mark.requirement("F08")
async def test_close_lets_calls_in_flight_end(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")
    results: list[Any] = []

    async def slow() -> None:
        results.append(said(await use(provider, "sleep", seconds=0.4)))

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await anyio.wait_all_tasks_blocked()
        await provider.aclose()
    assert results == ["slept"]
    with pytest.raises(UpstreamGone, match="closing"):
        await use(provider, "echo")


async def test_close_is_bounded_when_a_call_never_ends(upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.providers.mcp.lifecycle.DRAIN", 0.2)
    provider = upstreams.stdio()
    caught: list[UpstreamGone] = []

    async def endless() -> None:
        try:
            await use(provider, "hang", then="hanging")
        except UpstreamGone as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(endless)
        await upstreams.news.wait_for(notices=1)
        with anyio.fail_after(2):
            await provider.aclose()
    assert caught[0].sent is Sent.UNKNOWN


async def test_close_while_starting_stops_the_start(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(mute=True)
    async with anyio.create_task_group() as group:
        group.start_soon(expect_gone, provider)
        await until(upstreams.spawned)
        with anyio.fail_after(5):
            await provider.aclose()
    assert not any(map(is_running, upstreams.spawned()))


async def expect_gone(provider: UpstreamProvider) -> None:
    with pytest.raises(UpstreamGone):
        await use(provider, "echo")


@pytest.mark.parametrize("habits", [{}, {"ignore_eof": True}, {"ignore_eof": True, "ignore_sigterm": True}])
async def test_close_ends_the_process_however_stubborn(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, habits: dict[str, Any]
) -> None:
    monkeypatch.setattr("portico.providers.mcp.stdio.EXIT_GRACE", 0.3)
    provider = upstreams.stdio(**habits)
    await use(provider, "echo")
    with anyio.fail_after(5):
        await provider.aclose()
    assert not any(map(is_running, upstreams.spawned()))


@pytest.mark.requirement("F10")
@pytest.mark.parametrize("setsid", [False, True])
async def test_close_ends_grandchildren_that_ignore_sigterm(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, setsid: bool
) -> None:
    monkeypatch.setattr("portico.providers.mcp.stdio.EXIT_GRACE", 0.3)
    provider = upstreams.stdio()
    grandchild = said(await use(provider, "offspring", setsid=setsid))
    assert is_running(grandchild)
    with anyio.fail_after(5):
        await provider.aclose()
    assert not is_running(grandchild)


@pytest.mark.requirement("F10")
async def test_wrapper_script_leaves_nothing_behind(upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.providers.mcp.stdio.EXIT_GRACE", 0.3)
    script = f'{sys.executable} {SCRIPTED} \'{{"log": "{upstreams.log}", "ignore_eof": true}}\''
    provider = upstreams.provide(ServerSpec(name="s", transport="stdio", command="sh", args=("-c", f"{script}; true")))
    await use(provider, "echo")
    await provider.aclose()
    assert not any(map(is_running, upstreams.spawned()))


@pytest.mark.requirement("F12")
async def test_restarts_leave_no_processes_tasks_or_descriptors(upstreams: Upstreams) -> None:
    found = await restarts(upstreams.stdio, 40)
    assert found.descriptors <= 2
    assert (found.tasks, found.zombies) == (0, 0)
    assert not any(map(is_running, upstreams.spawned()))


@pytest.mark.requirement("F11")
async def test_cancelled_starts_leak_nothing(upstreams: Upstreams) -> None:
    found = await cancelled_starts(upstreams.stdio, 200, random.Random(11))
    assert found.descriptors <= 2
    assert (found.tasks, found.zombies) == (0, 0)
    assert not any(map(is_running, upstreams.spawned()))


@pytest.mark.requirement("F07", "P-PARKED")
async def test_a_missing_command_is_parked_and_found_when_it_is_there(upstreams: Upstreams, tmp_path: Path) -> None:
    program = tmp_path / "server"
    spec = replace(upstreams.spec(), command=str(program))
    provider = upstreams.provide(spec)
    for _ in range(10):
        with pytest.raises(UpstreamGone, match=r"was not found(.|\n)*check PATH") as caught:
            await use(provider, "echo")
    assert "it is parked: mend that" in str(caught.value)
    assert "it is parked" in provider.health().reason
    assert upstreams.told() == ["parked"]
    program.write_text("x")
    with pytest.raises(UpstreamGone):
        await use(provider, "echo")
    program.unlink()
    program.symlink_to(sys.executable)
    assert said(await use(provider, "echo", a=1)) == {"a": 1}
    assert upstreams.told()[-1] == "restarted"


@pytest.mark.requirement("F07", "P-PARKED")
async def test_a_file_that_is_no_program_is_parked_until_it_is_one(upstreams: Upstreams, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    provider = upstreams.provide(replace(upstreams.spec(), command=str(program)))
    for _ in range(3):
        with pytest.raises(UpstreamGone, match="is not an executable file"):
            await use(provider, "echo")
    assert upstreams.told() == ["parked"]
    program.chmod(0o755)
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


@pytest.mark.requirement("P-IDLE")
def test_a_server_that_comes_back_soon_is_kept_longer_up_to_four_times() -> None:
    kept = IdleTime(300)
    for pause in (1, 20, 300):
        kept.note(pause)
    assert kept.seconds == 300, "a busy server needs no more"
    kept.note(360)
    assert kept.seconds == 540, "called every six minutes, it is kept from now on"
    kept.note(1000)
    assert kept.seconds == 1200
    kept.note(5)
    assert kept.seconds == 1200
    kept.note(1300)
    assert kept.seconds == 300, "it was kept in vain"
    for_good = IdleTime(0)
    for_good.note(100)
    assert for_good.seconds == 0


@pytest.mark.requirement("P-IDLE", "P-EVENTS")
async def test_a_server_that_is_wanted_after_it_was_stopped_is_kept_longer(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=10, total=20, idle=0.4))
    await use(provider, "echo")
    await until(lambda: upstreams.told("stopped"))
    assert upstreams.events[-1].text == "it was not used for 0.4 s"
    await use(provider, "echo")
    await until(lambda: len(upstreams.told("stopped")) == 2)
    assert float(upstreams.events[-1].text.split()[-2]) >= 0.6
    assert upstreams.told() == ["started", "stopped", "started", "stopped"]


@pytest.mark.requirement("P-IDLE")
async def test_a_call_that_comes_while_an_unused_server_is_stopped_gets_its_answer(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[asyncio.Task[object]] = []

    class Events(list[FleetEvent]):
        def append(self, event: FleetEvent) -> None:
            super().append(event)
            if event.kind == "stopped" and not calls:
                calls.append(asyncio.get_running_loop().create_task(use(provider, "echo")))

    monkeypatch.setattr(upstreams, "events", Events())
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=10, total=20, idle=0.2))
    await use(provider, "echo")
    await until(lambda: bool(calls))
    await calls[0]


@pytest.mark.requirement("P-EVENTS")
async def test_what_happens_to_a_server_is_told_once_with_its_last_words(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")
    with pytest.raises(UpstreamGone):
        await use(provider, "die", words="out of cheese")
    await use(provider, "echo")
    assert upstreams.told() == ["started", "exited", "restarted"]
    exited = upstreams.events[1]
    assert (exited.server, "exited with code 1" in exited.text) == ("s", True)
    assert exited.stderr.strip() == "out of cheese"


@pytest.mark.requirement("P-EVENTS")
async def test_a_start_that_fails_is_told_with_what_the_server_wrote(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(exit_at_start=3, words="no licence")
    with pytest.raises(UpstreamGone):
        await use(provider, "echo")
    assert upstreams.told() == ["failed"]
    assert upstreams.events[0].stderr.strip() == "no licence"


@pytest.mark.requirement("T49")
def test_works_under_uvloop_without_warnings(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys, uvloop, json
from portico.domain.server import ServerLabels, ServerSpec
from portico.providers.mcp import UpstreamProvider
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # how fast the machine is is no matter here
    spec = ServerSpec(name="s", transport="stdio", command=sys.executable, args=({SCRIPTED!r}, "{{}}"))
    provider = UpstreamProvider(spec, on_change=print, on_notice=print, client_version="1")
    assert len((await provider.offer()).tools) == 2
    big = "x" * 500_000
    result = await provider.call("echo", {{"a": big}}, meta={{}}, on_progress=None)
    assert json.loads(result["content"][0]["text"])["a"] == big
    result = await provider.call("descriptors", {{}}, meta={{}}, on_progress=None)
    assert result["content"][0]["text"] == "[0, 1, 2]", result
    try:
        await provider.call("die", {{}}, meta={{}}, on_progress=None)
    except Exception as error:
        print(type(error).__name__)
    await provider.aclose()
uvloop.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "UpstreamGone\n", "")


def test_importing_the_room_loads_neither_mcp_nor_aiohttp() -> None:
    program = "import sys, portico.providers.mcp; print(*({'mcp', 'aiohttp', 'pydantic'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_fingerprint_follows_what_is_reached_and_not_secrets_or_limits() -> None:
    def fingerprint(**fields: Any) -> str:
        spec = ServerSpec(**{"name": "a", "transport": "stdio", "command": "x", **fields})
        return UpstreamProvider(spec, on_change=print, on_notice=print, client_version="1").fingerprint  # type: ignore[arg-type]

    plain = fingerprint()
    labels = ServerLabels(alias="b", category="c")
    same = [{"labels": labels}, {"timeouts": Timeouts(call=1)}, {"tools": ToolFilter(deny=("x",))}]
    assert all(fingerprint(**fields) == plain for fields in same)
    different = [
        {"command": "y"},
        {"args": ("1",)},
        {"cwd": "/"},
        {"url": "u"},
        {"env": {"A": "1"}},
        {"headers": {"H": "1"}},
    ]
    assert len({plain, *(fingerprint(**fields) for fields in different)}) == len(different) + 1
    assert fingerprint(env={"A": "1"}) == fingerprint(env={"A": "2"})
