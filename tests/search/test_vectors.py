"""Packed vectors stay near to what they were, and a look at their signs finds the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search.word_vectors import FEW, Vectors, pack

Matrix = np.ndarray


def unit(count: int, dims: int = 256, seed: int = 1) -> Matrix:
    """Random vectors of length one."""
    found: Matrix = np.random.default_rng(seed).normal(size=(count, dims)).astype(np.float32)
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
    return found


def everything(vectors: Vectors) -> Matrix:
    return np.arange(len(vectors.scales))


@pytest.mark.parametrize("count", [1, 7, FEW, FEW + 1])
@pytest.mark.parametrize("dims", [8, 100, 256])
def test_nearness_is_the_cosine(count: int, dims: int) -> None:
    tools, wanted = unit(count, dims), unit(3, dims, seed=2)
    found = pack(tools).nearness(wanted, np.arange(count))
    assert found.shape == (3, count)
    assert np.abs(found - wanted @ tools.T).max() < 0.02


def test_nearness_to_some_tools_is_that_to_all_of_them() -> None:
    vectors, wanted, some = pack(unit(50)), unit(2, seed=3), np.array([3, 17, 44])
    assert np.allclose(
        vectors.nearness(wanted, some), vectors.nearness(wanted, everything(vectors))[:, some], atol=1e-5
    )


def test_a_tool_is_like_itself_and_unlike_its_opposite() -> None:
    tools = unit(2)
    vectors = pack(np.concatenate((tools, -tools[:1], np.zeros((1, 256), dtype=np.float32)))).unpack([0, 1, 2, 3])
    near = vectors @ vectors.T
    assert near[0, 0] == pytest.approx(1, abs=0.01)
    assert near[0, 2] == pytest.approx(-1, abs=0.01)
    assert near[0, 1] == pytest.approx(near[1, 0], abs=1e-6)
    assert near[0, 3] == near[3, 3] == 0


def test_the_nearest_is_among_the_likely_ones() -> None:
    tools = unit(5_000)
    rng = np.random.default_rng(5)
    asked = rng.choice(5_000, size=200, replace=False)
    wanted = tools[asked] + 0.09 * rng.normal(size=(200, 256)).astype(np.float32)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    nearest = (wanted @ tools.T).argmax(axis=1)
    vectors = pack(tools)
    found = [best in vectors.near(one, 160, None) for one, best in zip(wanted, nearest, strict=True)]
    assert np.mean(found) >= 0.95


@given(seed=st.integers(0, 10_000), count=st.integers(1, 200), wanted=st.integers(1, 30))
def test_only_tools_within_are_near(seed: int, count: int, wanted: int) -> None:
    vectors = pack(unit(count, seed=seed))
    within = np.random.default_rng(seed).random(count) < 0.3
    found = vectors.near(unit(1, seed=seed + 1)[0], wanted, within)
    assert within[found].all()
    assert len(found) >= min(wanted, int(np.count_nonzero(within)))


@given(
    steps=st.lists(st.tuples(st.lists(st.booleans(), max_size=8), st.integers(0, 6)), max_size=6),
    dims=st.sampled_from([64, 100]),
)
def test_any_changes_give_the_vectors_that_are_packed_at_once(steps: list[tuple[list[bool], int]], dims: int) -> None:
    plain = unit(4, dims)
    vectors = pack(plain)
    for seed, (pattern, new) in enumerate(steps, 10):
        kept = np.resize(np.array([*pattern, True]), len(plain))
        added = unit(new, dims, seed)
        plain, vectors = np.concatenate((plain[kept], added)), vectors.changed(kept, pack(added))
    whole = pack(plain)
    assert (vectors.numbers == whole.numbers).all()
    assert (vectors.scales == whole.scales).all()
    assert all((one == other).all() for one, other in zip(vectors.signs, whole.signs, strict=True))
    assert (vectors.unpacked == whole.unpacked).all()


def test_no_vectors_are_near_to_nothing() -> None:
    none = pack(np.zeros((0, 256), dtype=np.float32))
    assert none.near(unit(1)[0], 5, None).tolist() == []
    assert none.nearness(unit(2), everything(none)).shape == (2, 0)
    assert len(none.changed(np.zeros(0, dtype=np.bool_), pack(unit(3))).scales) == 3


def test_a_tool_without_a_meaning_is_near_to_nothing() -> None:
    vectors = pack(np.zeros((3, 256), dtype=np.float32))
    assert not vectors.nearness(unit(2), everything(vectors)).any()
