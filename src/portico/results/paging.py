"""The next part of a kept result: a page of it, or what a word or pattern finds."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import anyio.to_thread
import jsonschema_rs
from anyio import CapacityLimiter

from portico.domain.call import Caller, Kept, Part, Place, Segment, Text, Unit
from portico.domain.disclosure import Disclosure
from portico.domain.learned_schema import shape_line, shape_of
from portico.errors import InvalidArguments, NextCall, StoreError
from portico.protocols import TokenCounter

from .kept import Results, away
from .preview import CUT, dumps, name_at, read_outline, read_value, shorten, shorten_text
from .truncate import LETTERS_PER_TOKEN, Truncator, fitted

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


TAIL_TOKENS = 60
"""What the line behind a page costs."""
LEAST_TOKENS = 50
PATHS_AT_ONCE = 2
"""A path needs the whole result as a value, which takes several times its memory for a moment."""
PATH_SHOWN = 200
"""Letters of a path that is told; a longer one would cost too much."""
READ = "read_result"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One question about a result that is kept."""

    id: str
    cursor: str = ""
    grep: str = ""
    path: str = ""

    @property
    def words(self) -> str:
        """The question for the journal, which keeps no handles."""
        asked = {"cursor": self.cursor, "grep": self.grep, "path": self.path}
        return " ".join(f"{name}={value}" for name, value in asked.items() if value)

    def next(self, cursor: int) -> str:
        """The question for the next page, spelled as a call."""
        asked = {"id": self.id, "grep": self.grep, "path": self.path, "cursor": str(cursor)}
        return f"{READ}({dumps({name: value for name, value in asked.items() if value})})"

    def wrong(self, *details: str) -> InvalidArguments:
        """The error for a question that cannot be answered; the next call begins where the preview ended."""
        return InvalidArguments(READ, details=details, next_call=NextCall("read_result", {"id": self.id}))


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Answers questions about kept results, each within what its caller may spend."""

    truncator: Truncator
    """Which knows what a result may cost."""
    paths: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PATHS_AT_ONCE))

    @property
    def _results(self) -> Results:
        return self.truncator.results

    @property
    def _counter(self) -> TokenCounter:
        return self.truncator.counter

    async def read(self, caller: Caller, reading: ReadRequest) -> Disclosure:
        """The answer in `text`, and in `next` what it shows and the way on.

        Raises:
            UnknownResult: nothing is kept under this handle for this caller.
            InvalidArguments: the cursor, the pattern or the path cannot be used.
        """
        try:
            limiter = self.paths if reading.path else None
            return await anyio.to_thread.run_sync(partial(self._read, caller, reading), limiter=limiter)
        except StoreError as error:
            raise away(reading.id) from error

    def _read(self, caller: Caller, reading: ReadRequest) -> Disclosure:
        kept = self._results.find(caller, reading.id)
        limit = min(kept.tokens, self.truncator.limit(caller)) if kept.tokens else self.truncator.limit(caller)
        tokens = max(LEAST_TOKENS, limit - TAIL_TOKENS)
        if reading.path:
            kept = _selected(kept, reading, tokens)
        start = _start(kept, reading)
        if reading.grep:
            return self._found(kept, reading, start, tokens)
        return self._page(kept, reading, start, tokens)

    def _page(self, kept: Kept, reading: ReadRequest, start: int, tokens: int) -> Disclosure:
        """Units of one segment from a number on, as many as fit; of one that alone is too large, the beginning."""
        part, segment, base = _run_at(kept, start)
        first = start - base
        letters, units = tokens * LETTERS_PER_TOKEN, list[str]()
        for number in range(first, len(segment.starts)):
            unit = _unit(part, segment, number)
            letters -= len(unit) + 1
            if units and letters < 0:
                break
            units.append(unit)
        count, text = self._fullest(units, tokens, partial(_joined, part, segment, first))
        said = _page_line(segment, first, count)
        if not count:
            count, text = 1, self._beginning(part, segment, units[0], tokens)
            said = f"the beginning of {segment.unit} {first:,}, which is too large; {_way_to(segment, first, units[0])}"
        return self._told(kept, reading, text, said, start + count, count)

    def _found(self, kept: Kept, reading: ReadRequest, start: int, tokens: int) -> Disclosure:
        """Units with a word or a pattern in them, each behind its number; the search ends where the page is full."""
        letters, lines, numbers = tokens * LETTERS_PER_TOKEN, list[str](), list[int]()
        for number, unit in _units(kept, self._matching(kept, reading, start)):
            line = f"{number}: {unit if len(unit) <= tokens else unit[:tokens] + CUT}"
            letters -= len(line) + 1
            if numbers and letters < 0:
                break
            lines.append(line)
            numbers.append(number)
        if not numbers:
            said = f"nothing has {reading.grep!r} in it from {start:,} on, of {kept.total:,}"
            return self._told(kept, reading, "", said, end=kept.total, shown=0)
        count, text = self._fullest(lines, tokens, "\n".join)
        if not count:
            count, text = 1, fitted(lines[0], tokens, self._counter, shorten_text, str)
        is_all = count == len(numbers) and letters >= 0
        end = kept.total if is_all else numbers[count - 1] + 1
        return self._told(kept, reading, text, f"{count:,} with {reading.grep!r} in them", end, count)

    def _matching(self, kept: Kept, reading: ReadRequest, start: int) -> Iterator[int]:
        try:
            yield from matching(kept, reading.grep, start)
        except ValueError as error:
            raise reading.wrong(f"grep: {error}") from None

    def _fullest(self, units: list[str], tokens: int, join: Callable[[list[str]], str]) -> tuple[int, str]:
        """As many of the first units as cost at most so many tokens together, and their text."""
        count = len(units)
        while count:
            text = join(units[:count])
            # To count a text that no page can hold would take longer than to read it.
            is_hopeless = len(text) > 2 * tokens * LETTERS_PER_TOKEN
            cost = len(text) // LETTERS_PER_TOKEN if is_hopeless else self._counter.count(text)
            if cost <= tokens:
                return count, text
            count = min(count - 1, count * tokens // cost)
        return 0, ""

    def _beginning(self, part: Part, segment: Segment, unit: str, tokens: int) -> str:
        text = unit if segment.unit is Unit.LINE else f"[{unit}]" if segment.unit is Unit.ITEM else f"{{{unit}}}"
        outline = read_outline(text, tokens * LETTERS_PER_TOKEN) if part.is_json else None
        if outline is None or not outline.part.is_json:
            return str(fitted(text, tokens, self._counter, shorten_text, str))
        return dumps(fitted(outline.value, tokens, self._counter, shorten, dumps))

    def _told(self, kept: Kept, reading: ReadRequest, text: str, said: str, end: int, shown: int) -> Disclosure:
        more = f"; next: {reading.next(end)}" if end < kept.total else "; that is all"
        tokens = self._counter.count(text) + self._counter.count(said + more)
        return Disclosure(
            text=text, tokens=tokens, shown=shown, total=kept.total, next=said + more, counter=self._counter.name
        )


def _start(kept: Kept, reading: ReadRequest) -> int:
    """Where to begin: at the cursor, else where the preview ended; a search or a selection begins at the beginning."""
    cursor = reading.cursor.strip()
    if not cursor:
        return 0 if reading.grep or reading.path or kept.seen >= kept.total else kept.seen
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 15 or int(cursor) >= kept.total:
        raise reading.wrong(f"cursor: must be a number from 0 to {max(0, kept.total - 1)}, and is {cursor[:40]!r}")
    return int(cursor)


def _selected(kept: Kept, reading: ReadRequest, tokens: int) -> Kept:
    """What a path selects in the first part that is JSON, as if it had been kept."""
    part = next((part for part in kept.parts if part.is_json), None)
    if part is None:
        raise reading.wrong("path: this result is text and not JSON; use grep or cursor")
    value = read_value(part.text[slice(0, len(part.text))])
    # Loaded by the first path that somebody asks for.
    from portico.results import jmespath_query as paths

    try:
        found = paths.select(value, reading.path)
    except paths.PathTrouble as trouble:
        raise reading.wrong(str(trouble), f"shape: {shape_line(shape_of(value))}") from None
    if found is None:
        raise reading.wrong("path: it selects nothing", f"shape: {shape_line(shape_of(value))}")
    text = found if isinstance(found, str) else _written(found, reading)
    selected = read_outline(text, tokens).part
    if not selected.segments:  # [], {} or an empty string
        selected = replace(selected, segments=(Segment(unit=Unit.LINE, starts=[0], end=len(text)),), is_json=False)
    return replace(kept, parts=(selected,), seen=0)


def _run_at(kept: Kept, number: int) -> tuple[Part, Segment, int]:
    return next(run for run in kept.runs() if number < run[2] + len(run[1].starts))


def _unit(part: Part, segment: Segment, number: int) -> str:
    """The text of a unit; of JSON without the space that people like to see."""
    text = part.text[slice(*segment.span(number))]
    if segment.unit is Unit.LINE:
        return text.rstrip("\r\n")
    text = text.rstrip(", \t\r\n")
    try:
        return dumps(json.loads(text)) if segment.unit is Unit.ITEM else dumps(json.loads(f"{{{text}}}"))[1:-1]
    except RecursionError:  # as it is, then
        return text


def _written(found: object, reading: ReadRequest) -> str:
    try:
        return dumps(found)
    except RecursionError:
        raise reading.wrong("path: what it selects is nested too deeply; select something inside it") from None


def _units(kept: Kept, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Units by their numbers, which rise."""
    runs = list(kept.runs())
    for run, among in groupby(numbers, lambda number: next(r for r in runs if number < r[2] + len(r[1].starts))):
        part, segment, base = run
        yield from ((number, _unit(part, segment, number - base)) for number in among)


