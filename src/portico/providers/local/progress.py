"""What a function reports on its way reaches the client in order, from whatever thread, and gives it more time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import get_ident

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from portico.domain.call import OnProgress

from .injection import Report

WAITING = 1_000
"""Reports that may wait for a slow client; more are dropped."""

Told = tuple[float, float | None, str | None]


class Patience:
    """How long a call may go on: so long without a report, and so long in all."""

    def __init__(self, seconds: float, total: float) -> None:
        now = anyio.current_time()
        self._seconds, self._total, self._end = seconds, max(seconds, total), now + max(seconds, total)
        self._is_renewed = False
        self.scope = anyio.CancelScope(deadline=now + seconds)

    def renew(self) -> None:
        """Begin to wait anew; runs in the loop that waits."""
        self._is_renewed = True
        self.scope.deadline = min(anyio.current_time() + self._seconds, self._end)

    @property
    def ended(self) -> str:
        """Why the call was given up, in words."""
        if self.scope.deadline >= self._end:
            return f"no result after {self._total:g} s"
        return f"no result{', and no report' if self._is_renewed else ''} after {self._seconds:g} s"


@asynccontextmanager
async def reporting(on_progress: OnProgress | None, on_report: Callable[[], None]) -> AsyncIterator[Report]:
    """Within the block, pass on what is reported; at its end everything has been told.

    Every report is also a sign of life, whether a client wants it or not.
    """
    if on_progress is None:
        yield _reporter(lambda told: on_report())
        return
    send, receive = anyio.create_memory_object_stream[Told](WAITING)

    def put(told: Told) -> None:
        on_report()
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            send.send_nowait(told)

    report = _reporter(put)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, receive, on_progress)
        with send:
            try:
                yield report
            except Exception as error:  # noqa: BLE001  the task group would pack it into a group, which nobody expects
                failure = error
    if failure is not None:
        raise failure


def _reporter(put: Callable[[Told], None]) -> Report:
    """What a function is given: from whatever thread it is used, `put` is called in this loop."""
    loop, thread = asyncio.get_running_loop(), get_ident()

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        told = (progress, total, message)
        if get_ident() == thread:
            put(told)
            return
        with suppress(RuntimeError):  # the loop is gone, and the client too
            loop.call_soon_threadsafe(put, told)

    return report


async def _tell(receive: MemoryObjectReceiveStream[Told], on_progress: OnProgress) -> None:
    with receive, suppress(Exception):  # a client that no longer listens must not cost the call its result
        async for told in receive:
            await on_progress(*told)
