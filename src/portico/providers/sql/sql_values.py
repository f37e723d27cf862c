"""Values on their way into SQL, read strictly by their types, and on their way out, as JSON can say them."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from portico.errors import InvalidArguments
from portico.providers.python.annotations import UnfitArgument

from .sql_lexer import ReadStatement

SAFE = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly."""
LARGEST = 2**63 - 1
LONGEST = 100_000
"""Characters of one text, and of one JSON value."""
DEEPEST = 50
"""Levels of one JSON value."""
DIGITS = 38
"""Digits of a decimal number that declares none."""
MOST_DIGITS = 1_000
MOST_ITEMS = 500
"""Values of one list."""

T = TypeVar("T")


class UnfitValue(UnfitArgument):
    """A value that does not fit; the message leads to it in quotes."""

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))!r} {self.reason}" if self.path else self.reason


def at(step: str | int, read: Callable[..., T], *values: object) -> T:
    """Read one part of the arguments.

    Raises:
        UnfitValue: with the way to the part.
    """
    try:
        return read(*values)
    except UnfitArgument as error:
        raise UnfitValue(error.reason, (str(step), *error.path)) from error


def plain(value: Any) -> Any:
    """A value of a database as JSON can say it; nothing is rounded."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -SAFE <= value <= SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _unbounded(value)
    if isinstance(value, decimal.Decimal):
        return _plain_decimal(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        # ISO 8601, in days and seconds, which is all that Python knows of it.
        sign, value = ("-", -value) if value < datetime.timedelta() else ("", value)
        seconds = f"{value.seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".")
        return f"{sign}P{value.days}DT{seconds}S"
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    return str(value)


def _unbounded(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain_decimal(value: decimal.Decimal) -> Any:
    """A number when it stays exactly the same as one, otherwise its digits as text."""
    if not value.is_finite():
        return _unbounded(float(value)) if not value.is_snan() else "NaN"
    if value == value.to_integral_value() and abs(value) <= SAFE:
        return int(value)
    near = float(value)
    return near if math.isfinite(near) and decimal.Decimal(repr(near)) == value else str(value)


def check_binds(statement: ReadStatement, binds: Mapping[str, Any] | None, dialect: str) -> dict[str, Any]:
    """The values for the placeholders of a statement that declares no types, each of a kind that can be sent.

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
        if "\0" in value and dialect != "sqlite":
            return "holds a NUL character, which this database cannot keep"
        return "" if _is_text(value) else _HALF
    if isinstance(value, int):
        return "" if -LARGEST - 1 <= value <= LARGEST else "is too large; pass it as a string"
    if isinstance(value, float):
        is_lost = math.isnan(value) and dialect == "sqlite"  # SQLite would store NULL
        return "is not a number, which this database cannot keep" if is_lost else ""
    is_list = isinstance(value, list | tuple)
    kind = "a list" if is_list else "an object" if type(value) is dict else f"of the type {type(value).__name__!r}"
    hint = "; a list fits behind IN alone, as in: IN :name" if is_list else ""
    return f"is {kind}; pass text, a number, true, false or null{hint}"


_HALF = "holds half of a surrogate pair, which is no text"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}(?:\.[0-9]{1,1000})?(?:[eE][+-]?[0-9]{1,3})?")


class ValueKind(StrEnum):
    """The kinds of values, for whoever writes JSON."""

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


def _text(type: ParamType, value: Any) -> str:
    text = _characters(value, "text")
    if type.choices and text not in type.choices:
        raise UnfitValue(f"must be one of {', '.join(type.choices[:20])}")
    most = type.length or LONGEST
    if len(text) > most:
        raise UnfitValue(f"has {len(text)} characters; at most {most} are taken")
    return text


def _integer(type: ParamType, value: Any) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE + 1 else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise UnfitValue("must be a whole number, such as 5")
    bound = 2 ** (type.bits - 1)
    if not -bound <= number < bound:
        raise UnfitValue(f"must lie between {-bound} and {bound - 1}")
    return number


