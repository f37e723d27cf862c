"""The largest of many values, without sorting them all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE = 1_024


def leading(values: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Places of about the `count` largest positive values, in ascending order of place.

    No value that is left out is larger than one that is among them. Above some thousand values a regular sample tells
    where to cut, so there may be half as many, or four times as many.
    """
    if count <= 0:
        return np.zeros(0, dtype=np.intp)
    if len(values) <= count:
        return np.flatnonzero(values > 0)
    cut = _cut(values, count)
    found = np.flatnonzero(values >= cut) if cut > 0 else np.flatnonzero(values > 0)
    if cut > 0 and len(found) < count // 2:  # a sample that deceived
        found = np.flatnonzero(values > 0)
    if len(found) > 4 * count:  # the same, or very many equal values
        found = _first(values, found, count)
    return found


def _first(values: NDArray[Any], places: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Exactly the `count` largest; of equal values the earlier ones."""
    best = values[places]
    last = np.partition(best, len(best) - count)[len(best) - count]
    chosen = best > last
    equal = np.flatnonzero(best == last)
    chosen[equal[: count - np.count_nonzero(chosen)]] = True
    found: NDArray[np.intp] = places[chosen]
    return found


def _cut(values: NDArray[Any], count: int) -> Any:
    """A value that about `count` reach."""
    step = max(1, len(values) // SAMPLE)
    sample = values[::step]
    place = max(0, len(sample) - max(4, count // step) - 1)
    return (np.sort(sample) if sample.dtype.kind == "f" else np.partition(sample, place))[place]  # as measured
