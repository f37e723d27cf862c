"""The `gateway` surface: servers, their tools, one tool, one answer, and then a Lua script that calls many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.domain.call import Caller
from portico.domain.foreign_text import OwnBlock
from portico.domain.tool import Effect, Tool
from portico.errors import CallError, InvalidArguments, NextCall, PorticoError, Refused
from portico.gateway import Gateway
from portico.rendering.cards import example_arguments
from portico.rendering.lua import call as lua_call
from portico.rendering.next_call import spelled
from portico.scripting.session import Scripts, as_text, as_value
from portico.surfaces.mcp.instructions import gateway_text
from portico.surfaces.mcp.meta_tools import READ, error_result, run_script, switched_on, text_result, with_notes
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool

from .listing import DETAILS_TOKENS, Directory, Page

SERVERS, TOOLS, DETAILS = "list-servers", "list-server-tools", "tool-details"
INSPECT, EXECUTE = "inspect-tool-response", "execute"

_READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ACTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
_SERVER = {"type": "string", "description": "Lua identifier of the server, from list-servers"}
_TOOL = {"type": "string", "description": "Lua identifier of the tool, from list-server-tools"}


def _definition(name: str, title: str, description: str, hints: JsonObject, **properties: Any) -> JsonObject:
    """A definition; a property with a `?` after its name is optional."""
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {key.rstrip("?"): schema for key, schema in properties.items()},
            "required": [key for key in properties if not key.endswith("?")],
        },
        "annotations": {"title": title, **hints},
        "_meta": {"anthropic/alwaysLoad": True},
    }


DEFINITIONS: tuple[JsonObject, ...] = (
    _definition(
        SERVERS,
        "List servers",
        "The MCP servers that scripts can use, each with its Lua identifier. Start here.",
        _READS,
    ),
    _definition(
        TOOLS,
        "List a server's tools",
        "One line for each tool of a server, with its Lua identifier. Cheap: ask for several servers at once.",
        _READS,
        luaServerName=_SERVER,
        **{"cursor?": {"type": "string", "description": "from the last answer"}},
    ),
    _definition(
        DETAILS,
        "Tool details",
        "Description, parameters and a Lua example of one tool. They stay the same until the server's tools change.",
        _READS,
        luaServerName=_SERVER,
        luaToolName=_TOOL,
    ),
    _definition(
        INSPECT,
        "Inspect a tool's response",
        "See the structure of a tool's response. WARNING: this ACTUALLY EXECUTES the tool. Use it sparingly: only for"
        " read-only or idempotent tools, with minimal cost, when you need the structure and tool-details does not"
        " tell it. A structure that is already known is told without executing anything.",
        _ACTS,
        luaServerName=_SERVER,
        luaToolName=_TOOL,
        **{"sampleArgs?": {"type": "object", "description": "arguments of the sample call"}},
    ),
    _definition(
        EXECUTE,
        "Execute a script",
        "Run a Lua 5.4 script with every server as a global: `local sum = calculator.add({ a = 5, b = 3 }):await()`,"
        " then `result(sum)` says what comes back. A call starts at once and :await() waits for it; await_all({...})"
        " waits for several. Combine calls in one script: only its result costs you tokens.",
        _ACTS,
        script={"type": "string", "description": "Lua code"},
    ),
)


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
    scripts: Scripts | None
    name: str = "gateway"
    directory: Directory = field(init=False)

    def __post_init__(self) -> None:
        self.directory = Directory(self.gateway)

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
        starting = await self.gateway.settled()
        return _page_result(self.directory.servers(caller, sorted(starting)))

    async def _tools(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.settled()
        try:
            (server,) = _texts(TOOLS, arguments, SERVER_KEYS)
            cursor = arguments.get("cursor")
            return _page_result(self.directory.tools(caller, server, cursor if isinstance(cursor, str) else ""))
        except PorticoError as error:
            return self._refused(error)

    async def _details(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.settled()
        try:
            server, name = _texts(DETAILS, arguments, SERVER_KEYS, TOOL_KEYS)
            tool = self.directory.tool(caller, server, name)
            return _page_result(self.directory.details(caller, server, name, self._learned(tool)))
        except PorticoError as error:
            return self._refused(error)

    async def _inspect(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.settled()
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


def _page_result(page: Page) -> JsonObject:
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
