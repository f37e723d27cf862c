"""Fields of a tool that are searched, and the postings: which tools have a word, and how much it says about each."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.domain.tool import Tool

from .words import pieces, stems

DETAIL_LIMIT = 20_000
"""Characters of parameter text that are read from one tool, so that no schema can buy itself a place."""
CHOICES_READ = 50
NAME_MARK = "="
"""Begins a whole name among the words, where no word can begin with it."""

_PUNCTUATION = re.compile(r"\W")


def fields(tool: Tool) -> dict[str, str]:
    """The texts of a tool's fields."""
    names, details = _parameter_text(tool.properties)
    category = "" if tool.category in ("misc", tool.id.server) else tool.category
    return {
        "name": f"{tool.id.name} {tool.title}",
        "shelf": " ".join((tool.id.server, category, *tool.tags)),
        "description": tool.description,
        "parameters": names,
        "details": details,
    }


def read(tool: Tool) -> dict[str, list[str]]:
    """The words of a tool's fields as they stand there."""
    return {field: pieces(text) for field, text in fields(tool).items()}


def document(tool: Tool, found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The stems of each field's words, and the whole names."""
    whole = [f"{NAME_MARK}{name}" for name in {plain(spelling) for spelling in _spellings(tool)}]
    return {**{field: stems(listed) for field, listed in found.items()}, "whole": whole}


def _spellings(tool: Tool) -> tuple[str, ...]:
    return tool.handle, tool.id.name, tool.listed, str(tool.id)


def plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


def _parameter_text(properties: Mapping[str, Any]) -> tuple[str, str]:
    details = [text for schema in properties.values() for text in _texts(schema)]
    return " ".join(properties)[:DETAIL_LIMIT], " ".join(details)[:DETAIL_LIMIT]


def _texts(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    description = schema.get("description")
    if isinstance(description, str):
        yield description
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from (choice for choice in choices[:CHOICES_READ] if isinstance(choice, str))
    inner = schema.get("properties")
    if isinstance(inner, dict):
        yield from (str(name) for name in inner)


Numbers = NDArray[np.int32]
Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Field:
    """How much a field counts, how much its length is held against it, and how long such a text usually is."""

    weight: float
    length_norm: float
    usual: float


FIELDS: Mapping[str, Field] = {
    "name": Field(3.0, 0.3, 3),
    "shelf": Field(1.0, 0.2, 1.5),
    "description": Field(1.0, 0.6, 20),
    "parameters": Field(0.6, 0.6, 4),
    "details": Field(0.3, 0.7, 30),
    "whole": Field(1.0, 0.0, 1),
}
"""BM25F with usual lengths instead of the catalog's own: what a word says of a tool does not change with the rest."""
SATURATION = 1.2
LEFTOVERS = 4_096
"""Words up to which nothing is tidied away."""

Document = Mapping[str, Sequence[str]]
"""The words of each field of a tool, as often as they stand there."""


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The tools of each word one after the other, by number, with the value of the word there."""

    words: dict[str, int]
    """Grows from snapshot to snapshot; an older one ignores the words that came after it, and most are in use."""
    starts: NDArray[np.int64]
    tools: Numbers
    values: Values
    size: int
    """How many tools there are."""
    places: list[int] = field(init=False)
    """The starts again: a list gives out single numbers faster."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", self.starts.tolist())

    def of(self, word: str) -> tuple[Numbers, Values]:
        """The tools that have a word, in ascending order, and its value in each."""
        number = self.words.get(word, len(self.places))
        if number >= len(self.places) - 1:
            return _NO_TOOLS, _NO_VALUES
        start, end = self.places[number], self.places[number + 1]
        return self.tools[start:end], self.values[start:end]

    def counts(self, within: NDArray[np.bool_] | None) -> list[int]:
        """How many of some tools have each word, by the word's number; None stands for all tools."""
        passed = self.starts if within is None else np.concatenate(([0], np.cumsum(within[self.tools])))[self.starts]
        found: list[int] = np.diff(passed).tolist()
        return found

    def changed(self, kept: NDArray[np.bool_], documents: Iterable[Document]) -> Postings:
        """Without the tools that are gone, and with new ones numbered after those that stay."""
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        stays = kept[self.tools]
        word = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))[stays]
        old = _Triples(word, renumbered[self.tools[stays]], self.values[stays])
        first = int(np.count_nonzero(kept))
        found = _arranged(self.words, old, *_triples(documents, self.words, first))
        return found._tidied() if len(found.words) > LEFTOVERS else found

    def _tidied(self) -> Postings:
        """The same, without words that no tool has any more, where these are most of them."""
        counts = np.diff(self.starts)
        if 2 * np.count_nonzero(counts) > len(counts):
            return self
        words = [word for word, number in self.words.items() if counts[number]]
        starts = np.concatenate(([0], np.cumsum(counts[counts > 0])))
        return Postings(dict(zip(words, range(len(words)), strict=True)), starts, self.tools, self.values, self.size)


