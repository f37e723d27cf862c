"""Runs Lua scripts, each in a process of its own that is held in from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import anyio

from portico.domain.script import Limits, Ran, Sandbox, Script
from portico.errors import ScriptError
from portico.ports import Reach

from . import endings
from .minder import GONE
from .pool import Pool
from .running import LATE, LOST, MEGABYTE, Run, start_frame

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

    async def run(self, script: Script, reach: Reach) -> Ran:
        """Run a script to its end; when this is cancelled, the script and its calls are gone at once.

        Raises:
            ScriptError: it did not come to its end, with the line and the reason.
        """
        start = _checked(script, reach)
        async with self._turn(script.limits):
            return await self._run(script, reach, start)

    async def sandbox(self) -> Sandbox:
        """What holds scripts in here; starts the nursery if there is none."""
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
    async def _turn(self, limits: Limits) -> AsyncIterator[None]:
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

    async def _run(self, script: Script, reach: Reach, start: bytes) -> Ran:
        pool = self._opened()
        await pool.open()
        if self._require_hardening and pool.missing:
            raise ScriptError(f"scripts are not run here: this machine lacks {'; '.join(pool.missing)}")
        worker, minder = await pool.take()
        started = perf_counter()
        run = Run(worker, script, reach)
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


def _checked(script: Script, reach: Reach) -> bytes:
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


def _check_size(size: int, limits: Limits) -> None:
    """Arguments are there twice while they are read."""
    most = limits.memory_mb * MEGABYTE // 2
    if size > most:
        raise ScriptError(
            f"its source and arguments take {size:,} bytes, and a script with {limits.memory_mb} MB takes {most:,}: "
            "pass less, and let it read the rest with calls",
            limit="memory_mb",
        )
