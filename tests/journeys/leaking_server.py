"""A stdio MCP server that tells everything it was given, wherever it can; standard library only."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

KNOWN = [*sys.argv[1:], *(value for name, value in os.environ.items() if name.startswith("CANARY"))]
WORDS = " ".join(KNOWN)
TOOLS = [
    {"name": name, "description": f"Does {name}", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("refuse", "fail", "die", "notify")
]
INFO = {"name": "leaking", "version": "1"}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": f"no such method with {WORDS}", "data": {"known": KNOWN}}}
    if params["name"] == "die":
        print(f"dying with {WORDS}", file=sys.stderr, flush=True)
        sys.exit(3)
    if params["name"] == "fail":
        return {"result": {"content": [{"type": "text", "text": f"failed with {WORDS}"}], "isError": True}}
    return {"error": {"code": -32000, "message": f"refused with {WORDS}", "data": {"known": KNOWN}}}


if __name__ == "__main__":
    if "CANARY_AT_START" in os.environ:
        print(f"cannot start with {WORDS}", file=sys.stderr, flush=True)
        sys.exit(4)
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("id") is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer(request)}) + "\n")
            sys.stdout.flush()
