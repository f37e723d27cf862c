"""All surfaces over HTTP: paths, sessions of the handshake era, and their plain calls answered without the SDK."""

from __future__ import annotations

import json
import signal
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from types import FrameType
from typing import Any

import anyio
import mcp_types as types
import orjson
import uvicorn
from anyio.lowlevel import checkpoint
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.domain.server import HttpLimits, HttpSettings

from .http_checks import BoundedBodies, HostCheck, HttpRefusal, OpenRequests, connection_class, replay
from .server import SurfaceServer

SETTLING_STEPS, SETTLING_SECONDS = 5, 0.01
OPENING_BYTES = 64 * 1024
"""The body of a request that opens a session: an `initialize`."""
KEPT_BYTES = 4 * 1024
"""The most that a session keeps of the capabilities that its client declares."""
NAME_LENGTH = 200
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
class OpenSessions:
    """The open sessions of all surfaces, at most so many; a new one takes the place of the one unused longest."""

    most: int
    by_use: OrderedDict[str, BoundedSessions] = field(default_factory=OrderedDict)
    """The session unused longest comes first."""

    async def let_answers_end(self) -> None:
        """Wait a moment where no session could give way: one whose client has just got its answer soon can."""
        for _ in range(SETTLING_STEPS):
            if len(self.by_use) < self.most or any(manager.is_unused(one) for one, manager in self.by_use.items()):
                return
            await anyio.sleep(SETTLING_SECONDS)

    def make_room(self) -> bool:
        """Make room for one more; False when every session has a request under way or an open stream."""
        if len(self.by_use) < self.most:
            return True
        for session, manager in self.by_use.items():
            if manager.is_unused(session):
                manager.close_soon(session)
                return True
        return False


