"""Token counters, and what a list of definitions costs a client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import orjson

from portico.domain.snapshot import Edition
from portico.errors import ConfigError
from portico.execution.token_sampling import tokens_per_letter
from portico.protocols import TokenCounter

from .cache import PerEdition

_CLASSES = (
    (re.compile(r"[A-Z]?[a-z]{1,10}|[A-Z]{1,4}"), 98),
    (re.compile(r"_"), 35),
    (re.compile(r"[0-9]{1,3}"), 104),
    (re.compile(r"[!-/:-@\[-^`{-~]{1,6}"), 112),
    (re.compile(r"\s{2,16}|\n"), 80),
    (re.compile(r"[\u00c0-\u1fff]"), 35),
    (re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"), 70),
    (re.compile(r"[^\s!-~\u00c0-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"), 130),
)
"""Hundredths of a token for each match: words, marks, white space, letters of other alphabets, ideographs, the rest.

Fitted to o200k on the definitions of real servers and on answers made of them. Each pattern reads a text once."""


class TokenEstimate:
    """Counts tokens without a vocabulary file or a network."""

    name = "estimate"

    def count(self, text: str) -> int:
        """Tokens of a text, estimated; rounded up, so that parts together never count less than the whole."""
        return -(-sum(weight * len(pattern.findall(text)) for pattern, weight in _CLASSES) // 100)


class ExactTokens:
    """Counts the tokens of OpenAI's o200k vocabulary; needs the extra `tokens`."""

    name = "o200k"

    def __init__(self) -> None:
        self._tokenizer = _vocabulary()

    def count(self, text: str) -> int:
        """Tokens of a text; what looks like a control token counts as the text that it is."""
        try:
            return len(self._tokenizer.encode_ordinary(text))
        except UnicodeEncodeError:  # half of a surrogate pair, which no vocabulary has
            return len(self._tokenizer.encode_ordinary(text.encode(errors="replace").decode()))


def counter_for(choice: str) -> TokenCounter:
    """The counter that the setting `tokens` names: `estimate` or `exact`.

    Raises:
        ConfigError: the exact one is asked for, and its extra is not installed.
    """
    return ExactTokens() if choice == "exact" else TokenEstimate()


def _vocabulary() -> Any:
    try:
        splintr = import_module("splintr")  # an extra, loaded only where it is asked for
    except ImportError as error:
        raise ConfigError(
            "exact counts need an extra that is not installed",
            where="tokens",
            fix="Run: pip install 'portico[tokens]', or write `tokens: estimate`.",
        ) from error
    return splintr.Tokenizer.from_pretrained("o200k_base")


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
