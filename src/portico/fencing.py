"""Foreign text in our answers: on one line, or fenced line by line, so that nothing in it can pose as ours.

Whatever a server, a tool or a database says is foreign. A line that we write ourselves never begins with the fence.
"""

from __future__ import annotations

import re

FENCE = "| "
"""Begins every line of foreign text that has lines of its own."""

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that count as printable, and show nothing."""
_SENTENCE = re.compile(r"(?!error |connection failed|local |result\b|nothing |none$)[^\W\d_][^:\[]*\Z", re.I)
"""One line of prose: it begins with a letter, has no label and no tag, and begins as none of ours does."""
_LABELLED = 80
"""Characters of a line in which a label would stand."""


def visible(text: str) -> str:
    """Text without control characters, marks of direction and whatever else shows nothing; also without line ends."""
    if text.isascii() and text.isprintable():
        return text
    return _BLANK.sub("", "".join(filter(str.isprintable, text)))


def one_line(text: str) -> str:
    """Foreign text that stands within a line of ours."""
    return visible(" ".join(text.split()))


def fence(text: str) -> str:
    """Foreign text with lines of its own, each behind the fence; nothing where it says nothing.

    A single line of plain prose, as most descriptions are, needs no fence.
    """
    lines = _lines(text)
    if len(lines) == 1 and _SENTENCE.match(lines[0][:_LABELLED]):
        return lines[0]
    return _behind(FENCE, lines)


def detail(text: str) -> str:
    """One thing that an error tells, in which foreign text may stand: its further lines are fenced."""
    first, *others = _lines(text) or [""]
    return "\n".join([first, _behind(f"  {FENCE}", others)]) if any(others) else first


def json_text(text: str) -> str:
    """JSON on one line, with what shows nothing spelled out: a program reads the same, a reader sees all of it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() and not _BLANK.match(letter) else _spelled(letter) for letter in text)


def _lines(text: str) -> list[str]:
    return [visible(line.expandtabs(4)).rstrip() for line in text.strip().splitlines()]


def _behind(prefix: str, lines: list[str]) -> str:
    return "\n".join(f"{prefix}{line}".rstrip() for line in lines) if any(lines) else ""


def _spelled(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
