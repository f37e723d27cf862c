"""`tools/list` and `tools/call` for any surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from portico.domain.call import Call, OnProgress
from portico.domain.caller import Caller
from portico.errors import CallError
from portico.gateway import Gateway

from .results import error_result, with_notes
from .surface import JsonObject, Surface

PAGE = 1_000
_PROTOCOL_META = "io.modelcontextprotocol/"


@dataclass(slots=True)
class Tools:
    """Lists what the surface lists; calls the surface's own tools and, by any spelling, every permitted one."""

    gateway: Gateway
    surface: Surface
    caller: Caller
    _listed: tuple[JsonObject, ...] = ()

    async def list(self, ctx: ServerRequestContext[Any, Any], params: JsonObject) -> JsonObject:
        """One page of definitions."""
        tools = await self.surface.tools(self.caller)
        self._listed = tuple(tools)
        start = _start(params.get("cursor"), len(tools))
        result: dict[str, Any] = {"tools": tools[start : start + PAGE]}
        if start + PAGE < len(tools):
            result["nextCursor"] = str(start + PAGE)
        return result

    async def call(self, ctx: ServerRequestContext[Any, Any], params: JsonObject) -> JsonObject:
        """One call, of a meta-tool or straight through."""
        name = params.get("name")
        if not isinstance(name, str):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs `name`: the name of a listed tool, or server.tool")
        arguments = params.get("arguments")
        given: JsonObject = arguments if isinstance(arguments, Mapping) else {}
        meta, on_progress = _own_meta(params.get("_meta")), _progress_of(ctx, params)
        meta_tool = self.surface.meta_tool(name)
        if meta_tool is not None:
            return await meta_tool(self.caller, given, meta, on_progress)
        try:
            call = Call(tool=name, arguments=given, meta=meta, on_progress=on_progress)
            return with_notes(await self.gateway.call(self.caller, call))
        except CallError as error:
            return error_result(error, self.surface.spell)

    async def changed(self) -> bool:
        """Whether the list is another one than clients were last given."""
        return bool(self._listed) and tuple(await self.surface.tools(self.caller)) != self._listed

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """A tool's input schema by any spelling, for the SDK's header checks."""
        own = self.surface.schema_of(name)
        if own is not None:
            return own
        edition = self.gateway.edition
        try:
            return edition.resolver.resolve(name, edition.tools.keys()).input_schema
        except CallError:
            return None


def _start(cursor: object, total: int) -> int:
    if cursor is None:
        return 0
    if isinstance(cursor, str) and cursor.isdigit() and int(cursor) <= total:
        return int(cursor)
    raise MCPError(types.INVALID_PARAMS, "unknown cursor: start again without one")


def _own_meta(meta: object) -> JsonObject:
    """The caller's own `_meta`; what belongs to its connection with us stays here."""
    if not isinstance(meta, Mapping):
        return {}
    return {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(_PROTOCOL_META)}


def _progress_of(ctx: ServerRequestContext[Any, Any], params: JsonObject) -> OnProgress | None:
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or meta.get("progressToken") is None:
        return None
    return ctx.session.report_progress
