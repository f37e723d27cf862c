"""Tool names as people type them: whole, their beginning, their initials, in another order, or with a slip."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from portico.domain.suggestions import misspelled_names
from portico.domain.tool import Tool

from .word_vectors import Mask, Numbers, Vocabulary
from .words_and_postings import HANDLE_MARK, NAME_MARK, Postings, compact, initials_mark, order_mark, pieces, stem_of

EXACT_PART = "exact name"
PREFIX_PART = "name begins so"
EXACT = 10.0
BEGINNING = 2.0  # what the one name counts that begins with the query: more than words and meaning together
INITIALS = 1.5
OTHER_ORDER = 0.6  # all words of a name and no others: more than the next name can have of them
NEARLY = 1.0  # a name with a slip of the pen
NAME_LENGTH = 600  # characters of a query that may be a name; the longest names are shorter
SHORTEST_BEGINNING = 3
BEGINNINGS = 64  # names that are looked at which begin so: of more, one is no answer
SHORTEST_SLIP = 4  # letters from which on a name with a slip can be told from another name
SLIP = {4: 0.75, 5: 0.8, 6: 0.8}  # the share of a short name's letters that must be right: one may be wrong
SLIP_OF_LONG = 0.8  # and of a longer one's
NEAR_NAMES = 3  # names that are looked at, as hidden ones may be among them
MOST_WORDS = 8  # words of a query that may be a name
FIRST_TOOLS = 5  # tools that have a word in the first place, and so would have it in their names
INITIALS_LENGTH = range(3, 9)


class NameMatch(NamedTuple):
    """The tools that a query names, how it does, and what that adds to their scores."""

    tools: Numbers
    part: str
    value: float

    def without(self, tools: Numbers) -> NameMatch | None:
        """The same without some tools; None when none is left."""
        left = np.setdiff1d(self.tools, tools)
        return self._replace(tools=left) if len(left) else None


def is_spelled(tool: Tool, text: str) -> bool:
    """Whether a text is one of a tool's own spellings, letter by letter."""
    return text in (tool.handle, tool.name, tool.listed)


