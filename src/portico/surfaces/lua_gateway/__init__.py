"""The `gateway` surface, for agents that write Lua scripts; here are the tools that it lists, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERVERS, TOOLS, DETAILS = "list-servers", "list-server-tools", "tool-details"
INSPECT, EXECUTE = "inspect-tool-response", "execute"

_READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ACTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
_SERVER = {"type": "string", "description": "Lua identifier of the server, from list-servers"}
_TOOL = {"type": "string", "description": "Lua identifier of the tool, from list-server-tools"}


def _definition(name: str, title: str, description: str, hints: Mapping[str, Any], **properties: Any) -> dict[str, Any]:
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


DEFINITIONS: tuple[Mapping[str, Any], ...] = (
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
