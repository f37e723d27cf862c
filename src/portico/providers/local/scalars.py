"""The values that JSON has no word for but text or numbers can spell: dates, decimals, bytes and their like."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import UUID

from .unfit import Unfit


@dataclass(frozen=True, slots=True)
class Scalar:
    """One class: its schema, and how a value of it is read."""

    schema: Mapping[str, Any]
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Unfit("must be text")


def _whole(value: Any) -> int:
    """JSON Schema counts 5.0 among the integers; a function that wants an integer does not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Unfit("must be a whole number")


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise Unfit("is too large a number") from error
    raise Unfit("must be a number")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Unfit("must be true or false")


def _nothing(value: Any) -> None:
    if value is not None:
        raise Unfit("must be null")


def _decimal(value: Any) -> Decimal:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return Decimal(str(value) if is_number else _text(value).strip())
    except InvalidOperation as error:
        raise Unfit("must be a decimal number as text, such as '12.50'") from error


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unfit("must be bytes in base64") from error


def _spelled(make: Callable[[str], Any], wanted: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        text = _text(value)
        try:
            return make(text)
        except ValueError as error:
            raise Unfit(f"{text[:60]!r} is not {wanted}") from error

    return read


def _format(name: str) -> dict[str, str]:
    return {"type": "string", "format": name}


SCALARS: Mapping[Any, Scalar] = {
    str: Scalar({"type": "string"}, _text),
    int: Scalar({"type": "integer"}, _whole),
    float: Scalar({"type": "number"}, _number),
    bool: Scalar({"type": "boolean"}, _flag),
    type(None): Scalar({"type": "null"}, _nothing),
    None: Scalar({"type": "null"}, _nothing),
    date: Scalar(_format("date"), _spelled(date.fromisoformat, "a date; write it like 2026-01-31")),
    datetime: Scalar(
        _format("date-time"), _spelled(datetime.fromisoformat, "a date with time; write it like 2026-01-31T12:00:00Z")
    ),
    time: Scalar(_format("time"), _spelled(time.fromisoformat, "a time of day; write it like 12:30:00")),
    UUID: Scalar(_format("uuid"), _spelled(UUID, "a UUID")),
    Decimal: Scalar(_format("decimal"), _decimal),
    bytes: Scalar(_format("base64"), _bytes),
    Path: Scalar(_format("path"), _spelled(Path, "a path")),
}
"""How each class is spelled in JSON."""

EXACT = frozenset({int, float, bool, type(None)})
"""The classes that JSON tells apart by itself."""


def key_reader(schema: Mapping[str, Any], read: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """How the key of an object is read: JSON has text there, whatever the annotation asks for."""
    kind = schema.get("type")
    if read is None or schema == {"type": "string"}:
        return None
    if kind not in ("integer", "number"):
        return read
    number = _spelled(int if kind == "integer" else _finite, f"{'a whole' if kind == 'integer' else 'a'} number")
    return lambda key: number(key) if isinstance(key, str) else read(key)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number
