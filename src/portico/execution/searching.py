"""Finds units of a kept result by what is in them, in time that grows with the result and no faster."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

import jsonschema_rs

from portico.domain.kept import Kept, Segment, Text, Unit

WINDOW = 1 << 16
"""Letters that are looked through at a time."""
PATTERN_LENGTH = 500
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()/]")
_SIGNS = re.compile(r"[\\^$*+?{}\[\]|()]")
"""What a pattern has in it that is more than a word; a dot alone is only a dot."""
_ANCHORS = re.compile(r"[$^]|\\[AzZbB]")
"""What matches at the end of a unit, and nowhere within several of them."""
_CASELESS = re.compile(r"[0-9!#-/:-@\[\]-`{-~]{3,}")
"""What has no upper case, and is spelled in JSON as it is."""

Matches = Callable[[str], bool]


def matching(kept: Kept, wanted: str, start: int) -> Iterator[int]:
    """The numbers of units with a word or a pattern in them, in order, from one on; letters of either case are alike.

    Raises:
        ValueError: the pattern is too long.
    """
    if len(wanted) > PATTERN_LENGTH:
        raise ValueError(f"longer than {PATTERN_LENGTH} letters")
    matches, sieve = _matcher(wanted), _sieve(wanted)
    is_anchored = _ANCHORS.search(wanted) is not None
    for part, segment, base in kept.runs():
        first = max(0, start - base)
        if first < len(segment.starts):
            search = _Search(part.text, segment, matches, sieve or matches, len(wanted))
            found = search.units(first, len(segment.starts)) if is_anchored else search.windows(first)
            yield from (base + number for number in found)


def _matcher(wanted: str) -> Matches:
    """What tells whether a text matches: the pattern, or the very letters of it, also as JSON may spell them."""
    spellings = dict.fromkeys([wanted, *(json.dumps(case)[1:-1] for case in (wanted, wanted.lower(), wanted.upper()))])
    word = "|".join(_SPECIAL.sub(r"\\\g<0>", spelling) for spelling in spellings)
    if _SIGNS.search(wanted):
        with suppress(jsonschema_rs.ValidationError, ValueError):  # it is a word after all
            return _compiled(f"(?i)(?:{wanted})|{word}")
    return _compiled(f"(?i){word}")


def _sieve(wanted: str) -> Matches | None:
    """What every match has in it and is found faster: digits and signs, which have no case; None without enough."""
    runs = [] if _SIGNS.search(wanted) else _CASELESS.findall(wanted)
    return _compiled(_SPECIAL.sub(r"\\\g<0>", max(runs, key=len))) if runs else None


def _compiled(pattern: str) -> Matches:
    # This engine takes linear time whatever the pattern is, which Python's own does not.
    options = jsonschema_rs.RegexOptions(size_limit=1 << 20)
    return jsonschema_rs.validator_for({"type": "string", "pattern": pattern}, pattern_options=options).is_valid


class _Search:
    """One search through a segment: whole windows first, and the units of a window only where it has a match."""

    def __init__(self, text: Text, segment: Segment, matches: Matches, sieve: Matches, overlap: int) -> None:
        self._text, self._segment, self._matches, self._sieve, self._overlap = text, segment, matches, sieve, overlap

    def windows(self, first: int) -> Iterator[int]:
        starts, total = self._segment.starts, len(self._segment.starts)
        while first < total:
            last = max(first + 1, bisect_right(starts, starts[first] + WINDOW, first))
            if self._sieve(self._window(first, last)):
                yield from self.units(first, last)
            first = last

    def units(self, first: int, last: int) -> Iterator[int]:
        end = "\r\n" if self._segment.unit is Unit.LINE else ", \t\r\n"  # a pattern may ask for the end of a unit
        return (n for n in range(first, last) if self._matches(self._window(n, n + 1).rstrip(end)))

    def _window(self, first: int, last: int) -> str:
        """The text of some units; a line that is several of them may have a match across two."""
        start, end = self._segment.starts[first], self._segment.span(last - 1)[1]
        if self._segment.unit is Unit.LINE and self._text[slice(end - 1, end)] != "\n":
            end += self._overlap
        return self._text[slice(start, end)]
