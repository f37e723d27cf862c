"""Untrusted text made safe to show: printable, on one line, or fenced off from our own lines."""

from __future__ import annotations

import re

_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_CONTROL = re.compile(f"[{_UNSEEN}]")
_CONTROL_OR_BREAK = re.compile(f"[{_UNSEEN}\n\t]")
_SPELLED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """Text of any number of lines in which nothing but letters, line breaks and tabs is left."""
    return text if text.isascii() and text.isprintable() else _CONTROL.sub("\ufffd", text)


def on_one_line(text: str) -> str:
    """The same on one line: a break is spelled out, so that nothing after it can pose as a line of ours."""
    if text.isprintable() and text.isascii():
        return text
    return _CONTROL_OR_BREAK.sub(lambda found: _SPELLED.get(found[0], "\ufffd"), text)


def spelled_out(json: str) -> str:
    """JSON in which such signs are escapes: a program reads the same, and a terminal obeys nothing."""
    return _CONTROL.sub(lambda found: _escape(ord(found[0])), json)


def _escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


FENCE = "| "  # begins every line of foreign text that has lines of its own

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that count as printable, and show nothing."""
_SENTENCE = re.compile(r"(?!error |connection failed|local |result\b|nothing |none$)[^\W\d_][^:\[]*\Z", re.I)
"""One line of prose: it begins with a letter, has no label and no tag, and begins as none of ours does."""
_LABELLED = 80  # characters of a line in which a label would stand


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
