"""Web pages of other sites that the config allows: what their browsers have to be told (CORS)."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Message, Send

METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
EXPOSED = b"Mcp-Session-Id, Retry-After"
ASKS = b"access-control-request-method"


def permission(headers: Mapping[bytes, bytes], origin: bytes) -> Response:
    """The answer to a browser that asks whether a page may send a request."""
    wanted = headers.get(b"access-control-request-headers", b"").decode("latin-1")
    allowed = {
        "access-control-allow-origin": origin.decode("latin-1"),
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": wanted or "Content-Type",
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    return Response(status_code=204, headers=allowed)


def readable_by(origin: bytes, send: Send) -> Send:
    """A sender whose answers the page of this origin may read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            told = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", EXPOSED),
                (b"vary", b"Origin"),
            ]
            message["headers"] = [*message.get("headers", ()), *told]
        await send(message)

    return sending
