"""A query is read within bounds: known words, near ones, synonyms, and each of its needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search.query import MOST_COMPARED, QueryPart, QueryReader
from portico.search.word_vectors import shipped_table
from portico.search.words_and_postings import FIELDS, QUERY_LIMIT, SYNONYMS, Postings, post, words

NAMES = [
    "create issue",
    "delete file",
    "search repository",
    "list folder",
    "send email",
    "order coffee",
    "merge branch",
]


def postings_of(*names: str) -> Postings:
    return post([{**dict.fromkeys(FIELDS, ()), "name": words(name)} for name in names])


@pytest.fixture(scope="module")
def reader() -> QueryReader:
    return QueryReader(postings_of(*NAMES), shipped_table(), None)


def terms(need: QueryPart) -> dict[str, float]:
    return {term.word: term.share for term in need.terms}


def best(reader: QueryReader, text: str) -> str:
    return NAMES[int(reader.read(text)[0].by_words(len(NAMES)).argmax())]


@pytest.mark.requirement("P-SEARCH-FORGIVES")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("serach repositry", "search repository"),
        ("creat isue", "create issue"),
        ("delet fiile", "delete file"),
        ("remove document", "delete file"),
        ("browse directory", "list folder"),
        ("find repo", "search repository"),
        ("purchase coffee", "order coffee"),
        ("sendEmail", "send email"),
        ("ORDERS", "order coffee"),
        ("mergeing brnch", "merge branch"),
    ],
)
def test_what_was_meant_is_what_is_read(text: str, meant: str, reader: QueryReader) -> None:
    assert best(reader, text) == meant


def test_a_misspelled_word_counts_less_than_the_right_one(reader: QueryReader) -> None:
    right, wrong = terms(reader.read("repository")[0]), terms(reader.read("repositry")[0])
    assert 0 < wrong["repository"] < right["repository"]


def test_a_word_in_its_own_right_is_not_taken_for_another(reader: QueryReader) -> None:
    assert terms(reader.read("fire")[0]) == {}


def test_a_synonym_counts_less_than_the_word_itself(reader: QueryReader) -> None:
    itself, other = terms(reader.read("delete")[0]), terms(reader.read("remove")[0])
    assert 0 < other["delet"] < itself["delet"]


def test_words_that_no_tool_has_any_more_are_not_near(reader: QueryReader) -> None:
    kept = np.array([name != "search repository" for name in NAMES])
    shrunk = QueryReader(reader.postings.changed(kept, []), shipped_table(), None)
    assert terms(shrunk.read("repositry")[0]) == {}


def test_several_needs_are_read_one_by_one(reader: QueryReader) -> None:
    found = reader.read("create an issue, then send an email")
    assert [need.text for need in found] == ["create an issue", "send an email"]
    assert all(terms(need) and need.mass > 0 for need in found)


def test_a_single_need_is_read_once(reader: QueryReader) -> None:
    assert [need.text for need in reader.read("search and replace text")] == ["search and replace text"]


def test_a_term_tells_its_part_of_each_score(reader: QueryReader) -> None:
    need = reader.read("create an issue or delete a repository")[0]
    by_words = need.by_words(len(NAMES))
    for number in range(len(NAMES)):
        assert sum(term.value_in(number) for term in need.terms) == pytest.approx(by_words[number], abs=1e-5)


@given(text=st.text(max_size=200) | st.lists(st.sampled_from(" ".join(NAMES).split()), max_size=30).map(" ".join))
def test_no_tool_has_more_of_a_query_than_all_of_it(text: str) -> None:
    reader = QueryReader(postings_of(*NAMES), shipped_table(), None)
    for need in reader.read(text):
        by_words = need.by_words(len(NAMES))
        assert (by_words >= 0).all()
        assert by_words.max() < 2
        assert np.isfinite(need.vector).all()


@pytest.mark.requirement("P-SEARCH-ANY-TEXT")
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "text",
    [
        "create an issue then delete the file then " * 3_000,
        " ".join(f"wrod{number:x}" for number in range(20_000)),
        "abcdefg " * 20_000,
        "é" * 100_000,
        "\ud800" * 100_000,
    ],
)
def test_the_work_for_a_query_is_bounded(text: str, reader: QueryReader) -> None:
    found = reader.read(text)
    assert len(found) <= MOST_COMPARED
    most = max(map(len, SYNONYMS.values()))
    for need in found:
        assert len(need.terms) <= QUERY_LIMIT / 2 * (1 + most)
        assert len({term.word for term in need.terms}) == len(need.terms)


def test_without_tools_nothing_is_read_into_a_query() -> None:
    found = QueryReader(postings_of(), shipped_table(), None).read("create isue, then send an email")
    assert [need.terms for need in found] == [(), ()]


def test_tools_that_may_not_be_seen_leave_no_trace_in_a_reading() -> None:
    names = [*NAMES, "zorble_secret"]
    seen = np.array([True] * len(NAMES) + [False])
    among_hidden = QueryReader(postings_of(*names), shipped_table(), seen)
    alone = QueryReader(postings_of(*NAMES), shipped_table(), None)
    for text in ("zorble the repository", "zorbel repository", "secret email", "create issue"):
        one, other = among_hidden.read(text)[0], alone.read(text)[0]
        assert {term.word: round(term.share, 6) for term in one.terms} == {
            term.word: round(term.share, 6) for term in other.terms
        }
