"""A running gateway takes over a changed config: what did not change goes on, and an error changes nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from tests.journeys.running import Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
SERVER = Path(__file__).with_name("telling_server.py")
INFO = ("--log-level", "info")
SECONDS = 20  # within which everything here happens, and mostly at once


def telling(name: str, **rest: Any) -> dict[str, Any]:
    """The entry of a server whose tools tell its process id."""
    return {"command": sys.executable, "args": ["-S", str(SERVER), name], **rest}


async def found(agent: Client, text: str) -> str:
    """What a search answers."""
    return text_of(await agent.call_tool("search_tools", {"query": text}))


async def pid_of(agent: Client, name: str) -> str:
    """The process id of a server, from itself."""
    return text_of(await agent.call_tool("call_tool", {"name": f"{name}.{name}_pid", "arguments": {}})).split()[1]


async def until_so(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes, within a limit."""
    with anyio.fail_after(SECONDS):
        while not await is_so():  # noqa: ASYNC110  another process makes it so
            await anyio.sleep(0.02)


async def until_there(path: Path, *, is_there: bool = True) -> None:
    """Wait until a file is there, or no longer."""

    async def is_so() -> bool:
        return path.exists() is is_there  # noqa: ASYNC240

    await until_so(is_so)


async def until_found(agent: Client, handle: str, *, is_there: bool = True) -> None:
    """Search until a tool is found, or no longer."""

    async def is_so() -> bool:
        return (handle in await found(agent, handle.replace("_", " "))) is is_there

    await until_so(is_so)


async def until_said(running: Gateway, text: str) -> str:
    """The first line of the log with this text."""

    async def is_so() -> bool:
        return any(text in line for line in running.said)

    await until_so(is_so)
    return next(line for line in running.said if text in line)


def ask_reload(running: Gateway) -> tuple[int, Any]:
    """`POST /api/v1/reload`: the status and the answer."""
    request = urllib.request.Request(running.url.replace("/mcp", "/api/v1/reload"), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def agent_of(running: Gateway) -> Any:
    """A real client of the usual surface."""
    return client("http", "2025-11-25", surface="discover", running=running)


@pytest.mark.requirement("P-RELOAD")
async def test_servers_come_and_go_with_the_file_and_the_others_keep_their_process(tmp_path: Path):
    write_config(tmp_path, {"kept": telling("kept"), "old": telling("old")})
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "old.old_pid")
            before = await pid_of(agent, "kept")
            write_config(tmp_path, {"kept": telling("kept"), "new": telling("new")})
            await until_found(agent, "new.new_pid")
            await until_found(agent, "old.old_pid", is_there=False)
            assert await pid_of(agent, "kept") == before
            assert "added: new; removed: old" in await until_said(running, "the config was read again")


@pytest.mark.requirement("P-RELOAD")
async def test_a_changed_server_is_started_anew_after_its_calls_and_only_then_stopped(tmp_path: Path):
    began, until = tmp_path / "began", tmp_path / "until"
    write_config(tmp_path, {"one": telling("one", env={"WORD": "before"})})
    said: list[str] = []
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent, anyio.create_task_group() as tasks:
            await until_found(agent, "one.one_wait")

            async def wait() -> None:
                arguments = {"began": str(began), "until": str(until)}
                answered = await agent.call_tool("call_tool", {"name": "one.one_wait", "arguments": arguments})
                said.append(text_of(answered))

            before = await pid_of(agent, "one")
            tasks.start_soon(wait)
            await until_there(began)
            write_config(tmp_path, {"one": telling("one", env={"WORD": "after"})})
            assert ask_reload(running)[0] == 200
            now = await agent.call_tool("call_tool", {"name": "one.one_pid", "arguments": {}})
            assert text_of(now).endswith(" after")
            assert said == []
            until.touch()
        assert said == [f"one {before} before"]
        await until_there(Path(f"/proc/{before}"), is_there=False)


