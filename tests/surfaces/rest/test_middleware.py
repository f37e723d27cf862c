"""The door to REST is the door to MCP: no web page comes in by another name, and MCP does not pass through here."""

from __future__ import annotations

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.surfaces.discover import Discover
from portico.surfaces.mcp.http import build_app
from portico.surfaces.mcp.server import SurfaceServer
from tests.surfaces.rest.rest_app import TOOLS, open_rest, send

PATHS = (
    f"{TOOLS}/hot",
    f"{TOOLS}/a/b",
    "/api/v1/servers",
    "/metrics",
    "/openapi.json",
    "/livez",
    "/readyz",
    "/nothing",
)


def door(api: ASGIApp | None = None) -> ASGIApp:
    rest = open_rest()
    server = SurfaceServer(
        rest.application.gateway, Discover(rest.application.gateway), "1", rest.application.tier_answers
    )
    return build_app({"discover": server}, default="discover", port=8421, api=api or rest.app)


@pytest.mark.requirement("P-DOOR-ORIGIN", "T01")
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("host", "evil.example", 421),
        ("host", "127.0.0.1:1", 421),
        ("host", "", 421),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://127.0.0.1.evil.example:8421", 403),
    ],
)
async def test_a_web_page_cannot_read_the_api(header: str, value: str, status: int):
    app = door()
    for path in PATHS:
        answer = await send(app, path, **{header: value})
        assert (answer.status, answer.error["code"]) == (status, "refused")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_those_who_name_this_endpoint_are_answered():
    app = door()
    for host in ("127.0.0.1:8421", "localhost:8421", "[::1]:8421"):
        assert (await send(app, f"{TOOLS}/hot", host=host)).status == 200
        assert (await send(app, f"{TOOLS}/hot", host=host, origin=f"http://{host}")).status == 200


async def test_mcp_does_not_pass_through_rest():
    reached = []

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])

    app = door(api)
    for path in ("/mcp", "/mcp/", "/mcp/discover", "/mcp/discover/"):
        with pytest.raises(RuntimeError, match="Task group is not initialized"):
            await send(app, path, method="POST")
    assert reached == []
