"""How processes that share a database hear of each other and take turns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from portico.errors import StoreError
from portico.storage.change_feed import ChangeFeed
from portico.storage.database_interface import Binds, Database, Row, bring_up
from portico.storage.sqlite import SqliteDatabase
from portico.storage.storage import open_change_feed, open_database

HOLD = """
import sys
from pathlib import Path
from portico.storage.storage import open_database, open_change_feed
with open_change_feed(open_database(sys.argv[1], Path(sys.argv[2]))).alone("tiers") as is_mine:
    print(is_mine, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    """A store as the config spells it, for those that open it more than once."""
    return "sqlite" if request.param == "sqlite" else request.getfixturevalue("migrated_url")


@pytest.fixture
def pair(store: str, tmp_path: Path) -> Iterator[tuple[ChangeFeed, ChangeFeed]]:
    """Two that share a database."""
    databases = [open_database(store, tmp_path) for _ in range(2)]
    one, other = map(open_change_feed, databases)
    yield one, other
    for signals, database in zip((one, other), databases, strict=True):
        signals.close()
        database.close()


def test_what_is_announced_is_counted_and_heard(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    assert here.numbers() == there.numbers() == {}
    there.announce("tiers")
    there.announce("tiers")
    there.announce("offerings")
    assert here.wait(20)
    assert here.numbers() == {"tiers": 2, "offerings": 1}


def test_a_wait_that_hears_nothing_says_so(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    assert not here.wait(0)
    there.announce("tiers")
    assert here.wait(20)
    assert not here.wait(0)
    there.announce("tiers")
    here.numbers()
    assert not here.wait(0.1)


def test_a_write_that_announces_nothing_wakes_nobody(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    here.numbers()
    there.ran("tiers")
    assert not here.wait(0.1)


def test_whoever_waits_is_woken(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    here.numbers()
    waiting = Event()

    def wait() -> bool:
        waiting.set()
        return here.wait(20)

    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(wait)
        assert waiting.wait(20)
        there.announce("categories")
        assert woken.result(20)


def test_closing_ends_a_wait(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, _ = pair
    here.numbers()
    waiting = Event()

    def wait() -> bool:
        waiting.set()
        return here.wait(100)

    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(wait)
        assert waiting.wait(20)
        here.close()
        assert not woken.result(20)


def test_one_at_a_time_is_given_a_job(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    with here.alone("tiers") as mine:
        assert mine
        with there.alone("tiers") as theirs, there.alone("prune/'; --") as other_job, here.alone("tiers") as again:
            assert (theirs, other_job, again) == (False, True, False)
        there.announce("tiers")  # whoever holds a job does not keep others from writing
    with there.alone("tiers") as theirs:
        assert theirs


def test_a_job_that_fails_is_let_go(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    with pytest.raises(RuntimeError), here.alone("tiers"):
        raise RuntimeError("no")
    with there.alone("tiers") as theirs:
        assert theirs


def test_a_killed_process_leaves_no_job_locked(store: str, tmp_path: Path, pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    command = [sys.executable, "-c", HOLD, store, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with pair[0].alone("tiers") as mine:
            assert not mine
        process.kill()
        process.wait(20)
    for _ in range(100):
        with pair[0].alone("tiers") as mine:
            if mine:
                break
            pair[0].wait(0.1)  # PostgreSQL takes a moment to notice
    assert mine


def test_the_last_run_of_a_job_is_known_to_all(pair: tuple[ChangeFeed, ChangeFeed]) -> None:
    here, there = pair
    assert here.last_run("tiers") == 0
    here.ran("tiers")
    first = there.last_run("tiers")
    assert first > 1_700_000_000
    there.ran("tiers")
    assert here.last_run("tiers") >= first
    assert here.last_run("prune") == 0


def test_signals_of_a_store_in_memory_work_within_the_process(tmp_path: Path) -> None:
    database = open_database("memory", tmp_path)
    signals = open_change_feed(database)
    assert signals.numbers() == {}
    signals.announce("tiers")
    assert signals.wait(20)
    assert not signals.wait(0)
    with signals.alone("tiers") as mine, signals.alone("tiers") as again, signals.alone("prune") as other:
        assert (mine, again, other) == (True, False, True)
    with signals.alone("tiers") as mine:
        assert mine
    signals.close()
    database.close()


class CountedDatabase(SqliteDatabase):
    """A database that counts what it is asked."""

    asked = 0

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement that reads."""
        self.asked += 1
        return super().rows(sql, binds)


@pytest.mark.parametrize("file", [None, "portico.db"])
def test_a_wait_asks_the_database_a_few_times_only(tmp_path: Path, file: str | None) -> None:
    database = CountedDatabase(tmp_path / file if file else None)
    bring_up(database)
    signals = open_change_feed(database)
    signals.numbers()
    database.asked = 0
    assert not signals.wait(0.2)
    assert database.asked <= 6
    signals.close()
    database.close()


def test_a_lost_connection_is_opened_again_and_nothing_is_missed(migrated_url: str, tmp_path: Path) -> None:
    database = open_database(migrated_url, tmp_path)
    signals = open_change_feed(database)
    signals.numbers()
    ended = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert database.rows(ended) == [(1,)]
    other = open_change_feed(database)
    other.announce("tiers")
    assert signals.wait(20)
    other.announce("tiers")
    assert signals.wait(20)
    assert not signals.wait(0)
    assert signals.numbers() == {"tiers": 2}
    other.close()
    signals.close()
    database.close()


def test_signals_of_a_closed_store_are_an_error_of_ours(database: Database) -> None:
    signals = open_change_feed(database)
    database.close()
    with pytest.raises(StoreError, match="it is closed"):
        signals.announce("tiers")
    signals.close()
