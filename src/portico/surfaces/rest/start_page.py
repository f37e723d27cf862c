"""The page at `/`: what this is, where its endpoints are, and how to go on."""

from __future__ import annotations

from html import escape

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from portico.domain.version import VERSION

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
