"""Previews: the beginning of a value or a text that fits a room, and the outline of a JSON text."""

from __future__ import annotations

import json
import re
from array import array
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.domain.call import Part, Place, Segment, Text, Unit
from portico.rendering.budget import equal_share

from .result_schema import depth_of

CUT = "…"
LEAST = 16  # letters that a value inside of another is given at least
NESTED = 150
"""A value of more lists and objects inside each other is not cut as a value; most clients could not read it.

The readers of JSON that clients use stop at 200 levels, and a result stands some levels deep in its message.
"""
SMALL, STRING = 2_000, 32  # values that are read while others wait; so many letters of a string count as one more
DEPTH = 4  # how deep lists are looked for inside of objects
SHORT = 2_000  # a list or an object of fewer letters is one field, and not a run of its own
LINE_PART = 300
"""Letters of a line that are one unit; what is longer is several, so that every page can show at least one whole."""
FIELD_ROOM, GLIMPSE = 16, 200  # letters that a field takes at least, and that one behind a full room is given

_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_space = re.compile(r"[ \t\n\r]*")


def dumps(value: Any) -> str:
    """Compact JSON of any value that was JSON before.

    Raises:
        RecursionError: it is nested too deeply for anybody.
    """
    try:
        text = orjson.dumps(value).decode()
        if text.count("[") + text.count("{") > NESTED and depth_of(value) > NESTED:
            raise RecursionError("nested too deeply")
        return text
    except TypeError as error:  # integers beyond 64 bits, half of a surrogate pair, or too many levels
        if depth_of(value) > NESTED:
            raise RecursionError("nested too deeply") from error
        return json.dumps(value, separators=(",", ":"), default=str)


def is_small(value: Any, most: int = SMALL) -> bool:
    """Whether a value has at most so many others in it; looks at no more than those."""
    left, waiting = most, [value]
    while waiting and left > 0:
        current = waiting.pop()
        if isinstance(current, str):
            left -= len(current) // STRING
        elif isinstance(current, dict | list):
            left -= len(current)
            if left > 0:
                waiting.extend(current.values() if isinstance(current, dict) else current)
    return left > 0


def shorten(value: Any, room: int) -> Any:
    """A value of the same form that takes about so many letters as JSON.

    Lists lose their last items, objects share the room among their fields, and a string is cut only where it
    alone is too large.
    """
    if isinstance(value, str):
        return value if len(value) <= room else value[: max(0, room - 1)] + CUT
    if not isinstance(value, list | dict) or len(dumps(value)) <= room:
        return value
    return _shorten_list(value, room) if isinstance(value, list) else _shorten_object(value, room)


def _shorten_list(items: list[Any], room: int) -> list[Any]:
    taken, left = list[Any](), room - 2
    for item in items:
        left -= len(dumps(item)) + 1
        if left < -1:
            break
        taken.append(item)
    if taken or not items or room <= LEAST:
        return taken
    return [shorten(items[0], room - 2)]


def _shorten_object(fields: dict[str, Any], room: int) -> dict[str, Any]:
    """As many of the first fields as have room for their names and a little of their values."""
    sizes, left, names_room = dict[str, int](), room - 2, room - 2
    for name, value in fields.items():
        name_size, size = len(dumps(name)) + 2, len(dumps(value))
        left -= name_size + min(size, LEAST)
        if left < 0:
            break
        sizes[name] = size
        names_room -= name_size
    share = max(0, equal_share([*sizes.values()], names_room))
    return {name: fields[name] if size <= share else shorten(fields[name], share) for name, size in sizes.items()}


def shorten_text(text: str, room: int) -> str:
    """The first lines of a text that take at most so many letters; a first line that is longer is cut."""
    if len(text) <= room:
        return text
    end = text.rfind("\n", 0, room + 1)
    return text[:end] if end > 0 else text[: max(0, room - 1)] + CUT


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOutline:
    """A text that has been read: its units, and for JSON a value that holds the beginning of every list."""

    part: Part
    value: Any = None


def read_outline(text: str, room: int) -> JsonOutline:
    """Find the units of a text; of JSON, also take at least so many letters of each list that has them."""
    if text[:1] in "[{" or text.lstrip(" \t\n\r")[:1] in ("[", "{"):
        try:
            found = _read_json(text, room)
            if depth_of(found.value) <= NESTED:
                return found
        except (StopIteration, ValueError, IndexError, RecursionError):
            pass  # it only looked like JSON
    return JsonOutline(part=Part(text=text, segments=_lines(text)))


