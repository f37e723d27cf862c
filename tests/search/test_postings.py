"""Postings that grew by any changes answer like those that were built at once, and older ones are left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.search.words_and_postings import FIELDS, LEFTOVERS, Postings, post

Document = Mapping[str, Sequence[str]]
Told = dict[str, list[tuple[int, float]]]

WORDS = st.sampled_from(["creat", "issu", "file", "list", "созда", "创建", "مشكلة", "é", "2", "=s_x", "ﬁ", "\ud800"])
DOCUMENTS = st.fixed_dictionaries({field: st.lists(WORDS, max_size=4) for field in FIELDS})
STEPS = st.lists(st.tuples(st.lists(st.booleans(), max_size=6), st.lists(DOCUMENTS, max_size=4)), max_size=6)


def count(postings: Postings, word: str) -> int:
    number = postings.words.get(word)
    counts = postings.counts(None)
    return counts[number] if number is not None and number < len(counts) else 0


def document(*name: str, **fields: list[str]) -> Document:
    return {**dict.fromkeys(FIELDS, ()), "name": name, **fields}


def told(postings: Postings, words: Sequence[str]) -> Told:
    """All that postings say of some words; values to seven digits, which is what they are kept with."""
    found: Told = {}
    for word in words:
        tools, values = postings.of(word)
        assert len(tools) == len(values) == count(postings, word)
        found[word] = [(int(tool), round(float(value), 7)) for tool, value in zip(tools, values, strict=True)]
    return found


def words_of(documents: Sequence[Document]) -> list[str]:
    return sorted({word for document in documents for field in document.values() for word in field})


@settings(max_examples=200)
@given(first=st.lists(DOCUMENTS, max_size=5), steps=STEPS)
def test_any_changes_give_the_answers_of_postings_built_at_once(
    first: list[Document], steps: list[tuple[list[bool], list[Document]]]
) -> None:
    everything = [*first, *(document for _, new in steps for document in new)]
    words = [*words_of(everything), "unheard"]
    current, postings = first, post(first)
    history = [(postings, told(postings, words), postings.size)]
    for pattern, new in steps:
        kept = np.resize(np.array([*pattern, False]), len(current))
        current = [document for document, stays in zip(current, kept, strict=True) if stays] + new
        postings = postings.changed(kept, new)
        history.append((postings, told(postings, words), postings.size))
        assert told(postings, words) == told(post(current), words)
        assert postings.size == len(current)
    for older, said, size in history:
        assert told(older, words) == said
        assert older.size == size


@given(one=st.lists(DOCUMENTS, max_size=4), other=st.lists(DOCUMENTS, max_size=4), base=st.lists(DOCUMENTS, max_size=4))
def test_two_that_grew_from_the_same_do_not_disturb_each_other(
    base: list[Document], one: list[Document], other: list[Document]
) -> None:
    postings, words = post(base), words_of([*base, *one, *other])
    kept = np.ones(len(base), dtype=np.bool_)
    first, second = postings.changed(kept, one), postings.changed(kept, other)
    assert told(first, words) == told(post([*base, *one]), words)
    assert told(second, words) == told(post([*base, *other]), words)
    assert told(postings, words) == told(post(base), words)


@given(documents=st.lists(DOCUMENTS, max_size=6))
def test_each_tool_that_has_a_word_is_found_once_and_in_order(documents: list[Document]) -> None:
    postings = post(documents)
    for word in words_of(documents):
        tools, values = postings.of(word)
        has = [number for number, document in enumerate(documents) if any(word in field for field in document.values())]
        assert tools.tolist() == has
        assert ((values > 0) & (values < 1)).all()


def test_a_word_says_more_in_a_name_than_elsewhere_and_less_in_a_long_text() -> None:
    description = document(description=["invoic"])
    details = document(details=["invoic"])
    long = document(description=["invoic", *map(str, range(100))])
    values = post([document("invoic"), description, details, long]).of("invoic")[1]
    assert values[0] > values[1] > values[2]
    assert values[1] > values[3]


@pytest.mark.parametrize("documents", [[], [document()], [document(), document()]])
def test_nothing_to_read_is_nothing_found(documents: list[Document]) -> None:
    postings = post(documents)
    assert count(postings, "anything") == 0
    assert postings.of("anything")[0].tolist() == []
    assert postings.size == len(documents)
    grown = postings.changed(np.ones(len(documents), dtype=np.bool_), [document("anything")])
    assert grown.of("anything")[0].tolist() == [len(documents)]


def test_all_tools_may_go_and_others_come() -> None:
    postings = post([document("a"), document("b")])
    empty = postings.changed(np.zeros(2, dtype=np.bool_), [])
    assert (empty.size, count(empty, "a"), count(empty, "b")) == (0, 0, 0)
    assert told(empty.changed(np.zeros(0, dtype=np.bool_), [document("b")]), ["a", "b"]) == told(
        post([document("b")]), ["a", "b"]
    )


@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_words_are_counted_among_the_tools_that_may_be_seen(seen: list[bool]) -> None:
    postings = post([document("a", "b"), document("b"), document(), document("b", "c")])
    counts = postings.counts(np.array(seen))
    assert counts[postings.words["a"]] == seen[0]
    assert counts[postings.words["b"]] == seen[0] + seen[1] + seen[3]
    assert counts[postings.words["c"]] == seen[3]
    assert postings.counts(None) == postings.counts(np.ones(4, dtype=bool))


def test_words_that_no_tool_has_any_more_do_not_pile_up() -> None:
    postings = post([document("stays")])
    kept = np.array([True])
    for snapshot in range(12):
        new = [document(*(f"word{snapshot}x{number}" for number in range(LEFTOVERS // 2)))]
        grown = postings.changed(kept, new)
        assert count(grown, f"word{snapshot}x1") == 1
        postings, kept = grown, np.array([True, False])
    assert len(postings.words) <= 2 * LEFTOVERS
    assert postings.of("stays")[0].tolist() == [0]
    assert count(postings, "word1x1") == 0
