"""Starts the fork server, orders workers from it, speaks with them, and hears how they ended."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, cast

import anyio

from portico.errors import ScriptError

from .framing import END, FORK, ORDER, REPORT, BadFrame, Splitter, loaded, packed

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


COMMAND = (sys.executable, "-I", "-m", "portico.scripting.fork_server")
LEAVING = 5.0
"""Seconds that the fork server gets to end its workers and itself."""
STARTING = 30.0
"""Seconds that it gets to load what workers need; a busy machine takes its time."""
GONE = -1
"""How a worker ended whose fork server is gone, so that nobody can tell."""


class Minder:
    """One fork server, from its start to its end; when it has died, another one is needed."""

    def __init__(self) -> None:
        if not hasattr(socket, "send_fds") or not hasattr(os, "fork"):
            raise ScriptError("scripts need a system that can fork processes, such as Linux or macOS")
        ours, theirs = _sockets()
        self._reports = _Reports()
        self._orders, self._numbers = ours, count(1)
        self._is_given_up = False
        with theirs:
            try:
                self._process = subprocess.Popen(
                    COMMAND,
                    env={},
                    cwd="/",
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise ScriptError(f"the process for scripts cannot be started: {error.strerror}") from error

    async def open(self) -> Any:
        """Wait until the fork server is there; what it says of this machine."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._reports, sock=self._orders.dup())
        with anyio.move_on_after(STARTING):
            return await asyncio.shield(self._reports.hello)
        return None

    @property
    def pid(self) -> int:
        """The process of the fork server."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether the fork server has ended."""
        return self._reports.is_lost or self._is_given_up

    async def bear(self) -> Worker:
        """A new worker, which says itself when it is ready."""
        worker = Worker(next(self._numbers))
        ours, theirs = _sockets()
        # A nursery that does not take orders is as good as gone; its workers are lost with it.
        with theirs, suppress(OSError):
            socket.send_fds(self._orders, [ORDER.pack(FORK, worker.number)], [theirs.fileno()])
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
        except BaseException:
            ours.close()
            self._order_end(worker.number)
            raise
        return worker

    def end(self, worker: Worker) -> asyncio.Future[int]:
        """End a worker now; how it ended is told later: an exit code, or the negative number of a signal."""
        worker.close()
        ended = self._reports.expect(worker.number)
        self._order_end(worker.number)
        return ended

    def give_up(self) -> None:
        """End a fork server that does nothing any more; its workers end with it."""
        self._is_given_up = True
        self._process.kill()

    async def aclose(self) -> None:
        """End the fork server with all its workers."""
        self._orders.close()
        self._reports.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_leave, self._process))

    def _order_end(self, number: int) -> None:
        try:
            self._orders.send(ORDER.pack(END, number))
        except OSError:
            self._reports.give_up()


class _Reports(asyncio.Protocol):
    """What the fork server says: one frame about this machine, then a report on every worker that has ended."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self._expected: dict[int, asyncio.Future[int]] = {}
        self._buffer = bytearray()
        self._first = Splitter(100_000, self._greeted)
        self._transport: asyncio.Transport | None = None

    def expect(self, number: int) -> asyncio.Future[int]:
        """The end of a worker."""
        if number not in self._expected:
            self._expected[number] = asyncio.get_running_loop().create_future()
            if self.is_lost:
                self.give_up()
        return self._expected[number]

    def give_up(self) -> None:
        """Nobody will tell any more."""
        for future in self._expected.values():
            if not future.done():
                future.set_result(GONE)

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read the greeting, then reports."""
        if not self.hello.done():
            self._first.feed(data)
            return
        self._buffer += data
        while len(self._buffer) >= REPORT.size:
            number, status = REPORT.unpack(self._buffer[: REPORT.size])
            del self._buffer[: REPORT.size]
            if (future := self._expected.pop(number, None)) and not future.done():
                future.set_result(os.waitstatus_to_exitcode(status))

    def connection_lost(self, _: Exception | None) -> None:
        """The fork server is gone."""
        self.is_lost = True
        if not self.hello.done():
            self.hello.set_result(None)
        self.give_up()

    def _greeted(self, frame: bytes) -> None:
        self.hello.set_result(loaded(frame))


def _sockets() -> tuple[socket.socket, socket.socket]:
    """Our end and the other end of a new wire."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise ScriptError(f"a wire to the process for scripts cannot be made: {error.strerror}") from error
    ours.setblocking(False)
    return ours, theirs


def _leave(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(LEAVING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
