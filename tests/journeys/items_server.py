"""A stdio MCP server with prompts, resources and templates from a JSON file; each answer names the server's label."""

from __future__ import annotations

import json
import sys
from typing import Any

LABEL, FILE = sys.argv[1:3]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of one request; None where there is no such method."""
    with open(FILE, encoding="utf-8") as file:
        offered = json.load(file)
    says = {"type": "text", "text": LABEL}
    return {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"prompts": {}, "resources": {}, "completions": {}, "tools": {}},
            "serverInfo": {"name": LABEL, "version": "1"},
        },
        "tools/list": {"tools": offered.get("tools", [])},
        "tools/call": {"content": [says]},
        "prompts/list": {"prompts": offered.get("prompts", [])},
        "prompts/get": {"messages": [{"role": "user", "content": says}]},
        "resources/list": {"resources": offered.get("resources", [])},
        "resources/templates/list": {"resourceTemplates": offered.get("templates", [])},
        "resources/read": {"contents": [{"uri": params.get("uri", ""), "text": f"{LABEL} {params.get('uri')}"}]},
        "completion/complete": {"completion": {"values": [LABEL]}},
    }.get(method)


for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") is not None:
        result = answer(message["method"], message.get("params") or {})
        reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()
