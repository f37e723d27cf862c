"""A query that asks for several things is taken apart, and one that asks for a single thing is left whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search.query import LONG_QUERY, MOST_READ, needs
from portico.search.words_and_postings import QUERY_LIMIT, spelled_words

SEVERAL = {
    "read a csv, then post it to slack": ["read a csv", "post it to slack"],
    "read the report and send an email to Bob": ["read the report", "send an email to Bob"],
    "list the tables; run a query": ["list the tables", "run a query"],
    "merge the request. After that, close the issue": ["merge the request", "close the issue"],
    "book a flight to Rome and also search for hotels": ["book a flight to Rome", "search for hotels"],
    "make a picture of a cat as well as a sound of rain": ["make a picture of a cat", "a sound of rain"],
    "1. list the commits\n2. post a message": ["1. list the commits", "post a message"],
    "* list the commits\n* post a message": ["* list the commits", "post a message"],
    "Zip the folder.  Next, upload the archive": ["Zip the folder", "upload the archive"],
    "find the user, and finally delete the account": ["find the user", "delete the account"],
    "fill in the form and click the send button": ["fill in the form", "click the send button"],
    "read  the   file ,   then   translate its text": ["read the file ", "translate its text"],
}

SINGLE = [
    "search and replace text",
    "copy and paste",
    "black and white image",
    "terms and conditions",
    "find and replace words in a document",
    "drag and drop a file",
    "research and development budget",
    "create and delete",
    "the first and last name of a user",
    "then list the files",
    "delete it, then",
    "list the issues, please",
    "write 'wash the dishes, then clean the kitchen' to a file",
    'post "build is done; deploy the new version and tell the team" to slack',
    'save "first line of text\nsecond line of text"',
    "don't stop the server",
    "",
    "a",
]


@pytest.mark.requirement("P-SEARCH-NEEDS")
@pytest.mark.parametrize("query", SEVERAL)
def test_several_things_are_told_apart(query: str) -> None:
    assert needs(query) == SEVERAL[query]


@pytest.mark.requirement("P-SEARCH-NEEDS")
@pytest.mark.parametrize("query", SINGLE)
def test_a_single_thing_is_left_whole(query: str) -> None:
    assert len(needs(query)) == 1


def test_each_sentence_of_a_long_query_is_a_need() -> None:
    story = "My colleague wrote a report about apples. " * 2 + "Please translate the report into French. "
    assert len(needs(story)) == 1
    long = story + "You should know that " + "very " * LONG_QUERY + "much depends on it."
    assert "Please translate the report into French." in needs(long)


@pytest.mark.requirement("P-SEARCH-ANY-TEXT")
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "text",
    [
        "read file then " * 5_000,
        "get and " * 10_000,
        "get the file and " * 10_000,
        "a then b then c then " * 5_000,
        " " * 100_000,
        "\n " * 50_000,
        "and then " * 10_000,
        "as well " * 10_000,
        "after " * 20_000,
        '"' * 100_000,
        "x. " * 50_000,
    ],
)
def test_the_number_of_needs_is_bounded(text: str) -> None:
    found = needs(text)
    assert 1 <= len(found) <= MOST_READ
    assert sum(map(len, found)) <= QUERY_LIMIT + MOST_READ


WORDS = st.sampled_from("read the file and then post it to slack , ; . \n 'a' \" also list delete next".split(" "))


@given(text=st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=300))
def test_no_word_is_invented_and_none_is_moved(text: str) -> None:
    found = needs(text)
    assert 1 <= len(found) <= MOST_READ
    rest = iter(spelled_words(text))
    assert all(word in rest for need in found for word in spelled_words(need))
    assert len(found) == 1 or all(spelled_words(need) for need in found)
