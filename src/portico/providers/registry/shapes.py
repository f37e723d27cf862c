"""Reads one value of JSON strictly: what is not exactly of the type is refused, and never passed through."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .unfit import Unfit

if TYPE_CHECKING:
    from .types import ParamType

LONGEST = 100_000
"""Characters of one text, and of one JSON value."""
DEEPEST = 50
"""Levels of one JSON value."""
DIGITS = 38
"""Digits of a decimal number that declares none."""
SAFE = 2**53

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOUR = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9]|\+14:00)"
DATE = re.compile(_DAY)
TIME = re.compile(rf"{_HOUR}(?P<zone>{_ZONE})?")
TIMESTAMP = re.compile(rf"{_DAY}[T ]{_HOUR}(?P<zone>{_ZONE})?")
NUMBER = re.compile(r"[+-]?[0-9]{1,1000}(?:\.[0-9]{1,1000})?(?:[eE][+-]?[0-9]{1,3})?")
UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_COUNT = r"[0-9]{1,6}"
INTERVAL = re.compile(
    rf"P(?=[0-9T])(?:{_COUNT}Y)?(?:{_COUNT}M)?(?:{_COUNT}W)?(?:{_COUNT}D)?"
    rf"(?:T(?=[0-9])(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}(?:\.[0-9]{{1,6}})?S)?)?"
)


class Shape(StrEnum):
    """What the values of a type are, for whoever writes JSON."""

    TEXT = "text"
    INTEGER = "whole number"
    FLOAT = "number"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    INTERVAL = "interval"
    UUID = "uuid"
    JSON = "json"
    BYTES = "bytes"


def check(type: ParamType, value: Any) -> Any:
    """A value of JSON as it is bound: text, a number, true or false, or bytes.

    Raises:
        Unfit: it is not of the type; the reason says what would be.
    """
    return _CHECKS[type.shape](type, value)


def _text(type: ParamType, value: Any) -> str:
    text = _characters(value, "text")
    if type.choices and text not in type.choices:
        raise Unfit(f"must be one of {', '.join(type.choices[:20])}")
    most = type.length or LONGEST
    if len(text) > most:
        raise Unfit(f"has {len(text)} characters; at most {most} are taken")
    return text


def _integer(type: ParamType, value: Any) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise Unfit("must be a whole number, such as 5")
    bound = 2 ** (type.bits - 1)
    if not -bound <= number < bound:
        raise Unfit(f"must lie between {-bound} and {bound - 1}")
    return number


def _float(type: ParamType, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("must be a number, such as 1.5")
    if isinstance(value, int) and abs(value) > SAFE:
        raise Unfit(f"must lie between {-SAFE} and {SAFE}, or be written with an exponent")
    number = float(value)
    if not math.isfinite(number):
        raise Unfit("must be a finite number")
    if type.name == "real":
        _check_single(number)
    return number


def _check_single(number: float) -> None:
    try:
        (kept,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise Unfit("must lie between -3.4e38 and 3.4e38") from None
    if number and not kept:
        raise Unfit("is too close to 0; the nearest are 1.4e-45 and -1.4e-45")


def _decimal(type: ParamType, value: Any) -> str:
    wrong = Unfit('must be a decimal number, such as 12.5 or "12.50"')
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    if isinstance(value, int) and value.bit_length() > 4_000:
        raise Unfit("has too many digits")
    # A float is what its shortest digits say: those that the caller wrote.
    spelled = value if isinstance(value, str) else repr(value)
    if not NUMBER.fullmatch(spelled):
        raise wrong
    number = Decimal(spelled)
    if abs(number.adjusted()) > 1_000:
        raise Unfit("has too many digits")
    written = format(number, "f")
    _check_digits(written, type.precision, type.scale)
    return written


def _check_digits(written: str, precision: int | None, scale: int) -> None:
    whole, _, fraction = written.lstrip("-").partition(".")
    before, behind = len(whole.lstrip("0")), len(fraction.rstrip("0"))
    if precision is None:
        if before + behind > DIGITS:
            raise Unfit(f"has too many digits; at most {DIGITS} are taken")
    elif before > precision - scale or behind > scale:
        raise Unfit(f"may have {precision - scale} digits before the point and {scale} behind it")


def _boolean(type: ParamType, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("must be true or false")
    return value


def _date(type: ParamType, value: Any) -> str:
    wrong = Unfit("must be a date such as 2026-05-31")
    return _moment(value, DATE, date.fromisoformat, wrong)


def _time(type: ParamType, value: Any) -> str:
    wrong = Unfit(f"must be a time such as {'12:30:00+02:00' if type.has_zone else '12:30:00'}")
    return _zoned(type, _moment(value, TIME, time.fromisoformat, wrong), TIME)


def _timestamp(type: ParamType, value: Any) -> str:
    example = "2026-05-31T12:30:00Z" if type.has_zone else "2026-05-31T12:30:00"
    wrong = Unfit(f"must be a date and time such as {example}")
    return _zoned(type, _moment(value, TIMESTAMP, datetime.fromisoformat, wrong), TIMESTAMP)


def _moment(value: Any, pattern: re.Pattern[str], read: Callable[[str], object], wrong: Unfit) -> str:
    """The pattern is stricter than Python's own reading, which knows the calendar."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise wrong
    try:
        read(value)
    except ValueError:
        raise wrong from None
    return value


