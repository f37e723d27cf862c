"""A gateway that is killed leaves nothing behind: servers, what they have started, and the processes of scripts."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from portico.providers.child_process_supervisor import descendants
from tests.journeys.running import client, gateway, text_of, write_config

pytestmark = pytest.mark.anyio
STUBBORN = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
for line in sys.stdin:
    asked = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
        "tools/list": {"tools": [{"name": "ping", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "pong"}]},
    }
    if "id" in asked:
        found = results.get(asked["method"])
        said = {"result": found} if found else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
time.sleep(600)
"""
"""Ignores the end of its input and every request to end; its child has left the session."""


@pytest.mark.requirement("P-DIE-WITH-GATEWAY")
async def test_killed_gateway_leaves_no_process(tmp_path: Path) -> None:
    write_config(tmp_path, {"stubborn": {"command": sys.executable, "args": ["-S", "-c", STUBBORN]}})
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            script = {"script": "return stubborn.ping({}):await()"}
            assert "pong" in text_of(await connected.call_tool("run_script", script))
        started = descendants(running.process.pid)
        # The supervisor, the server, its child, the process that workers come from, and a worker where one waits.
        assert len(started) >= 4
        running.process.kill()
        running.process.wait()
        assert _are_gone(started)


def _are_gone(pids: list[int]) -> bool:
    """Whether processes, which send no events, end within a time that no machine should need."""
    until = time.monotonic() + 20
    while any(map(_is_running, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
