"""One store that is away is told in full once, with what to do; after that, in a few words."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import psycopg
import pytest

from portico.errors import StoreError, StoreRefused
from portico.storage.database_interface import LONGEST, brief, refusal, trouble
from portico.surfaces.cli.output_and_logs import AGAIN_SECONDS, StoreErrorFilter


class Told:
    """What a program prints, and a clock that does not move by itself."""

    def __init__(self) -> None:
        self.stream, self.clock = io.StringIO(), 1_000.0
        self.handler = logging.StreamHandler(self.stream)
        self.handler.addFilter(StoreErrorFilter(now=lambda: self.clock))

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def told() -> Iterator[Told]:
    found, root = Told(), logging.getLogger()
    root.addHandler(found.handler)
    yield found
    root.removeHandler(found.handler)


@pytest.mark.requirement("P-STORE-ADVICE")
def test_an_error_is_told_in_full_once_and_then_in_a_few_words_by_whoever_mentions_it(told: Told) -> None:
    one, other = logging.getLogger("portico.one"), logging.getLogger("portico.other")
    one.warning("%r is not remembered: %s", "a", StoreError("the store x did not answer. Start it"))
    one.warning("%r is not remembered: %s", "b", StoreError("the store x did not answer. Start it"))
    other.warning("usage cannot be read: %s", StoreError("the store x did not answer. Start it"))
    other.warning("usage cannot be read: %s", StoreError("the disk is full"))
    other.warning("nothing to do with it")
    assert told.lines() == [
        "'a' is not remembered: the store x did not answer. Start it",
        "'b' is not remembered: the store is still away",
        "usage cannot be read: the store is still away",
        "usage cannot be read: the disk is full",
        "nothing to do with it",
    ]


def test_an_error_that_comes_back_much_later_is_told_in_full_again(told: Told) -> None:
    logger = logging.getLogger("portico.one")
    for pause in (0, AGAIN_SECONDS - 1, AGAIN_SECONDS - 1, AGAIN_SECONDS):
        told.clock += pause
        logger.warning("%s", StoreError("gone"))
    assert told.lines() == ["gone", "the store is still away", "the store is still away", "gone"]


def test_a_refusal_is_no_store_that_is_away(told: Told) -> None:
    for _ in range(2):
        logging.getLogger("portico.one").warning("%s", StoreRefused("refused"))
    logging.getLogger("portico.one").warning("%(a)s", {"a": StoreError("named")})
    assert told.lines() == ["refused", "refused", "named"]


SAID = {
    'connection failed: connection to server at "127.0.0.1", port 5 failed: Connection refused\n'
    "\tIs the server running on that host and accepting TCP/IP connections?": "connection failed: connection to server "
    'at "127.0.0.1", port 5 failed: Connection refused',
    "Multiple connection attempts failed. All failures were:\n- host: 'localhost', port: 5: connection failed\n"
    "- host: 'localhost', port: 5: again": "- host: 'localhost', port: 5: connection failed",
    'relation "nowhere" does not exist\nLINE 1: SELECT * FROM nowhere\n ^': 'relation "nowhere" does not exist',
    "one sentence. Another sentence.": "one sentence",
    "version 3.40.1 of a.b.c says no.": "version 3.40.1 of a.b.c says no",
    "": "str",
}


@pytest.mark.parametrize("said", SAID)
def test_of_what_a_driver_says_its_first_sentence_is_repeated(said: str) -> None:
    assert brief(said) == SAID[said]


@pytest.mark.requirement("P-STORE-ADVICE")
def test_the_advice_is_there_whatever_a_driver_says() -> None:
    found = str(trouble("x", "word " * 1_000, "Do this"))
    assert found.endswith("…. Do this")
    assert len(found) < LONGEST + 50
    assert len(str(refusal("x", "word\n" * 1_000))) < LONGEST + 50
    assert brief(psycopg.OperationalError()) == "OperationalError"
