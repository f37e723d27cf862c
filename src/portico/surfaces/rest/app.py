"""The REST application: every route, its middleware, the start page, and the OpenAPI document."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from html import escape

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.application import Application
from portico.domain.call import Caller
from portico.domain.version import VERSION

from . import errors as faults
from . import monitoring as health
from . import operators, tools
from .errors import DOCUMENT, fault, internal
from .monitoring import registry_of

SAID = (
    f"Portico {VERSION}: an MCP gateway. It stands in front of many MCP servers, databases and functions, and lets an"
    " agent find and call their tools through a few of its own."
)
PATHS = {
    "/mcp": "MCP, streamable HTTP, every protocol revision: give this address to a client",
    "/mcp/discover, /mcp/static, /mcp/search, /mcp/capabilities, /mcp/gateway": "MCP, one path for each surface",
    "/api/v1/tools/hot": "REST: the tools that are used most; each answer says what to ask next",
    "/api/v1/servers": "REST: how each server is doing",
    "/openapi.json": "every REST route, as an OpenAPI document",
    "/livez, /readyz, /metrics": "for those who watch it",
}
NEXT = (
    "To connect a client: portico install CLIENT --via http. All commands: portico --help."
    " The documentation is in the folder docs of the project: begin with README.md and docs/reference/surfaces.md."
)


async def start_page(request: Request) -> Response:
    """Say what is served here, as HTML for browsers and as plain text for everybody else."""
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(as_html())
    return PlainTextResponse(as_text())


def as_text() -> str:
    """The page as lines."""
    lines = [f"  {path}\n      {said}" for path, said in PATHS.items()]
    return "\n".join([SAID, "", *lines, "", NEXT, ""])


def as_html() -> str:
    """The page for a browser; it loads nothing."""
    rows = "".join(f"<dt><code>{escape(path)}</code></dt><dd>{escape(said)}</dd>" for path, said in PATHS.items())
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Portico</title></head>'
    return f"{head}<body><h1>Portico</h1><p>{escape(SAID)}</p><dl>{rows}</dl><p>{escape(NEXT)}</p></body></html>\n"


def add_start_page(app: FastAPI) -> None:
    """The page; it is for people, and no part of the API's document."""
    app.add_route("/", start_page, methods=["GET"], include_in_schema=False)


PATH_LIMIT = 8_192
"""Bytes of a path, and of a query; the longest names of a server and a tool together need less."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Edge:
    """Refuses what is too long, answers HEAD like GET, and lets no error through as it is."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sending = _Sending(send, is_head=scope["method"] == "HEAD")
        inner = {**scope, "method": "GET"} if sending.is_head else scope
        app = fault_too_long if _is_too_long(scope) else self.app
        try:
            await app(inner, receive, sending)
        except Exception:
            logger.exception("a request failed: %s %.200r", scope["method"], scope["path"])
            if sending.began:
                raise  # the connection is all that is left to end
            await internal()(inner, receive, sending)


@dataclass(slots=True)
class _Sending:
    """Adds our headers, and leaves the body out where only the head was asked for."""

    send: Send
    is_head: bool
    began: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        elif self.is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self.send(message)


async def fault_too_long(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose path or query nobody can mean."""
    said = f"the path and the query may have {PATH_LIMIT:,} bytes each"
    await fault(414, "too_long", said, next=DOCUMENT)(scope, receive, send)


def _is_too_long(scope: Scope) -> bool:
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return len(path) > PATH_LIMIT or len(scope.get("query_string", b"")) > PATH_LIMIT


REST = Caller(surface="rest")
"""Who asks over REST, as long as callers cannot say who they are."""


def build_api(application: Application, *, caller: Caller = REST) -> FastAPI:
    """The REST application; it runs no tool, and all that it changes is the cache, which it may clear."""
    app = FastAPI(
        title="Portico",
        version=VERSION,
        summary="The catalog of tools, disclosed step by step.",
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    # Straight to the application: routers that are included are made ready by the first request, which then waits.
    tools.add_routes(app, tools.ToolRoutes(application.tier_answers, caller))
    operators.add_routes(app, operators.OperatorRoutes(application.admin, application.tier_answers, caller))
    health.add_routes(app, health.HealthRoutes(application, registry_of(application)))
    add_start_page(app)
    faults.install(app, lambda spelling: application.gateway.find(caller, spelling))
    app.add_middleware(Edge)
    return app
