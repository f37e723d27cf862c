"""Reads a kept result further: the next page of it, the units that a word or pattern finds, or what a path selects."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import anyio.to_thread
import jsonschema_rs
from anyio import CapacityLimiter

from portico.domain.call import Caller, Kept, Part, Place, Segment, Unit
from portico.domain.search_answers import Disclosure
from portico.errors import InvalidArguments, NextCall, StoreError

from .kept import store_unreadable
from .preview import CUT, dumps, name_at, read_outline, read_value, shorten, shorten_text
from .result_schema import shape_line, shape_of
from .truncate import LETTERS_PER_TOKEN, Truncator, cut_to_fit

TAIL_TOKENS = 60  # what the line behind a page costs
LEAST_TOKENS = 50
PATHS_AT_ONCE = 2  # a path needs the whole result as a value, which takes several times its memory for a moment
PATH_SHOWN = 200  # letters of a path that is told; a longer one would cost too much
READ = "read_result"
WINDOW = 1 << 16  # letters that are looked through at a time
PATTERN_LENGTH = 500
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()/]")
_SIGNS = re.compile(r"[\\^$*+?{}\[\]|()]")
"""What a pattern has in it that is more than a word; a dot alone is only a dot."""
_ANCHORS = re.compile(r"[$^]|\\[AzZbB]")  # what matches at the end of a unit, and nowhere within several of them
_CASELESS = re.compile(r"[0-9!#-/:-@\[\]-`{-~]{3,}")
"""What has no upper case, and is spelled in JSON as it is."""

Matches = Callable[[str], bool]


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

    def error(self, *details: str) -> InvalidArguments:
        """The error for a question that cannot be answered; the next call begins where the preview ended."""
        return InvalidArguments(READ, details=details, next_call=NextCall("read_result", {"id": self.id}))


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Answers questions about kept results, each within what its caller may spend."""

    truncator: Truncator
    """Tells what a result may cost."""
    paths: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PATHS_AT_ONCE))

    async def read(self, caller: Caller, request: ReadRequest) -> Disclosure:
        """The answer in `text`, and in `next` what it shows and the way on.

        Raises:
            UnknownResult: nothing is kept under this handle for this caller.
            InvalidArguments: the cursor, the pattern or the path cannot be used.
        """
        try:
            limiter = self.paths if request.path else None
            return await anyio.to_thread.run_sync(self._read, caller, request, limiter=limiter)
        except StoreError as error:
            raise store_unreadable(request.id) from error

    def _read(self, caller: Caller, request: ReadRequest) -> Disclosure:
        kept, limit = self.truncator.results.find(caller, request.id), self.truncator.limit(caller)
        tokens = max(LEAST_TOKENS, min(kept.tokens or limit, limit) - TAIL_TOKENS)
        if request.path:
            kept = _select(kept, request, tokens)
        # Without a cursor at the end of the preview; a search or a selection begins at the beginning.
        start = 0 if request.grep or request.path or kept.seen >= kept.total else kept.seen
        if cursor := request.cursor.strip():
            is_number = cursor.isascii() and cursor.isdigit() and len(cursor) <= 15
            if not is_number or int(cursor) >= kept.total:
                most = max(0, kept.total - 1)
                raise request.error(f"cursor: must be a number from 0 to {most}, and is {cursor[:40]!r}")
            start = int(cursor)
        return (self._search if request.grep else self._page)(kept, request, start, tokens)

    def _page(self, kept: Kept, request: ReadRequest, start: int, tokens: int) -> Disclosure:
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
        count, text = self._fullest(units, tokens, partial(_join, part, segment, first))
        if count:
            place = _path(segment.place)
            of = f"of {len(segment.starts):,}{f' in {place}' if place else ''}"
            shows = f"{segment.unit} {first:,}-{first + count - 1:,} {of}"
        else:
            count, text = 1, self._beginning(part, segment, units[0], tokens)
            way = _way_to(segment, first, units[0])
            shows = f"the beginning of {segment.unit} {first:,}, which is too large; {way}"
        return self._answer(kept, request, text, shows, start + count, count)

    def _search(self, kept: Kept, request: ReadRequest, start: int, tokens: int) -> Disclosure:
        """Units with a word or a pattern in them, each behind its number; the search ends where the page is full."""
        letters, lines, numbers = tokens * LETTERS_PER_TOKEN, list[str](), list[int]()
        try:
            for number in _matching(kept, request.grep, start):
                part, segment, base = _run_at(kept, number)
                unit = _unit(part, segment, number - base)
                line = f"{number}: {unit if len(unit) <= tokens else unit[:tokens] + CUT}"
                letters -= len(line) + 1
                if numbers and letters < 0:
                    break
                lines.append(line)
                numbers.append(number)
        except ValueError as error:
            raise request.error(f"grep: {error}") from None
        if not numbers:
            shows = f"nothing has {request.grep!r} in it from {start:,} on, of {kept.total:,}"
            return self._answer(kept, request, "", shows, end=kept.total, shown=0)
        count, text = self._fullest(lines, tokens, "\n".join)
        if not count:
            count, text = 1, cut_to_fit(lines[0], tokens, self.truncator.counter, shorten_text, str)
        is_all = count == len(numbers) and letters >= 0
        end = kept.total if is_all else numbers[count - 1] + 1
        return self._answer(kept, request, text, f"{count:,} with {request.grep!r} in them", end, count)

    def _fullest(self, units: list[str], tokens: int, join: Callable[[list[str]], str]) -> tuple[int, str]:
        """As many of the first units as cost at most so many tokens together, and their text."""
        count = len(units)
        while count:
            text = join(units[:count])
            # To count a text that no page can hold would take longer than to read it.
            is_hopeless = len(text) > 2 * tokens * LETTERS_PER_TOKEN
            cost = len(text) // LETTERS_PER_TOKEN if is_hopeless else self.truncator.counter.count(text)
            if cost <= tokens:
                return count, text
            count = min(count - 1, count * tokens // cost)
        return 0, ""

    def _beginning(self, part: Part, segment: Segment, unit: str, tokens: int) -> str:
        counter = self.truncator.counter
        text = unit if segment.unit is Unit.LINE else f"[{unit}]" if segment.unit is Unit.ITEM else f"{{{unit}}}"
        outline = read_outline(text, tokens * LETTERS_PER_TOKEN) if part.is_json else None
        if outline is None or not outline.part.is_json:
            return str(cut_to_fit(text, tokens, counter, shorten_text, str))
        return dumps(cut_to_fit(outline.value, tokens, counter, shorten, dumps))

    def _answer(self, kept: Kept, request: ReadRequest, text: str, shows: str, end: int, shown: int) -> Disclosure:
        more = f"; next: {request.next(end)}" if end < kept.total else "; that is all"
        counter = self.truncator.counter
        tokens = counter.count(text) + counter.count(shows + more)
        return Disclosure(
            text=text, tokens=tokens, shown=shown, total=kept.total, next=shows + more, counter=counter.name
        )


def _select(kept: Kept, request: ReadRequest, tokens: int) -> Kept:
    """The value that a path selects in the first part that is JSON, as if it had been kept."""
    part = next((part for part in kept.parts if part.is_json), None)
    if part is None:
        raise request.error("path: this result is text and not JSON; use grep or cursor")
    value = read_value(part.text[slice(0, len(part.text))])
    # Loaded by the first path that somebody asks for.
    from portico.results import jmespath_query

    try:
        found, reason = jmespath_query.select(value, request.path), "path: it selects nothing"
    except jmespath_query.PathError as error:
        found, reason = None, str(error)
    if found is None:
        raise request.error(reason, f"shape: {shape_line(shape_of(value))}")
    try:
        text = found if isinstance(found, str) else dumps(found)
    except RecursionError:
        raise request.error("path: what it selects is nested too deeply; select something inside it") from None
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


def _join(part: Part, segment: Segment, first: int, units: list[str]) -> str:
    """Units that follow each other: JSON again, or the text as it was, whatever stands between them."""
    if segment.unit is Unit.LINE:
        return part.text[slice(segment.starts[first], segment.span(first + len(units) - 1)[1])].rstrip("\r\n")
    return f"[{','.join(units)}]" if segment.unit is Unit.ITEM else f"{{{','.join(units)}}}"


def _way_to(segment: Segment, number: int, unit: str) -> str:
    """The way to read the whole of a unit that no page has room for."""
    if segment.unit is Unit.LINE:
        return "grep finds the rest"
    path = _path((*segment.place, number if segment.unit is Unit.ITEM else name_at(unit, 0)))
    return f"all of it: path {path!r}" if path else "its name is too long for a path, and grep finds the rest"


def _path(place: Place) -> str:
    """A place as a JMESPath expression; empty when that would be too long."""
    path = ""
    for step in place:
        is_plain = isinstance(step, str) and _IDENTIFIER.fullmatch(step)
        path += f"[{step}]" if isinstance(step, int) else f".{step if is_plain else dumps(step)}"
    path = path.lstrip(".")
    return path if len(path) <= PATH_SHOWN else ""


def _matching(kept: Kept, wanted: str, start: int) -> Iterator[int]:
    """The numbers of units with a word or a pattern in them, in order, from one on; letters of either case are alike.

    Whole windows are searched first, and the units of a window only where it has a match.

    Raises:
        ValueError: the pattern is too long.
    """
    if len(wanted) > PATTERN_LENGTH:
        raise ValueError(f"longer than {PATTERN_LENGTH} letters")
    matches = _matcher(wanted)
    sieve, is_anchored = _sieve(wanted) or matches, _ANCHORS.search(wanted) is not None
    for part, segment, base in kept.runs():
        first, total = max(0, start - base), len(segment.starts)
        end = "\r\n" if segment.unit is Unit.LINE else ", \t\r\n"  # a pattern may ask for the end of a unit
        window = partial(_window, part, segment, len(wanted))
        while first < total:
            last = max(first + 1, bisect_right(segment.starts, segment.starts[first] + WINDOW, first))
            if is_anchored or sieve(window(first, last)):
                yield from (base + n for n in range(first, last) if matches(window(n, n + 1).rstrip(end)))
            first = last


def _window(part: Part, segment: Segment, overlap: int, first: int, last: int) -> str:
    """The text of some units; a line that is several of them may have a match across two."""
    start, end = segment.starts[first], segment.span(last - 1)[1]
    if segment.unit is Unit.LINE and part.text[slice(end - 1, end)] != "\n":
        end += overlap
    return part.text[slice(start, end)]


def _matcher(wanted: str) -> Matches:
    """A test whether a text matches: by the pattern, or by its very letters, also as JSON may spell them."""
    spellings = dict.fromkeys([wanted, *(json.dumps(case)[1:-1] for case in (wanted, wanted.lower(), wanted.upper()))])
    word = "|".join(_SPECIAL.sub(r"\\\g<0>", spelling) for spelling in spellings)
    if _SIGNS.search(wanted):
        with suppress(jsonschema_rs.ValidationError, ValueError):  # it is a word after all
            return _compile(f"(?i)(?:{wanted})|{word}")
    return _compile(f"(?i){word}")


def _sieve(wanted: str) -> Matches | None:
    """A faster test that every match passes: digits and signs, which have no case; None without enough of them."""
    runs = [] if _SIGNS.search(wanted) else _CASELESS.findall(wanted)
    return _compile(_SPECIAL.sub(r"\\\g<0>", max(runs, key=len))) if runs else None


def _compile(pattern: str) -> Matches:
    # This engine takes linear time whatever the pattern is, which Python's own does not.
    options = jsonschema_rs.RegexOptions(size_limit=1 << 20)
    return jsonschema_rs.validator_for({"type": "string", "pattern": pattern}, pattern_options=options).is_valid
