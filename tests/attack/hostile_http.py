"""An MCP server over HTTP that misbehaves as a call asks it to; standard library only.

`python hostile_http.py EXECUTIONS` prints its port, and ends when its stdin does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BOUND = 400_000_000
"""Bytes after which even an endless answer ends."""
SECONDS = 5.0


class Hostile(BaseHTTPRequestHandler):
    """Answers POST as the handshake era does, until a call says otherwise."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """There is no standing stream."""
        self._send(405, b"")

    def do_DELETE(self) -> None:
        """There are no sessions."""
        self._send(405, b"")

    def do_POST(self) -> None:
        """Answer one message."""
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        with suppress(OSError):
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if id is None:
            self._send(202, b"")
        elif method == "initialize":
            info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "web"}}
            self._result(id, info)
        elif method == "tools/list":
            self._result(id, {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call":
            self._count()
            arguments = params.get("arguments") or {}
            self._misbehave(id, str(arguments.get("habit")), int(arguments.get("size", 0)))
        else:
            self._send(404, b"")

    def _count(self) -> None:
        with open(sys.argv[1], "ab") as file:
            file.write(b".")

    def _misbehave(self, id: Any, habit: str, size: int) -> None:
        if habit in ("data", "comments", "events"):
            self._stream(habit, min(size * 4, BOUND))
        elif habit == "nodes":
            head = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "a": [' % id
            self._send(200, head + b"{}," * (size // 3) + b"{}]}}")
        elif habit == "leak":
            given = self.headers.get("Authorization", "").split()[-1:]
            self._send(500, b"refused: " + " ".join(given).encode(), "text/plain")
        elif habit == "headers":
            self._send(200, b"{}", "application/json", **{f"X-{n}": "y" * 1_000 for n in range(50)})
        elif habit == "slow":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for _ in range(20):
                self.wfile.write(b":")
                time.sleep(0.05)
        else:
            self._result(id, {"content": [{"type": "text", "text": habit}]})

    def _stream(self, habit: str, bound: int) -> None:
        """An event that does not end, or very many that are none."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        line = {"data": b"data: \n", "comments": b": \n", "events": b"event: x\ndata: {}\n\n"}[habit]
        block = line * 10_000
        until = time.monotonic() + SECONDS
        for _ in range(bound // len(block)):
            self.wfile.write(block)
            if time.monotonic() > until:
                break

    def _result(self, id: Any, result: dict[str, Any]) -> None:
        self._send(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)
