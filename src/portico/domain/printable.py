"""Foreign text made fit for terminals and logs: what cannot be seen, moves the cursor or ends a line is replaced.

This is the one place that knows which signs these are; the command line and the log go through it alike.
"""

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


def one_line(text: str) -> str:
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
