"""Servers that want the gateway's memory and time: what they get is bounded, and others are served meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.journeys.hostile_server import CALLS, STREAMS
from tests.journeys.kit import definition, serving
from tests.journeys.running import Gateway, client, environment, gateway, text_of, write_config

pytestmark = pytest.mark.anyio
HOSTILE = str(Path(__file__).with_name("hostile_server.py"))
MB = 1_000_000
GROWTH = 200 * MB
TIMEOUTS = {"start": 20, "call": 20, "total": 20, "idle": 0}
WEB = (*(kind for kind in CALLS if kind != "no-message"), "gzip", *STREAMS)
FLOODS = ("stderr", "changes", "progress", "requests", "ids")
LISTS = (
    *("definitions", "values", "small-values", "medium", "welcome"),
    *("definitions:prompts", "small-values:resources", "values:resourceTemplates"),
)


def over_stdio(kind: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", "-E", HOSTILE, kind], "timeouts": TIMEOUTS}


@contextmanager
def over_http() -> Iterator[dict[str, Any]]:
    with subprocess.Popen([sys.executable, "-S", "-E", HOSTILE, "http"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield {f"http-{kind}": {"url": f"{url}/{kind}", "timeouts": TIMEOUTS} for kind in WEB}
        finally:
            process.kill()


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with one good server among all the hostile ones."""
    home = tmp_path_factory.mktemp("besieged")
    pipes = {f"stdio-{kind}": over_stdio(kind) for kind in (*CALLS, *FLOODS)}
    with over_http() as webs:
        write_config(home, {"calm": calm(home), **pipes, **webs})
        with gateway(home) as running:
            yield running


def calm(tmp_path: Path) -> dict[str, Any]:
    return serving(tmp_path / "calm.json", [definition("echo", text="string")])


async def attacked(running: Gateway, server: str) -> tuple[str, int]:
    """What the caller of a hostile tool hears, and how the gateway grew while it called another server too."""
    async with client("http", "2025-11-25", surface="static", running=running) as connected:
        await connected.call_tool("calm__echo", {"text": "warm"})
        before = _memory(running.process.pid, "VmRSS")
        _forget_peak(running.process.pid)
        heard: list[str] = []

        async def attack() -> None:
            heard.append(text_of(await connected.call_tool(f"{server}__attack", {})))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(attack)
                while not heard:
                    result = await connected.call_tool("calm__echo", {"text": "x"})
                    assert '"text": "x"' in text_of(result)
        return heard[0], _memory(running.process.pid, "VmHWM") - before


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@pytest.mark.requirement("T50")
@pytest.mark.requirement("P-UPSTREAM-BOUNDS")
@pytest.mark.parametrize("server", [*(f"stdio-{kind}" for kind in CALLS), *(f"http-{kind}" for kind in WEB)])
async def test_answer_takes_bounded_memory(server: str, besieged: Gateway) -> None:
    heard, growth = await attacked(besieged, server)
    assert growth < GROWTH, f"{growth / MB:.0f} MB"
    assert heard.startswith("error upstream_"), heard[:200]
    assert "no answer" not in heard


@pytest.mark.requirement("T51")
@pytest.mark.requirement("P-UPSTREAM-BOUNDS")
@pytest.mark.parametrize("kind", FLOODS)
async def test_flood_beside_an_answer_takes_bounded_memory(kind: str, besieged: Gateway) -> None:
    heard, growth = await attacked(besieged, f"stdio-{kind}")
    assert heard == "honest"
    assert growth < 64 * MB, f"{growth / MB:.0f} MB"


@pytest.mark.requirement("T34")
@pytest.mark.requirement("P-UPSTREAM-BOUNDS")
@pytest.mark.parametrize("kind", LISTS)
def test_lists_take_bounded_memory(kind: str, tmp_path: Path) -> None:
    peak, _ = _refreshed(tmp_path / "calm", {"calm": calm(tmp_path)})
    attacked, said = _refreshed(tmp_path / "hostile", {"calm": calm(tmp_path), "hostile": over_stdio(kind)})
    assert attacked - peak < GROWTH, f"{(attacked - peak) / MB:.0f} MB"
    assert "calm" in said


def _refreshed(home: Path, servers: dict[str, Any]) -> tuple[int, str]:
    """The most memory that `portico refresh` had, and what it said."""
    write_config(home, servers)
    command = [sys.executable, "-m", "portico", "refresh"]
    process = subprocess.Popen(
        command, env=environment(home), cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return usage.ru_maxrss * 1024, said
