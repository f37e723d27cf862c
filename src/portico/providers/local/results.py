"""What a function returns becomes a result object, and what it raises becomes the tool's own error."""

from __future__ import annotations

import base64
import enum
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import orjson

LIMIT = 16 * 1024 * 1024
"""Bytes of JSON that one result may have."""
ERROR_LENGTH = 10_000


def as_result(value: Any) -> Mapping[str, Any]:
    """A function's value as a result object; a whole result object is passed on as it is.

    Raises:
        TypeError: the value cannot be written as JSON; says what to return instead.
        ValueError: it is too large.
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        _check_size(len(text))
        return {"content": [{"type": "text", "text": text}]}
    if isinstance(value, Mapping) and isinstance(value.get("content"), list):
        return _whole(value)
    written = _written(value)
    _check_size(len(written))
    plain = orjson.loads(written)
    structured = plain if isinstance(plain, dict) else {"result": plain}
    return {"content": [{"type": "text", "text": written.decode()}], "structuredContent": structured}


def _whole(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result object as it is, or in JSON's own words where it has something else in it."""
    try:
        size = len(orjson.dumps(value, option=_PLAIN))
    except orjson.JSONEncodeError:
        written = _written(value)
        _check_size(len(written))
        return orjson.loads(written)  # type: ignore[no-any-return]
    _check_size(size)
    return value


_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def as_error(error: BaseException) -> Mapping[str, Any]:
    """What a function raised, as the tool's answer."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  an error that cannot even say what it is
        text = type(error).__name__
    if len(text) > ERROR_LENGTH:
        text = f"{text[:ERROR_LENGTH]}…"
    return {"content": [{"type": "text", "text": text.encode("utf-8", "replace").decode()}], "isError": True}


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_spelled, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        cause = error.__cause__ or error
        raise TypeError(str(cause) or f"what it returned cannot be written as JSON: {type(cause).__name__}") from error


def _spelled(value: Any) -> Any:
    """What JSON has no word for, in the words that it has."""
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    if isinstance(value, float):
        return float(value)  # a class of somebody's own, such as numpy's
    if callable(plain := getattr(value, "tolist", None)) and not isinstance(value, type | memoryview):
        return plain()
    if isinstance(value, set | frozenset):
        return _ordered(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterator | AsyncIterator):
        raise TypeError(
            f"the function returned a {type(value).__name__}, which has no end that we know: return a list instead"
        )
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque | range):
        return list(value)
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    return str(value)


def _ordered(values: set[Any] | frozenset[Any]) -> list[Any]:
    """The members of a set, in the same order every time where they have one."""
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def _check_size(size: int) -> None:
    if size > LIMIT:
        raise ValueError(
            f"the result has {size / 1024 / 1024:,.1f} MB; the limit is {LIMIT // 1024 // 1024} MB:"
            " return less, or a part at a time"
        )
