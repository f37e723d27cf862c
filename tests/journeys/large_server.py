"""A stdio MCP server whose tools return as much as they are asked for; standard library only."""

from __future__ import annotations

import json
import sys
from typing import Any

ROW = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "mail": {"type": "string"}, "text": {"type": "string"}},
    "required": ["n", "mail", "text"],
}
ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": ROW}, "total": {"type": "integer"}},
    "required": ["rows", "total"],
}
PARAMETERS = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "offset": {"type": "integer"}, "fields": {"type": "string"}},
    "required": ["count"],
}
TOOLS = [
    {"name": "rows", "description": "Rows of a table as JSON", "inputSchema": PARAMETERS},
    {"name": "typed", "description": "Rows with a schema", "inputSchema": PARAMETERS, "outputSchema": ROWS},
    {"name": "log", "description": "Lines of a log", "inputSchema": PARAMETERS},
    {"name": "scan", "description": "A picture with a long text", "inputSchema": PARAMETERS},
]
PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def rows(count: int) -> dict[str, Any]:
    """A table."""
    found = [{"n": n, "mail": f"user{n}@example.com", "text": "some words about it"} for n in range(count)]
    return {"rows": found, "total": count}


def result(name: str, count: int) -> dict[str, Any]:
    """What a tool returns."""
    if name == "typed":
        value = rows(count)
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
    text = json.dumps(rows(count)) if name == "rows" else "\n".join(f"line {n} of the log" for n in range(count))
    content = [{"type": "text", "text": text}]
    return {"content": [PICTURE, *content] if name == "scan" else content}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "large", "version": "1"}
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return {"result": result(params["name"], params["arguments"]["count"])}
    return {"error": {"code": -32601, "message": "no such method"}}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("id") is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer(request)}) + "\n")
            sys.stdout.flush()
