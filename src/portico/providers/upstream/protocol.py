"""The words of the protocol: revisions, codes, and the frames that we write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODERN = "2026-07-28"
"""The revision without sessions: every request carries an envelope in its `_meta`."""

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`, oldest first."""

KNOWN = (*HANDSHAKE, MODERN)

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{_PREFIX}protocolVersion"
CLIENT_KEY = f"{_PREFIX}clientInfo"
CAPABILITIES_KEY = f"{_PREFIX}clientCapabilities"
LOG_LEVEL_KEY = f"{_PREFIX}logLevel"
SERVER_KEY = f"{_PREFIX}serverInfo"

MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of one message from a server; a longer one fails it."""

VALUES_LIMIT = 500_000
"""Values in one message: objects, arrays, and their items. A server's `answer_values` counts instead."""

UNCANCELLABLE = frozenset({"initialize", "server/discover"})
"""Negotiation must not be cancelled, says the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How requests are spelled once a revision is agreed: its name, and the envelope where it wants one."""

    version: str = ""
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """Whether there is no session and every request stands alone."""
        return self.version == MODERN


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a server says of itself when a connection opens."""

    version: str
    info: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""

    def notifies_changes_of(self, kind: str) -> bool:
        """Whether the server tells when its `tools`, `prompts` or `resources` change."""
        declared = self.capabilities.get(kind)
        return isinstance(declared, dict) and declared.get("listChanged") is True


def client_info(version: str) -> dict[str, str]:
    """How we introduce ourselves."""
    return {"name": "portico", "title": "Portico", "version": version}


def modern_dialect(info: Mapping[str, Any]) -> Dialect:
    """The spelling of 2026-07-28; what the client of a call can be asked goes along with that call."""
    return Dialect(version=MODERN, envelope={VERSION_KEY: MODERN, CLIENT_KEY: info, CAPABILITIES_KEY: {}})


def stamped(params: Mapping[str, Any], envelope: Mapping[str, Any], token: int | None) -> Mapping[str, Any]:
    """The parameters with the envelope and our own progress token in their `_meta`.

    What the caller put under an envelope's key (its own capabilities, say) wins; a server without envelopes is not
    shown any of it.
    """
    own = params.get("_meta", {})
    if not envelope and token is None and not own:
        return params
    meta = {**envelope, **own} if envelope else {k: v for k, v in own.items() if not k.startswith(_PREFIX)}
    if token is not None:
        meta["progressToken"] = token
    return {**params, "_meta": meta}
