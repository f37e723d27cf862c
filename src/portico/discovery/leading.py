"""The largest of many values, without sorting them all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE = 1_024


def leading(values: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Places of about the `count` largest positive values, in ascending order of place.

    Above some thousand values a regular sample tells where to cut, so the number may be off by a half; the very
    largest are always among them.
    """
    if count <= 0:
        return np.zeros(0, dtype=np.intp)
    if len(values) <= count:
        return np.flatnonzero(values > 0)
    found = np.flatnonzero(values >= _cut(values, count))
    if len(found) > 4 * count:  # a sample that deceived, or very many equal values
        best = values[found]
        found = found[np.argpartition(best, len(best) - count)[-count:]]
        found.sort()
    return found


def _cut(values: NDArray[Any], count: int) -> Any:
    """A value that about `count` reach; never less than the smallest positive one."""
    step = max(1, len(values) // SAMPLE)
    sample = values[::step]
    place = max(0, len(sample) - max(4, count // step) - 1)
    smallest = np.nextafter(np.float32(0), np.float32(1)) if values.dtype.kind == "f" else 1
    return max(np.partition(sample, place)[place], smallest)
