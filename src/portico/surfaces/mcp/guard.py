"""Keeps web pages away from what is served beside MCP, by the same rule as the MCP paths."""

from __future__ import annotations

from dataclasses import dataclass

from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(slots=True)
class Guarded:
    """Answers only requests that name this very endpoint, so that no web page can reach it by rebinding."""

    app: ASGIApp
    security: TransportSecuritySettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self.app
        if scope["type"] == "http":
            refused = await TransportSecurityMiddleware(self.security).validate_request(Request(scope))
            app = self._refusal(refused) if refused else app
        await app(scope, receive, send)

    def _refusal(self, refused: Response) -> Response:
        """The SDK's refusal in the shape of all other errors."""
        said = bytes(refused.body).decode()
        hosts = ", ".join(self.security.allowed_hosts)
        error = {"code": "refused", "message": said, "details": [f"this endpoint is called: {hosts}"], "next": ""}
        headers = {"x-content-type-options": "nosniff"}
        return JSONResponse({"error": error}, status_code=refused.status_code, headers=headers)
