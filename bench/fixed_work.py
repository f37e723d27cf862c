"""Processor time beside a fixed piece of work, so that figures of different machines can be compared."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took."""

    cpu_s: float
    fixed_works: float
    """How often the fixed piece of work could have been done in that time, measured just before and after."""

    def __str__(self) -> str:
        return f"{self.cpu_s:,.2f} s ({self.fixed_works:,.{0 if self.fixed_works >= 10 else 1}f} x)"

    def as_row(self) -> dict[str, float]:
        """For the line of JSON."""
        return asdict(self)


def cost(step: Callable[[], object]) -> Cost:
    """The processor time of one step."""
    before = _paces()
    taken = _seconds(step)
    return Cost(round(taken, 3), round(taken / statistics.median([*before, *_paces()]), 1))


def _paces() -> list[float]:
    """Without a look for garbage, which takes as long as there are objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return [_seconds(_fixed_work) for _ in range(ROUNDS)]
    finally:
        if was_enabled:
            gc.enable()


def _fixed_work() -> object:
    return {f"key{number}": [number] for number in range(100_000)}


def _seconds(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began
