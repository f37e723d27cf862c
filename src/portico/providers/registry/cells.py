"""One row of a view as any driver gives it: names in any case, padded texts, bytes, numbers that came as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from .unfit import Unfit

_YES = frozenset({"y", "yes", "true", "t", "1"})
_NO = frozenset({"n", "no", "false", "f", "0"})
_BAD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Signs that turn the direction of what follows: a reader would see another text than an agent."""

_WRITTEN = str | bytes | bytearray | memoryview | int | float | Decimal
"""What drivers give for texts and numbers."""

SHOWN = 60
"""Characters of a strange value that a message repeats."""


class Row:
    """The cells of one row, by the names that the registry gives its columns."""

    def __init__(self, raw: Any) -> None:
        """Fold the columns' names.

        Raises:
            Unfit: it is no row with named columns.
        """
        pairs: Iterable[Any] | None = raw.items() if isinstance(raw, Mapping) else None
        if pairs is None and hasattr(raw, "keys"):  # rows of sqlite3 are no mappings
            pairs = [(key, raw[key]) for key in raw.keys()]  # noqa: SIM118
        if pairs is None:
            raise Unfit("has no column names")
        self._cells = {_folded(key): value for key, value in pairs}

    @property
    def mark(self) -> tuple[Any, ...]:
        """Every cell with its column; rows with the same mark are read alike."""
        return tuple(self._cells.items())

    def has(self, column: str) -> bool:
        """Whether the view has such a column."""
        return column.casefold() in self._cells

    def text(self, column: str) -> str:
        """A cell without its padding; empty when there is none.

        Raises:
            Unfit: it holds something else than text.
        """
        value = self._cells.get(column.casefold())
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, _WRITTEN):
            raise Unfit(f"is no text but of the type {type(value).__name__!r}", (column,))
        if isinstance(value, int) and value.bit_length() > 100:
            raise Unfit("is a number with too many digits", (column,))
        return _decoded(value, column).strip(" ")

    def flag(self, column: str) -> bool | None:
        """Yes, no, or nothing said.

        Raises:
            Unfit: it is neither.
        """
        value = self._cells.get(column.casefold())
        if isinstance(value, bool):
            return value
        word = self.text(column).casefold()
        if not word or word in _YES | _NO:
            return word in _YES if word else None
        raise Unfit(f"is {word[:SHOWN]!r} and neither Y nor N", (column,))

    def number(self, column: str) -> int | None:
        """A whole number above 0; None when there is none.

        Raises:
            Unfit: it is something else.
        """
        word = self.text(column)
        if not word:
            return None
        match = re.fullmatch(r"([0-9]{1,6})(?:\.0*)?", word)
        if not match or int(match[1]) < 1:
            raise Unfit(f"is {word[:SHOWN]!r} and no whole number above 0", (column,))
        return int(match[1])


def cleaned(text: str, most: int) -> str:
    """A text for people without what terminals and JSON cannot take, cut where it is too long."""
    text = _BIDI.sub("", _BAD.sub(" ", text.replace("\r\n", "\n"))).strip()
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


@lru_cache(maxsize=256)  # every row of a view has the same few
def _folded(column: Any) -> str:
    return _decoded(column).strip(" ").casefold()


def _decoded(value: Any, column: str = "") -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise Unfit("is no UTF-8", (column,) if column else ()) from None
