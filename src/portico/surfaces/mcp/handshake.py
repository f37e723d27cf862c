"""The first answers of a connection, built by hand, because loading the SDK takes longer than some clients wait.

They say what the SDK's server says; the tests compare the two for every revision of the protocol.
"""

from __future__ import annotations

from typing import Any

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first."""
MODERN_VERSIONS = ("2026-07-28",)
"""Revisions whose requests each say who asks."""
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
LIST_TTL_MS = 30_000
NAME, TITLE = "portico", "Portico"

_CAPABILITIES = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}


def initialize_result(requested: str, instructions: str, version: str) -> dict[str, Any]:
    """The answer to `initialize`: the requested revision where it is known, else the newest."""
    return {
        "protocolVersion": requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": _CAPABILITIES,
        "serverInfo": _server_info(version),
        "instructions": instructions,
    }


def discover_result(instructions: str, version: str) -> dict[str, Any]:
    """The answer to `server/discover`."""
    said = {
        "supportedVersions": list(MODERN_VERSIONS),
        "capabilities": _CAPABILITIES,
        "instructions": instructions,
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return _modern(said, version)


def tools_result(tools: list[Any], version: str, *, modern: bool) -> dict[str, Any]:
    """The answer to `tools/list`."""
    if not modern:
        return {"tools": tools}
    return _modern({"tools": tools, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}, version)


def _modern(said: dict[str, Any], version: str) -> dict[str, Any]:
    return {**said, "resultType": "complete", "_meta": {SERVER_KEY: _server_info(version)}}


def _server_info(version: str) -> dict[str, str]:
    return {"name": NAME, "title": TITLE, "version": version}
