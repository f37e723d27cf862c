"""The doors: who may knock, what goes over stdout, and how the gateway leaves."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic

import pytest

from tests.journeys.kit import definition, serving
from tests.journeys.running import Gateway, environment, gateway, portico, write_config

pytestmark = pytest.mark.timeout(60)


def post(running: Gateway, **headers: str) -> int:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    request = urllib.request.Request(running.url, data=body, headers=given)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def get(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.requirement("P-DOOR-ORIGIN", "T01")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
    ],
)
def test_a_web_page_cannot_reach_the_gateway(tmp_path: Path, headers: dict[str, str]):
    write_config(tmp_path, {})
    with gateway(tmp_path) as running:
        assert post(running, **headers) in (403, 421)
        for path in ("/mcp/static", "/mcp/discover", "/livez", "/readyz"):
            assert get(running.url.replace("/mcp", path), **headers) in (403, 421), path


@pytest.mark.requirement("P-DOOR-LOOPBACK", "T02")
def test_an_address_that_others_can_reach_is_refused(tmp_path: Path):
    done = portico(tmp_path, "serve", "--host", "0.0.0.0", timeout=20)
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr


@pytest.mark.requirement("P-DOOR-LOOPBACK")
def test_a_port_in_use_is_named(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = portico(tmp_path, "serve", "--port", str(taken.getsockname()[1]), timeout=20)
    assert done.returncode == 3
    assert "--port" in done.stderr


@pytest.mark.requirement("P-STDIO-CLEAN")
def test_nothing_but_protocol_goes_to_stdout(tmp_path: Path):
    entry = serving(tmp_path / "tools.json", [definition("ping")])
    write_config(tmp_path, {"good": entry, "bad": {"command": "no-such-command"}, "odd": {"comand": "x"}})
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "good.ping", "arguments": {}}},
    ]
    command = [sys.executable, "-m", "portico", "serve", "--stdio"]
    with subprocess.Popen(
        command, env=environment(tmp_path), cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        answers = {}
        while {1, 2} - answers.keys():
            answer = json.loads(process.stdout.readline())
            answers[answer.get("id")] = answer
        out, _ = process.communicate(timeout=20)
    assert out == "" or all(json.loads(line) for line in out.splitlines())
    assert answers[1]["result"]["protocolVersion"] == "2024-11-05"
    assert '"tool": "ping"' in answers[2]["result"]["content"][0]["text"]
    assert process.returncode == 0


@pytest.mark.requirement("P-LEAVES-CLEAN", "F08")
def test_a_stopped_gateway_leaves_no_process_behind(tmp_path: Path):
    write_config(tmp_path, {"good": serving(tmp_path / "tools.json", [definition("ping")])})
    with gateway(tmp_path) as running:
        until = monotonic() + 40
        while not running.children() and monotonic() < until:
            with urllib.request.urlopen(running.url.replace("/mcp", "/livez"), timeout=5) as answer:
                answer.read()
        children = running.children()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
    assert children
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
