"""What an embedder makes of an edition's tools, as far as it has come: a third signal beside words and the table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from portico.domain.tool import Tool
from portico.protocols import MeaningSource

from .vectors import Mask, Numbers, Vector, Vectors, blank, pack

SAID = 800
"""Characters of a tool's name and description that an embedder reads."""
NAMED = 200
"""Characters of the names of its parameters."""
SAMPLED = 512
"""Tools that say what all tools have in common."""
STRANGERS = 10
"""Tools without any meaning that are thought among them: of two or three tools, little is common to all tools."""


def text_of(tool: Tool) -> str:
    """What an embedder reads of a tool: its name, what it does, and what its parameters are called."""
    parameters = f" ({', '.join(tool.properties)}"[:NAMED] + ")" if tool.properties else ""
    return f"{tool.id.name}: {tool.description}"[:SAID] + parameters


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The vectors that the tools have at one moment, by number."""

    vectors: Vectors
    has: Mask
    """Which tools have one; the others are near to nothing."""
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
    """The tools of one edition in the eyes of an embedder.

    The source's own thread gathers what becomes known, and what a search reads is replaced whole: no search waits for
    either, and none sees half of a change.
    """

    def __init__(self, source: MeaningSource, tools: Sequence[Tool], texts: Sequence[str], known: Known | None) -> None:
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


def read_tools(source: MeaningSource, tools: Sequence[Tool], previous: Semantics | None) -> Semantics:
    """An edition's tools; what is known of those that were in the last one is taken over."""
    return previous.changed(tools) if previous else Semantics(source, tools, [text_of(tool) for tool in tools], None)
