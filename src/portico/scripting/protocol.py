"""The wire format between gateway, fork server and workers: frames of four bytes of length and one JSON text."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

import orjson

HEADER = 4  # bytes of length before the body of a frame
ORDER = struct.Struct("!cI")  # what the gateway asks of the fork server: a letter and the number of a worker
FORK, END = b"F", b"E"
REPORT = struct.Struct("!Ii")
"""An answer of the fork server: the number of a worker that has ended, and its status as `wait` gives it."""
ALLOWANCE = struct.Struct("!dQ")
"""The first bytes that a worker reads: CPU seconds and bytes of memory, before there is a script."""
EXACT = b'{"exact":true,'  # how a frame begins whose integers have more than 64 bits


class BadFrame(Exception):
    """A frame that no honest worker sends."""


def pack(body: bytes) -> bytes:
    """A body with its length in front."""
    return len(body).to_bytes(HEADER, "big") + body


def write_frame(descriptor: int, body: bytes) -> None:
    """Write one frame; blocks."""
    left = memoryview(pack(body))
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int) -> bytes:
    """Read one frame; blocks.

    Raises:
        EOFError: the other side is gone.
    """
    return read_exactly(descriptor, int.from_bytes(read_exactly(descriptor, HEADER), "big"))


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read so many bytes; blocks.

    Raises:
        EOFError: there were fewer.
    """
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def dump_json(value: Any) -> bytes:
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


def load_object(body: bytes) -> dict[str, Any]:
    """The object in a frame.

    Raises:
        BadFrame: it is not a JSON object.
    """
    try:
        value = orjson.loads(body) if not body.startswith(EXACT) else _load_exactly(body)
    except orjson.JSONDecodeError:  # lone surrogates, which only the slower reader knows
        value = _load_exactly(body)
    if not isinstance(value, dict):
        raise BadFrame("a frame is an object")
    return value


def _load_exactly(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class FrameSplitter:
    """Cuts a stream of bytes into frames of at most `limit` bytes, and hands each to `on_frame`."""

    def __init__(self, limit: int, on_frame: Callable[[bytes], None]) -> None:
        self.limit = limit
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