class BoundedSessions(StreamableHTTPSessionManager):
    """The SDK's sessions of one surface, among the open ones of all surfaces."""

    def __init__(self, app: SurfaceServer, sessions: OpenSessions, limits: HttpLimits) -> None:
        super().__init__(
            app=app,
            # Host and Origin were checked before any body was read.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=limits.session_idle_s,
            max_request_body_size=limits.max_body,
            max_sessions=None,
        )
        self._sessions, self._idle_s = sessions, limits.session_idle_s
        self.max_sessions = sessions.most  # what the SDK says in its refusal
        app.is_listening = self.is_listening

    def is_of(self, session: str, scope: Scope) -> bool:
        """Whether an open session belongs to whoever sent this request."""
        transport = self._server_instances.get(session)
        if transport is None or transport.is_terminated:
            return False
        user = scope.get("user")
        owner = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        return self._session_owners.get(session) == owner

    def is_listening(self, session: str) -> bool:
        """Whether a session's event stream is open; also true of one that is gone, for which nobody needs to wait."""
        transport = self._server_instances.get(session)
        return transport is None or GET_STREAM_KEY in transport._request_streams

    def is_unused(self, session: str) -> bool:
        """Whether nobody waits for anything of a session."""
        transport = self._server_instances.get(session)
        return transport is None or not transport._requests_in_flight

    @contextmanager
    def in_use(self, session: str) -> Iterator[None]:
        """Keep a session open during a call that the SDK does not see, and count its idle time from the end of it."""
        transport = self._server_instances.get(session)
        if transport is None or (idle := transport.idle_scope) is None or idle.cancel_called:
            yield
            return
        transport._requests_in_flight += 1
        idle.deadline = inf
        try:
            yield
        finally:
            transport._requests_in_flight -= 1
            if not transport._requests_in_flight:
                idle.deadline = anyio.current_time() + self._idle_s

    def close_soon(self, session: str) -> None:
        """Forget a session now; what it holds is let go in the background."""
        self._sessions.by_use.pop(session, None)
        self._session_owners.pop(session, None)
        transport = self._server_instances.pop(session, None)
        if transport is not None and self._task_group is not None:
            self._task_group.start_soon(_terminate, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        transport = super()._admit_session(requestor) if self._sessions.make_room() else None
        if transport is not None and transport.mcp_session_id is not None:
            self._sessions.by_use[transport.mcp_session_id] = self
        return transport

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._sessions.by_use.pop(session_id, None)
        await super()._discard_session(session_id, transport)


async def _terminate(transport: StreamableHTTPServerTransport) -> None:
    with anyio.CancelScope(shield=True):
        await transport.terminate()


def bounded_opening(body: bytes) -> bytes | HttpRefusal:
    """The kept part of the body that opens a session: the client's name, and capabilities of bounded size."""
    if len(body) > OPENING_BYTES:
        return LARGE_OPENING
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or message.get("method") != "initialize":
        return body
    if len(orjson.dumps(params.get("capabilities"))) > KEPT_BYTES:
        return LARGE_CAPABILITIES
    kept = {key: params[key] for key in ("protocolVersion", "capabilities", "clientInfo") if key in params}
    if isinstance(info := kept.get("clientInfo"), dict):
        named = {key: info[key] for key in ("name", "title", "version") if key in info}
        kept["clientInfo"] = {k: v[:NAME_LENGTH] if isinstance(v, str) else v for k, v in named.items()}
    return orjson.dumps({**message, "params": kept})


@dataclass(slots=True)
class SurfaceEndpoint:
    """The endpoint of one surface: answers plain calls itself and leaves the rest to the SDK."""

    manager: BoundedSessions
    server: SurfaceServer
    sessions: OpenSessions
    _in_flight: dict[tuple[str, Any], anyio.CancelScope] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; its body was read within bounds before it came here."""
        headers = Headers(raw=scope["headers"])
        session = headers.get("mcp-session-id", "")
        if session and not self.manager.is_of(session, scope):
            session = ""  # as if there were none: the SDK answers those who name a session that is not theirs
        if session in self.sessions.by_use:
            self.sessions.by_use.move_to_end(session)
        connection = self.server.sessions.get(session)
        if scope["method"] == "GET" and connection is not None:
            await self._listen(session, connection, scope, receive, send)
        elif scope["method"] != "POST" or headers.get("mcp-protocol-version", "") in MODERN_PROTOCOL_VERSIONS:
            await self.manager.asgi_app(scope, receive, send)  # which opens no session
        else:
            await self._take_message(session, connection, headers, scope, receive, send)

    async def _take_message(
        self,
        session: str,
        connection: Connection | None,
        headers: Headers,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer an ordinary message of an open session, or let the SDK do it."""
        body = (await receive()).get("body", b"")
        if connection is None or not _is_simple(headers):
            may_open = "mcp-session-id" not in headers or _parse(body).get("method") == "initialize"
            await self._pass_to_sdk(body, may_open, scope, receive, send)
            return
        message = _parse(body)
        if self._cancels(session, message):
            await Response(status_code=202)(scope, receive, send)
        elif self._is_plain(message, connection):
            with self.manager.in_use(session):
                await self._answer(session, message, scope, receive, send)
        else:
            await self._pass_to_sdk(body, message.get("method") == "initialize", scope, receive, send)

    async def _listen(self, session: str, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        """Open a session's event stream, and tell its client first what changed while it was not listening."""

        async def catch_up() -> None:
            while not self.manager.is_listening(session):
                await checkpoint()
            await self.server.catch_up(connection)

        async def sending(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200:
                tasks.start_soon(catch_up)

        async with anyio.create_task_group() as tasks:
            await self.manager.asgi_app(scope, receive, sending)
            tasks.cancel_scope.cancel()

    async def _pass_to_sdk(self, body: bytes, may_open: bool, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer what is unusual; what may open a session is bounded first."""
        kept = bounded_opening(body) if may_open else body
        if isinstance(kept, HttpRefusal):
            await kept.response(scope["path"])(scope, receive, send)
            return
        if may_open:
            await self.sessions.let_answers_end()
        if kept is not body:
            scope["headers"] = [
                (name, b"%d" % len(kept)) if name == b"content-length" else (name, value)
                for name, value in scope["headers"]
            ]
        await self.manager.asgi_app(scope, replay(kept, receive), send)

    async def _answer(
        self, session: str, message: Mapping[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        id, params = message["id"], message["params"]
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        with anyio.CancelScope() as cancelling:
            self._in_flight[session, id] = cancelling
            try:
                # A script ends with its client; other calls are not worth a task more.
                if not self.server.runs_script(params["name"]):
                    answer |= await self._call(session, params)
                else:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_cancel_when_gone, receive, cancelling)
                        answer |= await self._call(session, params)
                        tasks.cancel_scope.cancel()
            finally:
                self._in_flight.pop((session, id), None)
        if cancelling.cancelled_caught:
            answer["error"] = {"code": types.REQUEST_TIMEOUT, "message": "the client cancelled this request"}
        try:
            body = orjson.dumps(answer)
        except TypeError:  # integers beyond 64 bits
            body = json.dumps(answer).encode()
        headers = {"mcp-session-id": session}
        await Response(body, media_type="application/json", headers=headers)(scope, receive, send)

    async def _call(self, session: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"result": await self.server.plain_call(params, session)}
        except MCPError as error:
            return {"error": error.error.model_dump(exclude_none=True)}

    def _is_plain(self, message: Mapping[str, Any], connection: Connection) -> bool:
        """Whether nothing but the result can come of this call."""
        params = message.get("params")
        if message.get("method") != "tools/call" or not isinstance(params, dict):
            return False
        meta = params.get("_meta")
        wants_progress = isinstance(meta, dict) and "progressToken" in meta
        is_well_formed = isinstance(message.get("id"), int | str) and isinstance(params.get("name"), str)
        if not is_well_formed:
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


async def _cancel_when_gone(receive: Receive, cancelling: anyio.CancelScope) -> None:
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


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else {}


STREAM_SECONDS = 2
"""What event streams, and calls that were not done in time, get to go away by themselves."""
LOOK_SECONDS = 0.02


def build_app(
    servers: Mapping[str, SurfaceServer],
    *,
    default: str,
    port: int,
    api: ASGIApp,
    settings: HttpSettings | None = None,
    requests: OpenRequests | None = None,
) -> ASGIApp:
    """The web application: one endpoint per surface, the default one at `/mcp`, and everything else from `api`.

    Names are checked first, then the body is read within bounds, then a path is looked up. The MCP paths come first and
    pass nothing of REST: a call must not pay for it.
    """
    found = settings or HttpSettings()
    sessions = OpenSessions(found.limits.sessions)
    managers = {name: BoundedSessions(server, sessions, found.limits) for name, server in servers.items()}
    endpoints = {name: SurfaceEndpoint(manager, servers[name], sessions) for name, manager in managers.items()}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    paths = {"/mcp": endpoints[default], **{f"/mcp/{name}": endpoint for name, endpoint in endpoints.items()}}
    paths |= {f"{path}/": endpoint for path, endpoint in paths.items()}
    rest = Starlette(lifespan=lifespan)
    # A mount at `/` would not match a path with a line break in it, and answer in another shape than the rest.
    rest.router.default = api

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        # A router with its middleware would cost a call 5 % more.
        await paths.get(scope.get("path", ""), rest)(scope, receive, send)

    return HostCheck(BoundedBodies(dispatch, found.limits, requests or OpenRequests()), found, port)


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_ready: Callable[[Callable[[], None]], None],
    limits: HttpLimits | None = None,
    requests: OpenRequests | None = None,
) -> None:
    """Serve until a signal comes; open requests get some seconds to finish. `on_ready` is given the way to stop."""
    bounds = limits or HttpLimits()
    config = uvicorn.Config(
        app,
        http=connection_class(bounds),
        ws="none",
        lifespan="on",
        log_config=None,  # the program that serves says how records are written
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # anybody could say that a request comes from somewhere else
        timeout_keep_alive=max(1, round(bounds.keep_alive_s)),
        timeout_graceful_shutdown=STREAM_SECONDS,
        server_header=False,
    )
    await _Server(config, on_ready, requests or OpenRequests(), bounds.drain_s).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that says when it can be reached, and ends in two steps: first what is asked, then who listens."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[Callable[[], None]], None],
        requests: OpenRequests,
        drain_s: float,
    ) -> None:
        super().__init__(config)
        self._on_ready, self._requests, self._drain_s = on_ready, requests, drain_s
        self._is_asked_to_stop = False

    def ask_to_stop(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop with the first signal, and end at once with the second."""
        if self._is_asked_to_stop:
            end_by(sig)
        self._is_asked_to_stop = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop now: once what was asked before has its answer, or has had its time."""
        if self._is_asked_to_stop and not self.should_exit:
            await self._drain()
            self.should_exit = True  # not before: event streams end with it, answers that are streamed among them
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        for server in self.servers:
            server.close()
        self._requests.is_ending = True
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with anyio.move_on_after(self._drain_s):
            while self._requests.at_once[0]:  # noqa: ASYNC110  every request would have to tell us
                await anyio.sleep(LOOK_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal and then let our caller close the application; uvicorn's own would end the process here."""
        before = {number: signal.signal(number, self.ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(lambda: setattr(self, "_is_asked_to_stop", True))


def end_by(sig: int) -> None:
    """End this process by a signal at once; what it has started is ended by its supervisor."""
    signal.signal(sig, signal.SIG_DFL)
    signal.raise_signal(sig)
