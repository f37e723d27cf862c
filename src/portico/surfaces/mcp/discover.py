"""The `discover` surface: search, describe, call, read on, script; every other tool is found, not listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.discovery.spelling import as_meta_tool, spelled
from portico.domain.caller import Caller
from portico.domain.resolver import SEPARATORS
from portico.domain.tool import Tool
from portico.errors import CallError, NextCall
from portico.execution.leniency import unwrap
from portico.fencing import one_line
from portico.finding import SEARCH_CARDS_LIMIT
from portico.gateway import DESCRIBE_LIMIT, Gateway, Query
from portico.scripts import Scripts

from .instructions import as_many_as_fit
from .kept import READ, read_result
from .questions import as_words, read_filters, unread_beside
from .results import error_result, must_stay_protocol_error, text_result, with_notes
from .running import run_script
from .surface import Envelope, JsonObject, MetaTool

SEARCH, DESCRIBE, CALL, RUN = "search_tools", "describe_tools", "call_tool", "run_script"
_ALWAYS = {"anthropic/alwaysLoad": True}
# What is left out is the default, or means nothing beside these: every client reads them before its first question.
_READS = {"readOnlyHint": True, "openWorldHint": False}
_ACTS = {"readOnlyHint": False, "destructiveHint": True}

DEFINITIONS: tuple[JsonObject, ...] = (
    {
        "name": SEARCH,
        "title": "Search tools",
        "description": (
            "Find tools by what they do: one capability in a few words, e.g. 'create issue', 'read csv file'. Returns"
            " ranked one-line signatures to call at once (? optional, ~ shortened); an exact name returns its full"
            ' schema; "" returns the map of servers.'
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "server": {"type": "string", "description": "only this server"},
                "category": {"type": "string"},
                "limit": {"type": "integer"},
                "cursor": {"type": "string", "description": "from the last answer"},
            },
            "required": ["query"],
        },
        "annotations": _READS,
        "_meta": _ALWAYS,
    },
    {
        "name": DESCRIBE,
        "title": "Describe tools",
        "description": f"Full description, schema and example of up to {DESCRIBE_LIMIT} tools.",
        "inputSchema": {
            "type": "object",
            "properties": {"names": {"type": "array", "items": {"type": "string"}, "maxItems": DESCRIBE_LIMIT}},
            "required": ["names"],
        },
        "annotations": _READS,
        "_meta": _ALWAYS,
    },
    {
        "name": CALL,
        "title": "Call a tool",
        "description": "Run a tool found by search_tools. Arguments are checked first; an error names the next call.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "server.tool"},
                "arguments": {"type": "object"},
            },
            "required": ["name"],
        },
        "annotations": _ACTS,
        "_meta": _ALWAYS,
    },
    {
        "name": READ,
        "description": "Next part of a shortened result; `grep` searches it, JMESPath `path` selects.",
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("id", "cursor", "grep", "path")},
            "required": ["id"],
        },
        "annotations": _READS,
        "_meta": _ALWAYS,
    },
    {
        "name": RUN,
        "title": "Run a script",
        "description": "Lua that calls many tools, as server.tool({k = v}):await(); only result(value) comes back.",
        "inputSchema": {
            "type": "object",
            "properties": {"script": {"type": "string"}, "timeout_s": {"type": "number", "default": 30}},
            "required": ["script"],
        },
        "annotations": _ACTS,
        "_meta": _ALWAYS,
    },
)


@dataclass(slots=True)
class Discover:
    """Lists a few tools and the pins, whatever the catalog holds; no scripts, no tool that runs them."""

    gateway: Gateway
    scripts: Scripts | None = None
    name: str = "discover"

    def instructions(self, caller: Caller) -> str:
        """Names the servers within the first 512 characters, as many as fit."""
        tools = self.gateway.listing(caller)
        servers = sorted({tool.handle.split(".", 1)[0] for tool in tools})
        head = f"Portico: {len(tools)} tools of {len(servers)} servers behind search_tools, describe_tools, call_tool."
        how = (
            'To act: search_tools({"query": "create issue"}), then call_tool({"name": "server.tool", "arguments":'
            " {...}}) with a signature it returned; describe_tools only if one has ~. Search before saying that a"
            " tool is missing."
        )
        how += " For many calls at once: run_script." if self.scripts is not None else ""
        room = 511 - len(head) - len(how) - len(" Servers: .")
        return f"{head} Servers: {as_many_as_fit(servers, room)}. {how}" if servers else f"{head} {how}"

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The meta-tools, then the pins."""
        return [*self.own, *(tool.definition for tool in self.gateway.pinned(caller))]

    @property
    def own(self) -> tuple[JsonObject, ...]:
        """The definitions of the meta-tools that there are."""
        return tuple(d for d in DEFINITIONS if d["name"] != RUN or self.scripts is not None)

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
        loading = await self.gateway.settled()
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
        await self.gateway.settled()
        try:
            return text_result(self.gateway.describe(caller, names).text)
        except CallError as error:
            return error_result(error, self.spell)

    async def _call(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        if self.gateway.intake.is_starting and self.gateway.parameters_of(caller, str(arguments.get("name"))) is None:
            await self.gateway.settled()  # what is malformed can only be told with the tool's own parameters
        request = unwrap(arguments, lambda name: self.gateway.parameters_of(caller, name))
        if not request.name:
            call = spelled(CALL, {"name": "server.tool", "arguments": {}})
            return text_result(
                f"error invalid_arguments for {CALL}; nothing was sent\n- missing: name (string)\nnext: {call}",
                is_error=True,
            )
        own = self.gateway.parameters_of(caller, request.name) or {}
        notes = [*request.notes, *self._respelled(caller, request.name), *unread_beside(arguments, own)]
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
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
        except (ValueError, RecursionError):
            value = value.strip("[] ").split(",")
    if not isinstance(value, list):
        return []
    found = [part.get("name") if isinstance(part, Mapping) else part for part in value]
    return [text.strip().strip("\"'") for text in found if isinstance(text, str) and text.strip()]
