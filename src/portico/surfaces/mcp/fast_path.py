"""Sessions of the handshake era, and their plain calls answered without the SDK."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio
import mcp_types as types
import orjson
from anyio.lowlevel import checkpoint
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from portico.domain.server import HttpLimits

from .http_limits import HttpRefusal, replayed
from .server import HEARD, SurfaceServer

OPENING_BYTES = 64 * 1024
"""The body of a request that opens a session: an `initialize`."""
KEPT_BYTES = 4 * 1024
"""What a session keeps of the capabilities that its client declares."""
NAME_LENGTH = 200
_NAMED = ("name", "title", "version")
LARGE_OPENING = HttpRefusal(
    status=413,
    code="too_large",
    message=f"a request that opens a session may have {OPENING_BYTES:,} bytes",
)
LARGE_CAPABILITIES = HttpRefusal(
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


def opening(body: bytes) -> bytes | HttpRefusal:
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


OK = 200
SDK_EVERY_SECONDS = 60.0
"""How often a session's call goes to the SDK all the same, which closes sessions that it does not hear from."""


@dataclass(slots=True)
class PlainCalls:
    """An endpoint that takes plain calls itself and leaves the rest to the SDK's."""

    manager: BoundedSessions
    server: SurfaceServer
    room: SessionRoom
    _in_flight: dict[tuple[str, Any], anyio.CancelScope] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; its body was read within bounds before it came here."""
        headers = Headers(raw=scope["headers"])
        session = headers.get("mcp-session-id", "")
        if session and not self.manager.is_of(session, scope):
            session = ""  # as if there were none: the SDK answers those who name a session that is not theirs
        self.room.touch(session)
        connection = self.server.sessions.get(session)
        if scope["method"] == "GET" and connection is not None:
            await self._listen(session, connection, scope, receive, send)
        elif scope["method"] != "POST":
            await self.manager.asgi_app(scope, receive, send)
        elif connection is not None and _is_simple(headers):
            await self._take(session, connection, scope, receive, send)
        else:
            await self._open(headers, scope, receive, send)

    async def _take(self, session: str, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ordinary message of an open session, or let the SDK do it."""
        body = (await receive()).get("body", b"")
        message = _parsed(body)
        if self._cancels(session, message):
            await Response(status_code=202)(scope, receive, send)
        elif self._is_plain(message, connection):
            await self._answer(session, message, scope, receive, send)
        else:
            connection.state[HEARD] = monotonic()
            await self._pass(body, message.get("method") == "initialize", scope, receive, send)

    async def _listen(self, session: str, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        """Open a session's event stream, and tell its client first what changed while it was not listening."""

        async def sending(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == OK:
                tasks.start_soon(self._catch_up, session, connection)

        async with anyio.create_task_group() as tasks:
            await self.manager.asgi_app(scope, receive, sending)
            tasks.cancel_scope.cancel()

    async def _catch_up(self, session: str, connection: Connection) -> None:
        while not self.manager.is_listening(session):
            await checkpoint()
        await self.server.catch_up(connection)

    async def _open(self, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer everything unusual; what may open a session is bounded first."""
        if headers.get("mcp-protocol-version", "") in MODERN_PROTOCOL_VERSIONS:
            await self.manager.asgi_app(scope, receive, send)  # which opens none
            return
        body = (await receive()).get("body", b"")
        may_open = "mcp-session-id" not in headers or _parsed(body).get("method") == "initialize"
        await self._pass(body, may_open, scope, receive, send)

    async def _pass(self, body: bytes, may_open: bool, scope: Scope, receive: Receive, send: Send) -> None:
        kept = opening(body) if may_open else body
        if isinstance(kept, HttpRefusal):
            await kept.response(scope["path"])(scope, receive, send)
            return
        if kept is not body:
            scope["headers"] = [
                (name, b"%d" % len(kept)) if name == b"content-length" else (name, value)
                for name, value in scope["headers"]
            ]
        await self.manager.asgi_app(scope, replayed(kept, receive), send)

    async def _answer(
        self, session: str, message: Mapping[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        id = message["id"]
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        with anyio.CancelScope() as cancelling:
            self._in_flight[session, id] = cancelling
            try:
                answer |= await self._outcome(session, message["params"], receive, cancelling)
            finally:
                self._in_flight.pop((session, id), None)
        if cancelling.cancelled_caught:
            answer["error"] = {"code": types.REQUEST_TIMEOUT, "message": "the client cancelled this request"}
        headers = {"mcp-session-id": session}
        await Response(_dumped(answer), media_type="application/json", headers=headers)(scope, receive, send)

    async def _outcome(
        self, session: str, params: Mapping[str, Any], receive: Receive, cancelling: anyio.CancelScope
    ) -> dict[str, Any]:
        """The result or the error of one call; a script ends with its client, other calls are not worth a task more."""
        if not self.server.runs_script(params["name"]):
            return await self._called(session, params)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, receive, cancelling)
            outcome = await self._called(session, params)
            tasks.cancel_scope.cancel()
        return outcome

    async def _called(self, session: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"result": await self.server.plain_call(params, session)}
        except MCPError as error:
            return {"error": error.error.model_dump(exclude_none=True)}

    def _is_plain(self, message: Mapping[str, Any], connection: Connection) -> bool:
        """Whether nothing but the result can come of this call, and the SDK has heard of the session lately."""
        params = message.get("params")
        if message.get("method") != "tools/call" or not isinstance(params, dict):
            return False
        meta = params.get("_meta")
        wants_progress = isinstance(meta, dict) and "progressToken" in meta
        is_well_formed = isinstance(message.get("id"), int | str) and isinstance(params.get("name"), str)
        is_recent = monotonic() - connection.state[HEARD] < SDK_EVERY_SECONDS
        if not is_well_formed or not is_recent:
            return False
        is_script = self.server.runs_script(params["name"])  # whose tools reach no client, whatever they would tell it
        return is_script or not (wants_progress or self.server.may_interrupt(connection))

    def _cancels(self, session: str, message: Mapping[str, Any]) -> bool:
        """Cancel the call that a notification names, if it is one of ours."""
        params = message.get("params")
        if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
            return False
        id = params.get("requestId")
        call = self._in_flight.get((session, id)) if isinstance(id, int | str) else None
        if call is not None:
            call.cancel()
        return call is not None


async def _watch(receive: Receive, cancelling: anyio.CancelScope) -> None:
    """Cancel a call whose client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancelling.cancel()


def _is_simple(headers: Headers) -> bool:
    """Whether the headers are those of an ordinary message, so that all checks of the SDK would pass."""
    return (
        headers.get("content-type", "").startswith("application/json")
        and "application/json" in headers.get("accept", "")
        and "text/event-stream" in headers.get("accept", "")
        and headers.get("mcp-protocol-version", "") in HANDSHAKE_PROTOCOL_VERSIONS
    )


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else {}


def _dumped(answer: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(answer)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(answer).encode()
