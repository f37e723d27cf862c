"""What a request carries beside its parameters, in either era, and what of it a server behind us may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .surface import Envelope, JsonObject

Context = ServerRequestContext[Any, Any]
NAME_LENGTH = 100
PREFIX = "io.modelcontextprotocol/"
_ASKABLE = ("elicitation", "sampling", "roots")
_ANSWERS = ("inputResponses", "requestState")


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
    peer = ctx.request.scope.get("client") if ctx.request is not None else None
    if peer is None:
        return ""
    meta = params.get("_meta")
    info = meta.get(types.CLIENT_INFO_META_KEY) if isinstance(meta, Mapping) else None
    if not isinstance(info, Mapping):
        return str(peer[0])
    return f"{peer[0]} {str(info.get('name', ''))[:NAME_LENGTH]} {str(info.get('version', ''))[:NAME_LENGTH]}"


def envelope_of(ctx: Context, params: JsonObject) -> Envelope:
    """The caller's own `_meta`, progress, what it can be asked, and its answers to what it was asked."""
    meta = params.get("_meta")
    given: JsonObject = meta if isinstance(meta, Mapping) else {}
    own = own_meta(given)
    if askable := _askable(ctx, given):
        own[types.CLIENT_CAPABILITIES_META_KEY] = askable
    return Envelope(
        meta=own,
        on_progress=ctx.session.report_progress if given.get("progressToken") is not None else None,
        answers=answers_of(params),
    )


def own_meta(meta: JsonObject) -> dict[str, Any]:
    """What of a request's `_meta` is the caller's own; what belongs to its connection with us stays here."""
    return {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(PREFIX)}


def answers_of(params: JsonObject) -> dict[str, Any] | None:
    """What the client answers to a tool's question, if this request does."""
    found = {key: params[key] for key in _ANSWERS if params.get(key) is not None}
    return found or None


def _askable(ctx: Context, meta: JsonObject) -> dict[str, Any]:
    """The capabilities that a server behind us may use to ask this client something; nothing else is told."""
    if not is_modern(ctx):
        return askable_of(ctx.session.client_capabilities)
    declared = meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    return {key: declared[key] for key in _ASKABLE if key in declared} if isinstance(declared, Mapping) else {}


def askable_of(capabilities: types.ClientCapabilities | None) -> dict[str, Any]:
    """What a client of the handshake era said that it can be asked."""
    declared = capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities else {}
    return {key: declared[key] for key in _ASKABLE if key in declared}
