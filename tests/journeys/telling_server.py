"""An MCP server over stdio that tells its process id, and waits where it is told to; several calls go on at once."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

LOCK = threading.Lock()
WAIT = {"type": "object", "properties": {"began": {"type": "string"}, "until": {"type": "string"}}}


def main(name: str) -> None:
    """Answer until the input ends. The first word of the command line is in the names of the tools."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            threading.Thread(target=answer, args=(name, asked), daemon=True).start()


def answer(name: str, asked: dict[str, Any]) -> None:
    """Answer one request."""
    params = asked.get("params", {})
    if asked["method"] == "initialize":
        info = {"name": name, "version": "1"}
        result: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        pid = {"name": f"{name}_pid", "description": f"Process of {name}", "inputSchema": {"type": "object"}}
        wait = {"name": f"{name}_wait", "description": f"Let {name} wait for a file", "inputSchema": WAIT}
        result = {"tools": [pid, wait]}
    elif asked["method"] == "tools/call":
        if params["name"].endswith("_wait"):
            wait_for(**params["arguments"])
        result = {"content": [{"type": "text", "text": f"{name} {os.getpid()} {os.environ.get('WORD', '')}"}]}
    else:
        say({"id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
        return
    say({"id": asked["id"], "result": result})


def wait_for(began: str, until: str) -> None:
    """Make one file, and wait until there is another."""
    Path(began).touch()
    while not Path(until).exists():
        threading.Event().wait(0.02)


def say(message: dict[str, Any]) -> None:
    """Send one message."""
    with LOCK:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