def _zoned(type: ParamType, value: str, pattern: re.Pattern[str]) -> str:
    match = pattern.fullmatch(value)
    has_zone = match is not None and match["zone"] is not None
    if has_zone != type.has_zone:
        raise Unfit("must tell its zone, such as Z or +02:00" if type.has_zone else "must not tell a zone")
    return value


def _interval(type: ParamType, value: Any) -> str:
    if not isinstance(value, str) or not INTERVAL.fullmatch(value):
        raise Unfit("must be a duration such as P1DT2H30M")
    return value


def _uuid(type: ParamType, value: Any) -> str:
    if not isinstance(value, str) or not UUID.fullmatch(value):
        raise Unfit("must be a UUID such as 123e4567-e89b-12d3-a456-426614174000")
    return value.lower()


def _json(type: ParamType, value: Any) -> str:
    _check_json(value, DEEPEST)
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(written) > LONGEST:
        raise Unfit(f"has {len(written)} characters as JSON; at most {LONGEST} are taken")
    return written


def _check_json(value: Any, depth: int) -> None:
    if depth == 0:
        raise Unfit(f"is nested deeper than {DEEPEST} levels")
    if isinstance(value, str):
        _characters(value, "text")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _characters(key, "text as a key")
            _check_json(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_json(inner, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Unfit("must hold finite numbers")
    elif isinstance(value, int) and value.bit_length() > 4 * DIGITS:
        raise Unfit("holds a number with too many digits")
    elif value is not None and not isinstance(value, bool | int | float):
        raise Unfit("must be a JSON value")


def _bytes(type: ParamType, value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * LONGEST:
        raise Unfit("must be bytes in base64, such as aGVsbG8=")
    try:
        found = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise Unfit("must be bytes in base64, such as aGVsbG8=") from None
    if len(found) > (type.length or LONGEST):
        raise Unfit(f"has {len(found)} bytes; at most {type.length or LONGEST} are taken")
    return found


def _characters(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Unfit(f"must be {what}")
    if "\0" in value:
        raise Unfit("must not hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("holds half of a surrogate pair, which is no text") from None
    return value


_CHECKS: Mapping[Shape, Callable[[ParamType, Any], Any]] = {
    Shape.TEXT: _text,
    Shape.INTEGER: _integer,
    Shape.FLOAT: _float,
    Shape.DECIMAL: _decimal,
    Shape.BOOLEAN: _boolean,
    Shape.DATE: _date,
    Shape.TIME: _time,
    Shape.TIMESTAMP: _timestamp,
    Shape.INTERVAL: _interval,
    Shape.UUID: _uuid,
    Shape.JSON: _json,
    Shape.BYTES: _bytes,
}