@pytest.mark.requirement("P-RELOAD")
async def test_calls_in_flight_on_a_server_that_is_gone_get_their_answers(tmp_path: Path):
    began, until = tmp_path / "began", tmp_path / "until"
    write_config(tmp_path, {"one": telling("one")})
    said: list[str] = []
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent, anyio.create_task_group() as tasks:
            await until_found(agent, "one.one_wait")

            async def wait() -> None:
                arguments = {"began": str(began), "until": str(until)}
                answered = await agent.call_tool("call_tool", {"name": "one.one_wait", "arguments": arguments})
                said.append(text_of(answered))

            before = await pid_of(agent, "one")
            tasks.start_soon(wait)
            await until_there(began)
            write_config(tmp_path, {})
            assert ask_reload(running)[0] == 200
            assert (await agent.call_tool("call_tool", {"name": "one.one_pid", "arguments": {}})).is_error
            until.touch()
        assert said[0].startswith(f"one {before}")
        await until_there(Path(f"/proc/{before}"), is_there=False)


@pytest.mark.requirement("P-RELOAD", "F38")
async def test_fifty_reloads_fail_no_call(tmp_path: Path):
    write_config(tmp_path, {"steady": telling("steady"), "other": telling("other", env={"WORD": "0"})})
    answers: list[str] = []
    failed: list[str] = []
    over = anyio.Event()
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent, anyio.create_task_group() as tasks:
            await until_found(agent, "other.other_pid")
            await until_found(agent, "steady.steady_pid")

            async def call(name: str) -> None:
                while not over.is_set():
                    answer = await agent.call_tool("call_tool", {"name": name, "arguments": {}})
                    (failed if answer.is_error else answers).append(text_of(answer))

            for name in ("steady.steady_pid", "steady.steady_pid", "other.other_pid", "other.other_pid"):
                tasks.start_soon(call, name)
            before = await pid_of(agent, "steady")
            for number in range(50):
                others = {"other": telling("other", env={"WORD": str(number)}), f"new{number}": telling("new")}
                write_config(tmp_path, {"steady": telling("steady"), **others}, pins=[f"steady.{number}"])
                status, answered = await anyio.to_thread.run_sync(ask_reload, running)
                if status != 200:
                    failed.append(str(answered))
            after = await pid_of(agent, "steady")
            over.set()
        assert failed == []
        assert after == before
        assert len(answers) > 50


@pytest.mark.requirement("P-RELOAD", "F39")
async def test_a_file_with_an_error_changes_nothing_and_says_what_is_wrong_where(tmp_path: Path):
    file = write_config(tmp_path, {"kept": telling("kept")})
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "kept.kept_pid")
            before = await pid_of(agent, "kept")
            file.write_text('servers:\n  new: {command: "true"}\n  bad:\n    command: x\n    timeouts: {call: soon}\n')
            line = await until_said(running, "the config is not taken over")
            assert f"{file}:5: servers.bad.timeouts.call" in line
            status, answer = ask_reload(running)
            assert status == 422
            assert answer["error"]["code"] == "config_invalid"
            assert f"{file}:5: servers.bad.timeouts.call" in answer["error"]["details"][0]
            file.write_text("servers: [\n")
            assert ask_reload(running)[0] == 422
            file.write_text("")
            assert ask_reload(running)[0] == 422
            file.unlink()
            assert ask_reload(running)[0] == 422
            assert await pid_of(agent, "kept") == before


@pytest.mark.requirement("P-RELOAD")
async def test_a_new_server_takes_the_name_of_nobody(tmp_path: Path):
    (tmp_path / "tools.py").write_text('def handle_add(x: int) -> int:\n    """Add one."""\n    return x + 1\n')
    file = write_config(tmp_path, {}, python=["tools.py"])
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            write_config(tmp_path, {"local": telling("one")}, python=["tools.py"])
            status, answer = ask_reload(running)
            assert status == 422
            assert answer["error"]["details"][0].startswith(f"{file}: servers.local: ")
            assert "local.add" in await found(agent, "add one")


@pytest.mark.requirement("P-RELOAD")
async def test_the_answer_tells_the_difference_and_what_needs_a_restart(tmp_path: Path):
    servers = {"one": telling("one"), "two": telling("two"), "three": telling("three")}
    write_config(tmp_path, servers)
    with gateway(tmp_path, *INFO) as running:
        servers = {"one": telling("one", description="The first"), "two": telling("two"), "four": telling("four")}
        write_config(tmp_path, servers, pins=["one.one_pid"], store="memory", port=9, search={"limit": 7})
        first = ask_reload(running)
        again = ask_reload(running)
        # The watch may have been first.
        said = await until_said(running, "the config was read again")
        assert "added: four; removed: three; changed: one; set: pins; needs a restart: search, port, store" in said
        same = {"added": [], "removed": [], "changed": [], "settings": [], "restart": ["search", "port", "store"]}
        whole = same | {"added": ["four"], "removed": ["three"], "changed": ["one"], "settings": ["pins"]}
        assert first in ((200, whole), (200, same))
        assert again == (200, same)


