"""Real HTTP servers: the SDK's, and one that misbehaves by script."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from aiohttp import web
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route


def free_socket(port: int = 0) -> socket.socket:
    """A socket that already queues connections, so that nobody has to wait for a server."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    found.listen(128)
    return found


@dataclass
class SdkServer:
    """A server of the MCP SDK, with events for what happens inside it."""

    started: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: int = 0
    port: int = 0
    _server: uvicorn.Server | None = None
    _task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, *, json_response: bool = True, sse: bool = False) -> SdkServer:
        sock = free_socket(self.port)
        self.port = sock.getsockname()[1]
        app = self._sse_app() if sse else self.sdk().streamable_http_app(json_response=json_response)
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none")
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        return self

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
            self._server = None

    def sdk(self) -> Server[Any]:
        return Server(
            "sdk",
            version="3.1",
            title="The SDK",
            instructions="be kind",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    def _sse_app(self) -> Starlette:
        transport, server = SseServerTransport("/messages/"), self.sdk()

        async def stream(request: Request) -> Response:
            options = server.create_initialization_options(NotificationOptions(tools_changed=True))
            async with transport.connect_sse(request.scope, request.receive, request._send) as (reading, writing):
                await server.run(reading, writing, options)
            return Response()

        return Starlette(routes=[Route("/sse", stream), Mount("/messages/", transport.handle_post_message)])

    async def _list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        mirrored = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        plain = {"type": "object"}
        names = {"mirror": mirrored, "echo": plain, "progress": plain, "hang": plain, "change": plain, "rich": plain}
        return types.ListToolsResult(tools=[types.Tool(name=n, input_schema=s) for n, s in names.items()])

    async def _call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls += 1
        request = getattr(ctx, "request", None)
        self.headers.append(dict(request.headers) if request is not None else {})
        arguments = params.arguments or {}
        if params.name == "progress":
            for step in range(arguments["steps"]):
                await ctx.session.report_progress(step + 1, arguments["steps"], f"step {step + 1}")
                await anyio.sleep(arguments.get("gap", 0))
        elif params.name == "hang":
            await self._hang()
        elif params.name == "change":
            await self.bus.publish(ToolsListChanged())
            await ctx.session.send_tool_list_changed()
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(arguments.get("text", "done")))])

    async def _hang(self) -> None:
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RawServer:
    """An aiohttp server that answers MCP as a test tells it to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any, dict[str, str]]] = []
        self.on: dict[str, Handler] = {}
        self.session: str | None = "s-1"
        self.version = "2025-11-25"
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        return [name for name, _, _ in self.requests]

    async def start(self) -> RawServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        sock = free_socket(self.port)
        self.port = sock.getsockname()[1]
        self._site = web.SockSite(self._runner, sock)
        await self._site.start()
        return self

    def stop_listening(self) -> None:
        """Refuse new connections, and serve the old ones."""
        assert self._site is not None
        assert self._site._server is not None
        self._site._server.close()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" and request.can_read_body else {}
        name = body.get("method", "reply") if request.method == "POST" else request.method
        self.requests.append((name, body, dict(request.headers)))
        request["body"] = body
        handler = self.on.get(name) or self.on.get("*")
        return await (handler or self._default)(request)

    async def _default(self, request: web.Request) -> web.StreamResponse:
        body = request["body"]
        method = body.get("method", "")
        if request.method != "POST" or method == "server/discover":
            return web.Response(status=405)
        if "id" not in body or "method" not in body:
            return web.Response(status=202)
        if method == "initialize":
            result = {"protocolVersion": self.version, "capabilities": {"tools": {}}, "serverInfo": {"name": "raw"}}
            return answer(request, result, headers={"Mcp-Session-Id": self.session} if self.session else {})
        if self.session and request.headers.get("Mcp-Session-Id") != self.session:
            return web.Response(status=404)
        return answer(request, {"tools": []} if method == "tools/list" else {"ok": body.get("params")})


def answer(request: web.Request, result: Any, **more: Any) -> web.Response:
    """The JSON-RPC answer to a request."""
    return web.json_response({"jsonrpc": "2.0", "id": request["body"].get("id"), "result": result}, **more)
