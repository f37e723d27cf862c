"""The `_meta` of a request, questions to its client while it is worked on, and log messages."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.methods import parse_server_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from .surface import Envelope, JsonObject, own_meta

Context = ServerRequestContext[Any, Any]
NAME_LENGTH = 100
_ASKABLE = ("elicitation", "sampling", "roots")


def connection_of(ctx: Context) -> Connection:
    """The connection behind a request; the SDK has no public way to it yet."""
    return ctx.session._connection


def is_modern(ctx: Context) -> bool:
    """Whether the request is of the era in which each one carries its own envelope."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def client_of(ctx: Context, params: JsonObject) -> str:
    """Which of several clients asks: the session where there is one, else the address and what the client calls itself.

    Over stdio there is one client, which needs no name.
    """
    if session := connection_of(ctx).session_id:
        return session
    address = ctx.request.scope.get("client") if ctx.request is not None else None
    if address is None:
        return ""
    meta = params.get("_meta")
    info = meta.get(types.CLIENT_INFO_META_KEY) if isinstance(meta, Mapping) else None
    if not isinstance(info, Mapping):
        return str(address[0])
    return f"{address[0]} {str(info.get('name', ''))[:NAME_LENGTH]} {str(info.get('version', ''))[:NAME_LENGTH]}"


def is_client(connection: Connection, client: str) -> bool:
    """Whether a connection of the handshake era is that client's, as `client_of` names it."""
    return (connection.session_id or "") == client


def envelope_of(ctx: Context, params: JsonObject) -> Envelope:
    """The caller's own `_meta`, progress, what it can be asked, and its answers to what it was asked."""
    meta = params.get("_meta")
    given: JsonObject = meta if isinstance(meta, Mapping) else {}
    own = own_meta(given)
    if is_modern(ctx):
        declared = given.get(types.CLIENT_CAPABILITIES_META_KEY)
        askable = {key: declared[key] for key in _ASKABLE if key in declared} if isinstance(declared, Mapping) else {}
    else:
        askable = askable_of(ctx.session.client_capabilities)
    if askable:  # what a server behind us may use to ask this client something; nothing else is told
        own[types.CLIENT_CAPABILITIES_META_KEY] = askable
    answers = {key: params[key] for key in ("inputResponses", "requestState") if params.get(key) is not None}
    return Envelope(
        meta=own,
        on_progress=ctx.session.report_progress if given.get("progressToken") is not None else None,
        answers=answers or None,
    )


def askable_of(capabilities: types.ClientCapabilities | None) -> dict[str, Any]:
    """The questions that a client of the handshake era said it can be asked."""
    declared = capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities else {}
    return {key: declared[key] for key in _ASKABLE if key in declared}


ROUNDS = 8
"""The most times that one call may ask; a server that never has enough must not hold a client for ever."""
WAITING = "portico-call-"
"""The beginning of the state of a call that waits at a server of the handshake era."""


class _Answer(BaseModel):
    """Whatever the client answers, as it is."""

    model_config = ConfigDict(extra="allow")


async def until_complete(
    ctx: Context, result: JsonObject, again: Callable[[JsonObject], Awaitable[JsonObject]]
) -> JsonObject:
    """The final result; `again` repeats the request with the client's answers."""
    for _ in range(ROUNDS):
        if result.get("resultType") != "input_required" or is_modern(ctx):
            return result
        state, requests = result.get("requestState"), result.get("inputRequests")
        given = {}
        for key, request in requests.items() if isinstance(requests, Mapping) else ():
            try:
                given[key] = await _ask(ctx, request)
            except MCPError as error:
                # A server that waits for a reply gets the client's error as that reply.
                if not isinstance(state, str) or not state.startswith(WAITING):
                    raise
                given[key] = {"error": error.error.model_dump(exclude_none=True)}
        result = await again({"inputResponses": given, **({"requestState": state} if state is not None else {})})
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for more input after {ROUNDS} rounds")


