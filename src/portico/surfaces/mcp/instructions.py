"""What a client reads first: the text of each surface, and the tools that `discover` lists.

Loads nothing, since the first answer over stdio needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


SEARCH, DESCRIBE, CALL, RUN = "search_tools", "describe_tools", "call_tool", "run_script"
READ = "read_result"
MOST_DESCRIBED = 8
_ALWAYS = {"anthropic/alwaysLoad": True}
# What is left out is the default, or means nothing beside these: every client reads them before its first question.
_READS = {"readOnlyHint": True, "openWorldHint": False}
_ACTS = {"readOnlyHint": False, "destructiveHint": True}

TOOLS: tuple[Mapping[str, Any], ...] = (
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
        "description": f"Full description, schema and example of up to {MOST_DESCRIBED} tools.",
        "inputSchema": {
            "type": "object",
            "properties": {"names": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_DESCRIBED}},
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


def definitions(*, scripts: bool) -> tuple[Mapping[str, Any], ...]:
    """Those that there are, with scripts or without."""
    return tuple(d for d in TOOLS if d["name"] != RUN or scripts)
