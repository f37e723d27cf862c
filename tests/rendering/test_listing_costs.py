"""What a list of definitions costs is counted once for each list of an edition."""

from __future__ import annotations

from typing import Any

import pytest

from portico.rendering.budget import ListingCosts, TokenEstimate, sampled_tokens
from portico.testing import definition, make_test_app


def test_a_list_is_put_together_and_counted_once_in_an_edition():
    application, costs, made = make_test_app({"a": [definition("b")]}), ListingCosts(TokenEstimate()), []

    def make() -> list[dict[str, Any]]:
        made.append(1)
        return [definition("b")] * len(made)

    first, other = application.gateway.snapshot, make_test_app({}).gateway.snapshot
    one = costs.tokens(first, "x", make)
    assert [costs.tokens(first, "x", make) for _ in range(3)] == [one] * 3
    assert len(made) == 1
    assert costs.tokens(first, "y", make) > one
    assert costs.tokens(other, "x", make) > one
    assert len(made) == 3


def test_a_long_list_is_known_about_right_and_integers_beyond_64_bits_do_no_harm():
    text = "".join(f"A sentence with the number {n}. " for n in range(5_000))
    assert sampled_tokens(text, TokenEstimate()) == pytest.approx(TokenEstimate().count(text), rel=0.02)
    assert ListingCosts(TokenEstimate()).tokens(make_test_app({}).gateway.snapshot, "x", lambda: [{"n": 2**70}]) > 0
