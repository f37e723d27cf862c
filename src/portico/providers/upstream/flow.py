"""One request on its way over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import isfinite
from typing import Any

from portico.domain.call import OnProgress

from .link import Patience
from .waiting import progress_of


class Flow:
    """The number of a request, its clock and its listener."""

    __slots__ = ("_ends", "_timer", "event_id", "id", "on_progress", "patience", "retry")

    def __init__(self, id: int, patience: Patience, on_progress: OnProgress | None) -> None:
        self.id, self.patience, self.on_progress = id, patience, on_progress
        self.event_id, self.retry = "", 1.0
        now = asyncio.get_running_loop().time()
        self._ends = now + patience.total
        first = now + patience.first
        self._timer = asyncio.timeout_at(first if isfinite(first) else None)

    @property
    def timer(self) -> asyncio.Timeout:
        """Ends the request when its patience does."""
        return self._timer

    @property
    def is_at_end(self) -> bool:
        """Whether the time for the whole request is over."""
        return asyncio.get_running_loop().time() >= self._ends

    @property
    def is_bounded(self) -> bool:
        """Whether somebody waits for the answer, as opposed to listening for good."""
        return isfinite(self.patience.first)

    async def advance(self, params: Mapping[str, Any]) -> None:
        """Pass on one sign of progress, which starts the patience again."""
        if isfinite(self.patience.idle):
            self._timer.reschedule(min(asyncio.get_running_loop().time() + self.patience.idle, self._ends))
        if self.on_progress is not None:
            await self.on_progress(*progress_of(params))
