"""The `gateway` surface: servers, their tools, one tool, one answer, and then a Lua script that calls many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from portico.domain.call import Caller
from portico.domain.disclosure import Disclosure, Level
from portico.domain.foreign_text import OwnBlock
from portico.domain.journal import Look
from portico.domain.server import Server
from portico.domain.snapshot import ServerSection, pairs
from portico.domain.tool import Effect, Tool, ToolId, server_identifier
from portico.errors import CallError, InvalidArguments, NextCall, PorticoError, Refused, UnknownServer, UnknownTool
from portico.gateway import Gateway
from portico.rendering.budget import Variants, balance, fit
from portico.rendering.cards import example_arguments, first_sentence, spelled
from portico.rendering.lua import (
    BRIEF,
    FAILED,
    INSTRUCTIONS,
    details,
    example,
    failed_lines,
    lua_name,
    server_lines,
    tool_line,
)
from portico.rendering.lua import call as lua_call
from portico.scripting.session import ScriptRunner, as_text, as_value
from portico.surfaces.mcp.meta_tools import READ, error_result, run_script, switched_on, text_result, with_notes
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool, gateway_text

from . import DEFINITIONS, DETAILS, EXECUTE, INSPECT, SERVERS, TOOLS

SERVERS_TOKENS = 3_000
TOOLS_TOKENS = 4_000
TOOLS_LISTED = TOOLS_TOKENS // 5
"""Tools of which a list is made; no more would fit, whatever they are called."""
DETAILS_TOKENS = 6_000
NAMED = 10
"""Identifiers that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingPage:
    """One answer: a text for models, and the same as data for programs."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerListing:
    """Answers within what a caller may see; a server without a visible tool is not there."""

    gateway: Gateway

    def shelves(self, caller: Caller) -> dict[str, list[Tool]]:
        """The visible tools of each server that has some, by the server's identifier."""
        snapshot = self.gateway.snapshot
        visible = self.gateway.policy.visible(caller, snapshot)
        found = {section.server.identifier: _seen(section, visible) for section in snapshot.sections.values()}
        return {identifier: tools for identifier, tools in found.items() if tools}

    def servers(self, caller: Caller, starting: Sequence[str] = ()) -> ListingPage:
        """Every server with its identifier, and what it says of itself; one that cannot be reached is named too."""
        since = perf_counter()
        shelves = self.shelves(caller)
        known = [s for s in self.gateway.snapshot.servers.values() if s.identifier in shelves]
        failed = {name: self._identifier(name) for name in self.gateway.unavailable()}
        cards = [*map(server_lines, known), *(failed_lines(name, lua) for name, lua in failed.items())]
        told = self._fit(
            balance(cards, SERVERS_TOKENS, self.gateway.counter),
            SERVERS_TOKENS,
            head="Available MCP Servers:",
            tail=f"Still starting: {', '.join(sorted(starting))}" if starting else "",
            separator="\n\n",
        )
        self.gateway.record_lookup(caller, Look.BROWSE, "", told, since=since)
        shown = {card.handle: card.level for card in told.cards}
        rows = [_server_row(s, len(shelves[s.identifier]), shown[s.identifier]) for s in known if s.identifier in shown]
        rows += [{"name": n, "luaName": lua, "status": FAILED} for n, lua in failed.items() if lua in shown]
        text = told.text if cards else "No MCP servers are available."
        return ListingPage(text=text, data={"servers": rows, **_left(told)})

    def tools(self, caller: Caller, server: str, cursor: str = "") -> ListingPage:
        """The tools of one server, a line each; `cursor` is the identifier of the tool to begin with.

        Raises:
            UnknownServer: no such server; those that there are are named.
        """
        since = perf_counter()
        found, tools = self.shelf(caller, server)
        start = next((place for place, tool in enumerate(tools) if lua_name(tool) == cursor), 0)
        told = self._listed(found, tools, start)
        self.gateway.record_lookup(caller, Look.BROWSE, found.name, told, since=since)
        levels = {card.handle: card.level for card in told.cards}
        rows = [_tool_row(tool, levels[tool.handle]) for tool in tools[start:] if tool.handle in levels]
        data = {"server": found.name, "luaServerName": found.identifier, "tools": rows, **_left(told)}
        return ListingPage(text=told.text, data=data)

    def details(self, caller: Caller, server: str, name: str, returns: Mapping[str, Any] | None = None) -> ListingPage:
        """One tool in full; `returns` is what is known of its answers where it declares nothing.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        since = perf_counter()
        tool = self.tool(caller, server, name)
        known = tool.output_schema or returns
        card = details(tool, known)
        told = self._fit([card], DETAILS_TOKENS, separator="\n")
        self.gateway.record_lookup(caller, Look.DESCRIBE, tool.handle, told, since=since)
        text = told.text
        if told.cards and told.cards[0].text != card.card(0).text:
            text += f"\n\n{_shortened(tool)}"
        return ListingPage(text=text, data=self._details_data(tool, known))

    def shelf(self, caller: Caller, name: str) -> tuple[Server, list[Tool]]:
        """A server by its identifier or its own name, and the visible tools of it.

        Raises:
            UnknownServer: no such server; those that there are are named.
        """
        snapshot = self.gateway.snapshot
        visible = self.gateway.policy.visible(caller, snapshot)
        for section in snapshot.sections.values():
            if name.strip() in (section.server.identifier, section.server.name) and (tools := _seen(section, visible)):
                return section.server, tools
        raise self._unknown_server(name, list(self.shelves(caller)))

    def tool(self, caller: Caller, server: str, name: str) -> Tool:
        """A tool by the identifiers of its server and its own.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        found, tools = self.shelf(caller, server)
        own = {tool.id: tool for tool in tools}
        spelling = f"{found.identifier}.{name.strip()}"
        try:
            return self.gateway.snapshot.resolver.resolve(spelling, own.keys())
        except UnknownTool:
            raise self._unknown_tool(found, spelling, own) from None

    def _unknown_server(self, name: str, known: list[str]) -> UnknownServer:
        away = self.gateway.unavailable()
        if name.strip() in (*away, *map(self._identifier, away)):
            return UnknownServer(f"the server {name!r} cannot be used now: {FAILED}")
        alike = {identifier: _alikeness(identifier, name) for identifier in known}
        near = sorted(known, key=lambda identifier: (-alike[identifier], identifier))
        return UnknownServer(f"no server has the Lua name {name[:100]!r}; available: {_some(near) or 'none'}")

    def _unknown_tool(self, server: Server, spelling: str, own: Mapping[ToolId, Tool]) -> UnknownTool:
        near = self.gateway.snapshot.resolver.near(spelling, own.keys(), limit=NAMED)
        others = [tool for tool in own.values() if tool not in near]
        names = _some([lua_name(tool) for tool in (*near, *others)])
        return UnknownTool(
            spelling[:200],
            details=(f"tools of {server.identifier}: {names}",),
            next_call=NextCall("browse", {"server": server.identifier}),
        )

    def _listed(self, server: Server, tools: Sequence[Tool], start: int) -> Disclosure:
        """The tools from one on, as many as fit; when some do not, the last line is the call that shows them."""
        head = f"Tools for {server.name}:\n"
        rest = tools[start:]
        cards = [tool_line(tool) for tool in rest[:TOOLS_LISTED]]
        told = self._fit(cards, TOOLS_TOKENS, head=head, total=len(rest))
        shown = told.shown
        while 0 < shown < len(rest):
            call = {"luaServerName": server.identifier, "cursor": lua_name(rest[shown])}
            tail = f"{len(rest) - shown} more: list-server-tools({orjson.dumps(call).decode()})"
            told = self._fit(cards[:shown], TOOLS_TOKENS, head=head, tail=tail, total=len(rest))
            if told.shown == shown:
                break
            shown = told.shown
        return told

    def _fit(self, cards: Sequence[Variants], tokens: int, **around: Any) -> Disclosure:
        return fit(cards, tokens=tokens, counter=self.gateway.counter, **around)

    def _details_data(self, tool: Tool, returns: Mapping[str, Any] | None) -> dict[str, Any]:
        """A tool as data; schemas that would cost more than the text may are left out."""
        data: dict[str, Any] = {
            "name": tool.id.name,
            "luaName": lua_name(tool),
            "handle": tool.handle,
            "effect": str(tool.effect),
            "example": example(tool, optional=False),
        }
        room = DETAILS_TOKENS
        for key, value in (("inputSchema", tool.input_schema), ("outputSchema", returns)):
            cost = self.gateway.counter.count(orjson.dumps(value).decode()) if value else 0
            if value and cost <= room:
                data[key], room = value, room - cost
            elif value:
                data["truncated"] = True
        return data

    def _identifier(self, name: str) -> str:
        """How a server that nothing is known of would be called in scripts."""
        return server_identifier(self.gateway.publisher.aliases.get(name) or name)


