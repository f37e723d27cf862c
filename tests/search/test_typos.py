"""A word that no tool has is taken for those that look almost the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search.query import NearWords, distance

SHORT = st.text(alphabet="abc", max_size=7)
VOCABULARY = (
    "search repository create issue message channel file folder invoice payment calendar event delete update list"
    " image screenshot database table query weather forecast currency translate summarize branch commit 2024 café"
).split()


def plain_distance(one: str, other: str) -> int:
    """Optimal string alignment, as a textbook has it."""
    rows = [[i + j if not i * j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            changed = rows[i - 1][j - 1] + (one[i - 1] != other[j - 1])
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, changed)
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@given(one=SHORT, other=SHORT, most=st.integers(0, 4))
def test_the_distance_is_the_plain_one_up_to_the_most_that_is_asked_for(one: str, other: str, most: int) -> None:
    expected = plain_distance(one, other)
    assert distance(one, other, most) == (expected if expected <= most else None)


@given(one=SHORT, other=SHORT)
def test_the_distance_is_the_same_both_ways(one: str, other: str) -> None:
    assert distance(one, other, 3) == distance(other, one, 3)
    assert distance(one, one, 0) == 0


@pytest.mark.requirement("P-SEARCH-FORGIVES")
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("serach", "search"),
        ("repositry", "repository"),
        ("isue", "issue"),
        ("messsage", "message"),
        ("chanel", "channel"),
        ("invocie", "invoice"),
        ("calender", "calendar"),
        ("screenshoot", "screenshot"),
        ("databse", "database"),
        ("tranlsate", "translate"),
    ],
)
def test_a_misspelled_word_is_taken_for_the_one_that_was_meant(written: str, meant: str) -> None:
    assert NearWords(VOCABULARY).near(written)[0] == meant


@pytest.mark.requirement("P-SEARCH-FORGIVES")
@given(word=st.sampled_from([word for word in VOCABULARY if len(word) >= 6 and word.isascii()]), data=st.data())
def test_a_letter_left_out_of_a_longer_word_is_forgiven(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(word) - 1))
    assert word in NearWords(VOCABULARY).near(word[:place] + word[place + 1 :])


def test_the_beginning_of_a_long_word_is_enough() -> None:
    assert NearWords(VOCABULARY).near("summar") == ["summarize"]


@pytest.mark.parametrize(
    "word", ["", "a", "xy", "2025", "кафе", "cafe\u0301", "zzzzzz", "x" * 500, "a b", "\x00\x00\x00"]
)
def test_what_no_word_looks_like_is_taken_for_nothing(word: str) -> None:
    assert NearWords(VOCABULARY).near(word) == []
    assert NearWords([]).near(word) == []


def test_near_words_do_not_depend_on_the_order_of_the_vocabulary() -> None:
    alike = [f"order{letter}" for letter in "abcdefghijklmnop"]
    assert NearWords(alike).near("orderz") == NearWords(alike[::-1]).near("orderz") == ["ordera", "orderb"]


@given(words=st.lists(st.text(max_size=30), max_size=20), word=st.text(max_size=30))
def test_any_vocabulary_and_any_word_may_be_given(words: list[str], word: str) -> None:
    near = NearWords(words).near(word)
    assert len(near) <= 2
    assert set(near) <= set(words)
