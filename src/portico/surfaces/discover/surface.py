"""The `discover` surface: search, describe, call, read on, script; every other tool is found, not listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.domain.call import Caller
from portico.domain.disclosure import Query
from portico.domain.foreign_text import one_line
from portico.domain.snapshot import SEPARATORS
from portico.domain.tool import Tool
from portico.errors import CallError, NextCall
from portico.execution.arguments import unwrap
from portico.gateway import SEARCH_CARDS_LIMIT, Gateway
from portico.rendering.cards import as_meta_tool, spelled
from portico.scripting.session import ScriptRunner
from portico.surfaces.discover import CALL, DESCRIBE, READ, RUN, SEARCH, TOOLS, definitions
from portico.surfaces.mcp.meta_tools import (
    as_words,
    error_result,
    must_stay_protocol_error,
    read_filters,
    read_result,
    run_script,
    text_result,
    unread_beside,
    with_notes,
)
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool, discover_text

DEFINITIONS: tuple[JsonObject, ...] = TOOLS
NAMES_READ, NAMES_LETTERS = 1_000, 100_000
"""Names to describe that are read, and letters of them where they are written as one text."""


@dataclass(slots=True)
class Discover:
    """Lists a few tools and the pins, whatever the catalog holds; no scripts, no tool that runs them."""

    gateway: Gateway
    scripts: ScriptRunner | None = None
    name: str = "discover"

    def instructions(self, caller: Caller) -> str:
        """Names the servers within the first 512 characters, as many as fit."""
        tools = self.gateway.listing(caller)
        servers = sorted({tool.handle.split(".", 1)[0] for tool in tools})
        return discover_text(len(tools), servers, scripts=self.scripts is not None)

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The meta-tools, then the pins; waits for the first start of a pin's server."""
        await self.gateway.pins_known()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same; nothing is waited for."""
        return [*self.own, *(tool.definition for tool in self.gateway.pinned(caller))]

    @property
    def own(self) -> tuple[JsonObject, ...]:
        """The definitions of the meta-tools that there are."""
        return definitions(scripts=self.scripts is not None)

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of those that are listed before the pins."""
        own = {SEARCH: self._search, DESCRIBE: self._describe, CALL: self._call, READ: self._read, RUN: self._run}
        return own.get(name)

    def schema_of(self, name: str) -> JsonObject | None:
        """The schema of a meta-tool."""
        return next((d["inputSchema"] for d in DEFINITIONS if d["name"] == name), None)

    def spell(self, call: NextCall) -> str:
        """The next call as a call of a meta-tool."""
        return as_meta_tool(call)

    async def _search(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        loading = await self.gateway.wait_until_ready()
        query = _query(arguments)
        await self.gateway.warm(query.text)
        try:
            text = self.gateway.search(caller, query).text
        except CallError as error:
            return error_result(error, self.spell)
        if loading:
            text += f"\nstill starting: {', '.join(sorted(loading))}"
        return text_result(text)

    async def _describe(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        names = _names(arguments)
        if not names:
            call = spelled(DESCRIBE, {"names": ["server.tool"]})
            return text_result(
                f"error invalid_arguments for {DESCRIBE}; nothing was sent\n- missing: names (string[])\nnext: {call}",
                is_error=True,
            )
        await self.gateway.wait_until_ready()
        try:
            return text_result(self.gateway.describe(caller, names).text)
        except CallError as error:
            return error_result(error, self.spell)

    async def _call(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        if (
            self.gateway.refresher.is_starting
            and self.gateway.parameters_of(caller, str(arguments.get("name"))) is None
        ):
            await self.gateway.wait_until_ready()  # what is malformed can only be told with the tool's own parameters
        request = unwrap(arguments, lambda name: self.gateway.parameters_of(caller, name))
        if not request.name:
            call = spelled(CALL, {"name": "server.tool", "arguments": {}})
            return text_result(
                f"error invalid_arguments for {CALL}; nothing was sent\n- missing: name (string)\nnext: {call}",
                is_error=True,
            )
        unread = unread_beside(arguments, lambda: self.gateway.parameters_of(caller, request.name))
        notes = [*request.notes, *self._respelled(caller, request.name), *unread]
        try:
            result = await self.gateway.call(caller, envelope.around(request.name, request.arguments))
            return with_notes(result, notes)
        except CallError as error:
            if must_stay_protocol_error(error, envelope):
                raise
            return error_result(error, self.spell, notes)

    async def _read(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return await read_result(self.gateway, caller, arguments)

    async def _run(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return await run_script(self.scripts, caller, RUN, arguments, self.spell)

    def _respelled(self, caller: Caller, name: str) -> list[str]:
        """A line that teaches the handle to a model which spelled it in another way that is understood."""
        tool = self.gateway.find(caller, name)
        if tool is None or tool.handle == name or _is_its_own(name, tool):
            return []
        return [f"{one_line(name)} is spelled {tool.handle} here"]


def _is_its_own(name: str, tool: Tool) -> bool:
    """Whether a tool whose name is no identifier is called by that name, letter by letter: it has a right to it."""
    server, _, identifier = tool.handle.partition(".")
    if tool.id.name == identifier:
        return False
    spelled = {f"{each}{mark}{tool.id.name}" for each in (tool.id.server, server) for mark in SEPARATORS}
    return name == tool.id.name or name in spelled


def _query(arguments: JsonObject) -> Query:
    """A query, however loosely it was written."""
    return replace(
        read_filters(arguments),
        text=as_words(arguments.get("query", arguments.get("q", ""))),
        limit=_limit(arguments.get("limit")),
        cursor=as_words(arguments.get("cursor")),
    )


def _limit(value: object) -> int:
    try:
        return max(1, min(SEARCH_CARDS_LIMIT, int(str(value)))) if value is not None else 0
    except ValueError:
        return 0


def _names(arguments: JsonObject) -> list[str]:
    """The names to describe: a list, a JSON list in a string, or names with commas between them."""
    value: Any = next((arguments[key] for key in ("names", "name", "tools", "tool") if key in arguments), [])
    if isinstance(value, str):
        value = value[:NAMES_LETTERS]
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
        except (ValueError, RecursionError):
            value = value.strip("[] ").split(",")
    if not isinstance(value, list):
        return []
    found = [part.get("name") if isinstance(part, Mapping) else part for part in value[:NAMES_READ]]
    return [text.strip().strip("\"'") for text in found if isinstance(text, str) and text.strip()]
