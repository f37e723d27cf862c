"""Tool names as people type them: whole, their beginning, their initials, in another order, or with a slip."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from portico.domain.suggestions import similarities
from portico.domain.tool import Tool

from .word_vectors import Mask, Numbers
from .words import NAME_MARK, Postings, compact, initials_mark, order_mark, pieces, stem_of, whole_mark

EXACT_PART = "exact name"
PREFIX_PART = "name begins so"
EXACT = 10.0
BEGINNING = 2.0  # what the one name counts that begins with the query: more than words and meaning together
INITIALS = 1.5
OTHER_ORDER = 0.6  # all words of a name and no others: more than the next name can have of them
NEARLY = 1.0  # a name with a slip of the pen
NAME_LENGTH = 600  # characters of a query that may be a name; the longest names are shorter
SHORTEST_BEGINNING = 3
SHORTEST_SLIP = 6  # letters from which on a name with a slip can be told from another name
SLIP = 84.0  # percent of letters that agree
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


class Names:
    """The names of one snapshot's tools; which tools have one is told by the postings."""

    def __init__(self, tools: Sequence[Tool], postings: Postings, before: Names | None = None) -> None:
        self._tools = tools
        self._postings = postings
        is_grown = before is not None and before._postings.words is postings.words
        self._known: tuple[int, list[str]] = before._known if before is not None and is_grown else (0, [])
        """How many words have been looked at, and every whole name among them, in order."""

    def find(self, text: str, mask: Mask | None) -> NameMatch | None:
        """The tools that the whole query names, by the surest reading that fits any."""
        wanted = compact(text[:NAME_LENGTH])
        if not wanted:
            return None
        if len(tools := self._visible(whole_mark(wanted), mask)):
            return NameMatch(tools, EXACT_PART, EXACT)
        typed = pieces(text[:NAME_LENGTH])
        if len(typed) > MOST_WORDS:
            return None
        if len(tools := self._begun(text.strip(), wanted, typed, mask)):
            return NameMatch(tools, PREFIX_PART, BEGINNING)
        if len(typed) > 1:
            tools = self._visible(order_mark(typed), mask)
            return NameMatch(tools, "name in another order", OTHER_ORDER) if len(tools) else self._nearly(text, mask)
        tools = self._visible(initials_mark(wanted), mask) if len(wanted) in INITIALS_LENGTH else _NO_TOOLS
        if len(tools) and self._is_one_name(tools) and not self._is_in_names(wanted, mask):
            return NameMatch(tools, "initials of the name", INITIALS)
        return self._nearly(text, mask)

    def _visible(self, mark: str, mask: Mask | None) -> Numbers:
        tools = self._postings.of(mark)[0]
        return (tools if mask is None else tools[mask[tools]]).astype(np.intp)

    def _is_one_name(self, tools: Numbers) -> bool:
        return len({compact(self._tools[number].id.name) for number in tools.tolist()}) == 1

    def _begun(self, text: str, wanted: str, typed: Sequence[str], mask: Mask | None) -> Numbers:
        """The tools of the one name that begins with the query.

        A last word that names of tools have is not taken for a part of a longer one: `time` is not the beginning of
        `timeout`, unless the query is written as names are.
        """
        if len(wanted) < SHORTEST_BEGINNING or not typed:
            return _NO_TOOLS
        is_written_so = len(typed) > 1 and len(text.split(maxsplit=1)) == 1
        whole = not is_written_so and self._is_in_names(typed[-1], mask)
        found: set[int] = set()
        for name in self._beginning_with(wanted):
            for number in self._visible(whole_mark(name), mask).tolist():
                if not whole or _ends_at_a_word(self._tools[number], name, len(wanted)):
                    found.add(number)
            if found and not self._is_one_name(tools := np.array(sorted(found), dtype=np.intp)):
                return _NO_TOOLS
        return tools if found else _NO_TOOLS

    def _is_in_names(self, word: str, mask: Mask | None) -> bool:
        """Whether the name of a tool has this word: such a tool is among the first of those that have it."""
        tools, values = self._postings.of(stem_of(word))
        if mask is not None:
            tools, values = tools[mask[tools]], values[mask[tools]]
        first = tools[np.argsort(-values, kind="stable")[:FIRST_TOOLS]].tolist()
        return any(word.casefold() in map(str.casefold, pieces(self._tools[number].id.name)) for number in first)

    def _beginning_with(self, wanted: str) -> Iterator[str]:
        names = self._whole_names()
        for name in islice(names, bisect_left(names, wanted), None):
            if not name.startswith(wanted):
                return
            yield name

    def _whole_names(self) -> list[str]:
        """Every whole name; the words only grow from snapshot to snapshot, so only new ones are looked at."""
        count, names = self._known
        if count < len(self._postings.words):
            words = list(self._postings.words)
            new = [word[1:] for word in words[count:] if word.startswith(NAME_MARK)]
            names = sorted([*names, *new])
            self._known = len(words), names
        return names

    def _nearly(self, text: str, mask: Mask | None) -> NameMatch | None:
        """The tools whose name the query is but for a slip, where it is written as a name and has an unknown word."""
        text = text.strip()
        wanted = compact(text)
        is_strange = any(stem_of(word) and not len(self._visible(stem_of(word), mask)) for word in pieces(text))
        if len(text.split(maxsplit=1)) > 1 or len(wanted) < SHORTEST_SLIP or not is_strange:
            return None
        names = self._whole_names()
        for position, _ in similarities(wanted, names, SLIP, NEAR_NAMES):
            if len(tools := self._visible(whole_mark(names[position]), mask)):
                return NameMatch(tools, "name nearly so", NEARLY)
        return None


def _ends_at_a_word(tool: Tool, name: str, length: int) -> bool:
    """Whether a whole name of a tool has a word that ends at some letter."""
    for spelling in (tool.id.name, tool.handle, tool.listed, str(tool.id)):
        if compact(spelling) == name and length in accumulate(len(compact(piece)) for piece in pieces(spelling)):
            return True
    return False


_NO_TOOLS: Numbers = np.array([], dtype=np.intp)
