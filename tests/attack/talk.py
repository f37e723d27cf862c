"""Talks to a gateway over loopback, politely or not."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

PATIENCE = 30.0
"""Seconds to wait for an answer; the time is told by the samples, not by this."""
ACCEPT = "application/json, text/event-stream"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: 0 is no answer at all."""

    status: int
    body: bytes = b""
    session: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message inside, from a plain body or an event stream."""
        for line in self.body.split(b"\n"):
            text = line.removeprefix(b"data:").strip()
            if text.startswith(b"{"):
                with suppress(ValueError):
                    found = json.loads(text)
                    if isinstance(found, dict) and ("result" in found or "error" in found):
                        return found
        return {}

    @property
    def text(self) -> str:
        """All text of a tool's result."""
        result = self.message.get("result")
        blocks = result.get("content") if isinstance(result, dict) else None
        return "\n".join(str(block.get("text", "")) for block in blocks or [] if isinstance(block, dict))


@dataclass
class Talk:
    """A client that sends whatever it is told to."""

    port: int
    sessions: dict[str, str] = field(default_factory=dict)
    ids: count[int] = field(default_factory=lambda: count(1))

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """One request over a connection of its own; `_` in a header's name is `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body or None, given)
            answer = connection.getresponse()
            return Reply(answer.status, answer.read(), answer.headers.get("mcp-session-id", ""))
        except (OSError, http.client.HTTPException, ValueError):
            return Reply(0)
        finally:
            connection.close()

    def post(self, surface: str, body: bytes, **headers: str) -> Reply:
        """A body to an MCP path, without a session unless the headers name one."""
        own = {"Content_Type": "application/json", "Accept": ACCEPT, **headers}
        return self.send("POST", f"/mcp/{surface}", body, **own)

    def hello(self, surface: str, **params: Any) -> Reply:
        """A first message; the answer carries the id of the new session."""
        given = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "attack", "version": "0"}}
        return self.post(surface, message(0, "initialize", {**given, **params}))

    def call(self, surface: str, tool: str, arguments: Any) -> Reply:
        """One call in a session of the handshake era, which is opened when it is first needed."""
        params = json.dumps({"name": tool, "arguments": arguments}).encode()
        return self.call_raw(surface, params)

    def call_raw(self, surface: str, params: bytes) -> Reply:
        """One call whose parameters are any bytes."""
        if surface not in self.sessions:
            self.sessions[surface] = self.hello(surface).session
            ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            self.post(surface, ready, **self.headers(surface))
        body = b'{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": %s}' % (next(self.ids), params)
        return self.post(surface, body, **self.headers(surface))

    def headers(self, surface: str) -> dict[str, str]:
        """What a request in a session carries."""
        return {"Mcp_Session_Id": self.sessions.get(surface, ""), "MCP_Protocol_Version": "2025-11-25"}

    def raw(self, data: bytes, *, wait: float = 10.0) -> Reply:
        """Any bytes over a connection of their own, and what is answered to them."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            with suppress(OSError):  # who refuses a request early does not read the rest of it
                connection.sendall(data)
            return _read_reply(connection)
        return Reply(0)

    def hold(self, data: bytes) -> socket.socket | None:
        """Begin a request and leave it open; None where nobody takes it."""
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            with suppress(OSError):
                connection.sendall(data)
            return connection
        return None


def message(id: Any, method: str, params: Any) -> bytes:
    """One JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def _read_reply(connection: socket.socket) -> Reply:
    """The status and the beginning of the body; a stream that stays open is not waited for."""
    data = b""
    with suppress(OSError):
        while b"\r\n\r\n" not in data and (part := connection.recv(65536)):
            data += part
        connection.settimeout(0.2)
        while len(data) < 1_000_000 and (part := connection.recv(65536)):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return Reply(int(status[0]) if status and status[0].isdigit() else 0, body)
