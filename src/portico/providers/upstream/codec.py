"""Messages to bytes and back, tolerant of what real servers write."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from .bounds import HEAD, values_of
from .protocol import VALUES_LIMIT

_BOM = b"\xef\xbb\xbf"
_OBJECT = b'{"jsonrpc"'
_MENDED_UP_TO, _REPLACED_UP_TO = 4 * 1024 * 1024, 16 * 1024 * 1024
"""Bytes of a message that is mended, and of one that is only freed of what is not UTF-8: both take several copies."""
_ID_FIRST = re.compile(rb'^[^{]{0,200}\{[^{}\[\]]{0,300}?"id"\s*:\s*("?)(\d{1,18})\1\s*[,}]')
_ID_LAST = re.compile(rb'[,}\]]\s*"id"\s*:\s*("?)(\d{1,18})\1\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*$')


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


def decode(data: bytes | bytearray) -> Any:
    """The message in some bytes: past a byte order mark or a banner, with what is not UTF-8 replaced.

    Raises:
        Garbled: there is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_leniently(data)


def looks_like_message(data: bytes | bytearray) -> bool:
    """Whether a long text may still become a message: it begins as one, or has one behind a banner."""
    head = bytes(data[:HEAD])
    return _OBJECT in head or head.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


def answered_id(data: bytes | bytearray) -> int | None:
    """The id of the answer that some bytes begin or end, found without parsing them."""
    found = _ID_FIRST.search(bytes(data[:HEAD])) or _ID_LAST.search(bytes(data[-HEAD:]))
    return int(found[2]) if found else None


def _decode_leniently(data: bytes | bytearray) -> Any:
    if len(data) > _REPLACED_UP_TO:
        raise Garbled(answered_id(data))
    start = data.find(_OBJECT)
    body = bytes(data[start:] if start > 0 else data.removeprefix(_BOM))
    if body.lstrip()[:1] not in (b"{", b"["):
        raise Garbled
    # Behind a banner with a quote in it, what was counted as a string is none.
    if start > 0 and values_of(body) > VALUES_LIMIT:
        raise Garbled(answered_id(body))
    return _mended(body) if len(body) <= _MENDED_UP_TO else _replaced(body)


def _replaced(body: bytes) -> Any:
    try:
        return orjson.loads(body.decode("utf-8", "replace").encode())
    except orjson.JSONDecodeError as error:
        raise Garbled(answered_id(body)) from error


def _mended(body: bytes) -> Any:
    found: Any = None
    try:
        found = json.loads(body.decode("utf-8", "replace"))
        # Through orjson again: a lone surrogate becomes "?", and NaN, which no surface could write, is refused.
        return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Garbled(found.get("id") if isinstance(found, dict) else answered_id(body)) from error
