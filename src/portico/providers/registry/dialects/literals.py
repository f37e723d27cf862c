"""Writes checked values out for Teradata's EXEC, which takes no placeholders; each encoder looks once more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from portico.providers.registry.shapes import DATE, Shape
from portico.providers.registry.types import ParamType
from portico.providers.registry.unfit import Unfit

LONGEST = 31_000
"""Characters of a literal."""

_ESCAPE = re.compile(r"\{\s*[A-Za-z?]")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(?:[+-][0-9]{2}:[0-9]{2})?")
_TIMESTAMP = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_TIME.pattern}")


def written(value: Any, type: ParamType) -> str:
    """A value as a literal of its type.

    Raises:
        Unfit: nobody has said how such a value is written.
    """
    return _ENCODERS[type.shape](value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST:
        raise Unfit(f"must be text of at most {LONGEST} characters")
    if _ESCAPE.search(value):
        # The driver reads {fn ...} as a command of its own before the database sees a quote.
        raise Unfit("holds '{' before a letter, which Teradata's driver takes for a command; leave it out")
    return "'{}'".format(value.replace("'", "''"))


def _integer(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit("must be a whole number")
    return str(value)


def _float(value: Any) -> str:
    if not isinstance(value, float) or value - value != 0:
        raise Unfit("must be a finite number")
    digits = repr(value)
    return digits.upper() if "e" in digits else f"{digits}E0"


def _decimal(value: Any) -> str:
    return _matched(value, _DIGITS, "{}")


def _boolean(value: Any) -> str:
    if value not in (0, 1):
        raise Unfit("must be true or false")
    return str(int(value))


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) > LONGEST:
        raise Unfit(f"must be at most {LONGEST} bytes")
    return f"'{value.hex().upper()}'XB"


def _date(value: Any) -> str:
    return _matched(value, DATE, "DATE '{}'")


def _time(value: Any) -> str:
    return _matched(value, _TIME, "TIME '{}'")


def _timestamp(value: Any) -> str:
    return _matched(value, _TIMESTAMP, "TIMESTAMP '{}'")


def _matched(value: Any, pattern: re.Pattern[str], form: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Unfit("cannot be written for this database")
    return form.format(value)


_ENCODERS: Mapping[Shape, Callable[[Any], str]] = {
    **dict.fromkeys((Shape.TEXT, Shape.JSON, Shape.UUID, Shape.INTERVAL), _text),
    Shape.INTEGER: _integer,
    Shape.FLOAT: _float,
    Shape.DECIMAL: _decimal,
    Shape.BOOLEAN: _boolean,
    Shape.BYTES: _bytes,
    Shape.DATE: _date,
    Shape.TIME: _time,
    Shape.TIMESTAMP: _timestamp,
}
