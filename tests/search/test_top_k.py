"""The largest values are found without sorting them all, whatever the values are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from portico.search.word_vectors import leading

FLOATS = hnp.arrays(
    np.float32, st.integers(0, 300), elements=st.floats(-2, 2, width=32, allow_nan=False, allow_subnormal=False)
)
WHOLE = hnp.arrays(np.int16, st.integers(0, 300), elements=st.integers(-3, 12))


@given(values=FLOATS | WHOLE, count=st.integers(1, 40))
def test_nothing_left_out_is_larger_than_what_is_found(values: np.ndarray, count: int) -> None:
    found = leading(values, count)
    left = np.delete(values, found)
    assert (values[found] > 0).all()
    assert len(found) >= min(count, int(np.count_nonzero(values > 0)))
    assert len(found) <= 4 * count
    assert not len(found) or not (left > values[found].min()).any()
    assert (np.diff(found) > 0).all()


@given(seed=st.integers(0, 10_000), size=st.integers(2_000, 30_000), count=st.integers(1, 200))
def test_the_largest_of_many_is_always_found(seed: int, size: int, count: int) -> None:
    values = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    found = leading(values, count)
    assert int(values.argmax()) in found
    assert count // 2 <= len(found) <= 4 * count
    assert np.delete(values, found).max() <= values[found].min()


@pytest.mark.parametrize("count", [1, 5, 160])
def test_a_sample_that_sees_only_the_largest_does_not_deceive(count: int) -> None:
    values = np.linspace(0.1, 0.2, 20_480, dtype=np.float32)
    values[::20] += 1
    values[40::20] -= 0.5
    found = leading(values, count)
    assert count // 2 <= len(found) <= 4 * count
    assert int(values.argmax()) in found


@pytest.mark.parametrize("size", [30, 3_000, 30_000])
def test_of_very_many_equal_values_the_first_are_found(size: int) -> None:
    assert leading(np.ones(size, dtype=np.float32), 5).tolist() == [0, 1, 2, 3, 4]


def test_nothing_positive_is_nothing_found() -> None:
    for values in (np.zeros(5_000, dtype=np.float32), -np.ones(9, dtype=np.int16), np.zeros(0, dtype=np.float32)):
        assert leading(values, 3).tolist() == []
    assert leading(np.ones(9, dtype=np.float32), 0).tolist() == []


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
def test_a_few_positive_values_among_many_are_all_found(kind: type) -> None:
    values: np.ndarray = np.zeros(10_000, dtype=kind)
    values[[7, 77, 777, 7_777]] = [1, 2, 3, 1] if kind is np.int16 else [1e-38, 2e-38, 1, 1e-37]
    assert leading(values, 10).tolist() == [7, 77, 777, 7_777]
