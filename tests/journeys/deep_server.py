"""A stdio MCP server whose answers are nested as deeply as they are asked for; standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"depth": {"type": "integer"}, "where": {"type": "string"}},
    "required": ["depth", "where"],
}
TOOLS = [{"name": "dig", "description": "Dig a deep hole", "inputSchema": PARAMETERS}]
PLACES = {
    "structured": '{"content": [], "structuredContent": {"a": DEEP}}',
    "meta": '{"content": [{"type": "text", "text": "done"}], "_meta": {"a": DEEP}}',
    "block": '{"content": [{"type": "text", "text": "done", "annotations": DEEP}]}',
    "content": '{"content": DEEP}',
}


def answer(message: dict[str, Any]) -> str:
    """The result of one request, as text: no encoder would write what is nested so deeply."""
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        depth = params["arguments"]["depth"]
        return PLACES[params["arguments"]["where"]].replace("DEEP", "[" * depth + "]" * depth)
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "deep", "version": "1"}
        return json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    return json.dumps({"tools": TOOLS})


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in ("initialize", "tools/list", "tools/call"):
            print(f'{{"jsonrpc": "2.0", "id": {json.dumps(message["id"])}, "result": {answer(message)}}}', flush=True)
        elif "id" in message:
            error = {"code": -32601, "message": "no such method"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)


if __name__ == "__main__":
    main()
