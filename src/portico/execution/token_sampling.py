"""About how many tokens go into a tool and come out of it, from samples of the text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from portico.domain.call import Result
from portico.protocols import TokenCounter
from portico.results.preview import is_small


def tokens_per_letter(text: str, count: Callable[[str], int], *, letters: int, places: int) -> float:
    """Tokens per letter; of a text with more letters than these, by as many of them, at places from end to end."""
    if not text:
        return 0.0
    if len(text) > letters:
        length = letters // places
        step = (len(text) - length) // max(1, places - 1)
        text = "".join(text[place * step : place * step + length] for place in range(places))
    return count(text) / len(text)


SAMPLE, PLACES = 2_000, 4
"""Characters of a text that are counted, and at how many places."""
EVERY = 32
"""How many texts of one kind are taken by their length before one is counted again."""
KINDS_KEPT = 5_000
LEAVES = 2_000
"""Values that are counted where there is no JSON to count."""
ASCII_COST, LETTER_COST = 1.2, 4
"""Tokens that a letter costs at the very most: a plain one, and any other."""
SURELY_LESS, SURELY_MORE = 0.6, 1.7
"""Beyond these shares of a limit a sample is enough to tell."""


@dataclass(slots=True)
class TokenGauge:
    """Counts the first text of each kind and every thirty-second after it; the others go by their length."""

    counter: TokenCounter
    _known: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    """By kind: tokens per character, and how many texts may still go by it."""

    def tokens(self, kind: Hashable, text: str) -> int:
        """Tokens of a text of one kind, about."""
        if not text:
            return 0
        share, left = self._known.get(kind, (0.0, 0))
        if not left:
            share, left = tokens_per_letter(text, self.counter.count, letters=SAMPLE, places=PLACES), EVERY
            if len(self._known) >= KINDS_KEPT:
                self._known.clear()
        self._known[kind] = (share, left - 1)
        return max(1, round(share * len(text)))


def text_of_arguments(arguments: Mapping[str, Any]) -> str:
    """What a caller has written, as JSON; nothing when it cannot be."""
    try:
        return orjson.dumps(arguments).decode() if arguments else ""
    except TypeError:
        return _leaves(arguments)


def text_of_result(result: Result) -> str:
    """What a model reads of a result: its text, or else its structured content."""
    text = result.text
    if text or result.structured is None:
        return text
    try:
        return orjson.dumps(result.structured).decode()
    except TypeError:
        return _leaves(result.structured)


def _leaves(value: Any) -> str:
    """What cannot be written as JSON: integers beyond 64 bits, many levels, foreign objects; of much, the beginning."""
    if is_small(value):
        with suppress(Exception):
            return str(value)
    found, waiting = list[str](), [value]
    while waiting and len(found) < LEAVES:
        inner = waiting.pop()
        if isinstance(inner, dict | list | tuple) and len(found) + len(waiting) + len(inner) > LEAVES:
            inner = [*islice(inner.items() if isinstance(inner, dict) else inner, LEAVES)]
        if isinstance(inner, dict):
            found.extend(str(name)[:SAMPLE] for name in inner)
            waiting.extend(inner.values())
        elif isinstance(inner, list | tuple):
            waiting.extend(inner)
        else:
            found.append(inner if isinstance(inner, str) else _short(inner))
    return " ".join(found)


def _short(value: object) -> str:
    try:
        return str(value)[:SAMPLE]
    except Exception:  # noqa: BLE001  a library user's own object may raise anything
        return ""


def fits_within(text: str, tokens: int, counter: TokenCounter) -> bool:
    """Whether a text costs at most so many tokens; every letter is read only where it is a near thing."""
    if len(text) * (ASCII_COST if text.isascii() else LETTER_COST) <= tokens:
        return True
    about = sampled(text, counter)
    if not tokens * SURELY_LESS <= about <= tokens * SURELY_MORE:
        return about < tokens
    return counter.count(text) <= tokens


def sampled(text: str, counter: TokenCounter) -> int:
    """Tokens of a text, about, from some places of it."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLE, places=PLACES))
