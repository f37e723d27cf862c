"""Vectors of length one, the bytes that they are stored as, and the hash of the text that they stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from portico.errors import EmbedderAway

Vector = NDArray[np.float32]

TEXT_LENGTH = 4_000
"""Characters of a text that are embedded: no model reads more of a tool, and many refuse what is too long."""
HASHED = 20_000
"""Texts whose hash is kept at hand: every edition asks for those of all its tools."""
DIMENSIONS = 16_384
"""The longest vector that is taken."""


def cut(text: str) -> str:
    """The part of a text that is embedded; half of a character pair has no UTF-8 and is replaced."""
    if len(text) <= TEXT_LENGTH and text.isascii():
        return text
    return text[:TEXT_LENGTH].encode("utf-8", "replace").decode()


@lru_cache(maxsize=HASHED)
def content_hash(text: str) -> str:
    """What a text's vector is kept under."""
    return hashlib.sha256(text.encode()).hexdigest()


def unit(numbers: Sequence[float]) -> Vector:
    """The direction of some numbers.

    Raises:
        EmbedderAway: the numbers are no direction.
    """
    raw = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(raw)) if raw.ndim == 1 and 0 < raw.size <= DIMENSIONS else 0.0
    if not np.isfinite(length) or length == 0.0:
        raise EmbedderAway("it answered with a vector that points nowhere", refused=True)
    return _normalised(raw / length)


def units(answers: Iterable[Sequence[float]]) -> list[Vector]:
    """The vectors of one answer, all of the same length.

    Raises:
        EmbedderAway: one is no direction, or they differ in length.
    """
    found = [unit(numbers) for numbers in answers]
    if len({vector.size for vector in found}) > 1:
        raise EmbedderAway("it answered with vectors of different lengths", refused=True)
    return found


def to_bytes(vector: Vector) -> bytes:
    """Half precision: half the room, and no order among tools depends on more."""
    return vector.astype("<f2").tobytes()


def from_bytes(stored: bytes) -> Vector | None:
    """The vector that was stored; None when the bytes are none."""
    if not stored or len(stored) % 2:
        return None
    raw = np.frombuffer(stored, dtype="<f2")
    return _normalised(raw) if np.isfinite(raw).all() and raw.any() else None


def _normalised(raw: NDArray[np.floating]) -> Vector:
    vector = raw.astype(np.float32)
    vector /= np.linalg.norm(vector)
    vector.setflags(write=False)
    return vector
