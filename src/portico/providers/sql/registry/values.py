"""The types that a registry may name, and a strict reading of their values."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class UnfitValue(ValueError):
    """A value that does not fit; the reason speaks of the value, `path` leads to it."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        self.reason, self.path = reason, path
        super().__init__(f"{'.'.join(path)!r} {reason}" if path else reason)


def at(step: str | int, read: Callable[..., T], *values: object) -> T:
    """Read one part of the arguments.

    Raises:
        Unfit: with the way to the part.
    """
    try:
        return read(*values)
    except UnfitValue as error:
        raise UnfitValue(error.reason, (str(step), *error.path)) from error


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


class ValueKind(StrEnum):
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
        raise UnfitValue(f"must be one of {', '.join(type.choices[:20])}")
    most = type.length or LONGEST
    if len(text) > most:
        raise UnfitValue(f"has {len(text)} characters; at most {most} are taken")
    return text


def _integer(type: ParamType, value: Any) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise UnfitValue("must be a whole number, such as 5")
    bound = 2 ** (type.bits - 1)
    if not -bound <= number < bound:
        raise UnfitValue(f"must lie between {-bound} and {bound - 1}")
    return number


def _float(type: ParamType, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitValue("must be a number, such as 1.5")
    if isinstance(value, int) and abs(value) > SAFE:
        raise UnfitValue(f"must lie between {-SAFE} and {SAFE}, or be written with an exponent")
    number = float(value)
    if not math.isfinite(number):
        raise UnfitValue("must be a finite number")
    if type.name == "real":
        _check_single(number)
    return number


def _check_single(number: float) -> None:
    try:
        (kept,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise UnfitValue("must lie between -3.4e38 and 3.4e38") from None
    if number and not kept:
        raise UnfitValue("is too close to 0; the nearest are 1.4e-45 and -1.4e-45")


def _decimal(type: ParamType, value: Any) -> str:
    wrong = UnfitValue('must be a decimal number, such as 12.5 or "12.50"')
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    if isinstance(value, int) and value.bit_length() > 4_000:
        raise UnfitValue("has too many digits")
    # A float is what its shortest digits say: those that the caller wrote.
    spelled = value if isinstance(value, str) else repr(value)
    if not NUMBER.fullmatch(spelled):
        raise wrong
    number = Decimal(spelled)
    if abs(number.adjusted()) > 1_000:
        raise UnfitValue("has too many digits")
    written = format(number, "f")
    _check_digits(written, type.precision, type.scale)
    return written


def _check_digits(written: str, precision: int | None, scale: int) -> None:
    whole, _, fraction = written.lstrip("-").partition(".")
    before, behind = len(whole.lstrip("0")), len(fraction.rstrip("0"))
    if precision is None:
        if before + behind > DIGITS:
            raise UnfitValue(f"has too many digits; at most {DIGITS} are taken")
    elif before > precision - scale or behind > scale:
        raise UnfitValue(f"may have {precision - scale} digits before the point and {scale} behind it")


def _boolean(type: ParamType, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UnfitValue("must be true or false")
    return value


def _date(type: ParamType, value: Any) -> str:
    wrong = UnfitValue("must be a date such as 2026-05-31")
    return _moment(value, DATE, date.fromisoformat, wrong)


def _time(type: ParamType, value: Any) -> str:
    wrong = UnfitValue(f"must be a time such as {'12:30:00+02:00' if type.has_zone else '12:30:00'}")
    return _zoned(type, _moment(value, TIME, time.fromisoformat, wrong), TIME)


def _timestamp(type: ParamType, value: Any) -> str:
    example = "2026-05-31T12:30:00Z" if type.has_zone else "2026-05-31T12:30:00"
    wrong = UnfitValue(f"must be a date and time such as {example}")
    return _zoned(type, _moment(value, TIMESTAMP, datetime.fromisoformat, wrong), TIMESTAMP)


def _moment(value: Any, pattern: re.Pattern[str], read: Callable[[str], object], wrong: UnfitValue) -> str:
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
        raise UnfitValue("must tell its zone, such as Z or +02:00" if type.has_zone else "must not tell a zone")
    return value


def _interval(type: ParamType, value: Any) -> str:
    if not isinstance(value, str) or not INTERVAL.fullmatch(value):
        raise UnfitValue("must be a duration such as P1DT2H30M")
    return value


def _uuid(type: ParamType, value: Any) -> str:
    if not isinstance(value, str) or not UUID.fullmatch(value):
        raise UnfitValue("must be a UUID such as 123e4567-e89b-12d3-a456-426614174000")
    return value.lower()


def _json(type: ParamType, value: Any) -> str:
    _check_json(value, DEEPEST)
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(written) > LONGEST:
        raise UnfitValue(f"has {len(written)} characters as JSON; at most {LONGEST} are taken")
    return written


def _check_json(value: Any, depth: int) -> None:
    if depth == 0:
        raise UnfitValue(f"is nested deeper than {DEEPEST} levels")
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
        raise UnfitValue("must hold finite numbers")
    elif isinstance(value, int) and value.bit_length() > 4 * DIGITS:
        raise UnfitValue("holds a number with too many digits")
    elif value is not None and not isinstance(value, bool | int | float):
        raise UnfitValue("must be a JSON value")


def _bytes(type: ParamType, value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * LONGEST:
        raise UnfitValue("must be bytes in base64, such as aGVsbG8=")
    try:
        found = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise UnfitValue("must be bytes in base64, such as aGVsbG8=") from None
    if len(found) > (type.length or LONGEST):
        raise UnfitValue(f"has {len(found)} bytes; at most {type.length or LONGEST} are taken")
    return found


def _characters(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UnfitValue(f"must be {what}")
    if "\0" in value:
        raise UnfitValue("must not hold a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnfitValue("holds half of a surrogate pair, which is no text") from None
    return value


_CHECKS: Mapping[ValueKind, Callable[[ParamType, Any], Any]] = {
    ValueKind.TEXT: _text,
    ValueKind.INTEGER: _integer,
    ValueKind.FLOAT: _float,
    ValueKind.DECIMAL: _decimal,
    ValueKind.BOOLEAN: _boolean,
    ValueKind.DATE: _date,
    ValueKind.TIME: _time,
    ValueKind.TIMESTAMP: _timestamp,
    ValueKind.INTERVAL: _interval,
    ValueKind.UUID: _uuid,
    ValueKind.JSON: _json,
    ValueKind.BYTES: _bytes,
}


SHAPES: Mapping[str, ValueKind] = {
    **dict.fromkeys(("char", "varchar", "text", "other"), ValueKind.TEXT),
    **dict.fromkeys(("byteint", "smallint", "integer", "bigint"), ValueKind.INTEGER),
    **dict.fromkeys(("real", "double"), ValueKind.FLOAT),
    "decimal": ValueKind.DECIMAL,
    "boolean": ValueKind.BOOLEAN,
    "date": ValueKind.DATE,
    **dict.fromkeys(("time", "timetz"), ValueKind.TIME),
    **dict.fromkeys(("timestamp", "timestamptz"), ValueKind.TIMESTAMP),
    "interval": ValueKind.INTERVAL,
    "uuid": ValueKind.UUID,
    **dict.fromkeys(("json", "jsonb"), ValueKind.JSON),
    "bytes": ValueKind.BYTES,
}
"""Every type by the one name that we give it; `other` is one of which we know nothing but that text stands for it."""

_TERADATA = {
    **dict.fromkeys(("cf", "gf"), "char"),
    **dict.fromkeys(("cv", "gv"), "varchar"),
    "co": "text",
    "i1": "byteint",
    "i2": "smallint",
    "i": "integer",
    "i8": "bigint",
    "f": "double",
    **dict.fromkeys(("d", "n"), "decimal"),
    "da": "date",
    "at": "time",
    "tz": "timetz",
    "ts": "timestamp",
    "sz": "timestamptz",
    # Codes come from the data dictionary, in which BO is a BLOB; Teradata has no boolean that it could stand for.
    **dict.fromkeys(("bf", "bv", "bo"), "bytes"),
    "jn": "json",
    **dict.fromkeys("xm ut pd pm ps pt pz a1 an yr ym mo dy dh dm ds hr hm hs mi ms sc".split(), "other"),
}
"""The codes of Teradata's data dictionary: XML, user-defined types, periods, arrays and intervals are `other`."""

_SPELLED = {
    **dict.fromkeys(("char", "character", "nchar", "bpchar"), "char"),
    **dict.fromkeys(("varchar", "character varying", "nvarchar", "varchar2"), "varchar"),
    **dict.fromkeys(("text", "clob", "string"), "text"),
    **dict.fromkeys(("byteint", "tinyint"), "byteint"),
    **dict.fromkeys(("smallint", "int2", "smallserial"), "smallint"),
    **dict.fromkeys(("integer", "int", "int4", "serial", "mediumint"), "integer"),
    **dict.fromkeys(("bigint", "int8", "bigserial"), "bigint"),
    **dict.fromkeys(("real", "float4"), "real"),
    **dict.fromkeys(("double", "double precision", "float", "float8"), "double"),
    **dict.fromkeys(("decimal", "numeric", "dec", "number"), "decimal"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    "date": "date",
    **dict.fromkeys(("time", "time without time zone"), "time"),
    **dict.fromkeys(("timetz", "time with time zone"), "timetz"),
    **dict.fromkeys(("timestamp", "timestamp without time zone", "datetime"), "timestamp"),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), "timestamptz"),
    **dict.fromkeys(("uuid", "uniqueidentifier"), "uuid"),
    "interval": "interval",
    "json": "json",
    "jsonb": "jsonb",
    "xml": "other",
    **dict.fromkeys(("bytea", "blob", "byte", "varbyte", "binary", "varbinary"), "bytes"),
}

_WIDENED: Mapping[str, Mapping[str, str]] = {
    "sqlite": {**dict.fromkeys(("byteint", "smallint", "integer"), "bigint"), "real": "double"}
}
"""SQLite keeps numbers of any declared size in eight bytes."""

_PATTERN = re.compile(r"([a-z][a-z0-9_ ]*?) ?(?:\( ?([0-9]{1,9}) ?(?:, ?([0-9]{1,9}) ?)?\))?( with(?:out)? time zone)?")
_SIZE = re.compile(r"([0-9]{1,9})(?:\.0*)?(?: ?, ?([0-9]{1,9}))?")

BITS: Mapping[str, int] = {"byteint": 8, "smallint": 16, "integer": 32, "bigint": 64}
MOST_DIGITS = 1_000
MOST_ITEMS = 500
"""Values of one list."""

_JSON_TYPES: Mapping[ValueKind, Any] = {
    ValueKind.INTEGER: "integer",
    ValueKind.FLOAT: "number",
    ValueKind.DECIMAL: ["number", "string"],
    ValueKind.BOOLEAN: "boolean",
    ValueKind.JSON: ["object", "array", "string", "number", "boolean"],
}
# The formats `time` and `date-time` ask for a zone, so the types without one are described in words.
_FORMATS = {"date": "date", "timetz": "time", "timestamptz": "date-time", "interval": "duration", "uuid": "uuid"}
_HINTS = {
    "time": "such as 12:30:00",
    "timestamp": "such as 2026-05-31T12:30:00",
    "bytes": "in base64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamType:
    """What one parameter takes."""

    code: str
    """As the registry spells it."""
    name: str
    """One of the names in SHAPES."""
    length: int | None = None
    """Characters of a text, bytes of bytes."""
    precision: int | None = None
    scale: int = 0
    is_known: bool = True
    """Whether the code is in our table; text stands for one that is not."""
    cast: str = ""
    """The type that the database's own function takes, as it can stand in a cast; empty where it is not known."""
    choices: tuple[str, ...] = ()
    """The values of an enum."""
    is_many: bool = False
    """Whether a list of such values is taken."""

    @property
    def shape(self) -> ValueKind:
        """What its values are in JSON."""
        return SHAPES[self.name]

    @property
    def bits(self) -> int:
        """The size of a whole number."""
        return BITS.get(self.name, 64)

    @property
    def has_zone(self) -> bool:
        """Whether a moment of this type tells its zone."""
        return self.name in ("timetz", "timestamptz")

    @property
    def hint(self) -> str:
        """What JSON Schema has no word for."""
        return _HINTS.get(self.name, "")

    def schema(self, *, bounds: bool = True) -> dict[str, Any]:
        """The type as JSON Schema says it; without bounds in the fewest words."""
        if self.is_many:
            items = replace(self, is_many=False).schema(bounds=bounds)
            single = items["type"] if isinstance(items["type"], list) else [items["type"]]
            return {"type": list(dict.fromkeys(["array", *single])), "items": items}
        found: dict[str, Any] = {"type": _JSON_TYPES.get(self.shape, "string")}
        if self.choices:
            found["enum"] = list(self.choices)
        if self.name in _FORMATS:
            found["format"] = _FORMATS[self.name]
        if bounds and self.shape is ValueKind.TEXT and self.length:
            found["maxLength"] = self.length
        if bounds and self.shape is ValueKind.INTEGER and self.bits < 32:
            found |= {"minimum": -(2 ** (self.bits - 1)), "maximum": 2 ** (self.bits - 1) - 1}
        return found

    def check(self, value: Any) -> Any:
        """The value that is bound for a value of JSON.

        Raises:
            Unfit: it is of another type, too large or too long; the reason says what would fit.
        """
        if self.is_many:
            one = replace(self, is_many=False)
            values = value if isinstance(value, list) else [value]
            if len(values) > MOST_ITEMS:
                raise UnfitValue(f"has {len(values)} items; at most {MOST_ITEMS} are taken")
            return [at(place, check, one, item) for place, item in enumerate(values)]
        return check(self, value)


def read_type(code: str, length: str = "", dialect: str = "") -> ParamType:
    """The type that a registry means by a code or a spelled-out name; one that is not known takes text."""
    spelled = " ".join(code.split()).lower()
    match = _PATTERN.fullmatch(spelled)
    name = _TERADATA.get(spelled) or (match and _SPELLED.get(f"{match[1]}{match[4] or ''}"))
    if not name:
        return ParamType(code=code, name="other", is_known=False)
    name = _WIDENED.get(dialect, {}).get(name, name)
    inner = (match[2], match[3]) if match else (None, None)
    sizes = _SIZE.fullmatch(" ".join(length.split()))
    beside = (sizes[1], sizes[2]) if sizes else (None, None)
    if name == "decimal":
        # A single number beside D or N is the bytes that the dictionary counts, not the digits.
        return _decimal_type(code, inner if inner[0] else beside if beside[1] else (None, None))
    size = (inner[0] or beside[0]) if name in ("char", "varchar", "bytes") else None
    return ParamType(code=code, name=name, length=int(size or 0) or None)


def _decimal_type(code: str, digits: tuple[str | None, str | None]) -> ParamType:
    precision, scale = (int(part or 0) for part in digits)
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        return ParamType(code=code, name="decimal")
    return ParamType(code=code, name="decimal", precision=precision, scale=scale)


_EXAMPLES: Mapping[ValueKind, Any] = {
    ValueKind.INTEGER: 1,
    ValueKind.FLOAT: 1.5,
    ValueKind.DECIMAL: "1",
    ValueKind.BOOLEAN: True,
    ValueKind.DATE: "2026-01-31",
    ValueKind.INTERVAL: "P1D",
    ValueKind.UUID: "123e4567-e89b-12d3-a456-426614174000",
    ValueKind.JSON: {},
    ValueKind.BYTES: "AA==",
}


def example_of(type: ParamType, text: str) -> Any:
    """A value of JSON that fits a type; for texts, as much of this one as fits."""
    if type.choices:
        return type.choices[0]
    zone = "Z" if type.has_zone else ""
    moments = {ValueKind.TIME: f"12:30:00{zone}", ValueKind.TIMESTAMP: f"2026-01-31T12:30:00{zone}"}
    return moments.get(type.shape) or _EXAMPLES.get(type.shape) or text[: type.length or len(text)]


def is_size(length: str) -> bool:
    """Whether a text is a length, or digits before and behind the point."""
    return not length.strip() or _SIZE.fullmatch(" ".join(length.split())) is not None
