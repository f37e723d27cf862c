"""Warm workers: each is used once, and another one is made at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import anyio

from portico.errors import ScriptError
from portico.extras import install_hint

from .line import Worker
from .minder import COMMAND, Minder

logger = logging.getLogger(__name__)

HEAD_START = 0.01
"""Seconds before a worker is replaced, so that its birth does not hold up the script that took the last one."""
ENDED = f"their process ended at its start; `{' '.join(COMMAND)} < /dev/null` says why"
BIRTH = 10.0
"""Seconds that a worker gets to be ready, on the busiest machine; a nursery that takes longer has been stopped."""
ATTEMPTS, PAUSE = 3, 0.2
"""How often, and after how many seconds, another worker is made when one dies before it is ready."""


class Pool:
    """Keeps some workers ready; opens the nursery when it is first needed, and again when it has died."""

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
        """The process id of the nursery."""
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
        """The nursery, started now if there is none.

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
        """End all workers and the nursery."""
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
