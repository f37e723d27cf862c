"""Regular expressions from outside: matched within bounds, their cost, and a text that one matches."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PATTERN_LENGTH = 500
"""Characters that a pattern may have."""
NAME_LENGTHS = (512, 256, 128, 64)
"""The longest name that a pattern is tried on: the first of these at which it takes few steps."""
STEPS = 3_000_000
"""Ways of reading a name that one match may try, at the very most."""

_QUANTIFIER = re.compile(r"(?:\*|\+|\?|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})[?+]?")
_OPENING = re.compile(r"\(\?(?:P<\w+>|<?[=!]|[aiLmsu-]*:|>)|\((?!\?)")
_ASIDE = re.compile(r"\(\?(?:#[^)]*|P=\w+|[aiLmsu]+)\)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One expression, tried from the beginning of a name as `re.match` does."""

    text: str
    longest: int
    """Names that are longer do not fit: they could take too many steps."""
    _compiled: re.Pattern[str] = field(repr=False)

    def fits(self, name: str) -> bool:
        """Whether a name begins with what the pattern describes."""
        return len(name) <= self.longest and self._compiled.match(name) is not None


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
    varies: bool = False
    """Whether it can match one text in more than one way, as far as this can be told."""


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


STATES_LIMIT = 10_000_000
LENGTH_LIMIT = 5_000
"""A longer pattern is not even looked at."""

_COST_PIECES = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\(\?[=!]|\(|\)|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_HARD = re.compile(r"\(\?[=!<>]|\\[1-9k]|[+*?}]\+")
_SIZES = {".": 9, "\\p": 500, "\\P": 500, "[^": 40}
"""States of what stands for many letters; most other things are one."""


def count_states(pattern: str) -> int:
    """The states of the machine that a pattern becomes, about: what is repeated is there as often as it is repeated."""
    if len(pattern) > LENGTH_LIMIT:
        return STATES_LIMIT
    open_groups, total, last = list[int](), 0, 0
    for piece in _COST_PIECES.findall(pattern):
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
    for found in _COST_PIECES.finditer(text):
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


LENGTH = 200
"""Letters of the longest text that is made."""
CLASSES = 30
"""Classes of letters in a pattern, each of which is asked for several letters."""

_TEXT_PIECES = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=!]|\(\?P?<\w+>|\(|\)|\{\d+(?:,\d*)?\}|.", re.DOTALL
)
_ESCAPES = {
    "d": "1",
    "w": "a",
    "s": " ",
    "D": "a",
    "W": "-",
    "S": "a",
    "t": "\t",
    "n": "\n",
    "r": "\r",
    "b": "",
    "B": "",
}
_CANDIDATES = "a1A0bzZ9_-. /:@x"


def text_like(pattern: str) -> str | None:
    """A text that a pattern matches; None for patterns with conditions or references in them."""
    if len(pattern) > LENGTH * 5:
        return None
    pieces = _TEXT_PIECES.findall(pattern)
    if sum(piece[0] == "[" for piece in pieces) > CLASSES:
        return None
    try:
        found, at = _alternative(pieces, 0)
    except (ValueError, RecursionError, re.error):
        return None
    return found if at == len(pieces) and len(found) <= LENGTH else None


def _alternative(pieces: list[str], at: int) -> tuple[str, int]:
    """The first of the alternatives from here on, and where they end."""
    found, at = _sequence(pieces, at)
    while at < len(pieces) and pieces[at] == "|":
        _, at = _sequence(pieces, at + 1)
    return found, at


def _sequence(pieces: list[str], at: int) -> tuple[str, int]:
    texts: list[str] = []
    while at < len(pieces) and pieces[at] not in ("|", ")"):
        atom, at = _atom(pieces, at)
        times, at = _times(pieces, at)
        texts.append(atom * times)
        if sum(map(len, texts)) > LENGTH:
            raise ValueError("too long")
    return "".join(texts), at


def _atom(pieces: list[str], at: int) -> tuple[str, int]:
    piece = pieces[at]
    if piece in ("(?=", "(?!"):
        raise ValueError("a condition")
    if piece[0] == "(":
        inner, at = _alternative(pieces, at + 1)
        if at >= len(pieces):
            raise ValueError("a group that is never closed")
        return inner, at + 1
    return _letter(piece), at + 1


def _letter(piece: str) -> str:
    if piece in ("^", "$"):
        return ""
    if piece == ".":
        return "a"
    if piece[0] == "[":
        return _of_class(piece)
    if piece[0] != "\\":
        return piece
    if piece[1] in "pP":
        return "a" if piece[1] == "p" else "1"
    if piece[1].isdigit() or piece[1] in "kux":
        raise ValueError("a reference")
    return _ESCAPES.get(piece[1], piece[1])


def _of_class(piece: str) -> str:
    """A letter of a class; a class is simple enough to ask for each candidate."""
    if any(sign in piece for sign in ("[[", "--", "&&", "~~", "||")) or "[" in piece[1:]:
        raise ValueError("a class that means something else elsewhere")
    first = piece[2:3] if piece[1:2] == "^" else piece[1:2]
    for letter in (*_CANDIDATES, first, *map(chr, range(33, 127))):
        if letter and re.fullmatch(piece, letter):
            return str(letter)
    raise ValueError("a class without letters")


def _times(pieces: list[str], at: int) -> tuple[int, int]:
    """How often an atom is repeated, at least, and where the next one begins."""
    times = 1
    if at < len(pieces) and (pieces[at] in ("*", "+", "?") or (pieces[at][0] == "{" and len(pieces[at]) > 1)):
        sign = pieces[at]
        times = {"*": 0, "?": 0, "+": 1}.get(sign, -1)
        if times < 0:
            times = int(re.findall(r"\d+", sign)[0])
        at += 1
        if at < len(pieces) and pieces[at] in ("?", "+"):
            at += 1
    return min(times, LENGTH + 1), at
