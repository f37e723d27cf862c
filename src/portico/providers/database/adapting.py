"""What psycopg makes of values: sent as literals would be read, received as exactly as they were written."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

from psycopg import IsolationLevel
from psycopg.adapt import Buffer, Dumper, Loader, PyFormat
from psycopg.types.json import set_json_loads
from psycopg.types.numeric import DecimalDumper, FloatDumper, IntDumper

DEEPEST = 100
"""Levels of a JSON value that are shown as such."""


def adapt(driver: Any, *, writes: bool = False, steady: bool = False) -> None:
    """Settle what every transaction of a new connection may do, and make its values what this module says."""
    driver.read_only = not writes
    if steady:
        driver.isolation_level = IsolationLevel.REPEATABLE_READ
    for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval"):
        driver.adapters.register_loader(kind, _Moment)
    driver.adapters.register_dumper(int, _Whole)
    driver.adapters.register_dumper(float, _Fraction)
    set_json_loads(_json, driver)


class _Whole(IntDumper):
    """A whole number as `7` is one in SQL: never the smallest type, of which two cannot even be multiplied."""

    def upgrade(self, obj: int, format: PyFormat) -> Dumper:
        """An integer where it fits."""
        found = super().upgrade(obj, format)
        return self._int4_dumper if found is self._int2_dumper else found


class _Fraction(FloatDumper):
    """A number as `1.5` is one in SQL: a numeric, which more functions take than a float."""

    def get_key(self, obj: float, format: PyFormat) -> Any:
        """Finite ones are numerics."""
        return Decimal if math.isfinite(obj) else float

    def upgrade(self, obj: float, format: PyFormat) -> Dumper:
        """Finite ones are numerics."""
        return _Digits(Decimal) if math.isfinite(obj) else FloatDumper(float)


class _Digits(DecimalDumper):
    def dump(self, obj: Any) -> Buffer | None:
        """The shortest digits that mean this number."""
        return super().dump(Decimal(repr(obj)) if isinstance(obj, float) else obj)


class _Moment(Loader):
    """A time as ISO 8601; Python's own types know no infinity, no year 10000 and no months of an interval."""

    def load(self, data: Buffer) -> str:
        """Put the T and the minutes of the zone where ISO wants them; years before Christ keep their BC."""
        text = re.sub(r"^(\S+) (?=\d\d:)", r"\1T", bytes(data).decode())
        return re.sub(r"(:\d\d(?:\.\d+)?[+-]\d\d)(?= BC$|$)", r"\1:00", text)


def _json(text: str | bytes) -> Any:
    """JSON with all its digits; what is too deep or too long for readers of JSON stays text."""
    try:
        value = json.loads(text, parse_float=Decimal)
        is_deep = _height(value) > DEEPEST
    except (RecursionError, ValueError):
        is_deep = True
    if not is_deep:
        return value
    return text if isinstance(text, str) else text.decode(errors="replace")


def _height(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_height, inner), default=0)
