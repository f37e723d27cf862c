"""Words are read as they are meant: whole in every alphabet, forms of one word together, literals and quotes apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search.words_and_postings import (
    QUERY_LIMIT,
    STOP_WORDS,
    SYNONYMS,
    WORD_LENGTH,
    plain,
    query_words,
    spelled_words,
    stem,
    words,
)


@pytest.mark.parametrize(
    "family",
    [
        "order orders",
        "error errors",
        "color colors",
        "layer layers",
        "address addresses addressed addressing",
        "process processes processed processing",
        "class classes",
        "access accesses accessed",
        "status statuses",
        "bonus bonuses",
        "movie movies",
        "cookie cookies",
        "filter filters filtered filtering",
        "monitor monitors monitored monitoring",
        "render renders rendered rendering",
        "diff diffs diffing",
        "embed embeds embedded embedding embeddings",
        "alias aliases",
        "menu menus",
        "file files",
        "user users",
        "box boxes",
        "query queries",
        "copy copies copied copying",
        "stop stops stopped stopping",
        "create creates created creating creation",
        "feed feeds feeding",
    ],
)
def test_the_forms_of_a_word_have_one_stem(family: str) -> None:
    assert len({stem(form) for form in family.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("restored", "rest"), ("paper", "pap"), ("string", "sting")]
)
def test_other_words_keep_another_stem(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("café", ["café"]),
        ("Größe ändern", ["größe", "ändern"]),
        ("cre\u0301er", ["cre\u0301er"]),
        ("создать задачу", ["создать", "задачу"]),
        ("创建issue", ["创建", "issue"]),
        ("issue创建", ["issue", "创建"]),
        ("HTTPServer", ["http", "server"]),
        ("createPullRequest", ["create", "pull", "request"]),
        ("snake_case-kebab.dot", ["snake", "case", "kebab", "dot"]),
        ("v2 2024", ["v"]),
    ],
)
def test_words_of_every_alphabet_are_read_whole(text: str, expected: list[str]) -> None:
    assert spelled_words(text) == expected


def test_an_accent_is_the_same_letter_however_it_is_written() -> None:
    assert words("caf\u00e9") == words("cafe\u0301")


def test_an_apostrophe_is_no_quotation_mark() -> None:
    assert query_words("what's the user's email") == {"user": 1.0, "email": 1.0}
    assert query_words("don't delete the file, it won't work") == {"delete": 1.0, "file": 1.0, "work": 1.0}


@pytest.mark.parametrize(
    "literal",
    ['"delete all"', "'delete all'", "`delete all`", "/tmp/delete/all", "https://x.org/delete", "'/tmp/delete'"],
)
def test_a_literal_says_less_than_what_is_asked(literal: str) -> None:
    weights = query_words(f"open {literal} now")
    assert weights["open"] == 1.0
    assert 0 < weights["delete"] < 0.5


def test_a_path_says_less_than_a_quotation() -> None:
    assert query_words("/tmp/apples/all")["apples"] < query_words("'apples and all'")["apples"]
    assert query_words("'apples' in /tmp/apples/all and apples")["apples"] == 1.0


@given(text=st.text(max_size=400))
def test_any_text_has_words_within_bounds(text: str) -> None:
    for word in spelled_words(text):
        assert word
        assert len(word) <= 2 * WORD_LENGTH  # some letters are two in small
        assert word not in STOP_WORDS
    assert query_words(text).keys() >= {word for word in spelled_words(text) if "'" not in text and "’" not in text}
    assert all(0 < weight <= 1 for weight in query_words(text).values())


@pytest.mark.requirement("P-SEARCH-ANY-TEXT")
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "text", ["a" * 100_000, "a-" * 50_000, "é" * 100_000, "aB" * 50_000, "/" * 100_000, "x'" * 50_000]
)
def test_only_the_beginning_of_a_long_query_is_read(text: str) -> None:
    assert query_words(text) == query_words(text[:QUERY_LIMIT])
    assert len(query_words(text)) <= QUERY_LIMIT


@given(name=st.text(max_size=40))
def test_a_plain_name_stays_what_it_is(name: str) -> None:
    assert plain(plain(name)) == plain(name)
    assert plain(f"  {name.strip()} ") == plain(name)


def test_synonyms_work_both_ways_and_never_name_the_word_itself() -> None:
    for word, others in SYNONYMS.items():
        assert word not in others
        for other, share in others.items():
            assert 0 < share < 1
            assert SYNONYMS[other][word] == share


@pytest.mark.parametrize(
    ("one", "other"), [("remove", "delete"), ("directory", "folder"), ("repo", "repository"), ("mail", "email")]
)
def test_words_that_mean_the_same_meet(one: str, other: str) -> None:
    assert stem(other) in SYNONYMS[stem(one)]


def test_words_are_split_from_identifiers_and_stemmed() -> None:
    assert words("createPullRequests") == ["creat", "pull", "request"]
    assert words("HTTPServer_v2") == ["http", "serv", "v", "2"]
    assert words("the files of a user") == words("file user")
    assert len(words("a" * 100_000)[0]) <= 60


@pytest.mark.parametrize(("one", "other"), [("queries", "query"), ("listing", "lists"), ("created", "creates")])
def test_forms_of_a_word_meet(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_literals_weigh_less_than_what_is_asked() -> None:
    weights = query_words("open the file '/tmp/create/x.txt' please")
    assert weights["open"] == 1.0
    assert weights["create"] < 1
