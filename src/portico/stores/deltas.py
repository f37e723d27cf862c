"""Turns the totals that caches count into what came since they were last asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic

CacheCounts = Callable[[], Mapping[str, tuple[int, int]]]
"""Says hits and misses of each cache since the process began; called by the thread that writes."""

logger = logging.getLogger(__name__)


class CacheDeltas:
    """What a source of totals has counted since it was last asked."""

    def __init__(self, source: CacheCounts | None) -> None:
        self._source = source
        self._last: Mapping[str, tuple[int, int]] = {}
        self._taken_at = monotonic()

    @property
    def is_counted(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    def take(self, *, every: float) -> dict[str, tuple[int, int]]:
        """Hits and misses since the last time; none when that is not so many seconds ago."""
        if self._source is None or monotonic() - self._taken_at < every:
            return {}
        try:
            totals = dict(self._source())
        except Exception as error:  # noqa: BLE001  they are counted elsewhere, perhaps at this very moment
            logger.debug("the counts of caches cannot be read now: %s", error)
            return {}
        last, self._last, self._taken_at = self._last, totals, monotonic()
        deltas = {name: _minus(counts, last.get(name, (0, 0))) for name, counts in totals.items()}
        return {name: delta for name, delta in deltas.items() if any(delta)}


def _minus(counts: tuple[int, int], less: tuple[int, int]) -> tuple[int, int]:
    return counts[0] - less[0], counts[1] - less[1]
