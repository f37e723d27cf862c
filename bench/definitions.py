"""Tool definitions in files: what `tools/list` of many servers returned, as JSON, gzipped or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Definition = dict[str, Any]


def read_definitions(path: Path) -> dict[str, list[Definition]]:
    """The tools of each server in a file: a list of `{"server", "tools"}`, or an object with the servers as its keys.

    A second server of one name gets a number, so that none is lost.
    """
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    found: dict[str, list[Definition]] = {}
    for server, tools in _entries(json.loads(text), path):
        found[_unlike(found, server)] = tools
    return found


def beside(first: Mapping[str, list[Definition]], more: Mapping[str, list[Definition]]) -> dict[str, list[Definition]]:
    """More servers, renamed where the first ones have the name already."""
    found = dict(first)
    for server, tools in more.items():
        found[_unlike(found, server)] = tools
    return {server: tools for server, tools in found.items() if server not in first}


def _entries(given: Any, path: Path) -> Iterator[tuple[str, list[Definition]]]:
    rows = given.items() if isinstance(given, dict) else ((row.get("server"), row) for row in given)
    for server, entry in rows:
        tools = entry.get("tools") if isinstance(entry, dict) else entry
        if not isinstance(server, str) or not isinstance(tools, list):
            raise SystemExit(f'{path}: each entry needs a "server" and a list of "tools", see docs/guides/replay.md')
        yield server, tools


def _unlike(known: Mapping[str, object], server: str) -> str:
    number, name = 1, server
    while name in known:
        number += 1
        name = f"{server} {number}"
    return name
