"""Values on their way in and out: what JSON cannot say is written in a fixed, documented form."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any

from portico.errors import InvalidArguments

from .statements import ReadStatement

SAFE = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly."""
LARGEST = 2**63 - 1


def plain(value: Any) -> Any:
    """A value of a database as JSON can say it; nothing is rounded."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -SAFE <= value <= SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _unbounded(value)
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    return str(value)


def checked_binds(statement: ReadStatement, binds: Mapping[str, Any] | None, dialect: str) -> dict[str, Any]:
    """The values for a statement's placeholders, each of a kind that can be sent as it is.

    Raises:
        InvalidArguments: one is missing, is not asked for, or cannot be sent; nothing was.
    """
    given = dict(binds or {})
    missing = sorted(statement.placeholders - given.keys())
    unknown = sorted(given.keys() - statement.placeholders)
    details = [f"missing: a value for :{name}; pass it in the parameters" for name in missing]
    details += [f"unknown: {name!r}; the statement has no placeholder :{name}" for name in unknown]
    details += [f"{name!r} {problem}" for name, value in given.items() if (problem := _problem(value, dialect))]
    if details:
        raise InvalidArguments("sql", details=details)
    return given


def _problem(value: Any, dialect: str) -> str:
    """Why a value cannot be sent; empty when it can."""
    if value is None or isinstance(value, bool | datetime.date | datetime.time | decimal.Decimal | bytes):
        return ""
    if isinstance(value, str):
        return _text_problem(value, dialect)
    if isinstance(value, int):
        return "" if -LARGEST - 1 <= value <= LARGEST else "is too large; pass it as a string"
    if isinstance(value, float):
        is_lost = math.isnan(value) and dialect == "sqlite"  # SQLite would store NULL
        return "is not a number, which this database cannot keep" if is_lost else ""
    hint = "; a list fits behind IN alone, as in: IN :name" if isinstance(value, list | tuple) else ""
    return f"is {_article(value)}; pass text, a number, true, false or null{hint}"


def _text_problem(value: str, dialect: str) -> str:
    if "\0" in value and dialect != "sqlite":
        return "holds a NUL character, which this database cannot keep"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no text"
    return ""


def _article(value: Any) -> str:
    names: dict[type, str] = {list: "a list", tuple: "a list", dict: "an object"}
    return names.get(type(value), f"of the type {type(value).__name__!r}")


def _unbounded(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimal(value: decimal.Decimal) -> Any:
    """A number when it stays exactly the same as one, otherwise its digits as text."""
    if not value.is_finite():
        return _unbounded(float(value)) if not value.is_snan() else "NaN"
    if value == value.to_integral_value() and abs(value) <= SAFE:
        return int(value)
    near = float(value)
    return near if math.isfinite(near) and decimal.Decimal(repr(near)) == value else str(value)


def _duration(value: datetime.timedelta) -> str:
    """ISO 8601, in days and seconds, which is all that Python knows of it."""
    sign, value = ("-", -value) if value < datetime.timedelta() else ("", value)
    seconds = f"{value.seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".")
    return f"{sign}P{value.days}DT{seconds}S"
