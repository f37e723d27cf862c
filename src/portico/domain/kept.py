"""Results that were too large to be given whole: what is kept of them, and where its units begin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

Place = tuple[str | int, ...]
"""The keys and numbers that lead to a value inside of another."""


class Text(Protocol):
    """Text of any length, read in slices; a plain string is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> str: ...


class Starts(Protocol):
    """Where units begin, in rising order; an array of numbers is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> int: ...


class Unit(StrEnum):
    """What is never cut in two while it fits: the value is the word that readers are told."""

    LINE = "lines"
    ITEM = "items"
    """One item of a JSON list."""
    FIELD = "fields"
    """One field of a JSON object, with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of units: the lines of a text, the items of one list, or fields of one object."""

    unit: Unit
    starts: Starts
    end: int
    """Where the last of them ends."""
    place: Place = ()
    """Where the list or the object stands in its part."""

    def span(self, number: int) -> tuple[int, int]:
        """Where a unit begins, and where the next one does; what stands between the two is not cut off."""
        following = number + 1
        return self.starts[number], self.starts[following] if following < len(self.starts) else self.end

    def holding(self, at: int) -> int:
        """The number of the unit that a letter of the text belongs to; -1 when it stands outside of all of them."""
        return bisect_right(self.starts, at) - 1 if at < self.end else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One text of a result: a text block, an embedded text, or the structured content."""

    text: Text
    segments: tuple[Segment, ...]
    is_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One result that is kept for its caller, for a while."""

    id: str
    caller: str
    tool: str
    """The handle of the tool that returned it."""
    parts: tuple[Part, ...]
    seen: int = 0
    """The number of the first unit that its preview did not show whole."""
    tokens: int = 0
    """What each answer about it may cost; 0 leaves it to the caller."""
    expires_at: float = 0.0
    """In seconds since 1970."""

    @property
    def total(self) -> int:
        """How many units there are, over all parts."""
        return sum(len(segment.starts) for _, segment, _ in self.runs())

    def runs(self) -> Iterator[tuple[Part, Segment, int]]:
        """The segments of all parts in order, each with its part and the number of its first unit."""
        number = 0
        for part in self.parts:
            for segment in part.segments:
                yield part, segment, number
                number += len(segment.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimits:
    """What results may cost: their callers in tokens, and the gateway in time and room."""

    tokens: int = 6_000
    expire_s: float = 3_600.0
    memory_mb: int = 64
    store_mb: int = 500
