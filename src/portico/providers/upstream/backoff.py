"""When a server that failed may be tried again."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST = 0.5
CAP = 300.0
PARKED = 1800.0
"""Seconds for which refused credentials are not tried again; a person has to act."""


class Backoff:
    """The first new try is free, the next waits half a second, each further one twice as long, with jitter."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def fail(self, now: float, *, parked: bool = False) -> None:
        """Count one failure."""
        self._failures += 1
        delay = 0.0 if self._failures == 1 else min(FIRST * 2.0 ** min(self._failures - 2, 20), CAP)
        # Jitter only lengthens: many gateways must not come back at one moment, nor any too early.
        self._until = now + (PARKED if parked else delay * (1 + 0.1 * self._jitter()))

    def reset(self) -> None:
        """Forget all failures."""
        self._failures, self._until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next try is allowed."""
        return max(0.0, self._until - now)
