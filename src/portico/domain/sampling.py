"""How many tokens a letter of a text costs, from parts of it: to count every letter of a long one takes too long."""

from __future__ import annotations

from collections.abc import Callable


def tokens_per_letter(text: str, count: Callable[[str], int], *, letters: int, places: int) -> float:
    """Tokens per letter; of a text with more letters than these, by as many of them, at places from end to end."""
    if not text:
        return 0.0
    if len(text) > letters:
        length = letters // places
        step = (len(text) - length) // max(1, places - 1)
        text = "".join(text[place * step : place * step + length] for place in range(places))
    return count(text) / len(text)
