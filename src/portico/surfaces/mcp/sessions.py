"""Sessions of the handshake era, over all surfaces together: how many there are, whose they are, what they keep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Scope

from portico.domain.http import HttpLimits

from .refusals import Refusal
from .server import SurfaceServer

OPENING_BYTES = 64 * 1024
"""The body of a request that opens a session: an `initialize`."""
KEPT_BYTES = 4 * 1024
"""What a session keeps of the capabilities that its client declares."""
NAME_LENGTH = 200
_NAMED = ("name", "title", "version")
LARGE_OPENING = Refusal(
    status=413,
    code="too_large",
    message=f"a request that opens a session may have {OPENING_BYTES:,} bytes",
)
LARGE_CAPABILITIES = Refusal(
    status=413,
    code="too_large",
    message=f"the capabilities of a client may have {KEPT_BYTES:,} bytes as JSON",
)


@dataclass(slots=True)
class SessionRoom:
    """Room for a number of sessions; who needs a place when all are taken gets that of the one unused longest."""

    most: int
    _open: OrderedDict[str, BoundedSessions] = field(default_factory=OrderedDict)

    def touch(self, session: str) -> None:
        """Remember that a session is in use."""
        if session in self._open:
            self._open.move_to_end(session)

    def enter(self, session: str, manager: BoundedSessions) -> None:
        """Give a new session its place."""
        self._open[session] = manager

    def leave(self, session: str) -> None:
        """Take a place back."""
        self._open.pop(session, None)

    def make(self) -> bool:
        """Make room for one more; False when every session has a request under way or an open stream."""
        if len(self._open) < self.most:
            return True
        for session, manager in self._open.items():
            if manager.is_unused(session):
                manager.close_soon(session)
                return True
        return False


class BoundedSessions(StreamableHTTPSessionManager):
    """The SDK's sessions of one surface, in a room that all surfaces share."""

    def __init__(self, app: SurfaceServer, room: SessionRoom, limits: HttpLimits) -> None:
        super().__init__(
            app=app,
            # Host and Origin were checked before any body was read.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=limits.session_idle_s,
            max_request_body_size=limits.max_body,
            max_sessions=None,
        )
        self._room = room
        self.max_sessions = room.most  # what the SDK says in its refusal

    def is_of(self, session: str, scope: Scope) -> bool:
        """Whether an open session belongs to whoever sent this request."""
        transport = self._server_instances.get(session)
        if transport is None or transport.is_terminated:
            return False
        return self._session_owners.get(session) == principal_of(scope)

    def is_listening(self, session: str) -> bool:
        """Whether a session's event stream is open; also true of one that is gone, for which nobody needs to wait."""
        transport = self._server_instances.get(session)
        return transport is None or GET_STREAM_KEY in transport._request_streams

    def is_unused(self, session: str) -> bool:
        """Whether nobody waits for anything of a session."""
        transport = self._server_instances.get(session)
        return transport is None or not transport._requests_in_flight

    def close_soon(self, session: str) -> None:
        """Forget a session now; what it holds is let go in the background."""
        self._room.leave(session)
        self._session_owners.pop(session, None)
        transport = self._server_instances.pop(session, None)
        if transport is not None and self._task_group is not None:
            self._task_group.start_soon(_terminate, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        transport = super()._admit_session(requestor) if self._room.make() else None
        if transport is not None and transport.mcp_session_id is not None:
            self._room.enter(transport.mcp_session_id, self)
        return transport

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._room.leave(session_id)
        await super()._discard_session(session_id, transport)


async def _terminate(transport: StreamableHTTPServerTransport) -> None:
    with anyio.CancelScope(shield=True):
        await transport.terminate()


def principal_of(scope: Scope) -> AuthorizationContext | None:
    """Who sent a request, as the SDK tells those apart who open sessions; None without authentication."""
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


def opening(body: bytes) -> bytes | Refusal:
    """What is kept of the body that opens a session: the client's name, and capabilities of bounded size."""
    if len(body) > OPENING_BYTES:
        return LARGE_OPENING
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or message.get("method") != "initialize":
        return body
    capabilities = params.get("capabilities")
    if len(orjson.dumps(capabilities)) > KEPT_BYTES:
        return LARGE_CAPABILITIES
    kept = {key: params[key] for key in ("protocolVersion", "capabilities", "clientInfo") if key in params}
    if "clientInfo" in kept:
        kept["clientInfo"] = _named(kept["clientInfo"])
    return orjson.dumps({**message, "params": kept})


def _named(info: Any) -> Any:
    if not isinstance(info, Mapping):
        return info
    return {key: info[key][:NAME_LENGTH] if isinstance(info[key], str) else info[key] for key in _NAMED if key in info}
