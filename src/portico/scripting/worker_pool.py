"""Processes that run scripts: the fork server that makes them, and a pool that keeps some of them ready."""

from __future__ import annotations

import asyncio
import logging
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

from portico.errors import ScriptError, install_hint

from .protocol import END, FORK, ORDER, REPORT, BadFrame, FrameSplitter, load_object, pack

COMMAND = (sys.executable, "-I", "-m", "portico.scripting.fork_server")
HELD = 1 << 20  # bytes of frames that wait to be read before the worker has to wait
SMALL_FRAME = 1_000  # bytes of the largest frame that a worker may send before it has a script, and a fork server ever
GREETING = 100_000  # bytes of the first frame of a fork server
START_SECONDS = 30.0  # for the fork server to load what workers need; a busy machine takes its time
STOP_SECONDS = 5.0  # for it to end its workers and itself
READY_SECONDS = 10.0  # for a worker, on the busiest machine; a fork server that takes longer has been stopped
REFILL_DELAY = 0.01  # so that making the next worker does not hold up the script that took the last one
ATTEMPTS, RETRY_DELAY = 3, 0.2  # for workers that die before they are ready
GONE = -1  # how a worker ended whose fork server is gone, so that nobody can tell

logger = logging.getLogger(__name__)


class Worker(asyncio.Protocol):
    """The gateway's connection to one worker process: frames come and go until it is lost."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_misbehaved = self.is_lost = False
        self.on_lost: Callable[[Worker], None] | None = None
        self._splitter = FrameSplitter(SMALL_FRAME, self._keep)
        self._frames: deque[bytes] = deque()
        self._held = 0
        self._news = asyncio.Event()
        self._transport: asyncio.Transport

    def has_ended(self) -> bool:
        """Whether its process has gone, even if this has not been reported yet."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLHUP)
        return bool(self.is_lost or poll.poll(0))

    @property
    def unread(self) -> int:
        """Bytes that were sent and not yet taken by the worker."""
        return self._transport.get_write_buffer_size()

    def allow(self, limit: int) -> None:
        """Set the size of the largest frame that it may send from now on."""
        self._splitter.limit = limit

    def send(self, body: bytes) -> None:
        """Send one frame; never waits."""
        self.send_raw(pack(body))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no frame."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def frame(self) -> bytes | None:
        """The next frame; None when the worker is lost and nothing is left of it."""
        while not self._frames:
            if self.is_lost:
                return None
            self._news.clear()
            await self._news.wait()
        body = self._frames.popleft()
        self._held -= len(body)
        if self._held <= HELD and not self._transport.is_closing():
            self._transport.resume_reading()
        return body

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Cut what comes into frames; a worker that breaks the protocol is lost at once."""
        try:
            self._splitter.feed(data)
        except BadFrame:
            self.has_misbehaved = True
            self._transport.abort()
        if self._held > HELD and not self._transport.is_closing():
            self._transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """Wake whoever waits for a frame."""
        self.is_lost = True
        self._news.set()
        if self.on_lost is not None:
            self.on_lost(self)

    def _keep(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._held += len(frame)
        self._news.set()


class ForkServer(asyncio.Protocol):
    """One fork server process, from its start to its end; when it has died, another one is needed.

    Its frames are a greeting about this machine, then a report on every worker that has ended.
    """

    def __init__(self) -> None:
        if not hasattr(socket, "send_fds") or not hasattr(os, "fork"):
            raise ScriptError("scripts need a system that can fork processes, such as Linux or macOS")
        self.is_gone = False
        self._orders, theirs = _socket_pair()
        self._greeting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._numbers = count(1)
        self._splitter = FrameSplitter(GREETING, self._take)
        self._transport: asyncio.Transport | None = None
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
                self._orders.close()
                raise ScriptError(f"the process for scripts cannot be started: {error.strerror}") from error
        self.pid = self._process.pid

    async def greeting(self) -> Any:
        """Wait until the fork server is ready; what it says of this machine, or None."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._orders.dup())
        with anyio.move_on_after(START_SECONDS):
            return await asyncio.shield(self._greeting)
        return None

    async def fork(self) -> Worker:
        """A new worker, which says itself when it is ready."""
        worker = Worker(next(self._numbers))
        ours, theirs = _socket_pair()
        # A fork server that does not take orders is as good as gone; its workers are lost with it.
        with theirs, suppress(OSError):
            socket.send_fds(self._orders, [ORDER.pack(FORK, worker.number)], [theirs.fileno()])
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
        except BaseException:
            ours.close()
            self._order_end(worker.number)
            raise
        return worker

    async def fork_ready(self) -> Worker:
        """A new worker that is ready for its script.

        Raises:
            ScriptError: it did not become ready.
        """
        worker = await self.fork()
        first = None
        try:
            with anyio.move_on_after(READY_SECONDS) as waiting:
                first = await worker.frame()
        except BaseException:
            self.end(worker)
            raise
        if waiting.cancelled_caught:
            self.kill()
        if first is None:
            with anyio.move_on_after(READY_SECONDS):
                await self.end(worker)
            raise ScriptError("a process for the script could not be made: try again")
        return worker

    def end(self, worker: Worker) -> asyncio.Future[int]:
        """End a worker now; how it ended comes later: an exit code, or the negative number of a signal."""
        worker.close()
        ended = self._ends.setdefault(worker.number, asyncio.get_running_loop().create_future())
        if self.is_gone:
            self._give_up()
        self._order_end(worker.number)
        return ended

    def kill(self) -> None:
        """End a fork server that does nothing any more; its workers end with it."""
        self.is_gone = True
        self._process.kill()

    async def aclose(self) -> None:
        """End the fork server with all its workers."""
        self._orders.close()
        if self._transport is not None:
            self._transport.abort()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._wait_for_end)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read the greeting, then reports."""
        self._splitter.feed(data)

    def connection_lost(self, _: Exception | None) -> None:
        """The fork server is gone."""
        self.is_gone = True
        if not self._greeting.done():
            self._greeting.set_result(None)
        self._give_up()

    def _take(self, frame: bytes) -> None:
        if not self._greeting.done():
            self._greeting.set_result(load_object(frame))
            return
        number, status = REPORT.unpack(frame)
        if (ended := self._ends.pop(number, None)) and not ended.done():
            ended.set_result(os.waitstatus_to_exitcode(status))

    def _order_end(self, number: int) -> None:
        try:
            self._orders.send(ORDER.pack(END, number))
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        """Nobody will report how workers ended."""
        for ended in self._ends.values():
            if not ended.done():
                ended.set_result(GONE)

    def _wait_for_end(self) -> None:
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class WorkerPool:
    """Keeps some workers ready; starts the fork server when it is first needed, and again when it has died."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.missing: tuple[str, ...] = ()
        """Protections that this machine does not give."""
        self.problem = ""
        """Why there are no workers at all."""
        self.fork_server: ForkServer | None = None
        self._ready: deque[Worker] = deque()
        self._starting = asyncio.Lock()
        self._filling: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def ready(self) -> int:
        """Workers that wait for a script."""
        return len(self._ready)

    async def take(self) -> tuple[Worker, ForkServer]:
        """A worker for one script, and the fork server that ends it.

        Raises:
            ScriptError: there cannot be one.
        """
        fork_server = await self.start()
        try:
            worker = self._take_ready(fork_server) or await fork_server.fork_ready()
        except ScriptError:
            if not fork_server.is_gone:
                raise
            fork_server = await self.start()
            worker = await fork_server.fork_ready()
        self.fill()
        return worker, fork_server

    async def start(self) -> ForkServer:
        """The fork server, started now if there is none.

        Raises:
            ScriptError: it cannot be started.
        """
        async with self._starting:
            if self._is_closed:
                raise ScriptError("no script is run any more: the gateway is closing")
            if self.fork_server is None or self.fork_server.is_gone:
                await self._stop()
                self.fork_server = await self._start()
            return self.fork_server

    def fill(self) -> None:
        """Have workers made in the background until there are enough."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill(), name="script workers")

    async def aclose(self) -> None:
        """End all workers and the fork server."""
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            if self._filling is not None:
                self._filling.cancel()
                await asyncio.wait([self._filling])
            async with self._starting:  # a fork server that is being started is stopped too
                await self._stop()

    async def _start(self) -> ForkServer:
        fork_server = ForkServer()
        try:
            told = await fork_server.greeting()
            if told is None or told["problem"]:
                ended = f"their process ended at its start; `{' '.join(COMMAND)} < /dev/null` says why"
                self.problem = told["problem"] if told else ended
                hint = f". {install_hint('scripts')}" if "lupa" in self.problem else ""
                raise ScriptError(f"scripts cannot be run here: {self.problem}{hint}")
        except OSError as error:
            await fork_server.aclose()
            raise ScriptError(f"scripts cannot be run now: {error.strerror}") from error
        except BaseException:
            await fork_server.aclose()
            raise
        self.problem, self.missing = "", tuple(told["missing"])
        return fork_server

    async def _stop(self) -> None:
        fork_server, self.fork_server = self.fork_server, None
        while self._ready:
            worker = self._ready.popleft()
            worker.on_lost = None
            worker.close()
        if fork_server is not None:
            await fork_server.aclose()

    async def _fill(self) -> None:
        await anyio.sleep(REFILL_DELAY)
        failures = 0
        while (fork_server := self.fork_server) is not None and not fork_server.is_gone and self.ready < self.size:
            try:
                worker = await fork_server.fork_ready()
                worker.on_lost = partial(self._replace, fork_server)
                self._ready.append(worker)
                failures = 0
            except ScriptError as error:
                failures += 1
                if failures == ATTEMPTS:  # the next script tries again
                    logger.warning("no process for scripts can be made: %s", error.reason)
                    return
                await anyio.sleep(RETRY_DELAY)

    def _replace(self, fork_server: ForkServer, lost: Worker) -> None:
        self._ready.remove(lost)
        fork_server.end(lost)
        self.fill()

    def _take_ready(self, fork_server: ForkServer) -> Worker | None:
        while self._ready:
            worker = self._ready.popleft()
            worker.on_lost = None
            if not worker.has_ended():
                return worker
            fork_server.end(worker)
        return None


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Our end and the other end of a new connection."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise ScriptError(f"a wire to the process for scripts cannot be made: {error.strerror}") from error
    ours.setblocking(False)
    return ours, theirs
