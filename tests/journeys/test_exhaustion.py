"""A running gateway that strangers try to fill: its memory stays bounded, and others are answered meanwhile."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.journeys.running import Gateway, gateway, write_config
from tests.surfaces.mcp.listening import hello, mcp_headers

MEGABYTE = 1024 * 1024
GROWTH = 50 * MEGABYTE
pytestmark = pytest.mark.requirement("P-HTTP-MEMORY")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("exhaustion")
    write_config(home, {}, store="memory")
    with gateway(home) as found:
        is_live(found)
        yield found


def memory(gateway: Gateway) -> int:
    """The bytes that the gateway's process has in memory."""
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def is_live(gateway: Gateway) -> bool:
    with urlopen(gateway.url.replace("/mcp", "/livez"), timeout=5) as answer:
        return bool(json.load(answer)["live"])


def connect(gateway: Gateway) -> socket.socket:
    address = urlsplit(gateway.url)
    return socket.create_connection((address.hostname, address.port), timeout=5)


def head(gateway: Gateway, path: str, length: int, **headers: str) -> bytes:
    lines = {"Host": urlsplit(gateway.url).netloc, "Content-Length": str(length), **mcp_headers(**headers)}
    written = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{written}\r\n".encode()


@pytest.mark.parametrize("path", ["/mcp", "/api/v1/cache"])
def test_unfinished_bodies_take_a_bounded_memory(running: Gateway, path: str):
    before = memory(running)
    with ExitStack() as stack:
        for _ in range(150):
            client = stack.enter_context(connect(running))
            try:
                client.sendall(head(running, path, 4_194_304) + b"x" * 4_000_000)
            except OSError:
                continue  # it was told to go away, which is as good
        assert is_live(running)
        assert memory(running) - before < GROWTH


def test_unfinished_heads_take_a_bounded_memory(running: Gateway):
    before = memory(running)
    with ExitStack() as stack:
        for _ in range(150):
            client = stack.enter_context(connect(running))
            try:
                client.sendall(b"GET /mcp HTTP/1.1\r\nX: " + b"y" * 4_000_000)
            except OSError:
                continue
        assert is_live(running)
        assert memory(running) - before < GROWTH


def test_bodies_full_of_values_take_a_bounded_memory(running: Gateway):
    before = memory(running)
    for body in (b"[" + b"{}," * 1_390_000 + b"{}]", b"[" * 2_000_000, b'{"a":' * 800_000):
        for path in ("/mcp", "/mcp/static", "/api/v1/cache"):
            with connect(running) as client:
                client.sendall(head(running, path, len(body)) + body)
                assert client.recv(12).split()[1] in (b"400", b"405", b"413")
    assert memory(running) - before < GROWTH


def test_abandoned_sessions_take_a_bounded_memory(running: Gateway):
    before = memory(running)
    params = hello(
        clientInfo={"name": "x" * 50_000, "version": "1"}, capabilities={"experimental": {"x": {"y": "z" * 3_900}}}
    )
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    body = json.dumps(message).encode()
    opened = 0
    with connect(running) as client, client.makefile("rb") as answers:
        for number in range(2_500):
            path = ("/mcp", "/mcp/static", "/mcp/search", "/mcp/gateway")[number % 4]
            client.sendall(head(running, path, len(body)) + body)
            opened += _status(answers) == 200
    assert opened == 2_500
    assert is_live(running)
    assert memory(running) - before < 80 * MEGABYTE


def _status(answers) -> int:  # type: ignore[no-untyped-def]
    """Read one answer to its end."""
    status = int(answers.readline().split()[1])
    headers = {}
    while (line := answers.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if b"content-length" in headers:
        answers.read(int(headers[b"content-length"]))
        return status
    while size := int(answers.readline(), 16):
        answers.read(size + 2)
    answers.readline()
    return status


def test_a_slow_client_is_let_go_and_others_are_answered(tmp_path: Path):
    write_config(tmp_path, {}, store="memory", http={"head_s": 0.5, "body_s": 0.5, "connections": 60})
    with gateway(tmp_path) as running, ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(100)]
        for number, client in enumerate(clients):
            try:
                client.sendall(b"GET / HTTP/1.1\r\nX" if number % 2 else head(running, "/mcp", 100) + b"{")
            except OSError:
                continue
        began = time.monotonic()
        assert is_live(running)
        assert time.monotonic() - began < 5
        for client in clients:
            try:
                answered = client.recv(12)
            except ConnectionError:
                continue
            assert answered in (b"", b"HTTP/1.1 408", b"HTTP/1.1 503")
