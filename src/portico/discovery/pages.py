"""Pages of a list of hits: where one starts, and the call that shows the next."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from portico.domain.disclosure import Hit
from portico.domain.query import Query
from portico.errors import NextCall

from .spelling import Spell

REPEATED_LENGTH = 200
"""A query up to this length is repeated in the call for the next page."""


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
