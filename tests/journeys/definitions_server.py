"""A stdio MCP server whose tools are read from a JSON file at each listing; standard library only.

Every tool echoes its name and arguments, but for: `announce` sends list_changed, `die` exits, `sleep` never answers.
"""

from __future__ import annotations

import json
import os
import sys


def write(message: object) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def call(id: object, name: str, arguments: dict[str, object]) -> None:
    """Answer one call, or do not."""
    if name == "announce":
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "die":
        os._exit(3)
    if name == "sleep":
        return
    text = json.dumps({"tool": name, "arguments": arguments})
    write({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


def answer(message: dict[str, object], file: str) -> None:
    """Answer one request."""
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    assert isinstance(params, dict)
    if id is None:
        return
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "definitions", "version": "1"},
        }
        write({"jsonrpc": "2.0", "id": id, "result": result})
    elif method == "tools/list":
        with open(file, encoding="utf-8") as definitions:
            write({"jsonrpc": "2.0", "id": id, "result": {"tools": json.load(definitions)}})
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {})
    else:
        write({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})


for line in sys.stdin:
    answer(json.loads(line), sys.argv[1])
