"""When an embedder that failed is asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

FIRST = 30.0
LONGEST = 600.0


class Pause:
    """Half a minute after the first failure, then twice as long each time, up to ten minutes; safe among threads."""

    def __init__(
        self, *, first: float = FIRST, longest: float = LONGEST, clock: Callable[[], float] = monotonic
    ) -> None:
        self.reason = ""
        """Why it failed last; empty when it did not."""
        self._first, self._longest, self._clock = first, longest, clock
        self._failures, self._until = 0, 0.0
        self._lock = threading.Lock()

    def fail(self, reason: str) -> bool:
        """Begin a pause; says whether this is the first failure in a row. Failures during a pause do not add up."""
        with self._lock:
            self.reason = reason
            if self._clock() >= self._until:
                self._until = self._clock() + min(self._first * 2.0 ** min(self._failures, 30), self._longest)
                self._failures += 1
                return self._failures == 1
            return False

    def reset(self) -> None:
        """Forget all failures."""
        with self._lock:
            self.reason, self._failures, self._until = "", 0, 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        with self._lock:
            return max(0.0, self._until - self._clock())
