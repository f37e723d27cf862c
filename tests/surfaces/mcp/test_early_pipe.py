"""A client's bytes reach the SDK whole and in order, whatever was answered before."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from portico.domain import VERSION
from portico.surfaces.mcp.stdio_opening import MOST_KEPT, EarlyAnswers, EarlyPipe, Greeting

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
HELLO = json.dumps(INITIALIZE).encode() + b"\n"


@dataclass
class Client:
    """The other ends of a pipe's stdin and stdout."""

    pipe: EarlyPipe
    to: int
    back: int
    ours: tuple[int, int]

    def send(self, data: bytes) -> None:
        """Write all of it."""
        while data:
            data = data[os.write(self.to, data) :]

    def answer(self) -> dict[str, object]:
        """The next line."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.back, 1)
        return dict(json.loads(line))


@pytest.fixture
def client() -> Iterator[Client]:
    """A client whose pipe has not been started yet."""
    stdin, to = os.pipe()
    back, stdout = os.pipe()
    pipe = EarlyPipe(EarlyAnswers(Greeting("hello", VERSION)), stdin=stdin, stdout=stdout)
    yield Client(pipe, to, back, (stdin, stdout))
    for fd in (to, back, stdin, stdout):
        try:
            os.close(fd)
        except OSError:
            continue


def finish(client: Client) -> bytes:
    """Take the pipe over when the client has sent everything; all that it sent."""
    os.close(client.to)
    stdin, _ = client.pipe.hand_over()
    return stdin.read().encode()


@pytest.mark.requirement("P-FIRST-ANSWER")
def test_what_waits_at_the_start_is_answered_at_once(client: Client) -> None:
    client.send(HELLO)
    client.pipe.start()
    assert client.answer()["id"] == 1
    assert finish(client) == HELLO


def test_what_comes_later_in_pieces_is_answered_too(client: Client) -> None:
    client.pipe.start()
    for byte in HELLO:
        client.send(bytes([byte]))
    assert client.answer()["id"] == 1
    assert finish(client) == HELLO


@pytest.mark.requirement("P-FIRST-ANSWER")
def test_messages_that_must_wait_are_kept_in_order(client: Client) -> None:
    client.pipe.start()
    rest = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call"}\n' % number for number in range(2, 2000))
    client.send(HELLO + rest + b'{"half":')
    assert client.answer()["id"] == 1
    assert finish(client) == HELLO + rest + b'{"half":'


def test_what_is_written_after_the_handing_over_follows(client: Client) -> None:
    client.send(HELLO)
    client.pipe.start()
    stdin, stdout = client.pipe.hand_over()
    client.send(b"then\n")
    os.close(client.to)
    assert stdin.read().encode() == HELLO + b"then\n"
    client.answer()
    stdout.write("{}\n")
    stdout.flush()
    assert client.answer() == {}


def test_no_more_is_read_than_there_is_room_for(client: Client) -> None:
    client.pipe.start()
    sent = b"x" * (MOST_KEPT + 500_000)
    sender = threading.Thread(target=lambda: (client.send(sent), os.close(client.to)))
    sender.start()
    client.pipe._thread.join(10)
    assert MOST_KEPT <= len(client.pipe._kept) <= MOST_KEPT + 65_536
    stdin, _ = client.pipe.hand_over()
    assert len(stdin.read()) == len(sent)
    sender.join(10)


def test_a_client_that_has_gone_is_no_error(client: Client) -> None:
    os.close(client.back)
    client.pipe.start()
    client.send(HELLO)
    assert finish(client) == HELLO


def test_the_old_descriptors_are_harmless(client: Client) -> None:
    client.pipe.start()
    stdin, stdout = client.ours
    assert os.read(stdin, 10) == b""
    assert os.fstat(stdout).st_ino == os.fstat(2).st_ino
    finish(client)
