"""Runs Lua scripts, each in a worker process that was started in advance and is used once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import anyio

from portico.domain.call import Ran, Sandbox, Script, ScriptLimits
from portico.errors import ScriptError, install_hint
from portico.protocols import ScriptApi

from . import run as endings
from .fork_client import COMMAND, GONE, Minder, Worker
from .run import LATE, LOST, MEGABYTE, ScriptRun, start_frame

logger = logging.getLogger(__name__)

HEAD_START = 0.01
"""Seconds before a worker is replaced, so that its birth does not hold up the script that took the last one."""
ENDED = f"their process ended at its start; `{' '.join(COMMAND)} < /dev/null` says why"
BIRTH = 10.0
"""Seconds that a worker gets to be ready, on the busiest machine; a fork server that takes longer has been stopped."""
ATTEMPTS, PAUSE = 3, 0.2
"""How often, and after how many seconds, another worker is made when one dies before it is ready."""


class Pool:
    """Keeps some workers ready; opens the fork server when it is first needed, and again when it has died."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.missing: tuple[str, ...] = ()
        """Protections that this machine does not give."""
        self.problem = ""
        """Why there are no workers at all."""
        self._warm: deque[Worker] = deque()
        self._minder: Minder | None = None
        self._opening = asyncio.Lock()
        self._filling: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def ready(self) -> int:
        """Workers that wait for a script."""
        return len(self._warm)

    @property
    def nursery(self) -> int | None:
        """The process id of the fork server."""
        return self._minder.pid if self._minder and not self._minder.is_gone else None

    async def take(self) -> tuple[Worker, Minder]:
        """A worker for one script, and who ends it.

        Raises:
            ScriptError: there cannot be one.
        """
        minder = await self.open()
        try:
            worker = self._awake(minder) or await _born(minder)
        except ScriptError:
            if not minder.is_gone:
                raise
            minder = await self.open()
            worker = await _born(minder)
        self.fill()
        return worker, minder

    async def open(self) -> Minder:
        """The fork server, started now if there is none.

        Raises:
            ScriptError: it cannot be started.
        """
        async with self._opening:
            if self._is_closed:
                raise ScriptError("no script is run any more: the gateway is closing")
            if self._minder is None or self._minder.is_gone:
                await self._drop()
                self._minder = await self._opened()
            return self._minder

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
            async with self._opening:  # a nursery that is being opened is dropped too
                await self._drop()

    async def _opened(self) -> Minder:
        minder = Minder()
        try:
            said = await minder.open()
        except OSError as error:
            await minder.aclose()
            raise ScriptError(f"scripts cannot be run now: {error.strerror}") from error
        except BaseException:
            await minder.aclose()
            raise
        if said is None or said["problem"]:
            await minder.aclose()
            self.problem = said["problem"] if said else ENDED
            hint = f". {install_hint('scripts')}" if "lupa" in self.problem else ""
            raise ScriptError(f"scripts cannot be run here: {self.problem}{hint}")
        self.problem, self.missing = "", tuple(said["missing"])
        return minder

    async def _drop(self) -> None:
        minder, self._minder = self._minder, None
        while self._warm:
            worker = self._warm.popleft()
            worker.on_lost = None
            worker.close()
        if minder is not None:
            await minder.aclose()

    async def _fill(self) -> None:
        await anyio.sleep(HEAD_START)
        failures = 0
        while (minder := self._minder) is not None and not minder.is_gone and self.ready < self.size:
            try:
                self._keep(await _born(minder), minder)
                failures = 0
            except ScriptError as error:
                failures += 1
                if failures == ATTEMPTS:  # the next script tries again
                    logger.warning("no process for scripts can be made: %s", error.reason)
                    return
                await anyio.sleep(PAUSE)

    def _awake(self, minder: Minder) -> Worker | None:
        """A worker from the pool that is still there."""
        while self._warm:
            worker = self._warm.popleft()
            worker.on_lost = None
            if not worker.has_ended():
                return worker
            minder.end(worker)
        return None

    def _keep(self, worker: Worker, minder: Minder) -> None:
        def replace(lost: Worker) -> None:
            self._warm.remove(lost)
            minder.end(lost)
            self.fill()

        worker.on_lost = replace
        self._warm.append(worker)


async def _born(minder: Minder) -> Worker:
    """A worker that is ready."""
    worker = await minder.bear()
    said = None
    try:
        with anyio.move_on_after(BIRTH) as waiting:
            said = await worker.frame()
    except BaseException:
        minder.end(worker)
        raise
    if waiting.cancelled_caught:
        minder.give_up()
    if said is None:
        with anyio.move_on_after(BIRTH):
            await minder.end(worker)
        raise ScriptError("a process for the script could not be made: try again")
    return worker


