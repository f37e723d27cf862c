"""`portico events`: what happened to servers and to gateways, as a real gateway has recorded it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.journeys.running import Gateway, client, environment, gateway, portico, text_of, write_config
from tests.journeys.test_reload import telling, until_found, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.requirement("P-EVENTS")]
SERVER = Path(__file__).with_name("crashing_server.py")
SECRET = "sk-cheddar-4711-0815"
CRASHING = {"command": sys.executable, "args": ["-S", str(SERVER)], "env": {"CHEESE_TOKEN": SECRET}}


def events(home: Path, *args: str) -> list[dict[str, Any]]:
    """What `portico events --json` says."""
    shown = portico(home, "events", "--json", *args)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def over_rest(running: Gateway, query: str = "") -> list[dict[str, Any]]:
    """What REST says, the newest first."""
    address = running.url.replace("/mcp", f"/api/v1/events?{query}")
    with urllib.request.urlopen(address, timeout=20) as answer:
        found: list[dict[str, Any]] = json.load(answer)["events"]
    return found


async def crash(running: Gateway, times: int) -> str:
    """Call the tool that ends its server; what the agent is told."""
    told = ""
    async with client("http", "2025-11-25", surface="discover", running=running) as agent:
        for _ in range(times):
            told += text_of(await agent.call_tool("call_tool", {"name": "crashing.crash", "arguments": {}}))
    return told


@pytest.mark.requirement("F02", "T28")
async def test_a_crash_and_a_new_start_are_told_with_the_last_words_to_operators_alone(tmp_path: Path):
    write_config(tmp_path, {"crashing": CRASHING})
    with gateway(tmp_path) as running:
        told = await crash(running, 2)
        assert "cheese" not in told, "an agent reads nothing that a server wrote to stderr"

        async def is_told() -> bool:
            found = await anyio.to_thread.run_sync(over_rest, running, "server=crashing")
            return sum(line["times"] for line in found if line["kind"] == "exited") >= 2

        await until_so(is_told)
        newest = over_rest(running, "limit=1")[0]["id"]
        assert over_rest(running, f"after={newest}") == []
    found = events(tmp_path)
    kinds = [line["kind"] for line in found]
    assert kinds[0] == "gateway_started"
    assert kinds[-1] == "gateway_stopped"
    assert {"started", "refused", "exited", "restarted"} <= set(kinds)
    assert kinds.index("started") < kinds.index("exited") < kinds.index("restarted")
    exited = found[kinds.index("exited")]
    assert exited["server"] == "crashing"
    assert "out of cheese, [CHEESE_TOKEN]" in exited["stderr"]
    assert "\x1b" not in exited["stderr"]
    assert SECRET not in json.dumps(found)
    assert "odd: " in found[kinds.index("refused")]["text"]
    shown = portico(tmp_path, "events", "--server", "crashing", "--kind", "exited").stdout
    first, words, *_ = shown.splitlines()
    assert first.split("  ")[1:3] == ["crashing", "exited"]
    assert words.startswith("    ")
    assert "out of cheese" in words
    assert portico(tmp_path, "events", "--since", "2200-01-01").stdout == "No event is so.\n"
    assert portico(tmp_path, "events", "--since", "soon").returncode == 3


@pytest.mark.requirement("P-RELOAD")
async def test_a_changed_config_is_told_and_a_refused_one_with_its_line(tmp_path: Path):
    file = write_config(tmp_path, {"one": telling("one")})
    with gateway(tmp_path) as running:

        async def until_told(kind: str) -> dict[str, Any]:
            async def is_told() -> bool:
                return bool(await anyio.to_thread.run_sync(over_rest, running, f"kind={kind}"))

            await until_so(is_told)
            return over_rest(running, f"kind={kind}")[0]

        write_config(tmp_path, {"one": telling("one"), "two": telling("two")})
        assert (await until_told("reload"))["text"] == "added: two"
        file.write_text("servers:\n  one:\n    command: [\n")
        assert f"{file}:" in (await until_told("reload_refused"))["text"]


@pytest.mark.requirement("P-REPLICAS", "P-RELOAD")
async def test_two_gateways_on_one_postgresql_follow_one_config_and_share_one_record(tmp_path: Path, migrated_url: str):
    write_config(tmp_path, {"one": telling("one")}, store=migrated_url)
    with gateway(tmp_path) as first, gateway(tmp_path) as second:
        replicas = {f"{socket.gethostname()}:{running.process.pid}" for running in (first, second)}
        write_config(tmp_path, {"one": telling("one"), "two": telling("two")}, store=migrated_url)
        for running in (first, second):
            async with client("http", "2026-07-28", surface="discover", running=running) as agent:
                await until_found(agent, "two.two_pid")

        async def is_told() -> bool:
            found = await anyio.to_thread.run_sync(over_rest, first, "kind=reload")
            return {line["gateway"] for line in found} == replicas

        await until_so(is_told)
        found = events(tmp_path)
        assert {line["gateway"] for line in found if line["kind"] == "gateway_started"} == replicas
        assert [line["text"] for line in found if line["kind"] == "reload"] == ["added: two"] * 2
    assert {line["gateway"] for line in events(tmp_path, "--kind", "gateway_stopped")} == replicas


def test_events_are_followed_each_once_and_end_without_a_traceback(tmp_path: Path):
    write_config(tmp_path, {})
    with gateway(tmp_path):
        pass
    command = [sys.executable, "-m", "portico", "events", "--follow", "--json", "-n", "1"]
    env = {**environment(tmp_path), "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, cwd=tmp_path, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = json.loads(process.stdout.readline())
        with gateway(tmp_path):
            second = json.loads(process.stdout.readline())
        third = json.loads(process.stdout.readline())
        process.send_signal(2)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert [line["kind"] for line in (first, second, third)] == [
        "gateway_stopped",
        "gateway_started",
        "gateway_stopped",
    ]
    assert first["id"] < second["id"] < third["id"]
    assert first["gateway"] != second["gateway"] == third["gateway"]
