"""Vectors of many tools, and the nearest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]
"""Tools by number."""
FEW = 2_048
"""Vectors that are kept unpacked as well."""
COMPARED = 4
"""Columns of signs that are compared: 256 signs tell the near from the far, and their number fits into a byte."""


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """One vector of length one for each tool, by number; a tool without one is near to nothing."""

    numbers: NDArray[np.int8]
    scales: Vector
    signs: tuple[NDArray[np.uint64], ...]
    """The sign of each number, sixty-four to a column."""
    unpacked: Vector = field(init=False)
    """The vectors themselves, where they are few."""

    def __post_init__(self) -> None:
        few = len(self.scales) <= FEW
        unpacked = self.numbers * self.scales[:, None] if few else np.zeros((0, self.dims), dtype=np.float32)
        object.__setattr__(self, "unpacked", unpacked)

    @property
    def dims(self) -> int:
        """Numbers in a vector."""
        return int(self.numbers.shape[1])

    def changed(self, kept: NDArray[np.bool_], new: Vectors) -> Vectors:
        """Without the tools that are gone, and with new ones numbered after those that stay."""
        return Vectors(
            np.concatenate((self.numbers[kept], new.numbers)),
            np.concatenate((self.scales[kept], new.scales)),
            tuple(np.concatenate((a[kept], b)) for a, b in zip(self.signs, new.signs, strict=True)),
        )

    def moved(self, places: NDArray[np.intp]) -> Vectors:
        """The vectors of tools that had these numbers; of one that had none, below zero, there is no vector."""
        numbers = self.numbers[places]
        numbers[places < 0] = 0
        return Vectors(numbers, self.scales[places], tuple(column[places] for column in self.signs))

    def replaced(self, tools: NDArray[np.intp], new: Vectors) -> Vectors:
        """With other vectors for some tools."""
        numbers, scales, signs = self.numbers.copy(), self.scales.copy(), tuple(column.copy() for column in self.signs)
        numbers[tools], scales[tools] = new.numbers, new.scales
        for column, other in zip(signs, new.signs, strict=True):
            column[tools] = other
        return Vectors(numbers, scales, signs)

    def nearness(self, wanted: Vector, tools: NDArray[np.intp]) -> Vector:
        """The cosines between some vectors and those of some tools, a row for each vector."""
        if len(self.unpacked) == len(tools):  # a small catalog is looked at whole, and kept ready for it
            return wanted @ self.unpacked.T
        found: Vector = wanted @ self.numbers[tools].astype(np.float32).T * self.scales[tools]
        return found

    def likeness(self, one: int, other: int) -> float:
        """The cosine between two tools."""
        product = self.numbers[one].astype(np.float32) @ self.numbers[other].astype(np.float32)
        return float(product * self.scales[one] * self.scales[other])

    def near(self, wanted: Vector, count: int, within: NDArray[np.bool_] | None) -> NDArray[np.intp]:
        """About so many tools among which the nearest ones are, most likely."""
        columns = _signs(wanted[None, :])
        differing = np.zeros(len(self.scales), dtype=np.uint8)
        for mine, asked in zip(self.signs[:COMPARED], columns, strict=False):
            differing += np.bitwise_count(mine ^ asked[0])
        agreeing = ~differing
        if within is not None:
            agreeing *= within
        return leading(agreeing, count)


def blank(count: int, dims: int) -> Vectors:
    """So many tools without a vector."""
    return pack(np.zeros((count, dims), dtype=np.float32))


def pack(vectors: Vector) -> Vectors:
    """Eight-bit numbers and signs of some vectors of length one."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.maximum(largest, 1e-9) / 127).astype(np.float32)
    return Vectors(np.rint(vectors / scales[:, None]).astype(np.int8), scales, _signs(vectors))


def joined(parts: Sequence[Vectors]) -> Vectors:
    """Vectors of tools that were packed apart, one after the other."""
    return Vectors(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.scales for part in parts]),
        tuple(np.concatenate(columns) for columns in zip(*(part.signs for part in parts), strict=True)),
    )


def _signs(vectors: Vector) -> tuple[NDArray[np.uint64], ...]:
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    columns = padded.view(np.uint64)
    return tuple(np.ascontiguousarray(columns[:, place]) for place in range(columns.shape[1]))


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
