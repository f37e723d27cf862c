"""An MCP server that misbehaves while a file tells it to: `python upstream.py NAME FOLDER [PORT]`, over stdio or HTTP.

Standard library only. `FOLDER/NAME` has one word: `slow`, `mute`, `garbage`, `broken` (a 500, or an error), `cut` (an
answer that breaks off), `flood`; without the file it is well. It writes its process id to `FOLDER/NAME.pid`, and when a
call was cancelled to `FOLDER/NAME.cancelled`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME, FOLDER = sys.argv[1], Path(sys.argv[2])
LOCK = threading.Lock()
MUTE_SECONDS, SLOW_SECONDS, FLOOD = 20.0, 0.4, 500
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}, "wait": {"type": "number"}, "size": {}}}


def mood() -> str:
    """What it is to do now."""
    try:
        return (FOLDER / NAME).read_text().strip()
    except OSError:
        return ""


def answered(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    method, params = asked["method"], asked.get("params") or {}
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        info = {"name": NAME, "version": "1"}
        return reply | {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        tool = {"name": f"{NAME}_work", "description": f"Turn a word at {NAME}", "inputSchema": SCHEMA}
        return reply | {"result": {"tools": [tool]}}
    if method != "tools/call":
        return reply | {"error": {"code": -32601, "message": "no such method"}}
    if mood() == "broken":
        return reply | {"error": {"code": -32603, "message": "out of order"}}
    arguments = params["arguments"]
    time.sleep(arguments.get("wait", 0))
    word = str(arguments.get("word", ""))
    text = f"{NAME} {word[::-1]}" + "x" * int(arguments.get("size") or 0)
    return reply | {"result": {"content": [{"type": "text", "text": text}]}}


def pause(is_call: bool) -> None:
    """Take the time that the mood asks for."""
    if is_call and mood() in ("slow", "mute"):
        time.sleep(MUTE_SECONDS if mood() == "mute" else SLOW_SECONDS)


# --- stdio -----------------------------------------------------------------------------------------------------------


def write(data: bytes) -> None:
    """Write bytes at once."""
    with LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def take(asked: dict[str, Any]) -> None:
    """Answer one request over stdio."""
    is_call = asked["method"] == "tools/call"
    pause(is_call)
    line = json.dumps(answered(asked)).encode()
    now = mood() if is_call else ""
    if now == "garbage":
        write(b'\xff\xfe{"jsonrpc": "2.0", "id": \n[[[[\n' + line[: len(line) // 2] + b"\n")
    elif now == "cut":
        write(line[: len(line) // 2])
        os._exit(3)
    else:
        if now == "flood":
            write(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}}\n' * FLOOD)
        write(line + b"\n")


def serve_stdio() -> None:
    """Answer until the input ends, each request in a thread of its own."""
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            threading.Thread(target=take, args=(asked,), daemon=True).start()
        elif asked.get("method") == "notifications/cancelled":
            with (FOLDER / f"{NAME}.cancelled").open("a") as times:
                times.write(f"{time.monotonic()}\n")


# --- HTTP ------------------------------------------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    """Streamable HTTP without sessions, one JSON body for each request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer one message."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            self.reply(202, b"")
            return
        is_call = asked["method"] == "tools/call"
        pause(is_call)
        now, body = mood() if is_call else "", json.dumps(answered(asked)).encode()
        if now == "broken":
            self.reply(503, b"out of order")
        elif now == "garbage":
            self.reply(200, b'\xff\xfe{"jsonrpc": [[[[')
        else:
            self.reply(200, body, cut=now == "cut")

    def do_GET(self) -> None:
        """There is no stream of events."""
        self.reply(405, b"")

    def do_DELETE(self) -> None:
        """There is no session."""
        self.reply(405, b"")

    def reply(self, status: int, body: bytes, *, cut: bool = False) -> None:
        """Send one answer, or half of it."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Listener(ThreadingHTTPServer):
    """Has room for those who come together."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go away."""


if __name__ == "__main__":
    (FOLDER / f"{NAME}.pid").write_text(str(os.getpid()))
    if len(sys.argv) > 3:
        Listener(("127.0.0.1", int(sys.argv[3])), Endpoint).serve_forever()
    else:
        serve_stdio()
