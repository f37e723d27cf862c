"""A gateway that is asked to stop gives its open answers first, leaves no process behind, and exits with 0."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from portico.providers.child_process_supervisor import descendants
from tests.journeys.running import client, environment, gateway, text_of, write_config
from tests.journeys.test_reload import telling, until_found, until_there
from tests.processes import inherited

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
SECONDS = 20
SIGNALS = [signal.SIGTERM, signal.SIGINT]


def slow(folder: Path) -> dict[str, Any]:
    """A call that makes one file, and waits until there is another."""
    arguments = {"began": str(folder / "began"), "until": str(folder / "until")}
    return {"name": "one.one_wait", "arguments": arguments}


def are_gone(pids: list[int]) -> bool:
    """Whether processes, which send no events, end in time."""
    until = time.monotonic() + SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.requirement("P-DRAIN")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_call_in_flight_gets_its_answer_and_nothing_new_is_taken(
    tmp_path: Path, number: signal.Signals, era: str
):
    write_config(tmp_path, {"one": telling("one")})
    answers: list[str] = []
    with gateway(tmp_path) as running:
        async with client("http", era, surface="discover", running=running) as agent:
            await until_found(agent, "one.one_wait")
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    answers.append(text_of(await agent.call_tool("call_tool", slow(tmp_path))))

                tasks.start_soon(call)
                await until_there(tmp_path / "began")
                started = descendants(running.process.pid)
                running.process.send_signal(number)
                await anyio.to_thread.run_sync(_until_refused, running.url)
                assert answers == []
                (tmp_path / "until").touch()
        assert running.process.wait(SECONDS) == 0
        assert len(answers) == 1
        assert answers[0].startswith("one ")
        assert len(started) >= 2
        assert are_gone(started)


@pytest.mark.requirement("P-DRAIN")
async def test_a_request_on_an_open_connection_is_told_that_the_gateway_stops(tmp_path: Path):
    write_config(tmp_path, {"one": telling("one")})
    with gateway(tmp_path) as running:
        async with client("http", "2025-11-25", surface="discover", running=running) as agent:
            await until_found(agent, "one.one_wait")
            address = urlsplit(running.url)
            body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            head = f"POST /mcp HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
            with socket.create_connection((address.hostname, address.port), timeout=SECONDS) as connection:
                connection.sendall(head.encode() + body[:10])  # its body is awaited, and then refused
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(agent.call_tool, "call_tool", slow(tmp_path))
                    await until_there(tmp_path / "began")
                    running.process.send_signal(signal.SIGTERM)
                    await anyio.to_thread.run_sync(_until_refused, running.url)
                    connection.sendall(body[10:])
                    answer = await anyio.to_thread.run_sync(_read_all, connection)
                    (tmp_path / "until").touch()
        status, _, said = answer.partition(b"\r\n\r\n")
        assert status.startswith(b"HTTP/1.1 503 ")
        assert json.loads(said)["error"]["data"] == {"code": "stopping"}
        assert "the gateway is stopping" in json.loads(said)["error"]["message"]
        assert running.process.wait(SECONDS) == 0


@pytest.mark.requirement("P-DRAIN")
async def test_a_call_that_takes_too_long_is_given_up(tmp_path: Path):
    code, started = await _stopped_in_a_slow_call(tmp_path, 0.2, [signal.SIGTERM])
    assert code == 0
    assert are_gone(started)


@pytest.mark.requirement("P-DRAIN")
async def test_a_second_signal_ends_it_at_once_and_leaves_no_process(tmp_path: Path):
    code, started = await _stopped_in_a_slow_call(tmp_path, 600, [signal.SIGTERM, signal.SIGTERM])
    assert code == -signal.SIGTERM
    assert are_gone(started)


async def _stopped_in_a_slow_call(home: Path, drain_s: float, signals: list[signal.Signals]) -> tuple[int, list[int]]:
    """The exit code of a gateway that is stopped while a call waits, and the processes that there were."""
    write_config(home, {"one": telling("one")}, http={"drain_s": drain_s})
    found: list[tuple[int, list[int]]] = []
    with gateway(home) as running, suppress(ExceptionGroup):  # the gateway goes away in the middle of a call
        async with client("http", "2025-11-25", surface="discover", running=running) as agent:
            await until_found(agent, "one.one_wait")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agent.call_tool, "call_tool", slow(home))
                await until_there(home / "began")
                started = descendants(running.process.pid)
                for number in signals:
                    running.process.send_signal(number)
                    await anyio.to_thread.run_sync(_until_refused, running.url)
                found.append((await anyio.to_thread.run_sync(running.process.wait, SECONDS), started))
    return found[0]


@pytest.mark.requirement("P-DRAIN", "P-RELOAD")
def test_a_terminal_that_is_closed_stops_the_gateway_in_it(tmp_path: Path):
    write_config(tmp_path, {})
    terminal, side = pty.openpty()
    code = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "portico", "serve", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=side,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        process.send_signal(signal.SIGHUP)  # the terminal is there: this is about the config
        os.close(side)
        os.close(terminal)
        assert process.wait(SECONDS) == 0


@pytest.mark.requirement("P-DRAIN")
@pytest.mark.parametrize("number", SIGNALS)
def test_over_stdio_a_call_in_flight_gets_its_answer(tmp_path: Path, number: signal.Signals):
    write_config(tmp_path, {"one": telling("one")})
    with stdio(tmp_path) as (process, ask):
        started = _begin_slow_call(tmp_path, process, ask)
        process.send_signal(number)
        ask({"jsonrpc": "2.0", "id": 4, "method": "tools/list"})
        (tmp_path / "until").touch()
        assert process.stdout is not None
        answers = {answer["id"]: answer for line in process.stdout if (answer := json.loads(line)).get("id")}
        assert "one " in answers[3]["result"]["content"][0]["text"]
        assert process.wait(SECONDS) == 0  # although its input is still open
        assert are_gone(started)


@pytest.mark.requirement("P-DRAIN")
def test_over_stdio_a_second_signal_ends_it_at_once(tmp_path: Path):
    write_config(tmp_path, {"one": telling("one")}, http={"drain_s": 600})
    with stdio(tmp_path) as (process, ask):
        started = _begin_slow_call(tmp_path, process, ask)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        answer: dict[str, Any] = {}
        while "is stopping" not in answer.get("error", {}).get("message", ""):
            ask({"jsonrpc": "2.0", "id": 4, "method": "ping"})
            answer = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == -signal.SIGTERM
        assert are_gone(started)


@contextmanager
def stdio(home: Path) -> Iterator[tuple[subprocess.Popen[str], Callable[[dict[str, Any]], None]]]:
    """A gateway over stdio, and the way to send it a message."""
    process = subprocess.Popen(
        [sys.executable, "-m", "portico", "serve", "--stdio"],
        env={**environment(home), **inherited()},
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    ending = threading.Timer(60, process.kill)  # a reader that waits must not wait for ever
    ending.start()

    def ask(message: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()

    with process:
        try:
            yield process, ask
        finally:
            ending.cancel()
            process.kill()


def _begin_slow_call(home: Path, process: subprocess.Popen[str], ask: Callable[[dict[str, Any]], None]) -> list[int]:
    """Greet, begin a call that waits, and return the processes that there are then."""
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening})
    ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
    ask({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "call_tool", "arguments": slow(home)}})
    until = time.monotonic() + SECONDS
    while not (home / "began").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    return descendants(process.pid)


def _until_refused(url: str) -> None:
    """Wait until the gateway takes no connections."""
    address, until = urlsplit(url), time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection((address.hostname, address.port), timeout=SECONDS).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.02)
    raise TimeoutError


def _read_all(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65_536):
        found += part
    return found