def read_value(text: str) -> Any:
    """The whole value of a JSON text, numbers of any length as they are; built so that other threads have their turn.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return _read_json(text, FIELD_ROOM * (len(text) + 1)).value
    except (StopIteration, IndexError) as error:
        raise ValueError("it only looks like JSON") from error


def name_at(text: Text, at: int) -> str:
    """The name of the field that begins there."""
    name, _ = _scan(text, at)
    return str(name)


def numbers_for(length: int) -> array[int]:
    """An empty array for places in a text of that length."""
    return array("I" if length < 2**32 else "Q")


def _lines(text: str) -> tuple[Segment, ...]:
    starts = numbers_for(len(text))
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        starts.extend(range(at, end, LINE_PART))
        at = end
    return (Segment(unit=Unit.LINE, starts=starts, end=len(text)),) if starts else ()


def _read_json(text: str, room: int) -> JsonOutline:
    reader = _JsonReader(text, room)
    value, end, _ = reader.read(reader.after_space(0), ())
    if reader.after_space(end) != len(text):
        raise ValueError("more than one value")
    # An empty list or object has no units, however much space stands in it.
    segments = tuple(reader.segments) or _lines(text)
    return JsonOutline(part=Part(text=text, segments=segments, is_json=bool(reader.segments)), value=value)


@dataclass(slots=True)
class _JsonReader:
    """Reads a text once; `read` returns the beginning of a value, where it ends, and the letters taken of it."""

    text: str
    room: int
    segments: list[Segment] = field(default_factory=list)

    def read(self, at: int, place: Place) -> tuple[Any, int, int]:
        sign = self.text[at]
        if sign == "[" and len(place) < DEPTH:
            return self._list(at, place)
        if sign == "{" and len(place) < DEPTH:
            return self._object(at, place)
        value, end = _scan(self.text, at)
        return value, end, end - at

    def after_space(self, at: int) -> int:
        found = _space.match(self.text, at)
        return found.end() if found else at

    def _list(self, at: int, place: Place) -> tuple[list[Any], int, int]:
        starts, taken, size, mark = numbers_for(len(self.text)), list[Any](), 0, len(self.segments)
        at = self.after_space(at + 1)
        if self.text[at] == "]":
            return taken, at + 1, 0
        is_last = False
        while not is_last:
            starts.append(at)
            # The first item may hold everything, so it is not built; the others are like it, or there are none.
            value, end, cost = self.read(at, (*place, 0)) if len(starts) == 1 else (*_scan(self.text, at), 0)
            if len(starts) == 1 and end - at <= SHORT:
                del self.segments[mark:]
            if size < self.room:
                taken.append(value)
                size += cost or end - at
            at, is_last = self._after(end, "]")
        is_wrapper = len(starts) == 1 and len(self.segments) > mark
        if not is_wrapper:
            del self.segments[mark:]
            self.segments.append(Segment(unit=Unit.ITEM, starts=starts, end=end, place=place))
        return taken, at, size

    def _object(self, at: int, place: Place) -> tuple[dict[str, Any], int, int]:
        taken, size, run = dict[str, Any](), 0, numbers_for(len(self.text))
        at = end = self.after_space(at + 1)
        if self.text[at] == "}":
            return taken, at + 1, 0
        is_last = False
        while not is_last:
            start, mark, before = at, len(self.segments), end
            key, end = _scan(self.text, at)
            colon = self.after_space(end)
            if not isinstance(key, str) or self.text[colon] != ":":
                raise ValueError("a field without a name")
            value, end, cost = self.read(self.after_space(colon + 1), (*place, key))
            if end - start <= SHORT or len(self.segments) == mark:
                del self.segments[mark:]
                run.append(start)
            elif run:
                self.segments.insert(mark, Segment(unit=Unit.FIELD, starts=run, end=before, place=place))
                run = numbers_for(len(self.text))
            if len(taken) < max(1, self.room // FIELD_ROOM):
                # Where one field takes all the room, those behind it still show what they are.
                taken[key] = value if size < self.room else shorten(value, GLIMPSE)
                size += cost + colon + 1 - start
            at, is_last = self._after(end, "}")
        if run:
            self.segments.append(Segment(unit=Unit.FIELD, starts=run, end=end, place=place))
        return taken, at, size

    def _after(self, end: int, closing: str) -> tuple[int, bool]:
        """The place to read on behind a value, and whether it was the last one."""
        at = self.after_space(end)
        if self.text[at] == closing:
            return at + 1, True
        if self.text[at] != ",":
            raise ValueError("no comma")
        return self.after_space(at + 1), False