LAST_WORDS = 2.0
"""Seconds to hear how a worker ended."""


class LuaEngine:
    """Implements the port for Lua 5.4: warm workers, some scripts at once, some more that wait for their turn."""

    language = "Lua 5.4"

    def __init__(self, pool_size: int = 4, at_once: int = 8, queue: int = 32, require_hardening: bool = False) -> None:
        self._size, self._at_once, self._queue = pool_size, at_once, queue
        self._require_hardening = require_hardening
        self._pool: Pool | None = None
        self._turns: anyio.Semaphore | None = None
        self._running = self._waiting = 0
        self._is_closed = False

    async def run(self, script: Script, reach: ScriptApi) -> Ran:
        """Run a script to its end; when this is cancelled, the script and its calls are gone at once.

        Raises:
            ScriptError: it did not come to its end, with the line and the reason.
        """
        start = _checked(script, reach)
        async with self._turn(script.limits):
            return await self._run(script, reach, start)

    async def sandbox(self) -> Sandbox:
        """What holds scripts in here; starts the fork server if there is none."""
        try:
            await self.wake()
        except ScriptError as error:
            return Sandbox(size=self._size, problem=self._problem or error.reason)
        pool = self._opened()
        return Sandbox(ready=pool.ready, size=self._size, running=self._running, missing=pool.missing)

    async def wake(self) -> None:
        """Have workers made before the first script comes.

        Raises:
            ScriptError: scripts cannot be run here.
        """
        pool = self._opened()
        await pool.open()
        pool.fill()

    async def aclose(self) -> None:
        """Stop all scripts and processes."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    @property
    def _problem(self) -> str:
        return self._pool.problem if self._pool is not None else ""

    def _opened(self) -> Pool:
        if self._is_closed:
            raise ScriptError("no script is run any more: the gateway is closing")
        if self._pool is None:
            self._pool = Pool(self._size)
        return self._pool

    @asynccontextmanager
    async def _turn(self, limits: ScriptLimits) -> AsyncIterator[None]:
        if self._turns is None:
            self._turns = anyio.Semaphore(self._at_once)
        if self._running + self._waiting >= self._at_once + self._queue:
            most = f"{self._at_once} may run and {self._queue} may wait"
            raise ScriptError(f"too many scripts are running: {most}; try again in a while")
        self._waiting += 1
        try:
            with anyio.fail_after(limits.seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            raise ScriptError(
                f"it waited for {limits.seconds:g} s, and other scripts were still running: try again in a while"
            ) from error
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._turns.release()

    async def _run(self, script: Script, reach: ScriptApi, start: bytes) -> Ran:
        pool = self._opened()
        await pool.open()
        if self._require_hardening and pool.missing:
            raise ScriptError(f"scripts are not run here: this machine lacks {'; '.join(pool.missing)}")
        worker, minder = await pool.take()
        started = perf_counter()
        run = ScriptRun(worker, script, reach)
        ends: list[asyncio.Future[int]] = []
        last = await run.converse(start, lambda: ends.append(minder.end(worker)))
        if last["kind"] == "done":
            return endings.ran(last, run.printed, perf_counter() - started)
        if last is LATE:
            raise endings.late(run.printed, script.limits, run.sent)
        if last is LOST:
            code = await _code(ends[0])
            raise endings.lost(code, run.printed, script.limits, run.sent, misbehaved=worker.has_misbehaved)
        raise endings.failed(last, run.printed, script.limits, run.sent)


async def _code(ended: asyncio.Future[int]) -> int:
    with anyio.move_on_after(LAST_WORDS):
        return await asyncio.shield(ended)
    return GONE


def _checked(script: Script, reach: ScriptApi) -> bytes:
    size, most = len(script.source.encode("utf-8", "replace")), script.limits.source_bytes
    if size > most:
        raise ScriptError(
            f"its source has {size:,} bytes, and {most:,} are allowed: pass data as arguments", limit="source_bytes"
        )
    try:
        start = start_frame(script, reach.servers)
    except ValueError as error:
        raise ScriptError(f"its arguments are not JSON: {error}") from error
    _check_size(len(start), script.limits)
    return start


def _check_size(size: int, limits: ScriptLimits) -> None:
    """Arguments are there twice while they are read."""
    most = limits.memory_mb * MEGABYTE // 2
    if size > most:
        raise ScriptError(
            f"its source and arguments take {size:,} bytes, and a script with {limits.memory_mb} MB takes {most:,}: "
            "pass less, and let it read the rest with calls",
            limit="memory_mb",
        )
