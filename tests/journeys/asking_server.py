"""A stdio MCP server of the handshake era that asks its client in the middle of a call; standard library only.

It lists a tool for each thing that its client says it can be asked; a call returns what the client answered.
"""

from __future__ import annotations

import json
import sys
from typing import Any

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "elicitation": (
        "elicitation/create",
        {
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    ),
    "sampling": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}], "maxTokens": 10},
    ),
    "roots": ("roots/list", {}),
}
waiting: dict[str, Any] = {}
can: dict[str, Any] = {}


def write(message: dict[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def take_request(id: Any, method: str, params: dict[str, Any]) -> None:
    """Answer one request, or ask first."""
    if method == "initialize":
        can.update(params["capabilities"])
        info = {"name": "asking", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        write({"id": id, "result": result})
    elif method == "tools/list":
        names = ["visit_first", *(f"ask_{kind}" for kind in can)]
        write({"id": id, "result": {"tools": [{"name": name, "inputSchema": {}} for name in names]}})
    elif method == "tools/call" and params["name"] == "visit_first":
        first = {"mode": "url", "url": "https://example.com", "message": "Sign in", "elicitationId": "1"}
        write({"id": id, "error": {"code": -32042, "message": "sign in first", "data": {"elicitations": [first]}}})
    elif method == "tools/call":
        asked, given = QUESTIONS[params["name"].removeprefix("ask_")]
        waiting[f"q{id}"] = id
        write({"id": f"q{id}", "method": asked, "params": given})
    elif method == "ping":
        write({"id": id, "result": {}})
    else:
        write({"id": id, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    """Read until the end of the input."""
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            take_request(message["id"], message["method"], message.get("params") or {})
        elif message.get("id") in waiting:
            said = json.dumps({key: message[key] for key in ("result", "error") if key in message})
            result = {"content": [{"type": "text", "text": said}], "isError": "error" in message}
            write({"id": waiting.pop(message["id"]), "result": result})


if __name__ == "__main__":
    main()