@pytest.mark.requirement("P-RELOAD")
async def test_filters_aliases_and_pins_are_in_force_at_once_and_cost_no_process(tmp_path: Path):
    write_config(tmp_path, {"one": telling("one")})
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "one.one_wait")
            before = await pid_of(agent, "one")
            entry = telling("one", alias="uno", tools={"deny": ["*_wait"]})
            write_config(tmp_path, {"one": entry}, pins=["one.one_pid"])
            assert ask_reload(running)[0] == 200
            assert "uno.one_pid" in await found(agent, "one pid")
            assert "one_wait" not in await found(agent, "one wait")
            assert "one__one_pid" in [tool.name for tool in (await agent.list_tools()).tools]
            refused = await agent.call_tool("call_tool", {"name": "one.one_wait", "arguments": {}})
            assert refused.is_error
            assert await pid_of(agent, "one") == before


@pytest.mark.requirement("P-RELOAD")
async def test_sighup_takes_over_what_the_watch_has_not_seen(tmp_path: Path):
    write_config(tmp_path, {"one": telling("one", envFile="words.env")})
    (tmp_path / "words.env").write_text("WORD=first\n")
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "one.one_pid")
            assert await _word(agent) == "first"
            (tmp_path / "words.env").write_text("WORD=second\n")
            os.kill(running.process.pid, signal.SIGHUP)
            await until_said(running, "changed: one")
            assert await _word(agent) == "second"
            (tmp_path / "words.env").write_text("WORD=third\n")  # and without a signal

            async def is_third() -> bool:
                return await _word(agent) == "third"

            await until_so(is_third)


@pytest.mark.requirement("P-RELOAD")
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_add_and_remove_take_effect_while_the_gateway_runs(tmp_path: Path, transport: str):
    if transport == "stdio":
        async with client("stdio", "2026-07-28", surface="discover", home=tmp_path) as agent:
            await _add_and_remove(tmp_path, agent)
        return
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await _add_and_remove(tmp_path, agent)


@pytest.mark.requirement("P-RELOAD")
async def test_a_config_that_was_trusted_is_checked_again(tmp_path: Path):
    home, place = tmp_path / "home", tmp_path / "project"
    place.mkdir()
    file = write_config(place, {"one": telling("one")})
    home.mkdir()
    assert portico(home, "trust", str(file)).returncode == 0
    with gateway(home, *INFO, cwd=place) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "one.one_pid")
            write_config(place, {"one": telling("one"), "two": telling("two")})
            await until_said(running, "it is not trusted as it is now")
            assert "two_pid" not in await found(agent, "two pid")
            assert portico(home, "trust", str(file)).returncode == 0
            await until_found(agent, "two.two_pid")


async def _add_and_remove(home: Path, agent: Client) -> None:
    command = [sys.executable, "-S", str(SERVER), "late"]
    added = await anyio.to_thread.run_sync(lambda: portico(home, "add", "late", "--", *command))
    assert added.returncode == 0, added.stdout + added.stderr
    await until_found(agent, "late.late_pid")
    assert (await anyio.to_thread.run_sync(lambda: portico(home, "remove", "late"))).returncode == 0
    await until_found(agent, "late.late_pid", is_there=False)


async def _word(agent: Client) -> str:
    return text_of(await agent.call_tool("call_tool", {"name": "one.one_pid", "arguments": {}})).split()[-1]


@pytest.mark.requirement("P-RELOAD", "P-OVERRIDES")
async def test_overrides_of_tools_are_in_force_with_the_file(tmp_path: Path):
    write_config(tmp_path, {"one": telling("one")})
    with gateway(tmp_path, *INFO) as running:
        async with agent_of(running) as agent:
            await until_found(agent, "one.one_pid")
            write_config(tmp_path, {"one": telling("one", overrides={"one_pid": {"name": "who_runs"}})})
            await until_found(agent, "one.who_runs")
            write_config(tmp_path, {"one": telling("one", overrides={"one_pid": {"enabled": False}})})
            await until_found(agent, "one.who_runs", is_there=False)
            write_config(tmp_path, {"one": telling("one")})
            await until_found(agent, "one.one_pid")
            assert (await pid_of(agent, "one")).isdigit()
