"""Any endpoint that speaks the OpenAI shape of embeddings: a hosted one, or a server on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from portico.errors import EmbedderAway

from .vectors import DIMENSIONS
from .wire import Wire

BATCH = 64
"""Texts in one request."""
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 32 * 2**20

_REFUSED_TEXT = frozenset({400, 413, 422, 500})
"""What endpoints say to a text that is too long or that they stumble over; others may still pass."""


class Endpoint:
    """Asks `POST {url}/embeddings`; what it says in errors never holds the key."""

    def __init__(self, url: str, model: str, *, key: str = "", seconds: float = ANSWER_SECONDS) -> None:
        address = urlsplit(url)
        path = address.path.rstrip("/")
        path = path if path.endswith("/embeddings") else f"{path}/embeddings"
        shown = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], path, "", ""))
        self.name = f"{model} at {shown}"
        self._model, self._key = model, key
        self._wire = Wire(urlunsplit(address._replace(path=path)), seconds=seconds, most_bytes=ANSWER_BYTES)

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of texts, in their order.

        Raises:
            EmbedderAway: the endpoint cannot be reached, refuses, or its answer cannot be used.
        """
        found: list[Sequence[float]] = []
        for start in range(0, len(texts), BATCH):
            found += self._ask(texts[start : start + BATCH])
        _check_lengths(found)
        return found

    def _ask(self, texts: Sequence[str]) -> list[Sequence[float]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "portico"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        status, body = self._wire.post(orjson.dumps({"model": self._model, "input": list(texts)}), headers)
        if status != 200:
            raise EmbedderAway(self._refusal(status, body), refused=status in _REFUSED_TEXT)
        return _vectors(body, len(texts))

    def _refusal(self, status: int, body: bytes) -> str:
        if status in (401, 403):
            return f"it refused the key (HTTP {status})"  # its words may repeat the key
        said = _message(body)
        if self._key:
            said = said.replace(self._key, "***")
        return f"it answered HTTP {status}" + (f": {said[:200]}" if said else "")


def _vectors(body: bytes, count: int) -> list[Sequence[float]]:
    """The vectors of an answer, in the order of their `index`."""
    try:
        rows = orjson.loads(body)["data"]
        placed = {row.get("index", place): row["embedding"] for place, row in enumerate(rows)}
        found = [placed[place] for place in range(count)]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise EmbedderAway("its answer does not have the OpenAI shape of embeddings", refused=True) from None
    if len(rows) != count:
        raise EmbedderAway(f"it answered with {len(rows)} vectors for {count} texts", refused=True)
    if not all(_is_vector(numbers) for numbers in found):
        raise EmbedderAway("it answered with something that is no vector", refused=True)
    return found


def _check_lengths(found: list[Sequence[float]]) -> None:
    lengths = sorted({len(numbers) for numbers in found})
    if len(lengths) > 1 or not all(0 < length <= DIMENSIONS for length in lengths):
        shown = " and ".join(str(length) for length in lengths[:3])
        raise EmbedderAway(f"it answered with vectors of {shown} numbers", refused=True)


def _is_vector(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) in (float, int) and isfinite(n) for n in numbers)


def _message(body: bytes) -> str:
    """What an endpoint says of its refusal, in one printable line; only in the shapes that are meant for people."""
    try:
        told = orjson.loads(body[:100_000])
        told = told.get("error", told)
        said = told if isinstance(told, str) else told.get("message", "")
    except (orjson.JSONDecodeError, AttributeError):
        return ""
    words = " ".join(str(said).split())
    return "".join(letter for letter in words if letter.isprintable())
