"""What is written to the journal: invocations, and the lookups that came before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .call import Invocation

LATEST = 1e12
"""A moment that no clock shows, in seconds since 1970."""
LONGEST = 1e9
"""Seconds that nothing takes."""
MOST = 2**53
"""A number that no count reaches; beyond it a database would refuse it."""


class Look(StrEnum):
    """The ways of looking at tools and results without calling a tool."""

    LIST = "list"
    """The definitions that a surface lists."""
    SEARCH = "search"
    BROWSE = "browse"
    """The hot list, the categories, or the tools of one category."""
    DESCRIBE = "describe"
    READ = "read"
    """The next part of a result that was shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One look at the catalog, and what it cost."""

    look: Look
    caller: str
    surface: str
    at: float = 0.0
    seconds: float = 0.0
    text: str = ""
    """The query, the names or the category, as far as it is kept."""
    shown: int = 0
    found: int = 0
    fits: bool = True
    tokens: int = 0
    """What the answer cost."""
    instead: int = 0
    """What listing every tool would have cost, where this look takes its place."""


Entry = Invocation | Lookup


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Entries that are not in the journal: no room for them, or gone with the process that had them."""

    dropped: int = 0
    """Left out because the buffer was full."""
    lost: int = 0
    """Recorded by a process that ended before it could write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries that are written together, by one process."""

    writer: str
    """Tells this process from all others."""
    first: int = 0
    """How many entries of this writer came before, stored or dropped: a batch that is sent twice is written once."""
    entries: tuple[Entry, ...] = ()
    dropped: int = 0
    """Entries left out since the last batch."""
    caches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Hits and misses of each cache since the last batch."""

    @property
    def end(self) -> int:
        """How many entries of this writer are accounted for once this batch is stored."""
        return self.first + len(self.entries) + self.dropped


def bounded(invocation: Invocation) -> Invocation:
    """The invocation with every number in its bounds, so that whoever counts it counts the same."""
    at, seconds, rank = invocation.at, invocation.seconds, invocation.rank
    tokens_in, tokens_out = invocation.tokens_in, invocation.tokens_out
    is_timed = 0 <= at < LATEST and 0 <= seconds < LONGEST
    if is_timed and 0 <= tokens_in <= MOST and 0 <= tokens_out <= MOST and 0 <= rank <= MOST:
        return invocation
    return replace(
        invocation,
        at=at if 0 <= at < LATEST else 0.0,
        seconds=seconds if 0 <= seconds < LONGEST else 0.0,
        tokens_in=count_within(tokens_in),
        tokens_out=count_within(tokens_out),
        rank=count_within(rank),
    )


def count_within(number: int) -> int:
    """A count in its bounds."""
    return min(max(number, 0), MOST)
