"""The index: BM25 over weighted fields, asked within what a caller may see."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from portico.domain.disclosure import Findings, Hit
from portico.domain.edition import Edition
from portico.domain.tool import Tool, ToolId
from portico.ports import Index

from .words import query_words, words


@dataclass(frozen=True, slots=True)
class Field:
    """How much a field counts, and how much its length is held against it."""

    weight: float
    length_norm: float


FIELDS: Mapping[str, Field] = {
    "name": Field(3.0, 0.3),
    "server": Field(1.0, 0.2),
    "description": Field(1.0, 0.6),
    "parameters": Field(0.6, 0.6),
    "details": Field(0.3, 0.7),
}
SATURATION = 1.2
EXACT_BONUS = 100.0
PREFIX_BONUS = 2.0
NAME_LENGTH = 600
"""Characters of a query that may be a name; the longest names are shorter."""
DETAIL_LIMIT = 20_000
"""Characters of parameter text that are read from one tool, so that no schema can buy itself a place."""


@dataclass(frozen=True, slots=True)
class _Document:
    tool: Tool
    words: Mapping[str, list[str]]
    """The words of each field, as often as they stand there."""


class WordIndex:
    """Finds tools by the words of their names, descriptions and parameters."""

    def __init__(self, documents: list[_Document]) -> None:
        self.documents = documents
        self._places = _places(documents)
        self._lengths = {field: _mean(len(d.words[field]) for d in documents) for field in FIELDS}
        self._scores: dict[str, list[tuple[int, float]]] = {}
        self._names: dict[str, list[int]] = defaultdict(list)
        for number, document in enumerate(documents):
            for spelling in {_plain(document.tool.handle), _plain(document.tool.id.name)}:
                self._names[spelling].append(number)

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The best permitted tools first; ties are settled by handle."""
        parts: dict[int, dict[str, float]] = defaultdict(dict)
        for word, weight in query_words(text).items():
            for number, value in self._scored(word):
                parts[number][f"word {word}"] = weight * value
        self._add_name_bonus(text, parts)
        hits = [
            Hit(tool=tool, score=round(sum(why.values()), 4), why=why)
            for number, why in parts.items()
            if (tool := self.documents[number].tool).id in within
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.handle))
        return Findings(hits=tuple(hits[:limit]), fits=bool(hits))

    def _scored(self, word: str) -> list[tuple[int, float]]:
        """The tools that have a word and what it adds to each; worked out when it is first asked for."""
        found = self._scores.get(word)
        if found is None:
            places = self._places.get(word, [])
            rarity = math.log(1 + (len(self.documents) - len(places) + 0.5) / (len(places) + 0.5))
            values = [(number, self._weight(word, self.documents[number])) for number in places]
            found = [(number, rarity * value / (SATURATION + value)) for number, value in values]
            if places:
                self._scores[word] = found
        return found

    def _weight(self, word: str, document: _Document) -> float:
        """How much a word stands for in a tool: more in its name than in its details, diluted by longer texts."""
        weight = 0.0
        for field, shape in FIELDS.items():
            words_ = document.words[field]
            if count := words_.count(word):
                dilution = 1 - shape.length_norm + shape.length_norm * len(words_) / (self._lengths[field] or 1)
                weight += shape.weight * count / dilution
        return weight

    def _add_name_bonus(self, text: str, parts: dict[int, dict[str, float]]) -> None:
        wanted = _plain(text[:NAME_LENGTH])
        if not wanted.strip("_"):
            return
        for number in self._names.get(wanted, ()):
            parts[number]["exact name"] = EXACT_BONUS
        if len(wanted) >= 3:
            for number in [n for n in parts if _plain(self.documents[n].tool.id.name).startswith(wanted)]:
                parts[number].setdefault("name prefix", PREFIX_BONUS)


def build_index(edition: Edition, previous: Index | None) -> WordIndex:
    """Index an edition; the words of tools that did not change are taken from the previous index."""
    known = {id(d.tool): d for d in previous.documents} if isinstance(previous, WordIndex) else {}
    return WordIndex([known.get(id(tool)) or _document(tool) for tool in edition.tools.values()])


def _document(tool: Tool) -> _Document:
    names, details = _parameter_text(tool.properties)
    texts = {
        "name": f"{tool.id.name} {tool.title}",
        "server": tool.id.server,
        "description": tool.description,
        "parameters": names,
        "details": details,
    }
    return _Document(tool, {field: words(text) for field, text in texts.items()})


def _parameter_text(properties: Mapping[str, Any]) -> tuple[str, str]:
    names: list[str] = []
    details: list[str] = []
    for name, schema in properties.items():
        names.append(name)
        details.extend(_texts(schema))
    return " ".join(names)[:DETAIL_LIMIT], " ".join(details)[:DETAIL_LIMIT]


def _texts(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    description = schema.get("description")
    if isinstance(description, str):
        yield description
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from (choice for choice in choices[:50] if isinstance(choice, str))
    inner = schema.get("properties")
    if isinstance(inner, dict):
        yield from (str(name) for name in inner)


def _places(documents: list[_Document]) -> dict[str, list[int]]:
    """Each word with the tools that have it anywhere."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        for word in {word for found in document.words.values() for word in found}:
            places[word].append(number)
    return places


def _mean(values: Iterator[int]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def _plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


_PUNCTUATION = re.compile(r"\W")
