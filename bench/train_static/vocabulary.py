"""Choose the words of the table: the encoder's own whole words, and those that tools use and it does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pairs import Pair

from portico.search.words_and_postings import spelled_words

SHORTEST, LONGEST = 2, 24


def counts(pairs: Iterable[Pair]) -> Counter[str]:
    """In how many pairs each word stands."""
    found: Counter[str] = Counter()
    for pair in pairs:
        texts = (pair.query, *pair.tool.values())
        found.update({word for text in texts for word in spelled_words(text)})
    return found


def choose(found: Counter[str], encoder_words: Path, size: int) -> list[str]:
    """The most frequent words first; then words that only the encoder knows, in its own order of frequency."""
    known = [line for line in encoder_words.read_text(encoding="utf-8").split("\n") if _is_word(line)]
    frequent = [word for word, count in found.most_common() if _is_word(word) and count >= 4]
    listed = list(dict.fromkeys([*frequent[: size * 3 // 4], *known, *frequent]))
    return sorted(listed[:size])


def _is_word(word: str) -> bool:
    return SHORTEST <= len(word) <= LONGEST and word.isascii() and word.isalpha()
