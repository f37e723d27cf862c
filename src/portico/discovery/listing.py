"""What a list of definitions costs a client, worked out once for each edition."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.ports import TokenCounter

KEPT = 64
WINDOW, WINDOWS = 2_000, 10
"""Of a long list this many characters are counted, at so many places; the rest is taken to be like them."""


@dataclass(slots=True)
class ListingCosts:
    """Tokens of lists of definitions; each list is counted once."""

    counter: TokenCounter
    _known: dict[Hashable, int] = field(default_factory=dict)

    def tokens(self, key: Hashable, definitions: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of a list, about, when it is a long one; `key` tells it from every other list."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = sampled_tokens(_dumped(definitions), self.counter)
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return known


def sampled_tokens(text: str, counter: TokenCounter) -> int:
    """Tokens of a text; of a long one, about."""
    if len(text) <= WINDOW * WINDOWS:
        return counter.count(text)
    step = (len(text) - WINDOW) // (WINDOWS - 1)
    sample = "".join(text[n * step : n * step + WINDOW] for n in range(WINDOWS))
    return round(counter.count(sample) * len(text) / len(sample))


def _dumped(definitions: Sequence[Mapping[str, Any]]) -> str:
    try:
        return orjson.dumps(definitions).decode()
    except TypeError:  # integers beyond 64 bits
        return json.dumps(definitions, default=str)
