"""Finding out which revision a server speaks: the newest way first, the old handshake for everything else.

Only positive evidence makes a server modern. A probe that fails in any way, or takes too long, is no verdict: the
handshake decides, and a server that answers the handshake with "unsupported version" is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from .bounds import values_of
from .faults import Fault, Lost, RpcError
from .link import Link, Patience
from .protocol import HANDSHAKE, KNOWN, MODERN, SERVER_KEY, UNSUPPORTED_VERSION, Dialect, Welcome, modern_dialect
from .questions import DECLARED

PROBE = 2.0
"""Seconds that a server of unknown era gets to answer the probe."""


WELCOME_LIMIT = 1024 * 1024
"""Bytes of what a server says of itself."""
INSTRUCTIONS_LIMIT = 32_000
"""Characters of its instructions that are kept."""
CAPABILITIES_LIMIT = 1_000
"""Values in the capabilities that it declares; of more, only the names are kept."""


class Era(StrEnum):
    """How a server begins a connection."""

    UNKNOWN = "unknown"
    HANDSHAKE = "handshake"
    MODERN = "modern"

    @classmethod
    def of(cls, version: str) -> Era:
        """The era of a revision."""
        if version == MODERN:
            return cls.MODERN
        return cls.HANDSHAKE if version in HANDSHAKE else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Negotiator:
    """Agrees on a revision over a fresh link."""

    client: Mapping[str, str]
    deadline: float
    """When it must be done, by the loop's clock."""

    async def agree(self, link: Link, era: Era) -> Welcome:
        """Greet a server the way its era wants, or find out which that is.

        Raises:
            Fault: it speaks no revision that we know, or does not speak.
        """
        if era is Era.HANDSHAKE:
            return await self._shake_hands_or_discover(link)
        try:
            welcome = await self._discover(link, self._left if era is Era.MODERN else min(PROBE, self._left / 3))
        except RpcError as error:
            _refuse_strangers(error)
            welcome = None
        except Lost:
            raise
        except Fault:
            welcome = None
        return welcome or await self._shake_hands_or_discover(link)

    async def shake_hands(self, link: Link) -> Welcome:
        """Begin a session with `initialize`."""
        link.dialect = Dialect()
        params = {"protocolVersion": HANDSHAKE[-1], "capabilities": DECLARED, "clientInfo": self.client}
        result = await link.request("initialize", params, Patience(self._left, size=WELCOME_LIMIT))
        version = result.get("protocolVersion")
        if version not in HANDSHAKE:
            raise Lost(
                f"the server speaks protocol revision {str(version)[:40]!r}, which is not known here",
                f"known are {', '.join(KNOWN)}: use a version of the server that speaks one of them",
            )
        link.dialect = Dialect(version=version)
        await link.notify("notifications/initialized", {})
        return _welcome(version, result, result.get("serverInfo"))

    @property
    def _left(self) -> float:
        return max(0.01, self.deadline - asyncio.get_running_loop().time())

    async def _shake_hands_or_discover(self, link: Link) -> Welcome:
        try:
            return await self.shake_hands(link)
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            # A slow starter may have answered a probe that we had given up: it is modern, and says so now.
            welcome = await self._discover(link, self._left)
            if welcome is None:
                raise
            return welcome

    async def _discover(self, link: Link, limit: float) -> Welcome | None:
        link.dialect = modern_dialect(self.client)
        result = await link.request("server/discover", {}, Patience(limit, size=WELCOME_LIMIT))
        versions, capabilities = result.get("supportedVersions"), result.get("capabilities")
        if not isinstance(versions, list) or MODERN not in versions or not isinstance(capabilities, dict):
            return None
        meta = result.get("_meta")
        return _welcome(MODERN, result, meta.get(SERVER_KEY) if isinstance(meta, dict) else None)


def _welcome(version: str, result: Mapping[str, Any], info: Any) -> Welcome:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return Welcome(
        version=version,
        info=info if isinstance(info, dict) else {},
        capabilities=_bounded(capabilities) if isinstance(capabilities, dict) else {},
        instructions=instructions[:INSTRUCTIONS_LIMIT] if isinstance(instructions, str) else "",
    )


def _bounded(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    with suppress(TypeError):  # nested deeper than can be written again
        if values_of(orjson.dumps(capabilities)) <= CAPABILITIES_LIMIT:
            return capabilities
    return {kind: {} for kind in ("tools", "prompts", "resources", "logging", "completions") if kind in capabilities}


def _refuse_strangers(error: RpcError) -> None:
    """Raise when a server names its revisions and there is none that we know."""
    if error.code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return
    supported = error.data.get("supported")
    if isinstance(supported, list) and supported and not any(version in KNOWN for version in supported):
        names = ", ".join(str(version)[:40] for version in supported[:5])
        raise Lost(
            f"the server speaks protocol revision {names}, which is not known here",
            f"known are {', '.join(KNOWN)}: use a version of the server that speaks one of them",
        ) from error
