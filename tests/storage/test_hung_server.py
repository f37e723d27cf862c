"""A PostgreSQL that hangs is not gone: it answers nobody, and neither it nor the network says so."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import psycopg
import pytest
from tests.storage.test_journal_faults import invocation, spelled

from portico.domain.tool import ToolId
from portico.errors import StoreError
from portico.storage.change_feed import ChangeFeed
from portico.storage.database_interface import PostgresAddress, Work, postgres_address
from portico.storage.journal import Pace, StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.postgres import PostgresChanges, PostgresDatabase

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped there")

Found = TypeVar("Found")
WAIT_SECONDS = 20
OWN = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'portico'"


@pytest.fixture
def hasty(migrated_url: str) -> Iterator[PostgresDatabase]:
    """A database that is given up after half a second; all its connections are those of Portico."""
    address = postgres_address(migrated_url)
    assert address is not None
    database = PostgresDatabase(address, statement_seconds=0.2, grace_seconds=0.3)
    database.check()
    yield database
    database.close()


@contextmanager
def stopped(*backends: int) -> Iterator[None]:
    """Processes of the server that do nothing until the end of the block, and are not gone."""
    for pid in backends:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)


def backends(url: str) -> list[int]:
    with psycopg.connect(url) as admin:
        return [pid for (pid,) in admin.execute(OWN)]


def own_backend(work: Work) -> int:
    return int(work.rows("SELECT pg_backend_pid()")[0][0])


def in_time(work: Callable[[], Found]) -> Found:
    """What comes of some work, in a thread, so that one that never ends is noticed."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work).result(WAIT_SECONDS)
    finally:
        pool.shutdown(wait=False)


@pytest.mark.requirement("P-STORE-HANGS")
def test_a_statement_that_is_never_answered_is_given_up(hasty: PostgresDatabase) -> None:
    def ask() -> None:
        with hasty.transaction() as work, stopped(own_backend(work)):
            work.rows("SELECT 1")

    with pytest.raises(StoreError, match=r"it is there, but has not answered for 0\.5 s\. Check that the server runs"):
        in_time(ask)
    assert hasty.rows("SELECT 1") == [(1,)]


def test_a_commit_that_is_never_answered_is_given_up(hasty: PostgresDatabase, migrated_url: str) -> None:
    def write() -> None:
        with hasty.transaction() as work:
            work.run("INSERT INTO jobs (job, ran_at) VALUES ('a', 1)")
            hanging.append(own_backend(work))
            os.kill(hanging[0], signal.SIGSTOP)

    hanging: list[int] = []
    try:
        with pytest.raises(StoreError, match="has not answered"):
            in_time(write)
    finally:
        os.kill(hanging[0], signal.SIGCONT)


def test_connections_that_hung_are_replaced_by_others(hasty: PostgresDatabase, migrated_url: str) -> None:
    ledger = Ledger(hasty)
    assert ledger.usage() == {}
    with stopped(*backends(migrated_url)):
        assert in_time(ledger.usage) == {}
        assert ledger.usage_count(ToolId("s", "a"), 1) == 0


def test_whoever_follows_others_goes_on_with_a_new_connection(hasty: PostgresDatabase, migrated_url: str) -> None:
    signals = ChangeFeed(hasty, PostgresChanges(hasty))
    signals.announce("tiers")
    assert signals.numbers() == {"tiers": 1}
    with stopped(*backends(migrated_url)):
        assert in_time(signals.numbers) == {"tiers": 1}
        assert not in_time(lambda: signals.wait(0.1))
        in_time(signals.close)


def test_a_job_whose_lock_cannot_be_given_back_ends_all_the_same(hasty: PostgresDatabase, migrated_url: str) -> None:
    signals = ChangeFeed(hasty, PostgresChanges(hasty))
    hanging: list[int] = []

    def work() -> bool:
        with signals.alone("tiers") as is_mine:
            hanging.extend(backends(migrated_url))
            for pid in hanging:
                os.kill(pid, signal.SIGSTOP)
        return is_mine

    try:
        assert in_time(work)
    finally:
        for pid in hanging:
            os.kill(pid, signal.SIGCONT)
    signals.close()


@pytest.mark.requirement("P-JOURNAL-AWAY", "P-JOURNAL-ONCE", "P-STORE-HANGS")
def test_the_journal_has_every_entry_once_when_its_server_has_hung(hasty: PostgresDatabase, migrated_url: str) -> None:
    journal = StoredJournal(Ledger(hasty), pace=Pace(write=0.001, first_pause=0.01))
    journal.record(invocation(0))
    assert journal.flush(WAIT_SECONDS)
    with stopped(*backends(migrated_url)):
        for number in range(1, 100):
            journal.record(invocation(number))
        assert journal.flush(WAIT_SECONDS)
    journal.close()
    assert spelled(hasty) == list(range(100))


def test_closing_does_not_wait_for_whoever_tries_to_listen_in_vain() -> None:
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(folder) / ".s.PGSQL.5432"))
        silent.listen()
        database = PostgresDatabase(PostgresAddress(database="db", options={"host": folder}))
        change_source = PostgresChanges(database)
        pool = ThreadPoolExecutor(1)
        begun = pool.submit(change_source.begin)
        connected, _ = silent.accept()
        change_source.close()
        assert not begun.done()
        with pytest.raises(StoreError, match="did not answer"):
            begun.result(WAIT_SECONDS)
        connected.close()
        pool.shutdown()
        database.close()
