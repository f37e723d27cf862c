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
from portico.domain import VERSION
from portico.domain.call import Caller

from . import operators_and_monitoring as operators
from . import tier_routes as tools
from .errors import DOCUMENT, add_error_handlers, error_response

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
    """Say what is served here, as HTML for browsers, which loads nothing, and as plain text for everybody else."""
    if "text/html" not in request.headers.get("accept", ""):
        lines = [f"  {path}\n      {said}" for path, said in PATHS.items()]
        return PlainTextResponse("\n".join([SAID, "", *lines, "", NEXT, ""]))
    rows = "".join(f"<dt><code>{escape(path)}</code></dt><dd>{escape(said)}</dd>" for path, said in PATHS.items())
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Portico</title></head>'
    body = f"<body><h1>Portico</h1><p>{escape(SAID)}</p><dl>{rows}</dl><p>{escape(NEXT)}</p></body></html>\n"
    return HTMLResponse(f"{head}{body}")


PATH_LIMIT = 8_192  # bytes of a path, and of a query; the longest names of a server and a tool together need less
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RestMiddleware:
    """Refuses what is too long, answers HEAD like GET, adds headers, and lets no error through as it is."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head, began = scope["method"] == "HEAD", False

        async def send_on(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        inner = {**scope, "method": "GET"} if is_head else scope
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
        is_too_long = len(path) > PATH_LIMIT or len(scope.get("query_string", b"")) > PATH_LIMIT
        try:
            await (_TOO_LONG if is_too_long else self.app)(inner, receive, send_on)
        except Exception:
            logger.exception("a request failed: %s %.200r", scope["method"], scope["path"])
            if began:
                raise  # the connection is all that is left to end
            await _FAILED(inner, receive, send_on)


_TOO_LONG = error_response(414, "too_long", f"the path and the query may have {PATH_LIMIT:,} bytes each", next=DOCUMENT)

_FAILED = error_response(500, "internal", "something went wrong here; the log of the gateway says what", next="")

REST = Caller(surface="rest")  # who asks over REST, as long as callers cannot say who they are


def build_api(application: Application, *, caller: Caller = REST, reload: operators.Reload | None = None) -> FastAPI:
    """The REST application; it runs no tool, clears the cache, and has the config read again by `reload`."""
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
    reports = operators.OperatorRoutes(application.admin, application.tier_answers, caller, reload)
    operators.add_routes(app, reports, operators.HealthRoutes(application))
    # For people, and no part of the API's document.
    app.add_route("/", start_page, methods=["GET"], include_in_schema=False)
    add_error_handlers(app, lambda spelling: application.gateway.view(caller).find(spelling))
    app.add_middleware(RestMiddleware)
    return app
