"""Modules fit in one sitting and functions can be said aloud."""

from __future__ import annotations

import pytest

from tests.house.source import body_length, modules

MODULE_WALL = 600
FUNCTION_WALL = 50
FUNCTION_P90 = 25

TOO_LONG: frozenset[str] = frozenset()
"""Exceptions; this list only ever shrinks."""


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_no_module_is_above_the_wall():
    assert [m.name for m in modules() if m.lines > MODULE_WALL and m.name not in TOO_LONG] == []


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_no_function_is_above_the_wall():
    long = [f"{m.name}:{f.name}" for m in modules() for f in m.functions() if body_length(f) > FUNCTION_WALL]
    assert [name for name in long if name not in TOO_LONG] == []


@pytest.mark.requirement("P-HOUSE-SIZES")
def test_nine_in_ten_functions_are_short():
    lengths = sorted(body_length(f) for m in modules() for f in m.functions())
    assert lengths[int(len(lengths) * 0.9)] <= FUNCTION_P90
