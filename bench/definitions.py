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
    try:
        given = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, OSError, EOFError) as error:
        raise SystemExit(f"error: {path}: this is no JSON, gzipped or not: {error}") from error
    found: dict[str, list[Definition]] = {}
    for server, tools in _entries(given, path):
        found[_unlike(found, server)] = tools
    return found


def beside(first: Mapping[str, list[Definition]], more: Mapping[str, list[Definition]]) -> dict[str, list[Definition]]:
    """More servers, renamed where the first ones have the name already."""
    found = dict(first)
    for server, tools in more.items():
        found[_unlike(found, server)] = tools
    return {server: tools for server, tools in found.items() if server not in first}


def _entries(given: Any, path: Path) -> Iterator[tuple[str, list[Definition]]]:
    listed = given if isinstance(given, list) else [given]
    pairs = ((row.get("server"), row) if isinstance(row, dict) else (None, row) for row in listed)
    for server, entry in given.items() if isinstance(given, dict) else pairs:
        tools = entry.get("tools") if isinstance(entry, dict) else entry
        if not isinstance(server, str) or not isinstance(tools, list):
            wanted = 'each entry needs a "server" and a list of "tools", see docs/guides/replay.md'
            raise SystemExit(f"error: {path}: {wanted}")
        yield server, tools


def _unlike(known: Mapping[str, object], server: str) -> str:
    number, name = 1, server
    while name in known:
        number += 1
        name = f"{server} {number}"
    return name
