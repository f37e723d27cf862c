"""The beginning of a value or a text that fits a room: whole items and lines, the largest give way first."""

from __future__ import annotations

import json
from typing import Any

import orjson

from .recursion import depth_of

CUT = "…"
LEAST = 16
"""Letters that a value inside of another is given at least."""
NESTED = 150
"""A value of more lists and objects inside each other is not cut as a value; most clients could not read it.

The readers of JSON that clients use stop at 200 levels, and a result stands some levels deep in its message.
"""
SMALL, STRING = 2_000, 32
"""Values that are read while others wait; so many letters of a string count as one more."""


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


def shorten_text(text: str, room: int) -> str:
    """The first lines of a text that take at most so many letters; a first line that is longer is cut."""
    if len(text) <= room:
        return text
    end = text.rfind("\n", 0, room + 1)
    return text[:end] if end > 0 else text[: max(0, room - 1)] + CUT


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
    names = {name: len(dumps(name)) + 2 for name in fields}
    sizes = {name: len(dumps(value)) for name, value in fields.items()}
    shown = _first_names(names, sizes, room - 2)
    share = _share([sizes[name] for name in shown], room - 2 - sum(names[name] for name in shown))
    return {name: fields[name] if sizes[name] <= share else shorten(fields[name], share) for name in shown}


def _first_names(names: dict[str, int], sizes: dict[str, int], room: int) -> list[str]:
    """As many of the first fields as have room for their names and a little of their values."""
    shown = list[str]()
    for name, size in names.items():
        room -= size + min(sizes[name], LEAST)
        if room < 0:
            break
        shown.append(name)
    return shown


def _share(sizes: list[int], room: int) -> int:
    """The most that each value may take so that all fit together, the smaller ones whole."""
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return max(share, 0)
        room -= size
    return max(sizes, default=0)
