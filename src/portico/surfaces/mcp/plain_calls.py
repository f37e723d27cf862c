"""Plain calls of the handshake era, answered at once.

The SDK answers every request of a session through an event stream with half a dozen tasks, because a server might send
progress or ask something on the way. Most calls need none of that: nobody asked for progress, the client cannot be
asked anything, and no log level was set. Those are answered here with one JSON body, for less than half the CPU time.
Everything else, and everything unusual, is the SDK's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import anyio
import mcp_types as types
import orjson
from anyio.lowlevel import checkpoint
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from .bodies import replayed
from .refusals import Refusal
from .server import HEARD, SurfaceServer
from .sessions import BoundedSessions, SessionRoom, opening

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
        if isinstance(kept, Refusal):
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
