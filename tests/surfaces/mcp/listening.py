"""A gateway that listens on a free port in this process, and clients that send bytes exactly as they are written."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.surfaces.rest.rest_app import Rest, open_rest

from portico.domain.server import HttpLimits, HttpSettings
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.http import build_app, serve
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.static import Static

ERA = "2025-11-25"
Wrap = Callable[[ASGIApp], ASGIApp]


@dataclass
class Reply:
    """What came back, or nothing when the connection was closed."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Listening:
    """A gateway and its port."""

    port: int
    rest: Rest
    servers: Mapping[str, SurfaceServer]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """One connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, raw: bytes) -> Reply:
        """One request as these bytes, on a connection of its own."""
        reader, writer = await self.connect()
        try:
            writer.write(raw)
            return await read_reply(reader)
        finally:
            writer.close()

    async def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One ordinary request."""
        given = {"Host": self.host, **(headers or {})}
        if body is not None:
            given["Content-Length"] = str(len(body))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return await self.send(head.encode() + b"\r\n" + (body or b""))

    async def rpc(self, method: str, params: Any = None, *, id: Any = 1, path: str = "/mcp", **headers: str) -> Reply:
        """One message of the handshake era; without an id it is a notification."""
        message = {"jsonrpc": "2.0", "method": method, **({"id": id} if id is not None else {})}
        body = json.dumps(message if params is None else {**message, "params": params}).encode()
        return await self.ask(path, method="POST", body=body, headers=mcp_headers(**headers))

    async def open_session(self, *, path: str = "/mcp", **headers: str) -> str:
        """A session that is ready for calls."""
        reply = await self.rpc("initialize", hello(), path=path, **headers)
        assert reply.status == 200, reply.body
        session = reply.headers["mcp-session-id"]
        done = await self.rpc("notifications/initialized", id=None, path=path, mcp_session_id=session, **headers)
        assert done.status == 202
        # A notification is taken up after it was answered; the next request is behind it.
        assert (await self.rpc("ping", path=path, mcp_session_id=session, **headers)).status == 200
        return session


def mcp_headers(**more: str) -> dict[str, str]:
    """What clients of the handshake era send beside a message."""
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": ERA,
        **given,
    }


def hello(**more: Any) -> dict[str, Any]:
    """The parameters of `initialize`."""
    return {"protocolVersion": ERA, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}, **more}


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """One answer; status 0 when the connection was closed without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return Reply(0)
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = await _chunks(reader) if headers.get("transfer-encoding") == "chunked" else b""
    return Reply(int(status.split()[1]), headers, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    return body


@asynccontextmanager
async def listening(
    settings: HttpSettings | None = None, *, wrap: Wrap | None = None, api: ASGIApp | None = None, **limits: Any
) -> AsyncIterator[Listening]:
    """A gateway with these limits while the block runs."""
    rest = open_rest()
    gateway = rest.application.gateway
    servers = {
        "discover": SurfaceServer(gateway, Discover(gateway), "1", rest.application.tier_answers),
        "static": SurfaceServer(gateway, Static(gateway), "1", rest.application.tier_answers),
    }
    found = settings or HttpSettings(limits=HttpLimits(**limits))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        app = build_app(servers, default="discover", port=port, api=api or rest.app, settings=found)
        ready, stops = anyio.Event(), []

        def on_ready(stop: Callable[[], None]) -> None:
            stops.append(stop)
            ready.set()

        async def run() -> None:
            await serve(wrap(app) if wrap else app, listener, on_ready=on_ready, limits=found.limits)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(10):
                await ready.wait()
            yield Listening(port, rest, servers)
            stops[0]()


class Counting:
    """An application behind the gateway's edge that only counts what reaches it."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
