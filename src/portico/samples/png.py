"""A bar chart as PNG bytes, drawn without an imaging library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

_WIDTH, _HEIGHT, _MARGIN = 480, 240, 16
_PAPER, _INK, _AXIS = b"\xfa\xfa\xf7", b"\x2f\x6f\x8f", b"\x55\x55\x55"


def bar_chart(values: Sequence[float]) -> bytes:
    """Draw one bar for each value, the tallest filling the height; negative values show as empty."""
    tops = _tops(values)
    rows = [_row(y, tops) for y in range(_HEIGHT)]
    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    # Each scan line starts with its filter type; 0 means none.
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _tops(values: Sequence[float]) -> list[int]:
    """The first painted line of the bar at each x."""
    base, room = _HEIGHT - _MARGIN, _HEIGHT - 2 * _MARGIN
    highest = max([*values, 0]) or 1
    slot = (_WIDTH - 2 * _MARGIN) / max(len(values), 1)
    tops = [base] * _WIDTH
    for index, value in enumerate(values):
        left = int(_MARGIN + index * slot)
        right = max(left + 1, int(left + slot * 0.8))
        tops[left:right] = [base - round(room * max(value, 0) / highest)] * (right - left)
    return tops[:_WIDTH]


def _row(y: int, tops: Sequence[int]) -> bytes:
    base = _HEIGHT - _MARGIN
    if y == base:
        return _AXIS * _WIDTH
    return b"".join(_INK if top <= y < base else _PAPER for top in tops)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