def _seen(section: ServerSection, visible: Set[ToolId]) -> list[Tool]:
    return [tool for id, tool in section.tools.items() if id in visible]


def _server_row(server: Server, tools: int, level: Level) -> dict[str, Any]:
    row: dict[str, Any] = {"name": server.name, "luaName": server.identifier, "tools": tools}
    if server.version:
        row["version"] = server.version
    if server.description and level > Level.NAME:
        row["description"] = server.description if level > Level.SUMMARY else first_sentence(server.description, BRIEF)
    if server.instructions and level is Level.FULL:
        row["instructions"] = server.instructions.strip()[:INSTRUCTIONS]
    return row


def _tool_row(tool: Tool, level: Level) -> dict[str, Any]:
    row = {"name": tool.id.name, "luaName": lua_name(tool)}
    if level > Level.NAME and (about := first_sentence(tool.description, BRIEF)):
        row["description"] = about
    return row


def _left(told: Disclosure) -> dict[str, Any]:
    return {"truncated": True, "shown": told.shown, "total": told.total} if told.truncated else {}


def _shortened(tool: Tool) -> str:
    script = f'result(_gateway.describe("{tool.handle}"):await())'
    return f"(shortened to fit; whole: execute({orjson.dumps({'script': script}).decode()}))"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _alikeness(identifier: str, name: str) -> float:
    """How many pairs of letters two names share, of those that they have."""
    one, other = set(pairs(identifier.casefold())), set(pairs(name[:100].casefold()))
    return 2 * len(one & other) / (len(one) + len(other))


