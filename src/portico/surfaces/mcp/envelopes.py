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
PREFIX = "io.modelcontextprotocol/"
_ASKABLE = ("elicitation", "sampling", "roots")
_ANSWERS = ("inputResponses", "requestState")


def connection_of(ctx: Context) -> Connection:
    """The connection behind a request; the SDK has no public way to it yet."""
    return ctx.session._connection


def is_modern(ctx: Context) -> bool:
    """Whether the request is of the era in which each one carries its own envelope."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def envelope_of(ctx: Context, params: JsonObject) -> Envelope:
    """The caller's own `_meta`, progress, what it can be asked, and its answers to what it was asked."""
    meta = params.get("_meta")
    given: JsonObject = meta if isinstance(meta, Mapping) else {}
    own = {key: value for key, value in given.items() if key != "progressToken" and not key.startswith(PREFIX)}
    if askable := _askable(ctx, given):
        own[types.CLIENT_CAPABILITIES_META_KEY] = askable
    return Envelope(
        meta=own,
        on_progress=ctx.session.report_progress if given.get("progressToken") is not None else None,
        answers=answers_of(params),
    )


def answers_of(params: JsonObject) -> dict[str, Any] | None:
    """What the client answers to a tool's question, if this request does."""
    found = {key: params[key] for key in _ANSWERS if params.get(key) is not None}
    return found or None


def _askable(ctx: Context, meta: JsonObject) -> dict[str, Any]:
    """The capabilities that a server behind us may use to ask this client something; nothing else is told."""
    if is_modern(ctx):
        declared = meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    else:
        capabilities = ctx.session.client_capabilities
        declared = capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities else None
    return {key: declared[key] for key in _ASKABLE if key in declared} if isinstance(declared, Mapping) else {}
