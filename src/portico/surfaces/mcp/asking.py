"""A tool that asks its client something: passed through in the new era, asked on its behalf in the old one.

Servers of 2026-07-28 answer `input_required` and are called again with the answers; calls of older servers that ask
something look the same here. A client of that era calls again itself. A client of the handshake era expects to be asked
over its connection, so we ask and call again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.methods import parse_server_request
from pydantic import BaseModel, ConfigDict, ValidationError

from .envelopes import Context, is_modern
from .surface import JsonObject

ROUNDS = 8
"""How often one call may ask; a server that never has enough must not hold a client for ever."""


WAITING = "portico-call-"
"""How the state of a call begins that waits at a server of the handshake era."""

Ask = Callable[[Context, object], Awaitable[dict[str, Any]]]


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
        state = result.get("requestState")
        is_waiting = isinstance(state, str) and state.startswith(WAITING)
        given = await _ask_all(ctx, result.get("inputRequests"), _ask_or_tell if is_waiting else _ask)
        answers: dict[str, Any] = {"inputResponses": given}
        if state is not None:
            answers["requestState"] = state
        result = await again(answers)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for more input after {ROUNDS} rounds")


async def _ask_all(ctx: Context, requests: object, ask: Ask) -> dict[str, Any]:
    if not isinstance(requests, Mapping):
        return {}
    return {key: await ask(ctx, request) for key, request in requests.items()}


async def _ask_or_tell(ctx: Context, request: object) -> dict[str, Any]:
    """What the client answers, or the error that it answers with: a server that waits for a reply gets that one."""
    try:
        return await _ask(ctx, request)
    except MCPError as error:
        return {"error": error.error.model_dump(exclude_none=True)}


async def _ask(ctx: Context, request: object) -> dict[str, Any]:
    if not isinstance(request, Mapping) or not isinstance(request.get("method"), str):
        raise MCPError(types.INTERNAL_ERROR, "the server asked for input in a way that is not MCP's")
    method = request["method"]
    try:
        typed = parse_server_request(method, ctx.protocol_version, request.get("params"))
    except (KeyError, ValueError, ValidationError) as error:
        raise MCPError(types.INTERNAL_ERROR, f"this client cannot be asked {method!r}") from error
    route = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(typed, _Answer, metadata=route)  # type: ignore[arg-type]
    return answer.model_dump(by_alias=True)
