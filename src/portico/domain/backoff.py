"""Growing pauses between attempts."""

from __future__ import annotations


def pause_after(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row: twice as long each time, up to the longest."""
    return min(first * 2.0 ** min(max(failures - 1, 0), 30), longest)
