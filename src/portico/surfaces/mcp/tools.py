"""`tools/list` and `tools/call` for any surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from portico.domain.caller import Caller
from portico.errors import CallError
from portico.execution.leniency import NAME_KEYS, Request, unwrap
from portico.gateway import Gateway

from .asking import until_complete
from .envelopes import Context, client_of, envelope_of, own_meta
from .kept import READ, read_result
from .logs import Logs
from .questions import with_unread
from .results import error_result, must_stay_protocol_error, with_notes
from .surface import Envelope, JsonObject, Surface

PAGE = 5_000
"""Definitions in one answer: many clients never ask for a second page, so the first one is large."""


@dataclass(slots=True)
class Tools:
    """Lists what the surface lists; calls the surface's own tools and, by any spelling, every permitted one."""

    gateway: Gateway
    surface: Surface
    caller: Caller
    logs: Logs
    _published: list[JsonObject] | None = None
    """What the last edition lists."""
    _last: Caller = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.caller

    async def list(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One page of definitions."""
        tools = await self.surface.tools(self.caller)
        if params.get("cursor") is None:
            self.gateway.listed(self.caller, tools)
        start = _start(params.get("cursor"), len(tools))
        result: dict[str, Any] = {"tools": tools[start : start + PAGE]}
        if start + PAGE < len(tools):
            result["nextCursor"] = str(start + PAGE)
        return result

    async def call(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One call, of a meta-tool or straight through."""
        name = params.get("name")
        if not isinstance(name, str):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs `name`: the name of a listed tool, or server.tool")
        given = params.get("arguments")
        envelope = self.logs.opened(ctx, envelope_of(ctx, params))
        with self.logs.listening(ctx, lambda: self._server_of(name, given)):
            caller = self._caller(client_of(ctx, params))
            result = await self._call(caller, name, given, envelope)
            return await until_complete(
                ctx, result, lambda answers: self._call(caller, name, given, replace(envelope, answers=answers))
            )

    async def plain_call(self, params: JsonObject, session: str) -> JsonObject:
        """One call of a session with nothing beside it but its own `_meta`."""
        meta = params.get("_meta")
        envelope = Envelope(meta=own_meta(meta)) if isinstance(meta, Mapping) else Envelope()
        return await self._call(self._caller(session), params["name"], params.get("arguments"), envelope)

    def publish(self) -> bool:
        """Take note of what the edition of this moment lists; whether that is another list than the last edition's.

        What clients were given does not matter: one of them may have asked between two editions, others may not.
        """
        before, self._published = self._published, self.surface.listed(self.caller)
        return before is None or before != self._published

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """A tool's input schema by any spelling, for the SDK's header checks."""
        own = self.surface.schema_of(name)
        if own is not None:
            return own
        edition = self.gateway.edition
        try:
            visible = self.gateway.policy.visible(self.caller, edition)
            return edition.resolver.resolve(name, visible).input_schema
        except CallError:
            return None

    def _caller(self, client: str) -> Caller:
        """The caller as one of several clients; the last one's is at hand."""
        if self._last.client != client:
            self._last = replace(self.caller, client=client)
        return self._last

    async def _call(self, caller: Caller, name: str, arguments: object, envelope: Envelope) -> JsonObject:
        request = self._request(name, arguments)
        meta_tool = self.surface.meta_tool(name)
        if meta_tool is not None:
            answer = await meta_tool(caller, request.arguments, envelope)
            return with_unread(name, self.surface.schema_of, request.arguments, answer)
        if name == READ:  # its name is reserved: a result may be shortened on any surface
            return await read_result(self.gateway, caller, request.arguments)
        try:
            # Whoever calls a tool by its own name may have been given its output schema, and hold us to it.
            call = envelope.around(name, request.arguments, needs_structured=True)
            result = await self.gateway.call(caller, call)
            return with_notes(result, request.notes)
        except CallError as error:
            if must_stay_protocol_error(error, envelope):
                raise
            return error_result(error, self.surface.spell)

    def _request(self, name: str, arguments: object) -> Request:
        """The arguments as an object; a model that wrote them as a string is understood."""
        if arguments is None or isinstance(arguments, Mapping):
            return Request(name, arguments or {})
        return unwrap({"name": name, "arguments": arguments}, lambda spelling: None)

    def _server_of(self, name: str, arguments: object) -> str:
        """The server that a call goes to, straight or through a meta-tool."""
        given = arguments if isinstance(arguments, Mapping) and self.surface.meta_tool(name) else {}
        inner = next((given[key] for key in NAME_KEYS if given.get(key)), name)
        tool = self.gateway.find(self.caller, str(inner))
        return tool.id.server if tool else ""


def _start(cursor: object, total: int) -> int:
    if cursor is None:
        return 0
    if isinstance(cursor, str) and cursor in map(str, range(0, total + 1, PAGE)):
        return int(cursor)
    raise MCPError(types.INVALID_PARAMS, "unknown cursor: start again without one")
