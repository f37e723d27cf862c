"""The text that a client of each surface reads first; loads nothing, since the first answer over stdio needs it."""

from __future__ import annotations

from collections.abc import Sequence

ROOM = 511
"""Characters that every client shows; some cut off what is beyond."""
EXAMPLE = "result(server.tool({ name = 'value' }):await())"
"""A script that calls one tool."""


def _as_many_as_fit(names: Sequence[str], room: int) -> str:
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
    named = _as_many_as_fit(names, room - len(head) - len(how)) if names else ""
    return f"{head} {noun}: {named}. {how}" if named else f"{head} {how}"
