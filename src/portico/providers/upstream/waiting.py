"""One request that waits for its answer, and the progress that comes before it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from math import isfinite
from typing import Any

from portico.domain.call import OnProgress
from portico.errors import Sent

from .bounds import Bounds
from .faults import Expired, Fault
from .link import Patience

PROGRESS_BACKLOG = 64
"""Progress that a slow listener may be behind; of a flood only the newest is passed on."""

Progress = tuple[float, float | None, str | None]


class Waiting:
    """Ends with an answer, a fault, or by itself when its patience is at an end."""

    __slots__ = ("_deadline", "_ends", "_future", "_loop", "_patience", "_progress", "_timer", "_wake")

    def __init__(self, patience: Patience) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Mapping[str, Any] | Fault] = self._loop.create_future()
        self._patience = patience
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_BACKLOG)
        self._wake: asyncio.Future[None] | None = None
        now = self._loop.time()
        self._ends, self._deadline = now + patience.total, now + patience.first
        self._timer = self._loop.call_at(self._deadline, self._tick) if isfinite(self._deadline) else None

    @property
    def bounds(self) -> Bounds:
        """How large its answer may be."""
        return Bounds(self._patience.size, self._patience.values)

    def finish(self, outcome: Mapping[str, Any] | Fault) -> None:
        """Take the answer, or the fault that replaces it; only the first counts."""
        if not self._future.done():
            self._future.set_result(outcome)
            self._rouse()

    def advance(self, progress: Progress) -> None:
        """Take one sign of progress, which starts the patience again."""
        # The timer is left alone and looks at the deadline when it fires: a flood costs no timers.
        self._deadline = min(self._loop.time() + self._patience.idle, self._ends)
        self._progress.append(progress)
        self._rouse()

    async def outcome(self, on_progress: OnProgress | None) -> Mapping[str, Any]:
        """The answer, when every sign of progress before it has been passed on.

        Raises:
            Fault: there is none.
        """
        if on_progress is not None:
            await self._follow(on_progress)
        outcome = await self._future
        if isinstance(outcome, Fault):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Release the timer."""
        if self._timer is not None:
            self._timer.cancel()

    async def _follow(self, on_progress: OnProgress) -> None:
        while True:
            while self._progress:
                await on_progress(*self._progress.popleft())
            if self._future.done():
                return
            self._wake = self._loop.create_future()
            await self._wake

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _tick(self) -> None:
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._tick)
        else:
            self.finish(expired(self._patience, at_end=self._deadline >= self._ends))


def expired(patience: Patience, *, at_end: bool = False, sent: Sent = Sent.UNKNOWN) -> Expired:
    """The fault of a request that was not answered in time."""
    if at_end or patience.total <= patience.idle:
        return Expired(
            f"no answer within {patience.total:g} s, the most that one call may take",
            "raise `timeouts.total` of this server if the call needs longer",
            sent=sent,
        )
    return Expired(
        f"no answer and no progress for {patience.idle:g} s",
        "raise `timeouts.call` of this server if the call needs longer",
        sent=sent,
    )


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # JSON has integers that no float can hold
        return None


def progress_of(params: Mapping[str, Any]) -> Progress:
    """The three parts of a progress notification, with anything odd left out."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    return (
        _number(done) or 0.0,
        _number(total),
        message if isinstance(message, str) else None,
    )
