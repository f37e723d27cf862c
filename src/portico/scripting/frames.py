"""Frames: four bytes of length and one JSON text, between the gateway and a worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from .pipe import HEADER

EXACT = b'{"exact":true,'
"""How a frame begins whose integers have more than 64 bits."""


class BadFrame(Exception):
    """A frame that no honest worker sends."""


def dumped(value: Any) -> bytes:
    """A value as JSON, whatever its integers and characters are.

    Raises:
        ValueError: it is no JSON value, or nested too deep.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, lone surrogates, deep nesting
        pass
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def loaded(body: bytes) -> dict[str, Any]:
    """The object in a frame.

    Raises:
        BadFrame: it is not a JSON object.
    """
    try:
        value = orjson.loads(body) if not body.startswith(EXACT) else _loaded_exactly(body)
    except orjson.JSONDecodeError:  # lone surrogates, which only the slower reader knows
        value = _loaded_exactly(body)
    if not isinstance(value, dict):
        raise BadFrame("a frame is an object")
    return value


def _loaded_exactly(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self, limit: int, on_frame: Callable[[bytes], None]) -> None:
        self.limit = limit
        """Bytes that a frame may have."""
        self._on_frame = on_frame
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take more bytes, and hand on every frame that is whole.

        Raises:
            BadFrame: a frame is larger than the limit.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER:
            end = HEADER + int.from_bytes(self._buffer[:HEADER], "big")
            if end - HEADER > self.limit:
                raise BadFrame("a frame is too large")
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[HEADER:end])
            del self._buffer[:end]
            self._on_frame(frame)