SAMPLE = "result(_ENV[args.server][args.tool](args.arguments):await())"
"""The script that inspects a tool: whatever the arguments are, they are data in it and never source."""
SERVER_KEYS = ("luaServerName", "serverName", "server")
TOOL_KEYS = ("luaToolName", "toolName", "tool", "name")
"""Where models write what is meant."""
_READ_ON = re.compile(r'read_result\(\{"id": "([^"]+)"\}\)')


@dataclass(slots=True)
class GatewaySurface:
    """Lists five tools, whatever the catalog holds."""

    gateway: Gateway
    scripts: ScriptRunner | None
    name: str = "gateway"
    directory: ServerListing = field(init=False)

    def __post_init__(self) -> None:
        self.directory = ServerListing(self.gateway)

    def instructions(self, caller: Caller) -> str:
        """Names the servers and the way from them to a script, within the first 512 characters."""
        shelves = self.directory.shelves(caller)
        return gateway_text(sum(map(len, shelves.values())), sorted(shelves))

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The five."""
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same; nothing is waited for."""
        return list(DEFINITIONS)

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of the five."""
        return {
            SERVERS: self._servers,
            TOOLS: self._tools,
            DETAILS: self._details,
            INSPECT: self._inspect,
            EXECUTE: self._execute,
        }.get(name)

    def schema_of(self, name: str) -> JsonObject | None:
        """The schema of one of the five."""
        return next((d["inputSchema"] for d in DEFINITIONS if d["name"] == name), None)

    def spell(self, call: NextCall) -> str:
        """The next call as one of the five; a tool of the catalog is called in a script."""
        given = call.parameters
        if call.action == "call":
            script = f"result({lua_call(str(given.get('name', '')), given.get('arguments') or {})})"
            return spelled(EXECUTE, {"script": script})
        if call.action == READ:
            return spelled(EXECUTE, {"script": f"result({lua_call('_gateway.read_result', given)})"})
        if call.action == "run":
            return spelled(EXECUTE, given)
        if call.action == "browse":
            return spelled(TOOLS, {"luaServerName": given.get("server", "")})
        names = given.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            server, _, tool = str(names[0]).partition(".")
            return spelled(DETAILS, {"luaServerName": server, "luaToolName": tool})
        return spelled(SERVERS, {})

    async def _servers(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        starting = await self.gateway.wait_until_ready()
        return _page_result(self.directory.servers(caller, sorted(starting)))

    async def _tools(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            (server,) = _texts(TOOLS, arguments, SERVER_KEYS)
            cursor = arguments.get("cursor")
            return _page_result(self.directory.tools(caller, server, cursor if isinstance(cursor, str) else ""))
        except PorticoError as error:
            return self._refused(error)

    async def _details(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            server, name = _texts(DETAILS, arguments, SERVER_KEYS, TOOL_KEYS)
            tool = self.directory.tool(caller, server, name)
            return _page_result(self.directory.details(caller, server, name, self._learned(tool)))
        except PorticoError as error:
            return self._refused(error)

    async def _inspect(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            server, name = _texts(INSPECT, arguments, SERVER_KEYS, TOOL_KEYS)
            tool = self.directory.tool(caller, server, name)
            given = _sample(arguments)
            known = tool.output_schema or self._learned(tool)
            if tool.effect is Effect.DESTRUCTIVE:
                raise _destructive(tool)
            if given is None and known and self.gateway.counter.count(as_text(known)) <= DETAILS_TOKENS:
                return _known_result(tool, known)
            return await self._sampled(caller, tool, given or {})
        except PorticoError as error:
            return self._refused(error)

    async def _sampled(self, caller: Caller, tool: Tool, arguments: JsonObject) -> JsonObject:
        server, _, name = tool.handle.partition(".")
        asked = {"server": server, "tool": name, "arguments": arguments}
        return self._led_on(with_notes(await switched_on(self.scripts, INSPECT).run(caller, SAMPLE, asked)))

    async def _execute(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return self._led_on(await run_script(self.scripts, caller, EXECUTE, arguments, self.spell))

    def _led_on(self, result: JsonObject) -> JsonObject:
        """A result that was shortened, with the way to the rest in a script: this surface lists no `read_result`."""
        return {**result, "content": [*map(self._led_on_block, result["content"])]}

    def _led_on_block(self, block: JsonObject) -> JsonObject:
        if not isinstance(block, OwnBlock) or "shortened: " not in block["text"]:
            return block
        text = block["text"]
        led_on = _READ_ON.sub(lambda found: self.spell(NextCall(READ, {"id": found[1]})), text, 1)
        return OwnBlock(block, text=led_on)

    def _learned(self, tool: Tool) -> Mapping[str, Any] | None:
        """What past answers of a tool looked like, where that is known."""
        return self.gateway.shape_of(tool)

    def _refused(self, error: PorticoError) -> JsonObject:
        if isinstance(error, CallError):
            return error_result(error, self.spell)
        return text_result(f"error {error.code}; nothing was sent\n- {error}\nnext: {SERVERS}({{}})", is_error=True)


def _page_result(page: ListingPage) -> JsonObject:
    return {**text_result(page.text), "structuredContent": page.data}


def _known_result(tool: Tool, schema: Mapping[str, Any]) -> JsonObject:
    """The shape of a tool's answers as it is known; nothing is executed for it."""
    arguments = example_arguments(tool)
    script = f" In a script: result({lua_call(tool.handle, arguments)})" if arguments is not None else ""
    text = (
        f"What {tool.handle} returns is known; nothing was executed.\n\n{as_text(schema)}\n\n"
        f"To execute it all the same, give sampleArgs ({{}} for none).{script}"
    )
    return {**text_result(text), "structuredContent": {"executed": False, "schema": schema}}


