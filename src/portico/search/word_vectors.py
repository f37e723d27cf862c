"""Meaning without a model: a text is the weighted sum of its words' vectors, read from a small table in the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .vectors import Vector
from .words import WORD_LENGTH, pieces, spelled

PIECE = 3
"""The fewest letters of a known word that stand for a part of an unknown one."""
WEIGHTS: Mapping[str, float] = {"name": 2.0, "shelf": 1.0, "description": 1.0, "parameters": 1.0, "details": 0.3}
"""What a word of each field adds to the meaning of a tool."""
MOST: Mapping[str, int] = {"name": 30, "shelf": 30, "description": 120, "parameters": 60, "details": 60}
"""Words of each field that are read, common ones included; what matters is said first."""


class Vocabulary:
    """The words of the table; an unknown word is read as the longest known words that it is made of."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self._rows = dict(zip(words, range(len(words)), strict=True))
        self._longest = max(map(len, words), default=0)
        self._known = _Rows(self)

    def rows(self, text: str) -> list[int]:
        """The table's rows for the words of a text, in order."""
        known = self._known
        return [row for raw in pieces(text) for row in known[raw]]

    def rows_of(self, word: str) -> tuple[int, ...]:
        """The row of a word, or those of its parts; empty when nothing is known of it."""
        return self._known[word]

    def tool_rows(self, found: Mapping[str, list[str]]) -> tuple[list[int], list[float]]:
        """The rows for the words of a tool's fields, each with its weight."""
        known = self._known
        rows: list[int] = []
        weights: list[float] = []
        for field, weight in WEIGHTS.items():
            before = len(rows)
            rows.extend(row for raw in found[field][: MOST[field]] for row in known[raw])
            weights.extend([weight] * (len(rows) - before))
        return rows, weights

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    def find(self, raw: str) -> tuple[int, ...]:
        """The rows of a word that was not met before."""
        word = spelled(raw)
        row = self._rows.get(word)
        return tuple(self._longest_parts(word)) if row is None else (row,)

    def _longest_parts(self, word: str) -> Iterator[int]:
        start = 0
        while len(word) - start >= PIECE:
            for end in range(min(len(word), start + self._longest), start + PIECE - 1, -1):
                row = self._rows.get(word[start:end])
                if row is not None:
                    yield row
                    start = end
                    break
            else:
                start += 1


class _Rows(dict[str, tuple[int, ...]]):
    """Each word as it was written, with its rows; a look-up costs no call of ours."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._find = vocabulary.find

    def __missing__(self, raw: str) -> tuple[int, ...]:
        if len(self) >= REMEMBERED:
            self.clear()
        found = self._find(raw)
        if len(raw) <= WORD_LENGTH:
            self[raw] = found
        return found


REMEMBERED = 65_536
"""Words whose rows are kept at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """A vector for each word, eight bits a number; the file is mapped, so only what is used takes memory."""

    words: Vocabulary
    numbers: NDArray[np.int8]
    scales: Vector

    @classmethod
    def read(cls, folder: Path) -> WordVectors:
        """Open a table that `bench/train_static` has written."""
        words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
        numbers = np.asarray(np.load(folder / "vectors.npy", mmap_mode="r"))
        return cls(Vocabulary(words), numbers, np.load(folder / "scales.npy"))

    @property
    def dims(self) -> int:
        """Numbers in a vector."""
        return int(self.numbers.shape[1])

    def of_query(self, words: Mapping[str, float]) -> Vector:
        """The meaning of weighted words; nothing known gives a vector of zeros."""
        found = [(row, weight) for word, weight in words.items() for row in self.words.rows_of(word)]
        return self._sum([row for row, _ in found], [weight for _, weight in found])

    def of_tools(self, tools: Iterable[Mapping[str, list[str]]]) -> Vector:
        """The meanings of tools, given by the words of their fields, one row each."""
        found = [self._sum(*self.words.tool_rows(words)) for words in tools]
        return np.array(found, dtype=np.float32).reshape(-1, self.dims)

    def _sum(self, rows: list[int], weights: list[float]) -> Vector:
        if not rows:
            return np.zeros(self.dims, dtype=np.float32)
        scaled = np.array(weights, dtype=np.float32) * self.scales[rows]
        summed: Vector = scaled @ self.numbers[rows].astype(np.float32)
        return summed / max(float(np.sqrt(summed @ summed)), 1e-9)


@cache
def shipped_table() -> WordVectors:
    """The table in the package, opened once."""
    return WordVectors.read(Path(__file__).with_name("table"))
