"""The gateway's end of a worker's wire."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import cast

from .frames import BadFrame, Splitter
from .pipe import packed

HELD = 1 << 20
"""Bytes of frames that wait to be read before the worker has to wait."""
BEFORE_A_SCRIPT = 1_000
"""Bytes of the largest frame that a worker may send before it has a script."""


class Worker(asyncio.Protocol):
    """One worker as the gateway sees it: frames come and go, until it is lost."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_misbehaved = False
        """Whether it sent what no honest worker sends."""
        self._splitter = Splitter(BEFORE_A_SCRIPT, self._keep)
        self._frames: deque[bytes] = deque()
        self._held = 0
        self._is_lost = False
        self.on_lost: Callable[[Worker], None] | None = None
        """Who wants to know that it is lost while nobody reads its frames."""
        self._news = asyncio.Event()
        self._transport: asyncio.Transport

    @property
    def is_lost(self) -> bool:
        """Whether its end of the wire is closed."""
        return self._is_lost

    def has_ended(self) -> bool:
        """Whether its process has gone, even if nobody has been told yet."""
        wire = self._transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(wire.fileno(), select.POLLHUP)
        return bool(self._is_lost or poll.poll(0))

    @property
    def unread(self) -> int:
        """Bytes that were sent and not yet taken by the worker."""
        return self._transport.get_write_buffer_size()

    def allow(self, limit: int) -> None:
        """Set the size of the largest frame that it may send from now on."""
        self._splitter.limit = limit

    def send(self, body: bytes) -> None:
        """Send one frame; never waits."""
        if not self._transport.is_closing():
            self._transport.write(packed(body))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no frame."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def frame(self) -> bytes | None:
        """The next frame; none when the worker is lost and nothing is left of it."""
        while not self._frames:
            if self._is_lost:
                return None
            self._news.clear()
            await self._news.wait()
        body = self._frames.popleft()
        self._held -= len(body)
        if self._held <= HELD and not self._transport.is_closing():
            self._transport.resume_reading()
        return body

    def close(self) -> None:
        """Close the wire."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the wire."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Cut what comes into frames; a worker that sends nonsense is lost at once."""
        try:
            self._splitter.feed(data)
        except BadFrame:
            self.has_misbehaved = True
            self._transport.abort()
        if self._held > HELD and not self._transport.is_closing():
            self._transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """Remember that nothing more comes."""
        self._is_lost = True
        self._news.set()
        if self.on_lost is not None:
            self.on_lost(self)

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._held += len(frame)
        self._news.set()
