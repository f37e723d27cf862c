"""Meaning without a model: words have vectors, a text is their weighted sum, and the nearest tools are found."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.domain.tool import Tool

from .embeddings.cache import Meanings
from .words_and_postings import REMEMBERED, WORD_LENGTH, pieces, spelled

Vector = NDArray[np.float32]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]  # tools by number
FEW = 2_048  # vectors that are kept unpacked as well
COMPARED = 4
"""Columns of signs that are compared: 256 signs tell the near from the far, and their number fits into a byte."""


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """One vector of length one for each tool, by number; a tool without one is near to nothing."""

    numbers: NDArray[np.int8]
    scales: Vector
    signs: tuple[NDArray[np.uint64], ...]  # the sign of each number, sixty-four to a column
    unpacked: Vector = field(init=False)  # the vectors themselves, where they are few

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

    def unpack(self, tools: Sequence[int]) -> Vector:
        """The vectors of some tools, a row each."""
        found: Vector = self.numbers[tools].astype(np.float32) * self.scales[tools][:, None]
        return found

    def sums(self, groups: NDArray[np.intp], count: int) -> Vector:
        """The sum of the vectors of each group of tools, given each tool's group."""
        found = np.zeros((count, self.dims), dtype=np.float32)
        for start in range(0, len(groups), FEW):
            part = slice(start, start + FEW)
            np.add.at(found, groups[part], self.numbers[part] * self.scales[part, None])
        return found

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


PIECE = 3  # the fewest letters of a known word that stand for a part of an unknown one
WEIGHTS: Mapping[str, float] = {
    "name": 2.0,
    "shelf": 1.0,
    "purpose": 2.0,
    "description": 0.5,
    "parameters": 0.5,
    "details": 0.3,
}
"""What a word of each field adds to the meaning of a tool."""
MOST: Mapping[str, int] = {"name": 30, "shelf": 30, "purpose": 40, "description": 100, "parameters": 60, "details": 60}
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
        for part, weight in WEIGHTS.items():
            before = len(rows)
            rows.extend(row for raw in found[part][: MOST[part]] for row in known[raw])
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


SAID = 800  # characters of a tool's name and description that an embedder reads
NAMED = 200  # characters of the names of its parameters
SAMPLED = 512  # tools that say what all tools have in common
STRANGERS = 10
"""Tools without any meaning that are thought among them: of two or three tools, little is common to all tools."""


def text_of(tool: Tool) -> str:
    """What an embedder reads of a tool: its name, what it does, and what its parameters are called."""
    parameters = f" ({', '.join(tool.properties)}"[:NAMED] + ")" if tool.properties else ""
    return f"{tool.name}: {tool.description}"[:SAID] + parameters


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The vectors that the tools have at one moment, by number."""

    vectors: Vectors
    has: Mask  # which tools have one; the others are near to nothing
    centre: Vector = field(init=False)
    """What the tools have in common, which tells nothing; with some models that is most of every vector."""

    def __post_init__(self) -> None:
        some = np.flatnonzero(self.has)
        some = some[:: max(1, len(some) // SAMPLED)]
        total = self.vectors.scales[some] @ self.vectors.numbers[some].astype(np.float32)
        object.__setattr__(self, "centre", total / np.float32(len(some) + STRANGERS))

    def moved(self, places: Numbers) -> Known | None:
        """The same for tools that had other numbers, below zero where they had none; None when no vector is left."""
        has = self.has[places] & (places >= 0)
        return Known(self.vectors.moved(places), has) if has.any() else None

    def joined(self, numbers: Numbers, found: Vector) -> Known:
        """With the vectors of some tools more."""
        has = self.has.copy()
        has[numbers] = True
        return Known(self.vectors.replaced(numbers, pack(found)), has)


@dataclass(frozen=True, slots=True, eq=False)
class Sense:
    """A query as the embedder reads it, beside the tools that it has read."""

    vector: Vector
    known: Known

    def widen(self, tools: Numbers, count: int, within: Mask | None) -> Numbers:
        """Some tools and about so many more, among which the nearest ones are, most likely."""
        has = self.known.has
        if len(tools) == len(has):
            return tools
        near = self.known.vectors.near(self.vector, count, has if within is None else has & within)
        return np.union1d(tools, near)

    def nearness(self, tools: Numbers) -> Vector:
        """How much nearer than tools are in general some tools are; nothing for those that are not."""
        found = self.known.vectors.nearness(self.vector[None, :], tools)[0] - self.vector @ self.known.centre
        return np.where(self.known.has[tools], np.maximum(found, 0), np.float32(0))


class Semantics:
    """The tools of one snapshot in the eyes of an embedder.

    The source's own thread gathers what becomes known, and what a search reads is replaced whole: no search waits for
    either, and none sees half of a change.
    """

    def __init__(self, source: Meanings, tools: Sequence[Tool], texts: Sequence[str], known: Known | None) -> None:
        self.source = source
        self.tools = tools
        self.texts = texts
        self._known = known
        self._gathering = threading.Lock()
        source.start(texts, self.gather)
        self.gather()  # of what is known already, the source says nothing

    def changed(self, tools: Sequence[Tool]) -> Semantics:
        """The same for other tools; those that were here keep their texts and vectors."""
        numbers = {id(tool): number for number, tool in enumerate(self.tools)}
        places = [numbers.get(id(tool), -1) for tool in tools]
        texts = [self.texts[place] if place >= 0 else text_of(tool) for tool, place in zip(tools, places, strict=True)]
        known = self._known.moved(np.array(places, dtype=np.intp)) if self._known is not None else None
        return Semantics(self.source, tools, texts, known)

    def sense(self, text: str) -> Sense | None:
        """A query as it was read before the search; None while nothing is known of it or of the tools."""
        known = self._known
        if known is None:
            return None
        vector = self.source.recall_question(text)
        return None if vector is None or vector.size != known.vectors.dims else Sense(vector, known)

    def gather(self) -> None:
        """Take up what the source has learnt about tools that had no vector."""
        with self._gathering:
            known = None if self._is_outdated() else self._known
            found = list(self._recalled(known))
            if found:
                vectors = np.stack([vector for _, vector in found])
                known = known or self._nothing(vectors.shape[1])
                known = known.joined(np.array([number for number, _ in found]), vectors)
            self._known = known

    def _recalled(self, known: Known | None) -> Iterator[tuple[int, Vector]]:
        """Vectors that are new, and can be compared with those known or else with the first."""
        lacking = range(len(self.tools)) if known is None else np.flatnonzero(~known.has).tolist()
        dims = 0 if known is None else known.vectors.dims
        for number in lacking:
            vector = self.source.recall(self.texts[number])
            if vector is not None and vector.size == (dims := dims or vector.size):
                yield number, vector

    def _nothing(self, dims: int) -> Known:
        count = len(self.tools)
        return Known(blank(count, dims), np.zeros(count, dtype=np.bool_))

    def _is_outdated(self) -> bool:
        """Whether another model answers under the same name, which shows when its vectors have another length."""
        if self._known is None:
            return False
        vector = self.source.recall(self.texts[int(self._known.has.argmax())])
        return vector is not None and vector.size != self._known.vectors.dims


def read_tools(source: Meanings, tools: Sequence[Tool], previous: Semantics | None) -> Semantics:
    """A snapshot's tools; what is known of those that were in the last one is taken over."""
    return previous.changed(tools) if previous else Semantics(source, tools, [text_of(tool) for tool in tools], None)