def _joined(part: Part, segment: Segment, first: int, units: list[str]) -> str:
    """Units that follow each other: JSON again, or the text as it was, whatever stands between them."""
    if segment.unit is Unit.LINE:
        return part.text[slice(segment.starts[first], segment.span(first + len(units) - 1)[1])].rstrip("\r\n")
    return f"[{','.join(units)}]" if segment.unit is Unit.ITEM else f"{{{','.join(units)}}}"


def _page_line(segment: Segment, first: int, count: int) -> str:
    """Which units a page shows, and of what."""
    place = _path(segment.place)
    return f"{segment.unit} {first:,}-{first + count - 1:,} of {len(segment.starts):,}{f' in {place}' if place else ''}"


def _way_to(segment: Segment, number: int, unit: str) -> str:
    """How to read the whole of a unit that no page has room for."""
    if segment.unit is Unit.LINE:
        return "grep finds the rest"
    step = number if segment.unit is Unit.ITEM else name_at(unit, 0)
    path = _path((*segment.place, step))
    return f"all of it: path {path!r}" if path else "its name is too long for a path, and grep finds the rest"


def _path(place: Place) -> str:
    """A place as a JMESPath expression; empty when that would be too long."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_named(step)}" for step in place)
    path = "".join(steps).lstrip(".")
    return path if len(path) <= PATH_SHOWN else ""


def _named(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else dumps(name)