def _float(type: ParamType, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitValue("must be a number, such as 1.5")
    if isinstance(value, int) and abs(value) > SAFE + 1:
        raise UnfitValue(f"must lie between -{SAFE + 1} and {SAFE + 1}, or be written with an exponent")
    number = float(value)
    if not math.isfinite(number):
        raise UnfitValue("must be a finite number")
    if type.name == "real":
        try:
            (single,) = struct.unpack("<f", struct.pack("<f", number))
        except OverflowError:
            raise UnfitValue("must lie between -3.4e38 and 3.4e38") from None
        if number and not single:
            raise UnfitValue("is too close to 0; the nearest are 1.4e-45 and -1.4e-45")
    return number


def _decimal(type: ParamType, value: Any) -> str:
    wrong = UnfitValue('must be a decimal number, such as 12.5 or "12.50"')
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    if isinstance(value, int) and value.bit_length() > 4_000:
        raise UnfitValue("has too many digits")
    # A float is what its shortest digits say: those that the caller wrote.
    spelled = value if isinstance(value, str) else repr(value)
    if not _NUMBER.fullmatch(spelled):
        raise wrong
    number = decimal.Decimal(spelled)
    if abs(number.adjusted()) > 1_000:
        raise UnfitValue("has too many digits")
    written = format(number, "f")
    whole, _, fraction = written.lstrip("-").partition(".")
    before, behind = len(whole.lstrip("0")), len(fraction.rstrip("0"))
    if type.precision is None:
        if before + behind > DIGITS:
            raise UnfitValue(f"has too many digits; at most {DIGITS} are taken")
    elif before > type.precision - type.scale or behind > type.scale:
        raise UnfitValue(f"may have {type.precision - type.scale} digits before the point and {type.scale} behind it")
    return written


def _boolean(type: ParamType, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UnfitValue("must be true or false")
    return value


_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_HOUR = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?P<zone>Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9]|\+14:00)?"
_COUNT = r"[0-9]{1,6}"
_INTERVAL = (
    rf"P(?=[0-9T])(?:{_COUNT}Y)?(?:{_COUNT}M)?(?:{_COUNT}W)?(?:{_COUNT}D)?"
    rf"(?:T(?=[0-9])(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}(?:\.[0-9]{{1,6}})?S)?)?"
)
_UUID = r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_FORMS: Mapping[str, tuple[str, Callable[[str], object], str]] = {
    "date": (_DAY, datetime.date.fromisoformat, "a date such as 2026-05-31"),
    "time": (_HOUR + _ZONE, datetime.time.fromisoformat, "a time such as 12:30:00"),
    "timetz": (_HOUR + _ZONE, datetime.time.fromisoformat, "a time such as 12:30:00+02:00"),
    "timestamp": (
        f"{_DAY}[T ]{_HOUR}{_ZONE}",
        datetime.datetime.fromisoformat,
        "a date and time such as 2026-05-31T12:30:00",
    ),
    "timestamptz": (
        f"{_DAY}[T ]{_HOUR}{_ZONE}",
        datetime.datetime.fromisoformat,
        "a date and time such as 2026-05-31T12:30:00Z",
    ),
    "datetime": (".+", datetime.datetime.fromisoformat, "a datetime such as 2026-05-31T12:00:00"),
    "interval": (_INTERVAL, str, "a duration such as P1DT2H30M"),
    "uuid": (_UUID, str, "a UUID such as 123e4567-e89b-12d3-a456-426614174000"),
}
"""Types that are written as text: their pattern, which is stricter than Python's own reading, and that reading.

Databases that keep dates as text compare them as text, so that `20260531` would mean another day.
"""


