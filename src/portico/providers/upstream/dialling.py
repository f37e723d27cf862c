"""Opening connections: choosing the transport, greeting the server, remembering what it turned out to be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from anyio.abc import TaskGroup

from portico.domain.server import ServerSpec

from .connection import Connection, Standing
from .faults import BadStatus, Expired, Fault, Lost
from .inbox import Inbox
from .link import Link, OnLost
from .negotiation import Era, Negotiator
from .param_headers import HeaderMap
from .protocol import Welcome
from .stdio import start_child


class Dialler:
    """Opens connections to one server; what it has learned makes the next one quicker."""

    def __init__(self, spec: ServerSpec, inbox: Inbox, client: Mapping[str, str], era: Era) -> None:
        self.standing = Standing()
        self.link: Link | None = None
        """The newest link, kept for its last words."""
        self.header_maps: dict[str, HeaderMap] = {}
        """The declared headers of the tools last seen; filled in place, so that open links see it."""
        self._spec, self._inbox, self._client, self._era = spec, inbox, client, era
        self._is_sse = spec.transport == "sse"

    async def open(self, chores: TaskGroup, on_lost: OnLost) -> Connection:
        """Open and negotiate one connection; its background work runs among the chores.

        Raises:
            Fault: it cannot be opened.
        """
        deadline = asyncio.get_running_loop().time() + self._spec.timeouts.start
        negotiator = Negotiator(self._client, deadline)
        if self._spec.transport == "stdio":
            welcome = await self._by_stdio(negotiator, on_lost)
        elif self._is_sse:
            welcome = await self._by_sse(negotiator, chores, on_lost)
        else:
            welcome = await self._by_http(negotiator, chores, on_lost)
        self._era = Era.of(welcome.version)
        assert self.link is not None
        connection = Connection(self.link, welcome, self.standing, self._inbox, self._spec.timeouts.call)
        chores.start_soon(connection.attend)
        return connection

    async def _by_stdio(self, negotiator: Negotiator, on_lost: OnLost) -> Welcome:
        try:
            return await self._greet(await start_child(self._spec, self._inbox, on_lost), negotiator, self._era)
        except Lost:
            if self._era is not Era.UNKNOWN or self.link is None or self.link.fault is None:
                raise
        # Some servers end when anything but `initialize` comes first: once more, without the probe.
        child = await start_child(self._spec, self._inbox, on_lost)
        return await self._greet(child, negotiator, Era.HANDSHAKE)

    async def _by_http(self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost) -> Welcome:
        # aiohttp takes 0.2 s to import, which a gateway in front of stdio servers alone does not pay.
        from .http import HttpLink

        link = HttpLink(self._spec, self._inbox, chores, on_lost)
        link.header_maps = self.header_maps
        try:
            welcome = await self._greet(link, negotiator, self._era)
        except BadStatus as refused:
            if not 400 <= refused.status < 500:
                raise
            return await self._by_sse_instead(negotiator, chores, on_lost, refused)
        link.renew = partial(self._renew, link)
        return welcome

    async def _by_sse_instead(
        self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost, refused: BadStatus
    ) -> Welcome:
        """The rule of the specification for servers older than streamable HTTP."""
        try:
            welcome = await self._by_sse(negotiator, chores, on_lost)
        except Fault:
            raise refused from None
        self._is_sse = True
        return welcome

    async def _by_sse(self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost) -> Welcome:
        from .sse import open_stream

        peer = await open_stream(self._spec, self._inbox, chores, on_lost)
        return await self._greet(peer, negotiator, Era.HANDSHAKE)

    def expect(self, era: Era) -> None:
        """Try this era first, next time."""
        self._era = era

    async def _greet(self, link: Link, negotiator: Negotiator, era: Era) -> Welcome:
        self.link = link
        try:
            return await negotiator.agree(link, era)
        except Expired:
            await link.aclose()
            where = f"what it wrote to stderr is shown by: portico doctor {self._spec.name}"
            raise Lost(
                f"the server did not answer the handshake within {self._spec.timeouts.start:g} s",
                *([where] if link.stderr.strip() else []),
                "raise `timeouts.start` of this server if it needs longer",
            ) from None
        except BaseException:
            await link.aclose()
            raise

    async def _renew(self, link: Link) -> None:
        deadline = asyncio.get_running_loop().time() + self._spec.timeouts.start
        await Negotiator(self._client, deadline).shake_hands(link)