@dataclass(frozen=True, slots=True)
class _Triples:
    """Words, tools and values, sorted by word and then by tool."""

    words: Numbers
    tools: Numbers
    values: Values


def post(documents: Iterable[Document]) -> Postings:
    """The postings of some tools, numbered in their order."""
    words: dict[str, int] = {}
    nothing = _Triples(_NO_TOOLS, _NO_TOOLS, _NO_VALUES)
    return _arranged(words, nothing, *_triples(documents, words, 0))


def _triples(documents: Iterable[Document], words: dict[str, int], first: int) -> tuple[_Triples, int]:
    """Every word of every new tool once, with its value, and how many tools there are now.

    A word says more in a name than in details, and is diluted by longer texts. Documents are read one by one, and are
    not kept.
    """
    numbers = array("i")
    lengths = array("q")
    units = array("d")
    for document in documents:
        for name, shape in FIELDS.items():
            found = document[name]
            lengths.append(len(found))
            units.append(shape.weight / (1 - shape.length_norm + shape.length_norm * len(found) / shape.usual))
            numbers.extend([words.setdefault(word, len(words)) for word in found])
    size = len(lengths) // len(FIELDS) + first
    return _valued(np.array(numbers, dtype=np.int64), np.array(lengths), np.array(units), first, size), size


def _valued(
    numbers: NDArray[np.int64], counts: NDArray[np.int64], units: NDArray[np.float64], first: int, size: int
) -> _Triples:
    """The words of fields, one after the other, become one value for each word and tool."""
    tools = np.repeat(np.arange(first, size, dtype=np.int64), counts.reshape(-1, len(FIELDS)).sum(axis=1))
    span = size + 1
    keys = numbers * span + tools
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1)) if len(keys) else np.zeros(0, dtype=np.int64)
    weights = np.repeat(units, counts)[order]
    summed = np.add.reduceat(weights, begins) if len(keys) else weights
    values = (summed / (SATURATION + summed)).astype(np.float32)
    return _Triples((keys[begins] // span).astype(np.int32), (keys[begins] % span).astype(np.int32), values)


def _arranged(words: dict[str, int], old: _Triples, new: _Triples, size: int) -> Postings:
    """Both together: a word's new tools follow its old ones, so nothing has to be sorted again."""
    old_counts = np.bincount(old.words, minlength=len(words))
    new_counts = np.bincount(new.words, minlength=len(words))
    starts = np.concatenate(([0], np.cumsum(old_counts + new_counts)))
    old_places = np.arange(len(old.words)) + (np.cumsum(new_counts) - new_counts)[old.words]
    new_places = np.arange(len(new.words)) + np.cumsum(old_counts)[new.words]
    tools = np.empty(len(old.words) + len(new.words), dtype=np.int32)
    values = np.empty(len(tools), dtype=np.float32)
    tools[old_places], tools[new_places] = old.tools, new.tools
    values[old_places], values[new_places] = old.values, new.values
    return Postings(words, starts, tools, values, size)


_NO_TOOLS: Numbers = np.zeros(0, dtype=np.int32)
_NO_VALUES: Values = np.zeros(0, dtype=np.float32)
