"""Regular expressions of profiles for names: compiled only when they are quick on any name."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from portico.domain.profile import Pattern

PATTERN_LENGTH = 500  # characters that a pattern may have
NAME_LENGTHS = (512, 256, 128, 64)
"""The longest name that a pattern is tried on: the first of these at which it takes few steps."""
STEPS = 3_000_000  # ways of reading a name that one match may try, at the very most

_QUANTIFIER = re.compile(r"(?:\*|\+|\?|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})[?+]?")
_OPENING = re.compile(r"\(\?(?:P<\w+>|<?[=!]|[aiLmsu-]*:|>)|\((?!\?)")
_ASIDE = re.compile(r"\(\?(?:#[^)]*|P=\w+|[aiLmsu]+)\)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def read_pattern(text: str) -> Pattern:
    """Compile a pattern that is quick on any name.

    Raises:
        ValueError: it is no regular expression, too long, or could take too many steps; says which.
    """
    if len(text) > PATTERN_LENGTH:
        raise ValueError(f"this pattern is longer than {PATTERN_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what a later Python may read otherwise, this one reads so
            compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"this is not a regular expression: {error}") from None
    for longest in NAME_LENGTHS:
        if _steps(text, longest) <= STEPS:
            return Pattern(text, longest, compiled)
    raise ValueError("this pattern has so many repeats and alternatives that it may never end")


@dataclass(slots=True)
class _Group:
    """The readings of one group so far: of the alternatives before, and of the one that is being read."""

    before: float = 0.0
    current: float = 1.0
    varies: bool = False  # whether it can match one text in more than one way, as far as this can be told


def _steps(text: str, length: int) -> float:
    """How many ways there are at most to read a name of that length; each repeat multiplies, an alternative adds."""
    groups, at = [_Group()], 0
    while at < len(text):
        inner = _Group()
        if aside := _ASIDE.match(text, at):
            at = aside.end()
            continue
        if text[at] == "|":
            groups[-1] = _Group(groups[-1].before + groups[-1].current, varies=True)
            at += 1
            continue
        if opening := _OPENING.match(text, at):
            groups.append(_Group())
            at = opening.end()
            continue
        if text[at] == ")" and len(groups) > 1:
            inner = groups.pop()
            at += 1
        else:
            at = _atom_end(text, at)
        at = _repeat(text, at, inner, groups[-1], length)
    return groups[0].before + groups[0].current


def _atom_end(text: str, at: int) -> int:
    """Where one letter, escape or class ends.

    Raises:
        ValueError: this is a sign that nobody reads here.
    """
    if text.startswith("(", at):
        raise ValueError("this pattern has a kind of group that is not known here")
    found = _CLASS.match(text, at)
    return found.end() if found else at + (2 if text[at] == "\\" else 1)


def _repeat(text: str, at: int, inner: _Group, outer: _Group, length: int) -> int:
    """Take one item into its group, as often as the sign behind it says; returns where the next one begins.

    Raises:
        ValueError: a repeat of something that repeats.
    """
    readings = inner.before + inner.current
    found = _QUANTIFIER.match(text, at)
    if found is None or (found[0].startswith("{") and not (found["least"] or found["comma"])):
        outer.current *= readings
        outer.varies = outer.varies or inner.varies
        return at
    least, most = _bounds(found)
    if inner.varies and (most is None or most > 1):
        raise ValueError("this pattern repeats a group that repeats or has alternatives, which may never end")
    is_fixed = least == most
    outer.current *= readings if is_fixed else readings + (length if most is None else min(most - least, length))
    outer.varies = outer.varies or inner.varies or not is_fixed
    return found.end()


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[0][0])
    if simple is not None:
        return simple
    least = int(found["least"] or 0)
    if not found["comma"]:
        return least, least
    return least, int(found["most"]) if found["most"] else None
