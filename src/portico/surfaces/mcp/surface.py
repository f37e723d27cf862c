"""What a surface is: it decides what is listed, and what a client reads first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from portico.domain.call import Call, Caller, OnProgress
from portico.errors import NextCall

ROOM = 511
"""Characters that every client shows; some cut off what is beyond."""
EXAMPLE = "result(server.tool({ name = 'value' }):await())"
"""A script that calls one tool."""


def as_many_as_fit(names: Sequence[str], room: int) -> str:
    """Names with commas between them, then how many were left out."""
    shown: list[str] = []
    for name in names:
        if len(", ".join([*shown, name])) + len(" and 999 more") > room:
            break
        shown.append(name)
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def discover_text(tools: int | None, servers: Sequence[str], *, scripts: bool) -> str:
    """The text of the surface `discover`."""
    head = f"Portico: {_count(tools, servers)} behind search_tools, describe_tools, call_tool."
    how = (
        'To act: search_tools({"query": "create issue"}), then call_tool({"name": "server.tool", "arguments":'
        " {...}}) with a signature it returned; describe_tools only if one has ~. Search before saying that a"
        " tool is missing."
    )
    how += " For many calls at once: run_script." if scripts else ""
    return _joined(head, "Servers", servers, how, ROOM - len(" Servers: ."))


def static_text(servers: Sequence[str]) -> str:
    """The text of the surface `static`."""
    return f"Portico passes on the tools of these servers, each named server__tool: {', '.join(servers)}"[:ROOM]


def search_text(tools: int | None, servers: Sequence[str]) -> str:
    """The text of the surface `search`."""
    head = f"Portico: {_count(tools, servers)} behind search_tool and execute_tool."
    how = (
        'To act: search_tool({"query": "table list"}), then search_tool with one name for its parameters, then'
        ' execute_tool({"tool_name": "...", "arguments": {...}}).'
    )
    return _joined(head, "Servers", servers, how, 400)


def capabilities_text(tools: int | None, categories: Sequence[str], *, inventory: str, schema: str) -> str:
    """The text of the surface `capabilities`, whose two tools are called `inventory` and `schema`."""
    count = "tools" if tools is None else f"{tools} tools in {len(categories)} categories"
    head = f"Portico: {count} behind {inventory} and {schema}."
    how = (
        f'To act: {inventory}({{}}), then {schema}({{"tool": "..."}}) for its parameters, then call the tool'
        " itself by that name, although it is not listed."
    )
    return _joined(head, "Categories", categories, how, 500 - len(" Categories: ."))


def gateway_text(tools: int | None, servers: Sequence[str]) -> str:
    """The text of the surface `gateway`."""
    head = f"Portico: {_count(tools, servers)}, called from Lua scripts."
    how = (
        'To act: list-servers({}), list-server-tools({"luaServerName": "..."}), tool-details for what you will call,'
        f' then execute({{"script": "{EXAMPLE}"}}): one script calls many tools, and only its result comes back.'
    )
    return _joined(head, "Servers", servers, how, ROOM - len(" Servers: ."))


def _count(tools: int | None, servers: Sequence[str]) -> str:
    return f"tools of {len(servers)} servers" if tools is None else f"{tools} tools of {len(servers)} servers"


def _joined(head: str, noun: str, names: Sequence[str], how: str, room: int) -> str:
    named = as_many_as_fit(names, room - len(head) - len(how)) if names else ""
    return f"{head} {noun}: {named}. {how}" if named else f"{head} {how}"


JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What travels beside the arguments of a call."""

    meta: JsonObject = field(default_factory=dict)
    on_progress: OnProgress | None = None
    answers: JsonObject | None = None

    def around(self, tool: str, arguments: JsonObject, *, needs_structured: bool = False) -> Call:
        """The call with all of it."""
        return Call(
            tool=tool,
            arguments=arguments,
            meta=self.meta,
            on_progress=self.on_progress,
            answers=self.answers,
            needs_structured=needs_structured,
        )


class Surface(Protocol):
    """One way in over MCP."""

    @property
    def name(self) -> str:
        """The name in paths and options."""
        ...

    def instructions(self, caller: Caller) -> str:
        """What a client reads first; its first 512 characters stand alone."""
        ...

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The definitions that are listed, in a fixed order."""
        ...

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same for the snapshot of this moment, without waiting for servers that have not been asked yet."""
        ...

    def meta_tool(self, name: str) -> MetaTool | None:
        """The surface's own tool of that name; all other names are tools of the catalog."""
        ...

    def schema_of(self, name: str) -> JsonObject | None:
        """The input schema of one of the surface's own tools."""
        ...

    def spell(self, call: NextCall) -> str:
        """The next call in the words of this surface."""
        ...


MetaTool = Callable[[Caller, JsonObject, Envelope], Awaitable[JsonObject]]
"""Caller, arguments and what travels beside them -> a tool result."""
