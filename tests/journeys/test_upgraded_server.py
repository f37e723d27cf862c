"""A server that was upgraded while no gateway ran shows its new tools before anybody calls it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.journeys.running import client, gateway, portico, write_config
from tests.journeys.test_events import events
from tests.journeys.test_reload import SERVER, telling, until_found

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.requirement("P-RENEWED")]


async def test_an_upgraded_server_is_asked_again_before_its_first_call_and_no_other_is(tmp_path: Path):
    program = tmp_path / "server.py"
    program.write_text(SERVER.read_text())
    upgraded = {"command": sys.executable, "args": ["-S", "server.py", "moon"], "cwd": str(tmp_path)}
    write_config(tmp_path, {"upgraded": upgraded, "same": telling("same")})
    assert portico(tmp_path, "refresh").returncode == 0
    with gateway(tmp_path) as running:
        assert running.children() == []
        async with client("http", "2025-11-25", surface="discover", running=running) as agent:
            await until_found(agent, "upgraded.moon_pid")
    program.write_text(SERVER.read_text().replace("_pid", "_process"))
    with gateway(tmp_path) as running:
        assert running.children() == []
        async with client("http", "2025-11-25", surface="discover", running=running) as agent:
            await until_found(agent, "upgraded.moon_pid", is_there=False)
            await until_found(agent, "upgraded.moon_process")
        assert len(running.children()) == 1
    started = [line["server"] for line in events(tmp_path, "--kind", "started")]
    assert started == ["upgraded"]
