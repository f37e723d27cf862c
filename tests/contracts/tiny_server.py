"""A stdio MCP server of the standard library: its tools, as JSON, are its first argument."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def answer(method: str, params: dict[str, Any], tools: list[Any]) -> Any:
    if method == "initialize":
        info = {"name": "tiny", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": tools}
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    return None


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "die":
        os._exit(3)
    if name == "big":
        return {"content": [], "structuredContent": {"number": 2**53}}
    text = json.dumps(arguments, sort_keys=True)
    return {"content": [{"type": "text", "text": f"{name} {text}"}], "isError": name == "fail"}


def main() -> None:
    tools = json.loads(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, tools)
        reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not here"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
