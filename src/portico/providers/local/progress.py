"""What a function reports on its way reaches the client in order, from whatever thread it is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import get_ident

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from portico.domain.call import OnProgress

from .injection import Report, report_nothing

WAITING = 1_000
"""Reports that may wait for a slow client; more are dropped."""

Told = tuple[float, float | None, str | None]


@asynccontextmanager
async def reporting(on_progress: OnProgress | None) -> AsyncIterator[Report]:
    """Within the block, pass on what is reported; at its end everything has been told."""
    if on_progress is None:
        yield report_nothing
        return
    loop, thread = asyncio.get_running_loop(), get_ident()
    send, receive = anyio.create_memory_object_stream[Told](WAITING)

    def put(told: Told) -> None:
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            send.send_nowait(told)

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        told = (progress, total, message)
        if get_ident() == thread:
            put(told)
            return
        with suppress(RuntimeError):  # the loop is gone, and the client too
            loop.call_soon_threadsafe(put, told)

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


async def _tell(receive: MemoryObjectReceiveStream[Told], on_progress: OnProgress) -> None:
    with receive, suppress(Exception):  # a client that no longer listens must not cost the call its result
        async for told in receive:
            await on_progress(*told)
