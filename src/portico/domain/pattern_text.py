"""A short text that a regular expression of a schema matches, for examples."""

from __future__ import annotations

import re

LENGTH = 200
"""Letters of the longest text that is made."""
CLASSES = 30
"""Classes of letters in a pattern, each of which is asked for several letters."""

_PIECES = re.compile(
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
    pieces = _PIECES.findall(pattern)
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
