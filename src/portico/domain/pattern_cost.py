"""What a regular expression of a schema can cost: to compile it, and to look for it in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

STATES_LIMIT = 10_000_000
LENGTH_LIMIT = 5_000
"""A longer pattern is not even looked at."""

_PIECES = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\(\?[=!]|\(|\)|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_HARD = re.compile(r"\(\?[=!<>]|\\[1-9k]|[+*?}]\+")
_SIZES = {".": 9, "\\p": 500, "\\P": 500, "[^": 40}
"""States of what stands for many letters; most other things are one."""


def count_states(pattern: str) -> int:
    """The states of the machine that a pattern becomes, about: what is repeated is there as often as it is repeated."""
    if len(pattern) > LENGTH_LIMIT:
        return STATES_LIMIT
    open_groups, total, last = list[int](), 0, 0
    for piece in _PIECES.findall(pattern):
        if piece[0] == "(":
            open_groups.append(total)
            total = 0
        elif piece == ")" and open_groups:
            last, total = total, total + open_groups.pop()
        elif piece[0] == "{" and len(piece) > 1:
            times = max(1, *(int(number[:6]) for number in re.findall(r"\d+", piece)))
            total, last = total + last * (times - 1), last * times
        elif piece not in "*+?|^$":
            last = _SIZES.get(piece[:2], 500 if "\\p" in piece else 1)
            total += last
        if total > STATES_LIMIT:
            return STATES_LIMIT
    return total + sum(open_groups)


def is_hard(pattern: str) -> bool:
    """Whether looking for a pattern may take more than one pass: look-around or back-references.

    Conditions at the very beginning, as in `^(?=.*[A-Z]).{8,}$`, are each looked at once.
    """
    if len(pattern) > LENGTH_LIMIT:
        return True
    rest = pattern
    if rest.startswith("^"):
        rest = rest[1:]
        while rest.startswith(("(?=", "(?!")):
            end = _end_of_group(rest)
            if _HARD.search(rest, 3, end):
                return True
            rest = rest[end:]
    return _HARD.search(rest) is not None


def _end_of_group(text: str) -> int:
    depth = 0
    for found in _PIECES.finditer(text):
        depth += (found[0][0] == "(") - (found[0] == ")")
        if not depth:
            return found.end()
    return len(text)


def patterns_of(node: Mapping[str, Any]) -> Iterator[str]:
    """The patterns of one subschema, for values and for names."""
    if isinstance(found := node.get("pattern"), str):
        yield found
    if isinstance(found := node.get("patternProperties"), Mapping):
        yield from (pattern for pattern in found if isinstance(pattern, str))


def nodes_of(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
        inside = node.values() if isinstance(node, Mapping) else node
        waiting.extend(child for child in inside if isinstance(child, Mapping | list))
