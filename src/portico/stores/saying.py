"""Keeps one store that is away from being told at length by everybody who notices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from portico.errors import StoreError, StoreRefused

AGAIN_SECONDS = 600.0
"""After so long without a mention, trouble is told in full again."""
STILL_AWAY = "the store is still away"


class BrieflyAgain(logging.Filter):
    """Lets a `StoreError` be told in full once; later records that mention the same one only say it is still so.

    For the handler of a program: it sees the records of all loggers.
    """

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten what was told already; every record passes."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._briefly(part) for part in record.args)
        return True

    def _briefly(self, part: object) -> object:
        if not isinstance(part, StoreError) or isinstance(part, StoreRefused):
            return part
        now, text = self._now(), str(part)
        before, self._told = self._told.get(text), {k: at for k, at in self._told.items() if now - at < AGAIN_SECONDS}
        self._told[text] = now
        return text if before is None or now - before >= AGAIN_SECONDS else STILL_AWAY