def _destructive(tool: Tool) -> Refused:
    reason = "it is marked as destructive, so no sample of it is made; read tool-details, and call it when you mean it"
    server, _, name = tool.handle.partition(".")
    return Refused(tool.handle, details=(reason,), next_call=NextCall("describe", {"names": [f"{server}.{name}"]}))


def _sample(arguments: JsonObject) -> JsonObject | None:
    """The arguments of a sample call, which a model may have written as a string; None when there are none.

    Raises:
        InvalidArguments: they are no object.
    """
    given = arguments.get("sampleArgs")
    if given is None:
        return None
    found = as_value(given) if isinstance(given, str) else given
    if not isinstance(found, Mapping):
        raise InvalidArguments(INSPECT, details=("sampleArgs: must be an object, such as {}",))
    return found


def _texts(subject: str, arguments: JsonObject, *wanted: tuple[str, ...]) -> list[str]:
    """The texts that a tool needs, each under any of its keys.

    Raises:
        InvalidArguments: one of them is not there.
    """
    found = [next((arguments[key] for key in keys if arguments.get(key)), None) for keys in wanted]
    missing = [keys[0] for keys, value in zip(wanted, found, strict=True) if not isinstance(value, str)]
    if missing:
        details = [f"missing: {name} (string)" for name in missing]
        raise InvalidArguments(subject, details=details, next_call=NextCall("search"))
    return [str(value) for value in found]
