"""A negotiated link, and what callers asked of the server that outlives one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from portico.domain.call import OnProgress

from .faults import BadStatus, Fault, RpcError
from .inbox import Inbox
from .link import FOREVER, Link, Patience
from .protocol import LOG_LEVEL_KEY, Welcome

SETTLING = 2.0
"""Seconds that a server gets to take the handshake in."""
RELISTEN = 1.0
RELISTEN_CAP = 60.0

_KINDS = ("tools", "prompts", "resources")
_STANDING = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


@dataclass(slots=True)
class Standing:
    """The log level and the watched resources of one server."""

    level: str = ""
    watched: set[str] = field(default_factory=set)

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a request that holds for later connections too."""
        uri = str(params.get("uri", ""))
        if method == "logging/setLevel":
            self.level = str(params.get("level", ""))
        elif method == "resources/subscribe":
            self.watched.add(uri)
        elif method == "resources/unsubscribe":
            self.watched.discard(uri)


class Connection:
    """One connection to a server, from the end of the handshake on."""

    def __init__(self, link: Link, welcome: Welcome, standing: Standing, inbox: Inbox, limit: float) -> None:
        self.link, self.welcome = link, welcome
        self._standing, self._inbox, self._limit = standing, inbox, limit
        self._rewritten = asyncio.Event()
        self._listening = anyio.CancelScope()
        self._is_settled = False
        self._apply_level()

    @property
    def is_watching(self) -> bool:
        """Whether somebody waits for news of a resource, so that the connection must stay."""
        return bool(self._standing.watched)

    async def request(
        self, method: str, params: Mapping[str, Any], patience: Patience, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        What 2026-07-28 no longer has as a request is done in its own way, so that callers need not know the era.
        """
        if method in _STANDING:
            return await self._stand(method, params, patience)
        return await self.link.request(method, params, patience, on_progress)

    async def attend(self) -> None:
        """Hear what the server says by itself, as long as the connection lives."""
        if self.link.dialect.is_modern:
            await self._attend_modern()
        else:
            await self._restore()
            await self.link.listen()

    async def settle(self) -> None:
        """Wait until the server has taken the handshake in: what it asks until then belongs to no call."""
        if self._is_settled or self.link.dialect.is_modern:
            return
        with suppress(Fault):  # an old server that knows no ping has taken it in all the same
            await self.link.request("ping", {}, Patience(SETTLING))
        self._is_settled = True

    async def aclose(self) -> None:
        """Close the link."""
        await self.link.aclose()

    async def _stand(self, method: str, params: Mapping[str, Any], patience: Patience) -> dict[str, Any]:
        if not self.link.dialect.is_modern:
            result = await self.link.request(method, params, patience)
            self._standing.note(method, params)
            return result
        self._standing.note(method, params)
        self._apply_level()
        if method.startswith("resources/"):
            self._rewritten.set()
            self._listening.cancel()
        return {}

    def _apply_level(self) -> None:
        dialect = self.link.dialect
        if dialect.is_modern and self._standing.level:
            envelope = {**dialect.envelope, LOG_LEVEL_KEY: self._standing.level}
            self.link.dialect = replace(dialect, envelope=envelope)

    async def _restore(self) -> None:
        try:
            if self._standing.level:
                await self.link.request("logging/setLevel", {"level": self._standing.level}, Patience(self._limit))
            for uri in sorted(self._standing.watched):
                await self.link.request("resources/subscribe", {"uri": uri}, Patience(self._limit))
        except Fault:
            # The server no longer offers it; whoever asks next is told.
            return

    async def _attend_modern(self) -> None:
        pause = RELISTEN
        while self.link.fault is None:
            self._rewritten.clear()
            wanted = self._wanted()
            if not wanted:
                await self._rewritten.wait()
                continue
            began = anyio.current_time()
            with anyio.CancelScope() as self._listening:
                if await self._listen(wanted):
                    return
            if self._listening.cancelled_caught:
                continue
            pause = RELISTEN if anyio.current_time() - began > RELISTEN_CAP else min(pause * 2, RELISTEN_CAP)
            await anyio.sleep(pause)
            # Nothing is replayed: what changed while nobody listened must be asked for.
            self._inbox.changed()

    async def _listen(self, wanted: Mapping[str, Any]) -> bool:
        """Listen until the stream ends; true when the server does not want to be listened to."""
        try:
            await self.link.request("subscriptions/listen", {"notifications": wanted}, FOREVER)
        except RpcError:
            return True
        except BadStatus as refused:
            return refused.status < 500
        except Fault:
            return self.link.fault is not None
        return False

    def _wanted(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True for kind in _KINDS if self.welcome.notifies_changes_of(kind)
        }
        if self._standing.watched:
            wanted["resourceSubscriptions"] = sorted(self._standing.watched)
        return wanted
