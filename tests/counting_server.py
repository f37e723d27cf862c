"""An MCP server of the handshake era that keeps state per session: over stdio, or over HTTP; standard library only.

Over stdio its session is the process. Its one resource, `state://count`, is the count of the session.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("count", "put", "get", "pid", "ask", "elicit", "roots", "tell", "touch", "wait", "later")
URI = "state://count"
TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": dict.fromkeys(("text", "began", "until"), TEXT)}
ASKED: dict[str, str] = {"ask": "sampling/createMessage", "elicit": "elicitation/create", "roots": "roots/list"}


def question(name: str, text: str) -> dict[str, Any]:
    """The parameters of a question with a text in it."""
    if name == "ask":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 9}
    schema = {"type": "object", "properties": {"name": TEXT}}
    return {"message": text, "requestedSchema": schema} if name == "elicit" else {}


@dataclass
class Session:
    """The state of one session."""

    name: str
    write: Callable[[dict[str, Any]], None] = lambda message: None
    count: int = 0
    text: str = ""
    is_watched: bool = False
    asked: dict[Any, Any] = field(default_factory=dict)

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to one message; None where there is none, or not yet."""
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            return self._take_answer(message)
        result = self._result(id, method, params) if id is not None else None
        return None if result is None else {"jsonrpc": "2.0", "id": id, **result}

    def _take_answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if message.get("id") == "late":
            self.text = json.dumps({key: message[key] for key in ("result", "error") if key in message})
        if (waiting := self.asked.pop(message.get("id"), None)) is None:
            return None
        said = {key: message[key] for key in ("result", "error") if key in message}
        return {"jsonrpc": "2.0", "id": waiting, **_text(json.dumps({"session": self.name, **said}))}

    def _result(self, id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "tools/call":
            return self._call(id, params["name"], params.get("arguments") or {})
        if method in ("resources/subscribe", "resources/unsubscribe"):
            self.is_watched = method == "resources/subscribe"
        found: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "logging": {}},
                "serverInfo": {"name": "counting", "version": "1"},
            },
            "tools/list": {"tools": [{"name": name, "description": name, "inputSchema": SCHEMA} for name in NAMES]},
            "resources/list": {"resources": [{"uri": URI, "name": "count"}]},
            "resources/read": {"contents": [{"uri": URI, "text": str(self.count)}]},
            "prompts/list": {"prompts": [{"name": "state"}]},
            "prompts/get": {
                "messages": [{"role": "user", "content": {"type": "text", "text": f"{self.name} {self.count}"}}]
            },
        }
        known = method in found or method in ("ping", "resources/subscribe", "resources/unsubscribe")
        return {"result": found.get(method, {})} if known else {"error": {"code": -32601, "message": "no such method"}}

    def _call(self, id: Any, name: str, given: dict[str, Any]) -> dict[str, Any] | None:
        if name in ASKED:
            self.asked[f"q{id}"] = id
            self._send(f"q{id}", ASKED[name], question(name, given.get("text", "")))
            return None
        if name == "wait":
            threading.Thread(target=self._wait, args=(id, given), daemon=True).start()
            return None
        if name == "later":
            threading.Thread(target=self._ask_later, args=(given,), daemon=True).start()
        if name == "tell":
            self._send(None, "notifications/message", {"level": "info", "data": f"{self.name} {given['text']}"})
        if name == "touch" and self.is_watched:
            self._send(None, "notifications/resources/updated", {"uri": URI})
        if name == "put":
            self.text = given["text"]
        self.count += name == "count"
        return _text(
            {"count": f"{self.name} {self.count}", "get": self.text, "pid": str(os.getpid())}.get(name, "done")
        )

    def _wait(self, id: Any, given: dict[str, str]) -> None:
        Path(given["began"]).touch()
        while not Path(given["until"]).exists():
            time.sleep(0.01)
        self.write({"jsonrpc": "2.0", "id": id, **_text("waited")})

    def _ask_later(self, given: dict[str, str]) -> None:
        while not Path(given["until"]).exists():
            time.sleep(0.01)
        self._send("late", "elicitation/create", question("elicit", given["text"]))

    def _send(self, id: Any, method: str, params: dict[str, Any]) -> None:
        own = {} if id is None else {"id": id}
        self.write({"jsonrpc": "2.0", **own, "method": method, "params": params})


def _text(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}


def main() -> None:
    """Serve one session until the input ends."""
    lock = threading.Lock()

    def write(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    session = Session(str(os.getpid()), write)
    for line in sys.stdin:
        if (reply := session.answer(json.loads(line))) is not None:
            write(reply)


@dataclass
class Sessions:
    """The sessions of a server over HTTP."""

    url: str
    open: dict[str, Session] = field(default_factory=dict)
    opened: int = 0
    most: int = 0
    """The most that were open at the same time."""


@contextmanager
def counting_over_http() -> Iterator[Sessions]:
    """The server over HTTP, in threads of this process."""
    found = Sessions("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            name = self.headers.get("mcp-session-id", "")
            if message.get("method") == "initialize":
                found.opened += 1
                name = f"session-{found.opened}"
                found.open[name] = Session(name)
                found.most = max(found.most, len(found.open))
            session = found.open.get(name)
            reply = session.answer(message) if session is not None else None
            self._reply(404 if session is None else 200 if reply else 202, reply, name)

        def do_DELETE(self) -> None:
            found.open.pop(self.headers.get("mcp-session-id", ""), None)
            self._reply(200, None, "")

        def do_GET(self) -> None:
            self._reply(405, None, "")

        def _reply(self, status: int, reply: dict[str, Any] | None, name: str) -> None:
            body = json.dumps(reply).encode() if reply else b""
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            if name:
                self.send_header("mcp-session-id", name)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}/mcp"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


if __name__ == "__main__":
    main()
