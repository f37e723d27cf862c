"""The `gateway` surface: servers, their tools, one tool, one answer, and then a Lua script that calls many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from portico.domain.call import Caller
from portico.domain.tool import Effect, Tool
from portico.errors import CallError, InvalidArguments, NextCall, PorticoError, Refused
from portico.rendering.cards import example_arguments, spell_call
from portico.results.own_blocks import OwnBlock
from portico.scripting.script_session import ScriptRunner, as_text, as_value, lua_call
from portico.surfaces.mcp.instructions import gateway_text
from portico.surfaces.mcp.surface import (
    READ,
    Envelope,
    JsonObject,
    MetaTool,
    Surface,
    error_result,
    run_script,
    switched_on,
    text_result,
    with_notes,
)

from . import DEFINITIONS, DETAILS, EXECUTE, INSPECT, SERVERS, TOOLS
from .listing import DETAILS_TOKENS, ListingPage, ServerListing

SAMPLE = "result(_ENV[args.server][args.tool](args.arguments):await())"
"""The script that inspects a tool: whatever the arguments are, they are data in it and never source."""
SERVER_KEYS = ("luaServerName", "serverName", "server")
TOOL_KEYS = ("luaToolName", "toolName", "tool", "name")  # where models write what is meant
DESTRUCTIVE = "it is marked as destructive, so no sample of it is made; read tool-details, and call it when you mean it"
_READ_ON = re.compile(r'read_result\(\{"id": "([^"]+)"\}\)')


@dataclass(slots=True)
class GatewaySurface(Surface):
    """Lists five tools, whatever the catalog holds."""

    scripts: ScriptRunner | None
    name: str = "gateway"
    listing: ServerListing = field(init=False)

    def __post_init__(self) -> None:
        self.listing = ServerListing(self.gateway)

    def instructions(self, caller: Caller) -> str:
        """Names the servers and the way from them to a script, within the first 512 characters."""
        view = self.gateway.view(caller)
        names = sorted(view.snapshot.servers[name].identifier for name in view.facets.servers)
        return gateway_text(len(view.visible), names)

    @property
    def own(self) -> Sequence[JsonObject]:
        """The five."""
        return DEFINITIONS

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The five, which wait for no server."""
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The five."""
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

    def spell(self, call: NextCall) -> str:
        """The next call as one of the five; a tool of the catalog is called in a script."""
        given = call.parameters
        if call.action == "call":
            script = f"result({lua_call(str(given.get('name', '')), given.get('arguments') or {})})"
            return spell_call(EXECUTE, {"script": script})
        if call.action == READ:
            return spell_call(EXECUTE, {"script": f"result({lua_call('_gateway.read_result', given)})"})
        if call.action == "run":
            return spell_call(EXECUTE, given)
        if call.action == "browse":
            return spell_call(TOOLS, {"luaServerName": given.get("server", "")})
        names = given.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            server, _, tool = str(names[0]).partition(".")
            return spell_call(DETAILS, {"luaServerName": server, "luaToolName": tool})
        return spell_call(SERVERS, {})

    async def _servers(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        starting = await self.gateway.wait_until_ready()
        return _page_result(self.listing.servers(self.gateway.view(caller), sorted(starting)))

    async def _tools(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            (server,) = _texts(TOOLS, arguments, SERVER_KEYS)
            view, cursor = self.gateway.view(caller), arguments.get("cursor")
            return _page_result(self.listing.tools(view, server, cursor if isinstance(cursor, str) else ""))
        except PorticoError as error:
            return self._refuse(error)

    async def _details(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            server, name = _texts(DETAILS, arguments, SERVER_KEYS, TOOL_KEYS)
            return _page_result(self.listing.details(self.gateway.view(caller), server, name))
        except PorticoError as error:
            return self._refuse(error)

    async def _inspect(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        await self.gateway.wait_until_ready()
        try:
            server, name = _texts(INSPECT, arguments, SERVER_KEYS, TOOL_KEYS)
            tool = self.listing.tool(self.gateway.view(caller), server, name)
            given = _sample(arguments)
            known = tool.output_schema or self.gateway.executor.learned_schemas.shape_of(tool)
            if tool.effect is Effect.DESTRUCTIVE:
                again = NextCall("describe", {"names": [tool.handle]})
                raise Refused(tool.handle, details=(DESTRUCTIVE,), next_call=again)
            if given is None and known and self.gateway.counter.count(as_text(known)) <= DETAILS_TOKENS:
                return _known_result(tool, known)
            server, _, name = tool.handle.partition(".")
            asked = {"server": server, "tool": name, "arguments": given or {}}
            return self._lead_on(with_notes(await switched_on(self.scripts, INSPECT).run(caller, SAMPLE, asked)))
        except PorticoError as error:
            return self._refuse(error)

    async def _execute(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return self._lead_on(await run_script(self.scripts, caller, EXECUTE, arguments, self.spell))

    def _lead_on(self, result: JsonObject) -> JsonObject:
        """A result that was shortened, with the way to the rest in a script: this surface lists no `read_result`."""

        def lead_on(block: JsonObject) -> JsonObject:
            if not isinstance(block, OwnBlock) or "shortened: " not in block["text"]:
                return block
            text = _READ_ON.sub(lambda found: self.spell(NextCall(READ, {"id": found[1]})), block["text"], 1)
            return OwnBlock(block, text=text)

        return {**result, "content": [*map(lead_on, result["content"])]}

    def _refuse(self, error: PorticoError) -> JsonObject:
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
