"""Takes rows until one of the limits is met, and says what to do then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from .connection import Result
from .values import plain

Rows = tuple[tuple[Any, ...], ...]


def taken(columns: tuple[str, ...], found: Iterable[tuple[bool, Sequence[Any]]], most: int, room: int) -> Result:
    """Rows as JSON can say them; each comes with whether it is known to be too large."""
    rows: list[tuple[Any, ...]] = []
    for is_large, raw in found:
        if len(rows) == most:
            return cut_by_rows(columns, tuple(rows), most)
        is_large = is_large or _weight(raw) > room
        row = tuple(map(plain, raw)) if not is_large else ()
        room -= len(orjson.dumps(row, default=str))
        if is_large or room < 0:
            return cut_by_bytes(columns, tuple(rows))
        rows.append(row)
    return Result(columns=columns, rows=tuple(rows))


def cut_by_rows(columns: tuple[str, ...], rows: Rows, most: int) -> Result:
    """Rows of which there are more than may be shown."""
    note = f"only the first {most} rows are shown. Add WHERE, GROUP BY, or LIMIT and OFFSET to see others"
    return Result(columns=columns, rows=rows, truncated=True, note=note)


def cut_by_bytes(columns: tuple[str, ...], rows: Rows) -> Result:
    """Rows behind which one would have made the answer too large."""
    which = f"row {len(rows) + 1} and those after it"
    note = f"{which} are left out: the answer would be too large. Choose fewer columns, or parts of long values"
    return Result(columns=columns, rows=rows, truncated=True, note=note)


def _weight(raw: Sequence[Any]) -> int:
    """Bytes that a row has at least, told before any of it is written anew."""
    return sum(len(value) for value in raw if isinstance(value, str | bytes))
