"""An MCP server that wants the gateway's memory: `hostile_server.py KIND`; standard library only.

Over stdio it answers `tools/list` or its only tool in the way that KIND names. The kind `http` prints a port and does
the same over streamable HTTP; there the path names the kind. Every attack ends by itself, so that a gateway without
bounds does not take the machine.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MIB = 1024 * 1024
PAGES = 20
Body = Iterator[bytes]


def plain(id: Any, result: Any) -> Body:
    """An honest answer."""
    yield json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def filled(id: Any, before: str, unit: str, size: int, after: str) -> Body:
    """An answer whose result is one text again and again."""
    yield f'{{"jsonrpc":"2.0","id":{id},"result":{before}'.encode()
    piece = (unit * (MIB // len(unit))).encode()
    for _ in range(size // MIB):
        yield piece
    yield f"{after}}}".encode()


def page(id: Any, params: Any, key: str, unit: str, size: int) -> Body:
    """One of many pages with large definitions."""
    number = int(params.get("cursor", 0))
    more = f',"nextCursor":"{number + 1}"' if number < PAGES else ""
    before = f'{{"{key}":[{{"name":"t{number}","uri":"x://{number}","inputSchema":{{"type":"object"}},"description":'
    if unit == "x":
        return filled(id, f'{before}"', unit, size, f'"}}]{more}}}')
    return filled(id, f'{before}"","extra":[', unit, size, f"0]}}]{more}}}")


LISTS: dict[str, Callable[[Any, Any, str], Body]] = {
    "definitions": lambda number, params, key: page(number, params, key, "x", 30 * MIB),
    "values": lambda number, params, key: page(number, params, key, "{},", 30 * MIB),
    "small-values": lambda number, params, key: page(number, params, key, "{},", MIB - 4096),
    "medium": lambda number, params, key: page(number, params, key, "x", 4 * MIB),
}
CALLS: dict[str, Callable[[Any], Body]] = {
    "braces": lambda number: filled(number, '{"content":[', "{},", 62 * MIB, "{}]}"),
    "brackets": lambda number: filled(number, '{"structuredContent":{"a":[', "[],", 62 * MIB, "[]]}}"),
    "numbers": lambda number: filled(number, '{"structuredContent":{"a":[', "1,", 62 * MIB, "1]}}"),
    "keys": lambda number: filled(number, '{"structuredContent":{"a":[', '{"k":[0]},', 62 * MIB, "0]}}"),
    "quoted": lambda number: filled(number, '{"a":"\\\\\\"","content":[', '{"\\"":{}},', 62 * MIB, "{}]}"),
    "deep": lambda number: filled(number, '{"content":', "[", 2 * MIB, "]}"),
    "nested": lambda number: iter(
        (f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":'.encode(), b"[" * 100_000, b"]" * 100_000, b"}}")
    ),
    "long": lambda number: filled(number, '{"content":[{"type":"text","text":"', "x", 200 * MIB, '"}]}'),
    "not-utf8": lambda number: (
        part.replace(b"xyz", b"x\xffz") for part in filled(number, '{"content":["', "xyz{},", 40 * MIB, '"]}')
    ),
    "no-message": lambda _: iter((b"x" * MIB,) * 200),
}


def answer(message: dict[str, Any], of: str) -> Body | None:
    """The answer to one message."""
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if id is None or method is None:
        return None
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        about: dict[str, Any] = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities}
        if of == "welcome":
            return filled(id, f'{json.dumps(about)[:-1]},"instructions":"', "i", 50 * MIB, '"}')
        return plain(id, {**about, "serverInfo": {"name": "hostile", "version": "1"}})
    if method.endswith("/list"):
        key = "resourceTemplates" if "templates" in method else method.partition("/")[0]
        kind, _, wanted = of.partition(":")
        if kind in LISTS and key == (wanted or "tools"):
            return LISTS[kind](id, params, key)
        return plain(id, {key: [{"name": "attack", "inputSchema": {"type": "object"}}] if key == "tools" else []})
    if method == "tools/call" and of in CALLS:
        return CALLS[of](id)
    return plain(id, {"content": [{"type": "text", "text": "honest"}]})


def stdio(kind: str) -> None:
    """Answer on stdout; what the kind calls for beside answers goes out at each call."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            beside(message["id"], kind)
        for part in answer(message, kind) or ():
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def beside(id: Any, kind: str) -> None:
    """Floods that come before an honest answer."""
    if kind == "stderr":
        for _ in range(100):
            os.write(2, b"e" * MIB)
    flood = {
        "changes": {"method": "notifications/tools/list_changed"},
        "progress": {"method": "notifications/progress", "params": {"progressToken": id, "progress": 1}},
        "requests": {"id": "i" * 900, "method": "sampling/createMessage", "params": {}},
        "ids": {"id": "i" * MIB, "method": "roots/list"},
    }.get(kind)
    if flood is not None:
        unit = json.dumps({"jsonrpc": "2.0", **flood}).encode() + b"\n"
        for _ in range(100_000_000 // (100 * max(len(unit), 1000))):
            sys.stdout.buffer.write(unit * 100)


class Web(BaseHTTPRequestHandler):
    """The same over HTTP; every body is chunked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = self.path.strip("/")
        body = answer(message, kind)
        if body is None:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        is_call = message["method"] == "tools/call"
        stream = is_call and kind in STREAMS
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        if is_call and kind == "gzip":
            body = iter((gzip.compress(b"".join(filled(message["id"], '{"content":[', "{},", 300 * MIB, "{}]}"))),))
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._send(STREAMS[kind](message["id"]) if stream else body)

    def do_GET(self) -> None:
        """Offer no stream."""
        self.send_error(405)

    do_DELETE = do_GET  # noqa: N815 - the name that the standard library looks for

    def _send(self, body: Body) -> None:
        try:
            for part in body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


STREAMS: dict[str, Callable[[Any], Body]] = {
    "data-lines": lambda _: iter((b"data:\n" * 100_000,) * 700),
    "data-values": lambda number: (part.replace(b"{},", b"{},\ndata:") for part in _as_event(CALLS["braces"](number))),
    "field-lines": lambda _: iter((b"id: 1\nevent: x\nunknown\n" * 50_000,) * 100),
    "one-line": lambda _: iter((b"data: ", *(b"x" * MIB for _ in range(300)))),
    "long-name": lambda _: iter((b"event: ", *(b"x" * MIB for _ in range(300)))),
    "events": lambda _: iter(
        (b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n' * 1000,) * 200
    ),
    "asks": lambda _: iter((b'data: {"jsonrpc":"2.0","id":1,"method":"roots/list"}\n\n' * 1000,) * 50),
    "event": lambda number: _as_event(CALLS["braces"](number)),
}


def _as_event(body: Body) -> Body:
    yield b"data: "
    yield from body
    yield b"\n\n"


def web() -> None:
    """Serve on a free port and print it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    web() if sys.argv[1] == "http" else stdio(sys.argv[1])
