"""Near words: a word that no tool has is taken for those that look almost the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

SHORTEST = 3
"""Letters from which on a word may be misspelled; of that length, only by a letter that was left out."""
LONGEST = 24
CANDIDATES = 6
_BUCKETS = 1 << 15


class NearWords:
    """Finds words by the letters they share, three at a time."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = sorted(filter(_may_be_misspelled, words))
        letters = np.zeros((len(self._words), LONGEST + 2), dtype=np.uint8)
        packed = np.array([f"^{word}$" for word in self._words], dtype=f"S{LONGEST + 2}")
        if len(packed):
            letters[:] = packed.view(np.uint8).reshape(len(packed), -1)
        codes = _codes(letters)
        rows, places = np.nonzero(letters[:, 2:])
        found = codes[rows, places]
        order = np.argsort(found, kind="stable")
        self._rows = rows[order].astype(np.int32)
        self._starts = np.searchsorted(found[order], np.arange(_BUCKETS + 1))
        self._lengths = np.count_nonzero(letters, axis=1) - 2

    def near(self, word: str) -> list[str]:
        """Words within one slip of the pen (two for long words), or that begin with this one; the nearest first."""
        if not _may_be_misspelled(word):
            return []
        ranked = []
        for other in self._candidates(word):
            slips = distance(word, other, 1 if len(word) < 8 else 2)
            if slips is not None and len(word) + len(other) > 2 * SHORTEST:
                ranked.append((slips, other))
            elif len(word) > SHORTEST and other.startswith(word):
                ranked.append((2, other))
        return [other for _, other in sorted(ranked)[:2]]

    def _candidates(self, word: str) -> Iterator[str]:
        letters = np.frombuffer(f"^{word}$".encode(), dtype=np.uint8)
        codes = _codes(letters[None, :])[0]
        sharing = np.concatenate([self._rows[self._starts[code] : self._starts[code + 1]] for code in codes])
        if not len(sharing):
            return
        shared = np.bincount(sharing, minlength=len(self._words))
        alike = 2 * shared / (self._lengths + len(word))
        for place in np.argsort(-alike, kind="stable")[:CANDIDATES]:
            if alike[place] >= 0.3:
                yield self._words[place]


def _may_be_misspelled(word: str) -> bool:
    """Numbers may not: another number is another thing."""
    return SHORTEST <= len(word) <= LONGEST and word.isascii() and word.isalpha()


def distance(one: str, other: str, most: int) -> int | None:
    """How many letters were missed, added, changed or swapped, if no more than `most`."""
    if abs(len(one) - len(other)) > most:
        return None
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return None
    return row[-1] if row[-1] <= most else None


def _codes(letters: NDArray[np.uint8]) -> NDArray[np.int64]:
    wide = letters.astype(np.int64)
    codes: NDArray[np.int64] = (wide[:, :-2] * 961 + wide[:, 1:-1] * 31 + wide[:, 2:]) % _BUCKETS
    return codes
