"""Embeds what can be embedded: one text that an embedder stumbles over does not cost the others their vectors."""

from __future__ import annotations

from collections.abc import Sequence

from portico.errors import EmbedderAway
from portico.ports import Embedder

from .vectors import Vector, units

PLAIN = "search"
"""A word that every embedder takes: one that refuses even this is away."""


def embed_each(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    """The vector of each text; None for one that is refused although the embedder is well.

    Raises:
        EmbedderAway: it is not the texts' fault.
    """
    try:
        return _embed(embedder, texts)
    except EmbedderAway as away:
        if not away.refused:
            raise
    _embed(embedder, [PLAIN])
    return _halve(embedder, texts)


def _halve(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    if len(texts) == 1:
        return {texts[0]: None}
    found: dict[str, Vector | None] = {}
    middle = len(texts) // 2
    for half in (texts[:middle], texts[middle:]):
        try:
            found |= _embed(embedder, half)
        except EmbedderAway as away:
            if not away.refused:
                raise
            found |= _halve(embedder, half)
    return found


def _embed(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    try:
        vectors = units(embedder.embed(texts))
    except EmbedderAway:
        raise
    except Exception as error:  # an embedder may be a user's own, and must not end the thread that asks it
        raise EmbedderAway(f"it failed with {type(error).__name__}") from error
    if len(vectors) != len(texts):
        raise EmbedderAway(f"it answered with {len(vectors)} vectors for {len(texts)} texts", refused=True)
    return dict(zip(texts, vectors, strict=True))
