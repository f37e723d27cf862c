"""Pages of a list of hits: where one starts, and the call that shows the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from portico.domain.disclosure import Budget, Disclosure, Hit, Level
from portico.domain.query import Query
from portico.domain.tool import Tool, ToolId
from portico.domain.usage import Usage
from portico.errors import NextCall
from portico.ports import TokenCounter

from .budgets import Rungs, fit
from .cards import ladder
from .forms import performance_words
from .ranking import settle
from .spelling import Spell

REPEATED_LENGTH = 200
"""A query up to this length is repeated in the call for the next page."""
LONGEST_PAGE = 50
STRANGE_CURSOR = "(the cursor is not of this list of tools, which may have changed: this is its beginning)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, as it is shown."""

    disclosure: Disclosure
    hits: Sequence[Hit]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A list of hits, and what its pages are made with."""

    query: Query
    hits: Sequence[Hit]
    usage: Mapping[ToolId, Usage]
    counter: TokenCounter
    spell: Spell
    beside: Sequence[str] = ()
    """Lines that follow the tools of a page."""

    def page(self, budget: Budget) -> Page:
        """The tools from the cursor on, as many as fit; the next page begins with the first that did not.

        Which tools are on a page is settled without usage, so that no call between two pages moves a tool across.
        """
        mark = mark_of(self.hits)
        start = start_of(self.query.cursor, mark, len(self.hits))
        size = max(1, min(budget.cards, LONGEST_PAGE))
        while True:
            hits = settle(self.hits[start : start + size], self.usage)
            left = len(self.hits) - start - len(hits)
            more = [more_line(self.query, f"{start + len(hits)}:{mark}", left, self.spell)] if left > 0 else []
            disclosure = fit(
                [self._line(hit.tool) for hit in hits],
                tokens=budget.tokens,
                counter=self.counter,
                head=STRANGE_CURSOR if self.query.cursor and not start else "",
                tail="\n".join([*self.beside, *more]),
                total=len(self.hits) - start,
            )
            if disclosure.shown == len(hits):
                return Page(disclosure=disclosure, hits=hits, start=start)
            size = disclosure.shown

    def _line(self, tool: Tool) -> Rungs:
        """A tool as one line; whoever asks for fast or good ones is told how it has done."""
        card = ladder(tool, Level.PARAMETERS)
        if not self.query.max_latency_ms and not self.query.min_success:
            return card
        words = performance_words(self.usage.get(tool.id))
        return replace(card, texts=[(level, f"{text} {words}") for level, text in card.texts])


def mark_of(found: Sequence[Hit]) -> str:
    """Six characters that tell one list of tools from another, whatever made it another."""
    return f"{crc32(' '.join(hit.handle for hit in found).encode()) & 0xFFFFFF:06x}"


def start_of(cursor: str, mark: str, total: int) -> int:
    """Where a page starts; a cursor that was not given out for this very list starts at the beginning."""
    offset, _, marked = cursor.partition(":")
    is_ours = marked == mark and offset.isascii() and offset.isdigit() and len(offset) < 10
    return int(offset) if is_ours and int(offset) < total else 0


def more_line(query: Query, cursor: str, left: int, spell: Spell) -> str:
    """How many are left, and the call that shows them."""
    if len(query.text) > REPEATED_LENGTH:
        return f'{left} more: the same search with "cursor": "{cursor}"'
    limit = {"limit": query.limit} if query.limit else {}
    call = NextCall("search", {"query": query.text, **query.filters, **limit, "cursor": cursor})
    return f"{left} more: {spell(call)}"


def worded(query: Query) -> str:
    """A query on one line, filters included."""
    filters = "&".join(f"{name}={value}" for name, value in query.filters.items())
    return " ".join(part for part in (query.text.strip(), filters) if part)
