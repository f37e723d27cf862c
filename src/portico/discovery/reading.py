"""A query is read: which of its words the tools have, which look or mean alike, and what it means as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .documents import NAME_MARK
from .meaning import Table
from .needs import needs
from .postings import Numbers, Postings, Values
from .products import PRODUCTS
from .synonyms import SYNONYMS
from .typos import NearWords
from .vectors import Mask, Vector
from .words import query_words, stem_of

NEAR_WEIGHT = 0.7
"""What a misspelled word counts."""
SYNONYM_LEAST = 0.015
"""The share of a query's weight below which a synonym is left out."""
CORRECTED = 4
"""Unknown words of a query for which near ones are looked for."""


class Term(NamedTuple):
    """A word that some tools have, with its share of all that the query says."""

    word: str
    share: float
    tools: Numbers
    values: Values

    def value_in(self, tool: int) -> float:
        """What the word adds to the score of a tool."""
        place = int(np.searchsorted(self.tools, tool))
        if place < len(self.tools) and self.tools[place] == tool:
            return float(self.values[place]) * self.share
        return 0.0


class Need(NamedTuple):
    """One thing that is asked for."""

    text: str
    terms: tuple[Term, ...]
    vector: Vector
    mass: float
    """What all of its words tell together."""
    is_elsewhere: bool = False
    """Whether it names a product that no tool knows."""

    def by_words(self, size: int) -> Vector:
        """The share of the query that each tool has in words: 1 would be all of it, in its name."""
        if not self.terms:
            return np.zeros(size, dtype=np.float32)
        tools = np.concatenate([term.tools for term in self.terms])
        values = np.concatenate([term.values for term in self.terms])
        shares = np.array([term.share for term in self.terms], dtype=np.float32)
        values *= np.repeat(shares, [len(term.tools) for term in self.terms])
        return np.bincount(tools, weights=values, minlength=size).astype(np.float32)


class Reader:
    """Reads queries for one edition's tools, as far as a caller may see them: others leave no trace in a score."""

    def __init__(self, postings: Postings, table: Table, within: Mask | None) -> None:
        self.postings = postings
        self.table = table
        self._counts = postings.counts(within)
        size = postings.size if within is None else int(np.count_nonzero(within))
        counts = np.arange(size + 1)
        self._told: list[float] = np.log1p((size - counts + 0.5) / (counts + 0.5)).tolist()
        """How much a word tells that so many tools have."""

    def read(self, text: str) -> list[Need]:
        """What is asked for, one need or several."""
        return [self._need(need) for need in needs(text)]

    def _need(self, text: str) -> Need:
        spelled = query_words(as_creating(text))
        stems: dict[str, float] = {}
        for word, weight in spelled.items():
            stemmed = stem_of(word)
            if stems.get(stemmed, 0.0) < weight:
                stems[stemmed] = weight
        weights, mass = self._weigh(stems, spelled)
        terms = tuple(Term(word, weight / mass, *self.postings.of(word)) for word, weight in weights.items())
        is_elsewhere = any(word in PRODUCTS and not self._count(stem_of(word)) for word in spelled)
        return Need(text, terms, self.table.of_query(spelled), mass, is_elsewhere)

    def _weigh(self, stems: Mapping[str, float], spelled: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Each word that tools have with its weight, and the weight of the whole query, unknown words included."""
        weights: dict[str, float] = {}
        mass = 0.0
        unknown = []
        for word, weight in stems.items():
            count = self._count(word)
            told = weight * self._told[count]
            mass += told
            if count:
                weights[word] = told
            elif weight == 1.0:
                unknown.append(word)
        mass -= self._add_near(unknown[:CORRECTED], spelled, weights)
        self._add_synonyms(stems, weights, least=SYNONYM_LEAST * mass)
        return weights, max(mass, 1e-9)

    def _add_near(self, unknown: list[str], spelled: Mapping[str, float], weights: dict[str, float]) -> float:
        """Take an unknown word for those that look like it, unless it is a word in its own right.

        Returns by how much the query weighs less, now that its words are known to be common ones.
        """
        if not unknown:
            return 0.0
        less = 0.0
        sensible = {stem_of(word) for word in spelled if word in self.table.words}
        for word in unknown:
            near = self._near_words.near(word) if word not in sensible else []
            for other in near:
                told = NEAR_WEIGHT * self._told[self._count(other)]
                weights[other] = max(weights.get(other, 0.0), told)
            if near:
                less += self._told[0] - self._told[self._count(near[0])]
        return less

    def _add_synonyms(self, stems: Mapping[str, float], weights: dict[str, float], least: float) -> None:
        """Words that mean nearly the same, unless they are so common that they would tell nothing."""
        for word, weight in stems.items():
            for other, share in SYNONYMS.get(word, _NONE).items() if weight == 1.0 else ():
                count = self._count(other)
                if count and other not in stems:
                    told = share * self._told[count]
                    if told >= least:
                        weights[other] = max(weights.get(other, 0.0), told)

    def _count(self, word: str) -> int:
        """How many tools have a word."""
        number = self.postings.words.get(word, len(self._counts))
        return self._counts[number] if number < len(self._counts) else 0

    @cached_property
    def _near_words(self) -> NearWords:
        words = list(self.postings.words)
        return NearWords([word for word in words if not word.startswith(NAME_MARK) and self._count(word)])


def as_creating(text: str) -> str:
    """A request to open a new issue, in the word that tools use for it: what is open already is another matter."""
    return _OPENING.sub("create", text, count=1)


_OPENED = "issue|ticket|bug|defect|incident|case|pull request|merge request|pr|mr"
_OPENING = re.compile(rf"\b(?:open|file|raise|log)\b(?= +(?:an?|another|new) .{{0,40}}\b(?:{_OPENED})\b)", re.I)
_NONE: Mapping[str, float] = {}
