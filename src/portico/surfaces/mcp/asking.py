"""A tool that asks its client something: passed through in the new era, asked on its behalf in the old one.

Servers of 2026-07-28 answer `input_required` and are called again with the answers. A client of that era does so
itself. A client of the handshake era expects to be asked over its connection, so we ask and call again.
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
        answers: dict[str, Any] = {"inputResponses": await _ask_all(ctx, result.get("inputRequests"))}
        if result.get("requestState") is not None:
            answers["requestState"] = result["requestState"]
        result = await again(answers)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for more input after {ROUNDS} rounds")


async def _ask_all(ctx: Context, requests: object) -> dict[str, Any]:
    if not isinstance(requests, Mapping):
        return {}
    return {key: await _ask(ctx, request) for key, request in requests.items()}


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
