"""An MCP server over stdio that writes to stderr and ends when its tool is called, as often as it is started."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer until the input ends, or the tool is called."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        if asked["method"] == "initialize":
            info = {"name": "crashing", "version": "1"}
            result: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif asked["method"] == "tools/list":
            result = {
                "tools": [{"name": "crash", "inputSchema": {"type": "object"}}, {"name": "odd", "inputSchema": "none"}]
            }
        elif asked["method"] == "tools/call":
            sys.stderr.write(f"\x1b[31mout of cheese, {os.environ.get('CHEESE_TOKEN')}\n")
            sys.stderr.flush()
            os._exit(3)
        else:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}))
            sys.stdout.flush()
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
