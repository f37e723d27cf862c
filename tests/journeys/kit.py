"""Servers for journeys that need to misbehave or to change."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("definitions_server.py")


def definition(name: str, description: str = "", **properties: str) -> dict[str, Any]:
    """A tool definition with string-typed (or otherwise typed) required parameters."""
    return {
        "name": name,
        "description": description or f"Does {name}",
        "inputSchema": {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in properties.items()},
            "required": list(properties),
            "additionalProperties": False,
        },
    }


def serving(file: Path, definitions: list[Any]) -> dict[str, Any]:
    """The config entry of a server that offers these definitions, read anew at each listing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(definitions))
    return {"command": sys.executable, "args": [str(SERVER), str(file)]}
