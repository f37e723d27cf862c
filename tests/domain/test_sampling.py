"""Tokens of a long text are known from parts of it."""

from __future__ import annotations

import pytest

from portico.rendering.budget import tokens_per_letter


def test_a_short_text_is_counted_whole():
    assert tokens_per_letter("abcd", len, letters=4, places=2) == 1.0
    assert tokens_per_letter("", len, letters=4, places=2) == 0.0


@pytest.mark.parametrize("places", [1, 2, 4, 10])
def test_a_long_text_is_read_at_places_from_its_beginning_to_its_end(places: int):
    read: list[str] = []

    def count(text: str) -> int:
        read.append(text)
        return text.count("x")

    text = "x" * 1_000 + "." * 8_000 + "x" * 1_000
    share = tokens_per_letter(text, count, letters=200, places=places)
    assert [len(part) for part in read] == [200]
    assert share == (2 if places > 1 else 1) / places
