"""Messages to bytes and back, tolerant of what real servers write."""

from __future__ import annotations

import json
from typing import Any

import orjson

_BOM = b"\xef\xbb\xbf"
_OBJECT = b'{"jsonrpc"'


class Garbled(ValueError):
    """Bytes that are no message; `id` is that of the answer they were meant to be, where it can be seen."""

    def __init__(self, id: Any = None) -> None:
        super().__init__("not a JSON message")
        self.id = id


def encode(message: Any) -> bytes:
    """One message on one line."""
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # orjson refuses integers beyond 64 bits, which JSON allows.
        return json.dumps(message, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode(data: bytes) -> Any:
    """The message in some bytes: past a byte order mark or a banner, with what is not UTF-8 replaced.

    Raises:
        Garbled: there is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_leniently(data)


def _decode_leniently(data: bytes) -> Any:
    start = data.find(_OBJECT)
    body = data[start:] if start > 0 else data.removeprefix(_BOM)
    if not body.lstrip().startswith((b"{", b"[")):
        raise Garbled
    found: Any = None
    try:
        found = json.loads(body.decode("utf-8", "replace"))
        # Through orjson again: a lone surrogate becomes "?", and NaN, which no surface could write, is refused.
        return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Garbled(found.get("id") if isinstance(found, dict) else None) from error