def _formed(type: ParamType, value: Any) -> str:
    pattern, read, wrong = _FORMS[type.name]
    match = re.fullmatch(pattern, value) if isinstance(value, str) else None
    try:
        read(match[0] if match else "")
    except ValueError:
        match = None
    if match is None:
        raise UnfitValue(f"must be {wrong}")
    if "zone" in match.re.groupindex and (match["zone"] is not None) != type.has_zone:
        raise UnfitValue("must tell its zone, such as Z or +02:00" if type.has_zone else "must not tell a zone")
    return match[0].lower() if type.name == "uuid" else match[0]


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
    wrong = UnfitValue("must be bytes in base64, such as aGVsbG8=")
    if not isinstance(value, str) or len(value) > 2 * LONGEST:
        raise wrong
    try:
        found = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise wrong from None
    if len(found) > (type.length or LONGEST):
        raise UnfitValue(f"has {len(found)} bytes; at most {type.length or LONGEST} are taken")
    return found


def _characters(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UnfitValue(f"must be {what}")
    if "\0" in value:
        raise UnfitValue("must not hold a NUL character")
    if not _is_text(value):
        raise UnfitValue(_HALF)
    return value


_CHECKS: Mapping[ValueKind, Callable[[ParamType, Any], Any]] = {
    ValueKind.TEXT: _text,
    ValueKind.INTEGER: _integer,
    ValueKind.FLOAT: _float,
    ValueKind.DECIMAL: _decimal,
    ValueKind.BOOLEAN: _boolean,
    **dict.fromkeys((ValueKind.DATE, ValueKind.TIME, ValueKind.TIMESTAMP, ValueKind.INTERVAL, ValueKind.UUID), _formed),
    ValueKind.JSON: _json,
    ValueKind.BYTES: _bytes,
}


_TYPES: Mapping[str, tuple[ValueKind, str, str]] = {
    "char": (ValueKind.TEXT, "char, character, nchar, bpchar", "cf gf"),
    "varchar": (ValueKind.TEXT, "varchar, character varying, nvarchar, varchar2", "cv gv"),
    "text": (ValueKind.TEXT, "text, clob, string", "co"),
    # Of which we know nothing but that text stands for it: XML, user-defined types, periods, arrays and intervals.
    "other": (ValueKind.TEXT, "xml", "xm ut pd pm ps pt pz a1 an yr ym mo dy dh dm ds hr hm hs mi ms sc"),
    "byteint": (ValueKind.INTEGER, "byteint, tinyint", "i1"),
    "smallint": (ValueKind.INTEGER, "smallint, int2, smallserial", "i2"),
    "integer": (ValueKind.INTEGER, "integer, int, int4, serial, mediumint", "i"),
    "bigint": (ValueKind.INTEGER, "bigint, int8, bigserial", "i8"),
    "real": (ValueKind.FLOAT, "real, float4", ""),
    "double": (ValueKind.FLOAT, "double, double precision, float, float8", "f"),
    "decimal": (ValueKind.DECIMAL, "decimal, numeric, dec, number", "d n"),
    "boolean": (ValueKind.BOOLEAN, "boolean, bool", ""),
    "date": (ValueKind.DATE, "date", "da"),
    "time": (ValueKind.TIME, "time, time without time zone", "at"),
    "timetz": (ValueKind.TIME, "timetz, time with time zone", "tz"),
    "timestamp": (ValueKind.TIMESTAMP, "timestamp, timestamp without time zone, datetime", "ts"),
    "timestamptz": (ValueKind.TIMESTAMP, "timestamptz, timestamp with time zone", "sz"),
    "datetime": (ValueKind.TIMESTAMP, "", ""),  # a moment with or without a zone
    "interval": (ValueKind.INTERVAL, "interval", ""),
    "uuid": (ValueKind.UUID, "uuid, uniqueidentifier", ""),
    "json": (ValueKind.JSON, "json", "jn"),
    "jsonb": (ValueKind.JSON, "jsonb", ""),
    # Codes come from the data dictionary, in which BO is a BLOB; Teradata has no boolean that it could stand for.
    "bytes": (ValueKind.BYTES, "bytea, blob, byte, varbyte, binary, varbinary", "bf bv bo"),
}
"""Every type by the one name that we give it: its kind, its names in SQL, and its codes in Teradata's dictionary."""
_SPELLED = {spelled: name for name, (_, names, _) in _TYPES.items() for spelled in names.split(", ") if spelled}
_CODES = {code: name for name, (_, _, codes) in _TYPES.items() for code in codes.split()}

_WIDENED: Mapping[str, Mapping[str, str]] = {
    "sqlite": {**dict.fromkeys(("byteint", "smallint", "integer"), "bigint"), "real": "double"}
}
"""SQLite keeps numbers of any declared size in eight bytes."""

_PATTERN = re.compile(r"([a-z][a-z0-9_ ]*?) ?(?:\( ?([0-9]{1,9}) ?(?:, ?([0-9]{1,9}) ?)?\))?( with(?:out)? time zone)?")
_SIZE = re.compile(r"([0-9]{1,9})(?:\.0*)?(?: ?, ?([0-9]{1,9}))?")

BITS: Mapping[str, int] = {"byteint": 8, "smallint": 16, "integer": 32, "bigint": 64}
_JSON_TYPES: Mapping[ValueKind, Any] = {
    ValueKind.INTEGER: "integer",
    ValueKind.FLOAT: "number",
    ValueKind.DECIMAL: ["number", "string"],
    ValueKind.BOOLEAN: "boolean",
    ValueKind.JSON: ["object", "array", "string", "number", "boolean"],
}
# The formats `time` and `date-time` ask for a zone, so the types without one are described in words.
_FORMATS = {
    "date": "date",
    "timetz": "time",
    **dict.fromkeys(("timestamptz", "datetime"), "date-time"),
    "interval": "duration",
    "uuid": "uuid",
}
_HINTS = {"time": "such as 12:30:00", "timestamp": "such as 2026-05-31T12:30:00", "bytes": "in base64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamType:
    """The type of one parameter or column."""

    code: str
    """As the registry spells it."""
    name: str
    """One of our own names for types."""
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
        """The kind of its values in JSON."""
        return _TYPES[self.name][0]

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
        """An example for a form that JSON Schema has no word for."""
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
            UnfitValue: it is of another type, too large or too long; the reason says what would fit.
        """
        if self.is_many:
            one = replace(self, is_many=False)
            values = value if isinstance(value, list) else [value]
            if len(values) > MOST_ITEMS:
                raise UnfitValue(f"has {len(values)} items; at most {MOST_ITEMS} are taken")
            return [at(place, one.check, item) for place, item in enumerate(values)]
        return _CHECKS[self.shape](self, value)


def read_type(code: str, length: str = "", dialect: str = "") -> ParamType:
    """The type that a registry means by a code or a spelled-out name; one that is not known takes text."""
    spelled = " ".join(code.split()).lower()
    match = _PATTERN.fullmatch(spelled)
    name = _CODES.get(spelled) or (match and _SPELLED.get(f"{match[1]}{match[4] or ''}"))
    if not name:
        return ParamType(code=code, name="other", is_known=False)
    name = _WIDENED.get(dialect, {}).get(name, name)
    inner = (match[2], match[3]) if match else (None, None)
    sizes = _SIZE.fullmatch(" ".join(length.split()))
    beside = (sizes[1], sizes[2]) if sizes else (None, None)
    if name == "decimal":
        # A single number beside D or N is the bytes that the dictionary counts, not the digits.
        digits = inner if inner[0] else beside if beside[1] else (None, None)
        precision, scale = (int(part or 0) for part in digits)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            return ParamType(code=code, name=name)
        return ParamType(code=code, name=name, precision=precision, scale=scale)
    size = (inner[0] or beside[0]) if name in ("char", "varchar", "bytes") else None
    return ParamType(code=code, name=name, length=int(size or 0) or None)


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
