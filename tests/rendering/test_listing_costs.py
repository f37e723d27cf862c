"""The tokens of a list of definitions."""

from __future__ import annotations

import pytest

from portico.rendering.budget import TokenEstimate, definition_tokens, sampled_tokens


def test_a_long_list_is_known_about_right_and_integers_beyond_64_bits_do_no_harm():
    text = "".join(f"A sentence with the number {n}. " for n in range(5_000))
    assert sampled_tokens(text, TokenEstimate()) == pytest.approx(TokenEstimate().count(text), rel=0.02)
    assert definition_tokens([{"n": 2**70}], TokenEstimate()) > 0
