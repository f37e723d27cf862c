"""The next call, spelled as an agent on the discover surface would write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from portico.errors import NextCall

Spell = Callable[[NextCall], str]
"""How a surface words the call that would move its caller on."""

_META_TOOLS = {
    "search": "search_tools",
    "describe": "describe_tools",
    "call": "call_tool",
    "read_result": "read_result",
    "run": "run_script",
}


def as_meta_tool(call: NextCall) -> str:
    """A call of one of the meta-tools; whatever they cannot do begins with the map."""
    if call.action not in _META_TOOLS:
        return spelled("search_tools", {"query": ""})
    return spelled(_META_TOOLS[call.action], call.parameters)


def spelled(tool: str, arguments: Mapping[str, Any]) -> str:
    """A tool with its arguments as JSON."""
    return f"{tool}({json.dumps(dict(arguments), ensure_ascii=False, default=str)})"