class Names:
    """The names of one snapshot's tools; which tools have one is told by the postings."""

    def __init__(
        self, tools: Sequence[Tool], postings: Postings, vocabulary: Vocabulary, before: Names | None = None
    ) -> None:
        self._tools = tools
        self._postings = postings
        self._vocabulary = vocabulary
        is_grown = before is not None and before._postings.words is postings.words
        self._known: _KnownNames = before._known if before is not None and is_grown else _KnownNames(0, [], [])

    def find(self, text: str, mask: Mask | None) -> NameMatch | None:
        """The tools that the whole query names, by the surest reading that fits any."""
        text = text[:NAME_LENGTH].strip()
        wanted = compact(text)
        if not wanted:
            return None
        typed = pieces(text)
        if len(tools := self._named(wanted, mask)):
            is_open = not text[-1].isalnum() and not any(is_spelled(self._tools[n], text) for n in tools.tolist())
            if is_open and len(longer := self._begun(text, wanted, typed, mask)):
                return NameMatch(longer, PREFIX_PART, BEGINNING)
            return NameMatch(tools, EXACT_PART, EXACT)
        if len(typed) > MOST_WORDS:
            return None
        if len(tools := self._begun(text, wanted, typed, mask)):
            return NameMatch(tools, PREFIX_PART, BEGINNING)
        if len(typed) > 1:
            tools = self._visible(order_mark(typed), mask)
            return NameMatch(tools, "name in another order", OTHER_ORDER) if len(tools) else self._nearly(text, mask)
        tools = self._visible(initials_mark(wanted), mask) if len(wanted) in INITIALS_LENGTH else _NO_TOOLS
        if len(tools) and self._is_one_name(tools) and not self._is_in_names(wanted, mask):
            return NameMatch(tools, "initials of the name", INITIALS)
        return self._nearly(text, mask)

    def _named(self, wanted: str, mask: Mask | None) -> Numbers:
        """The tools whose whole name, or any other spelling, this is."""
        tools = self._visible(NAME_MARK + wanted, mask)
        others = self._visible(HANDLE_MARK + wanted, mask)
        return np.union1d(tools, others) if len(others) else tools

    def _visible(self, mark: str, mask: Mask | None) -> Numbers:
        tools = self._postings.of(mark)[0]
        return (tools if mask is None else tools[mask[tools]]).astype(np.intp)

    def _is_one_name(self, tools: Numbers) -> bool:
        return len({compact(self._tools[number].name) for number in tools.tolist()}) == 1

    def _begun(self, text: str, wanted: str, typed: Sequence[str], mask: Mask | None) -> Numbers:
        """The tools of the one name that begins with the query, or else of the one handle.

        A last word that names of tools have is not taken for a part of a longer one: `time` is not the beginning of
        `timeout`, unless the query is written as names are.
        """
        if len(wanted) < SHORTEST_BEGINNING or not typed:
            return _NO_TOOLS
        is_written_so = not text[-1].isalnum() or (len(typed) > 1 and len(text.split(maxsplit=1)) == 1)
        whole = not is_written_so and self._is_in_names(typed[-1], mask)
        known = self._whole_names()
        for mark, names in ((NAME_MARK, known.names), (HANDLE_MARK, known.handles)):
            found: set[int] = set()
            for name in islice(_beginning_with(wanted, names), BEGINNINGS):
                for number in self._visible(mark + name, mask).tolist() if name != wanted else ():
                    if not whole or _ends_at_a_word(self._tools[number], name, len(wanted)):
                        found.add(number)
            if found:
                return self._one_name_of(found, text)
        return _NO_TOOLS

    def _one_name_of(self, found: Set[int], text: str) -> Numbers:
        """These tools if they have one name, or else those of the one name that begins with the very text."""
        tools = np.array(sorted(found), dtype=np.intp)
        if self._is_one_name(tools):
            return tools
        beginning = text.casefold()
        tools = np.array([n for n in sorted(found) if self._tools[n].name.casefold().startswith(beginning)], np.intp)
        return tools if self._is_one_name(tools) else _NO_TOOLS

    def _is_in_names(self, word: str, mask: Mask | None) -> bool:
        """Whether the name of a tool has this word: such a tool is among the first of those that have it."""
        tools, values = self._postings.of(stem_of(word))
        if mask is not None:
            tools, values = tools[mask[tools]], values[mask[tools]]
        first = tools[np.argsort(-values, kind="stable")[:FIRST_TOOLS]].tolist()
        return any(word.casefold() in map(str.casefold, pieces(self._tools[number].name)) for number in first)

    def _whole_names(self) -> _KnownNames:
        """Every whole name; the words only grow from snapshot to snapshot, so only new ones are looked at."""
        known = self._known
        if known.words < len(self._postings.words):
            words = list(self._postings.words)
            names, handles = (
                sorted([*before, *(word[1:] for word in words[known.words :] if word.startswith(mark))])
                for mark, before in ((NAME_MARK, known.names), (HANDLE_MARK, known.handles))
            )
            known = self._known = _KnownNames(len(words), names, handles)
        return known

    def _nearly(self, text: str, mask: Mask | None) -> NameMatch | None:
        """The tools whose name the query is but for a slip, where it is written as a name and has an unknown word."""
        wanted = compact(text)
        if len(text.split(maxsplit=1)) > 1 or len(wanted) < SHORTEST_SLIP:
            return None
        if not any(self._is_strange(word, mask) for word in pieces(text)):
            return None
        names = self._whole_names().names
        for position in misspelled_names(wanted, names, SLIP.get(len(wanted), SLIP_OF_LONG), NEAR_NAMES):
            if len(tools := self._visible(NAME_MARK + names[position], mask)):
                return NameMatch(tools, "name nearly so", NEARLY)
        return None

    def _is_strange(self, word: str, mask: Mask | None) -> bool:
        """Whether a word is neither one of any tool nor one of the language."""
        return (
            bool(stem_of(word)) and word.lower() not in self._vocabulary and not len(self._visible(stem_of(word), mask))
        )


class _KnownNames(NamedTuple):
    """How many words have been looked at, and the whole names and the handles among them, in order."""

    words: int
    names: list[str]
    handles: list[str]


def _beginning_with(wanted: str, names: Sequence[str]) -> Iterator[str]:
    for name in islice(names, bisect_left(names, wanted), None):
        if not name.startswith(wanted):
            return
        yield name


def _ends_at_a_word(tool: Tool, name: str, length: int) -> bool:
    """Whether a whole name of a tool has a word that ends at some letter."""
    for spelling in (tool.name, tool.handle, tool.listed, str(tool.id)):
        if compact(spelling) == name and length in accumulate(len(compact(piece)) for piece in pieces(spelling)):
            return True
    return False


_NO_TOOLS: Numbers = np.array([], dtype=np.intp)
