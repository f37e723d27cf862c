"""The `discover` surface, the default, and the tools that it lists; this module loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
