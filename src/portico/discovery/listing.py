"""What a list of definitions costs a client, worked out once for each edition."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.domain.edition import Edition
from portico.domain.sampling import tokens_per_letter
from portico.ports import TokenCounter

from .cache import PerEdition

SAMPLE, PLACES = 20_000, 10
"""Of a long list this many characters are counted, at so many places; the rest is taken to be like them."""

Definitions = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class ListingCosts:
    """Tokens of lists of definitions; each list is made and counted once in an edition."""

    counter: TokenCounter
    _known: PerEdition[int] = field(default_factory=PerEdition)

    def tokens(self, edition: Edition, key: Hashable, make: Callable[[], Definitions]) -> int:
        """Tokens of a list, about, when it is a long one; `key` tells it from every other list of the edition."""
        return self._known.get(edition, key, lambda: sampled_tokens(_dumped(make()), self.counter))


def sampled_tokens(text: str, counter: TokenCounter) -> int:
    """Tokens of a text; of a long one, about."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLE, places=PLACES))


def _dumped(definitions: Definitions) -> str:
    try:
        return orjson.dumps(definitions).decode()
    except TypeError:  # integers beyond 64 bits
        return json.dumps(definitions, default=str)
