"""The stored journal over real databases: away and back, shared by processes, and settled by whoever comes next."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from time import time

import psycopg
import pytest
from psycopg import sql

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch, JournalState
from portico.domain.tool import ToolId
from portico.errors import StoreError
from portico.storage.database_interface import Database
from portico.storage.journal import Pace, StoredJournal, WriterCounter
from portico.storage.journal_tables import Ledger
from portico.storage.storage import open_database

Faulty = tuple[Database, Callable[[], AbstractContextManager[None]]]

WAIT_SECONDS = 30
QUICK = Pace(write=0.005, first_pause=0.01, longest_pause=0.05, close=20.0)
PROCESSES = 10

WRITE = """
import sys
from pathlib import Path
from time import time
from portico.domain.call import Invocation, Outcome
from portico.domain.tool import ToolId
from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.storage import open_database

folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
database = open_database("sqlite", folder)
journal = StoredJournal(Ledger(database), folder=folder / "writers")
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + count):
    id = ToolId("s", f"t{number % 3}")
    journal.record(Invocation(
        tool=id, spelled=str(number), caller="c", surface="t", outcome=Outcome.DONE, seconds=0.25, at=time()))
journal.close()
print(journal.state.lost, flush=True)
"""


class WatchedLedger(Ledger):
    """A ledger that tells when a batch could not be written."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.failed = threading.Semaphore(0)

    def append(self, batch: Batch) -> int:
        """Write a batch."""
        try:
            return super().append(batch)
        except StoreError:
            self.failed.release()
            raise

    def await_failures(self, times: int) -> None:
        """Wait until so many batches more could not be written."""
        for _ in range(times):
            assert self.failed.acquire(timeout=WAIT_SECONDS)


def invocation(number: int) -> Invocation:
    id = ToolId("s", f"t{number % 3}")
    return Invocation(
        tool=id, spelled=str(number), caller="c", surface="t", outcome=Outcome.DONE, seconds=0.25, at=time()
    )


def spelled(database: Database) -> list[int]:
    return [int(number) for (number,) in database.rows("SELECT spelled FROM invocations ORDER BY id")]


