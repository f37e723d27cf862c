"""A real HTTP server that speaks the OpenAI shape of embeddings, with vectors that depend on the text alone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSIONS = 8


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    digest = hashlib.sha512(text.encode()).digest() * (dimensions // 64 + 1)
    return [byte / 255 - 0.5 for byte in digest[:dimensions]]


def answer(texts: list[str], dimensions: int = DIMENSIONS) -> dict[str, Any]:
    """Rows in reverse, because an answer need not be in order."""
    rows = [{"object": "embedding", "index": n, "embedding": vector(t, dimensions)} for n, t in enumerate(texts)]
    return {"object": "list", "data": rows[::-1], "model": "test", "usage": {"total_tokens": 1}}


class EmbeddingServer:
    """Behaves as it is told, and remembers every request."""

    def __init__(self) -> None:
        self.behaviour: Callable[[Handler, list[str]], None] = well
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.ended = threading.Event()
        self._http: ThreadingHTTPServer | None = None
        self.port = 0
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def texts(self) -> list[str]:
        """Every text that was ever asked for, in order."""
        return [text for request in self.requests for text in request["input"]]

    def open(self) -> None:
        self._http = Listener(("127.0.0.1", self.port), Handler)
        self._http.told = self  # type: ignore[attr-defined]
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and hang up on those who wait."""
        if self._http is not None:
            self.ended.set()
            self._http.shutdown()
            self._http.server_close()
            self._http = None
            self.ended = threading.Event()


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up; that is what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.told.connections += 1

    @property
    def told(self) -> EmbeddingServer:
        return self.server.told  # type: ignore[attr-defined, no-any-return]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = self.told
        told.requests.append(request | {"path": self.path})
        told.headers.append(dict(self.headers))
        told.behaviour(self, request["input"])

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def well(handler: Handler, texts: list[str]) -> None:
    handler.send(200, json.dumps(answer(texts)).encode())


def says(status: int, body: str, **headers: str) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.send(status, body.encode(), **headers)


def sized(dimensions: int) -> Callable[[Handler, list[str]], None]:
    return lambda handler, texts: handler.send(200, json.dumps(answer(texts, dimensions)).encode())


def chunked(handler: Handler, texts: list[str]) -> None:
    body = json.dumps(answer(texts)).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for part in (body[:10], body[10:]):
        handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def stumbles_over(word: str, status: int = 400) -> Callable[[Handler, list[str]], None]:
    """Refuses every batch that has the word in it, as endpoints do with a text that is too long."""

    def behave(handler: Handler, texts: list[str]) -> None:
        if any(word in text for text in texts):
            handler.send(status, b'{"error": {"message": "input is too long"}}')
        else:
            well(handler, texts)

    return behave


def hangs(handler: Handler, texts: list[str]) -> None:
    handler.told.ended.wait(10)
    handler.close_connection = True


def drips(handler: Handler, texts: list[str]) -> None:
    """A byte at a time, within every timeout of a single read."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.told.ended.wait(0.02):
        handler.wfile.write(b"x")


def floods(handler: Handler, texts: list[str]) -> None:
    """A hundred megabytes without saying so first."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" " * 2**20)


def announces_a_flood(handler: Handler, texts: list[str]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(100 * 2**20))
    handler.end_headers()
    handler.told.ended.wait(10)


def hangs_up(handler: Handler, texts: list[str]) -> None:
    """Goes away in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True
