"""What an embedder makes of an edition's tools, as far as it has come: a third signal beside words and the table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portico.domain.tool import Tool
from portico.ports import MeaningSource

from .vectors import Vector, Vectors, blank, pack

SAID = 800
"""Characters of a tool's name and description that an embedder reads."""
NAMED = 200
"""Characters of the names of its parameters."""

Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]


def text_of(tool: Tool) -> str:
    """What an embedder reads of a tool: its name, what it does, and what its parameters are called."""
    names = f" ({', '.join(tool.properties)}"[:NAMED] + ")" if tool.properties else ""
    return f"{tool.id.name}: {tool.description}"[:SAID] + names


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The vectors that the tools have at one moment, by number."""

    vectors: Vectors
    has: Mask
    """Which tools have one; the others are near to nothing."""

    def changed(self, kept: Mask, new: int) -> Known:
        """Without the tools that are gone, and with new ones that have no vector yet."""
        vectors = self.vectors.changed(kept, blank(new, self.vectors.dims))
        return Known(vectors, np.concatenate((self.has[kept], np.zeros(new, dtype=np.bool_))))

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

    def near(self, count: int, within: Mask | None) -> Numbers:
        """About so many tools among which the nearest ones are, most likely."""
        has = self.known.has
        return self.known.vectors.near(self.vector, count, has if within is None else has & within)

    def nearness(self, tools: Numbers) -> Vector:
        """How near some tools are; one that means the opposite is not nearer for it."""
        found: Vector = np.maximum(self.known.vectors.nearness(self.vector[None, :], tools)[0], 0)
        return found


class Semantics:
    """The tools of one edition in the eyes of an embedder.

    The source's own thread gathers what becomes known, and what a search reads is replaced whole: no search waits for
    either, and none sees half of a change.
    """

    def __init__(self, source: MeaningSource, texts: Sequence[str], known: Known | None = None) -> None:
        self.source = source
        self.texts = texts
        self._known = known
        self._gathering = threading.Lock()

    def start(self) -> None:
        """Have the texts prepared, and take what is known of them already."""
        self.source.start(self.texts, self.gather)
        self.gather()

    def changed(self, kept: Mask, new: Sequence[Tool]) -> Semantics:
        """The same for the next edition: tools that stay keep their vectors."""
        texts = [text for text, stays in zip(self.texts, kept.tolist(), strict=True) if stays]
        known = self._known
        return Semantics(self.source, [*texts, *map(text_of, new)], known and known.changed(kept, len(new)))

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
            lacking = np.arange(len(self.texts)) if known is None else np.flatnonzero(~known.has)
            found = list(self._recalled(lacking, known))
            if found:
                vectors = np.stack([vector for _, vector in found])
                known = known or Known(blank(len(self.texts), vectors.shape[1]), np.zeros(len(self.texts), np.bool_))
                known = known.joined(np.array([number for number, _ in found]), vectors)
            self._known = known

    def _recalled(self, lacking: Numbers, known: Known | None) -> Iterator[tuple[int, Vector]]:
        """Vectors that can be compared with those known, or else with the first."""
        dims = known.vectors.dims if known is not None else 0
        for number in lacking.tolist():
            vector = self.source.recall(self.texts[number])
            if vector is not None and vector.size == (dims := dims or vector.size):
                yield number, vector

    def _is_outdated(self) -> bool:
        """Whether another model answers under the same name, which shows when its vectors have another length."""
        if self._known is None or not self._known.has.any():
            return False
        vector = self.source.recall(self.texts[int(self._known.has.argmax())])
        return vector is not None and vector.size != self._known.vectors.dims


def read_tools(source: MeaningSource, tools: Sequence[Tool]) -> Semantics:
    """The tools of a first edition."""
    return Semantics(source, [text_of(tool) for tool in tools])