async def ask_beside_calls(connection: Connection, request: JsonObject) -> JsonObject:
    """Ask a client of the handshake era what belongs to none of its calls; its answer, or the error of a refusal."""
    method, params = str(request.get("method")), request.get("params")
    declared = askable_of(connection.client_capabilities).get(method.partition("/")[0])
    mode = params.get("mode", "form") if isinstance(params, Mapping) and method.startswith("elicit") else None
    try:
        if declared is None or (mode is not None and mode not in (declared or ("form",))):
            raise MCPError(types.METHOD_NOT_FOUND, f"the client does not support {method}")
        typed = _parse_question(request, connection.protocol_version)
        answer = await connection.send_request(typed, result_type=_Answer)
    except MCPError as error:
        return {"error": error.error.model_dump(exclude_none=True)}
    return dict(answer.model_dump(by_alias=True))


def _parse_question(request: object, version: str) -> Any:
    """A server's question as the SDK sends it."""
    if not isinstance(request, Mapping) or not isinstance(request.get("method"), str):
        raise MCPError(types.INTERNAL_ERROR, "the server asked for input in a way that is not MCP's")
    method = request["method"]
    try:
        return parse_server_request(method, version, request.get("params"))
    except (KeyError, ValueError, ValidationError) as error:
        raise MCPError(types.INTERNAL_ERROR, f"this client cannot be asked {method!r}") from error


async def _ask(ctx: Context, request: object) -> dict[str, Any]:
    typed = _parse_question(request, ctx.protocol_version)
    route = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(typed, _Answer, metadata=route)
    return answer.model_dump(by_alias=True)


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(slots=True)
class Logs:
    """Knows who wants messages, and passes them on."""

    running: Mapping[str, int]
    """The number of calls that each server is at work on."""
    levels: weakref.WeakKeyDictionary[Connection, str] = field(default_factory=weakref.WeakKeyDictionary)
    """The level that each client of the handshake era asked for."""
    _listening: list[tuple[str, str, Context]] = field(default_factory=list)
    """Requests that want messages, each with the server that it calls and its client."""

    async def set_level(self, ctx: Context, params: JsonObject) -> JsonObject:
        """A client of the handshake era says which messages it wants."""
        level = params.get("level")
        if level not in LEVELS:
            raise MCPError(types.INVALID_PARAMS, f"`level` is one of: {', '.join(LEVELS)}")
        self.levels[connection_of(ctx)] = str(level)
        return {}

    def with_level(self, ctx: Context, envelope: Envelope) -> Envelope:
        """The envelope with the level that this request wants, so that the server sends messages at all."""
        level = self._level(ctx)
        if not level:
            return envelope
        return replace(envelope, meta={**envelope.meta, types.LOG_LEVEL_META_KEY: level})

    @contextmanager
    def listening(self, ctx: Context, client: str, server_of: Callable[[], str]) -> Iterator[None]:
        """While this is open, messages of the server that is called may belong to this request."""
        if not self._level(ctx):
            yield
            return
        entry = (server_of(), client, ctx)
        self._listening.append(entry)
        try:
            yield
        finally:
            self._listening.remove(entry)

    async def deliver(self, server: str, params: JsonObject, client: str | None = None) -> None:
        """Pass one message on, when it is plain whose it is; it is one client's where each has a session of its own."""
        level = params.get("level")
        if level not in LEVELS:
            return
        calls = [ctx for name, whose, ctx in self._listening if name == server and client in (None, whose)]
        if client is None and (len(calls) != 1 or self.running.get(server, 0) != 1):
            return
        try:
            message = types.LoggingMessageNotificationParams.model_validate(dict(params))
        except ValidationError:
            return
        rank = LEVELS.index(str(level))
        if calls:
            if rank >= LEVELS.index(self._level(calls[-1])):
                typed = types.LoggingMessageNotification(params=message)
                await calls[-1].session.send_notification(typed, related_request_id=calls[-1].request_id)
            return
        told = [one for one in self.levels if is_client(one, client or "")]
        if len(told) == 1 and rank >= LEVELS.index(self.levels[told[0]]):
            await told[0].notify("notifications/message", dict(params))

    def _level(self, ctx: Context) -> str:
        if not is_modern(ctx):
            return self.levels.get(connection_of(ctx), "")
        meta = ctx.params.get("_meta") if ctx.params else None
        wanted = meta.get(types.LOG_LEVEL_META_KEY) if isinstance(meta, dict) else None
        return wanted if isinstance(wanted, str) and wanted in LEVELS else ""