@contextmanager
def away_sqlite(file: Path) -> Iterator[None]:
    """Another process holds the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def away_postgres(url: str, admin_url: str) -> Iterator[None]:
    """The database ends all connections and takes no new ones."""
    name = url.split("?")[0].rpartition("/")[2]
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        yield
        admin.execute(allow.format(sql.Identifier(name), sql.SQL("true")))


@pytest.fixture(params=["sqlite", "postgresql"])
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Faulty]:
    """An open database, and what takes it away until the end of a block."""
    if request.param == "sqlite":
        database = open_database("sqlite", tmp_path, busy_seconds=0.02)
        yield database, lambda: away_sqlite(tmp_path / "portico.db")
    else:
        url, other = request.getfixturevalue("migrated_url"), request.getfixturevalue("postgres_url")
        database = open_database(url, tmp_path)
        yield database, lambda: away_postgres(url, other)
    database.close()


@pytest.mark.requirement("S1-52", "P-JOURNAL-ONCE")
def test_every_call_is_in_the_database_with_its_moment_and_usage_agrees(database: Database, tmp_path: Path) -> None:
    ledger = Ledger(database)
    journal = StoredJournal(ledger, folder=tmp_path / "writers")
    begun = time()
    workers = [threading.Thread(target=lambda: [*map(journal.record, map(invocation, range(500)))]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    journal.close()
    assert Counter(spelled(database)) == Counter(dict.fromkeys(range(500), 4))
    assert all(begun <= at <= time() for (at,) in database.rows("SELECT at FROM invocations"))
    assert ledger.usage() == dict(journal.usage())
    assert sum(ledger.usage_count(tool, 2) for tool in ledger.usage()) == 2_000
    assert ledger.stored(journal.writer) == 2_000


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-STORE-OPTIONAL", "P-JOURNAL-AWAY")
def test_a_database_that_was_away_has_every_entry_once_when_it_is_back(faulty: Faulty, tmp_path: Path) -> None:
    database, away = faulty
    ledger = WatchedLedger(database)
    journal = StoredJournal(ledger, folder=tmp_path / "writers", pace=QUICK)
    for number in range(300):
        journal.record(invocation(number))
    assert journal.flush(WAIT_SECONDS)
    for turn in range(1, 4):
        with away():
            for number in range(300 * turn, 300 * turn + 300):
                journal.record(invocation(number))
            ledger.await_failures(2)
            assert journal.state.trouble
    assert journal.flush(WAIT_SECONDS)
    assert spelled(database) == list(range(1_200))
    journal.close()
    assert journal.state == JournalState(recorded=1_200, stored=1_200)
    assert ledger.usage() == dict(journal.usage())
    assert not list((tmp_path / "writers").iterdir())


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_what_found_no_room_while_the_database_was_away_is_counted_exactly(
    faulty: Faulty,
) -> None:
    database, away = faulty
    ledger = WatchedLedger(database)
    journal = StoredJournal(ledger, buffer=100, pace=QUICK)
    with away():
        for number in range(1_000):
            journal.record(invocation(number))
        ledger.await_failures(1)
    assert journal.flush(WAIT_SECONDS)
    journal.close()
    stored = spelled(database)
    losses = ledger.report(days=1, limit=1).losses
    assert (losses.dropped, losses.lost) == (1_000 - len(stored), 0)
    assert len(stored) >= 100
    assert len(set(stored)) == len(stored)
    assert ledger.stored(journal.writer) == 1_000
    assert sum(use.calls for use in ledger.usage().values()) == len(stored)


def test_connections_that_are_cut_all_the_time_make_nothing_twice(migrated_url: str, postgres_url: str) -> None:
    database = open_database(migrated_url, Path())
    journal = StoredJournal(Ledger(database), pace=QUICK)
    name = migrated_url.split("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for number in range(3_000):
            journal.record(invocation(number))
            if number % 30 == 0:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
    assert journal.flush(WAIT_SECONDS)
    journal.close()
    assert spelled(database) == list(range(3_000))
    assert sum(use.calls for use in Ledger(database).usage().values()) == 3_000
    database.close()


def test_a_table_that_is_gone_for_a_while_loses_nothing(migrated_url: str) -> None:
    database = open_database(migrated_url, Path())
    ledger = WatchedLedger(database)
    journal = StoredJournal(ledger, pace=QUICK)
    database.run("ALTER TABLE usage_days RENAME TO elsewhere")
    for number in range(200):
        journal.record(invocation(number))
    ledger.await_failures(2)
    database.run("ALTER TABLE elsewhere RENAME TO usage_days")
    assert journal.flush(WAIT_SECONDS)
    journal.close()
    assert spelled(database) == list(range(200))
    database.close()


POISON = {
    "sqlite": "CREATE TRIGGER poison BEFORE INSERT ON invocations WHEN NEW.spelled = '123' BEGIN"
    " SELECT RAISE(ABORT, 'poison'); END",
    "postgresql": "ALTER TABLE invocations ADD CHECK (spelled <> '123')",
}


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-JOURNAL-LOSSES")
@pytest.mark.parametrize("kind", POISON)
def test_an_entry_that_the_database_refuses_holds_up_no_other(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("postgres_url") if kind == "postgresql" else "sqlite"
    database = open_database(store, tmp_path)
    database.run(POISON[kind])
    journal = StoredJournal(Ledger(database), pace=QUICK)
    for number in range(300):
        journal.record(invocation(number))
    assert journal.flush(WAIT_SECONDS)
    journal.close()
    assert spelled(database) == [number for number in range(300) if number != 123]
    assert journal.state == JournalState(recorded=300, stored=299, dropped=1)
    assert Ledger(database).report(days=1, limit=1).losses.dropped == 1
    database.close()


@contextmanager
def writing(folder: Path, first: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has opened the store and waits for a word."""
    command = [sys.executable, "-c", WRITE, str(folder), str(first), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.requirement("P-STORE-SHARED", "P-JOURNAL-ONCE", "F34")
def test_processes_write_to_one_file_at_once_and_the_sums_are_right(tmp_path: Path) -> None:
    open_database("sqlite", tmp_path).close()
    with writing(tmp_path, 0, 3_000) as one, writing(tmp_path, 3_000, 3_000) as other:
        assert _told_to_go((one, other)) == [0, 0]
    database = open_database("sqlite", tmp_path)
    assert sorted(spelled(database)) == list(range(6_000))
    assert sum(use.calls for use in Ledger(database).usage().values()) == 6_000
    database.close()


@pytest.mark.requirement("P-STORE-SHARED", "P-JOURNAL-LOSSES")
def test_processes_that_start_at_once_settle_each_ended_writer_once(tmp_path: Path) -> None:
    folder = tmp_path / "writers"
    for number in range(30):
        tally = WriterCounter(folder)
        tally.numbers[0] += 10 + number
        tally.close(keep=True)
    open_database("sqlite", tmp_path).close()
    with ExitStack() as ending:
        found = _told_to_go([ending.enter_context(writing(tmp_path, number, 1)) for number in range(PROCESSES)])
    expected = sum(range(10, 40))
    assert sum(found) == expected
    database = open_database("sqlite", tmp_path)
    assert Ledger(database).report(days=1, limit=1).losses.lost == expected
    assert len(spelled(database)) == PROCESSES
    assert not list(folder.iterdir())
    database.close()


def _told_to_go(processes: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Let processes begin together once all are ready, and read what they say at the end."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ended = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=WAIT_SECONDS)
        ended.append(int(output))
    assert [process.returncode for process in processes] == [0] * len(processes)
    return ended
