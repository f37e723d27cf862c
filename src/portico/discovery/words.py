"""Texts become stemmed words: identifiers are split, common words dropped, literals weighed less."""

from __future__ import annotations

import re
from collections.abc import Iterator

STOP_WORDS = frozenset(
    "a an the of to in on at by for from with without and or is are be was were been it its this that these those as if"
    " into onto over under about i me my we our you your he she they them their his her can could would should will"
    " may might must do does did please want need like how what which who when where there here then than so just also"
    " some any all each every no not only via using use used".split()
)

_IDENTIFIER = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+", re.UNICODE)
_LITERAL = re.compile(r"https?://\S+|\"[^\"]*\"|'[^']{3,}'|`[^`]*`|(?:[\w.-]*/){2,}[\w.-]*|\b\d[\d.,:-]*\b")
LITERAL_WEIGHT = 0.3
WORD_LENGTH = 60
"""Letters of a word that are compared, so that no text can fill the memory with its words."""
QUERY_LIMIT = 4_000
"""Characters of a query that are read; the rest cannot change what it asks for."""


def pieces(text: str) -> list[str]:
    """The words of a text as they stand there, identifiers split."""
    return _IDENTIFIER.findall(text)


def stems(found: list[str]) -> list[str]:
    """The stems of words, without the common ones."""
    return [word for raw in found if (word := _STEMS[raw])]


def words(text: str) -> list[str]:
    """The stemmed words of a text, in order."""
    return stems(pieces(text))


def spelled(raw: str) -> str:
    """A word in small letters; empty for a common one and for a number."""
    word = raw[:WORD_LENGTH].lower()
    return "" if word in STOP_WORDS or word.isdigit() else word


def spelled_words(text: str) -> list[str]:
    """The words of a text in small letters; common words and numbers are left out."""
    return [word for raw in pieces(text) if (word := spelled(raw))]


def query_words(text: str) -> dict[str, float]:
    """Each word of a query once, as spelled, with its weight; quoted strings, paths, URLs and numbers count less."""
    text = text[:QUERY_LIMIT]
    weights = dict.fromkeys(_query_words(_LITERAL.sub(" ", text)), 1.0)
    for word in _query_words(" ".join(_LITERAL.findall(text))):
        weights.setdefault(word, LITERAL_WEIGHT)
    return weights


def _query_words(text: str) -> Iterator[str]:
    found = (raw[:WORD_LENGTH].lower() for raw in _IDENTIFIER.findall(text))
    return (word for word in found if word not in STOP_WORDS)


class _Stems(dict[str, str]):
    """Each word as it was written, with its stem or nothing for a common one; a look-up costs no call of ours."""

    def __missing__(self, raw: str) -> str:
        if len(self) >= REMEMBERED:
            self.clear()
        word = raw[:WORD_LENGTH].lower()
        found = self[raw] = "" if word in STOP_WORDS else stem(word)
        return found


_STEMS = _Stems()
REMEMBERED = 65_536


def stem_of(word: str) -> str:
    """The stem of one word, remembered; empty for a common one."""
    return _STEMS[word]


def stem(word: str) -> str:
    """A light stem: plural, -ing, -ed and -er endings go, enough for tool descriptions."""
    for ending, shortest, replacement in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            return _undouble(word[: -len(ending)] + replacement)
    return word


_ENDINGS = (
    ("ations", 3, "at"),
    ("ation", 3, "at"),
    ("ies", 2, "y"),
    ("sses", 2, "ss"),
    ("ches", 2, "ch"),
    ("shes", 2, "sh"),
    ("xes", 2, "x"),
    ("ings", 3, ""),
    ("ing", 3, ""),
    ("ied", 2, "y"),
    ("ed", 3, ""),
    ("ors", 3, ""),
    ("ers", 3, ""),
    ("or", 4, ""),
    ("er", 4, ""),
    ("es", 3, ""),
    ("s", 3, ""),
    ("e", 3, ""),
)


def _undouble(word: str) -> str:
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouslz":
        return word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
