"""A database file that is deleted, replaced or damaged while it is open: nothing is written to what nobody finds."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

import pytest

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch, JournalState
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.errors import StoreError
from portico.storage import storage as opening
from portico.storage.database_interface import Database
from portico.storage.journal import Pace, StoredJournal, WriterCounter, settle
from portico.storage.journal_tables import Ledger
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.sqlite import SqliteDatabase
from portico.storage.storage import open_change_feed, open_database

WAIT_SECONDS = 30
TOOL = ToolId("s", "t")

HOLD = """
import sys
from pathlib import Path
from portico.storage.storage import open_database
database = open_database("sqlite", Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
database.close()
"""


def invocation(number: int) -> Invocation:
    return Invocation(
        tool=TOOL, spelled=str(number), caller="c", surface="t", outcome=Outcome.DONE, seconds=0.25, at=time()
    )


def recorded(journal: StoredJournal, numbers: range) -> None:
    for number in numbers:
        journal.record(invocation(number))
    assert journal.flush(WAIT_SECONDS)


def delete(folder: Path) -> None:
    for file in folder.glob("portico.db*"):
        file.unlink()


def spelled(folder: Path) -> list[int]:
    """What a process that comes later finds."""
    database = open_database("sqlite", folder)
    try:
        return [int(number) for (number,) in database.rows("SELECT spelled FROM invocations ORDER BY id")]
    finally:
        database.close()


def lost(database: Database) -> int:
    return Ledger(database).report(days=1, limit=1).losses.lost


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the store open until the end of the block, or until its input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], text=True, **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.communicate(timeout=WAIT_SECONDS)


def damage(file: Path) -> None:
    file.write_bytes(b"this is no database at all " * 500)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database("sqlite", tmp_path, busy_seconds=0.2)
    yield opened
    opened.close()


@pytest.mark.requirement("P-JOURNAL-LOSSES", "P-JOURNAL-ONCE")
def test_entries_go_on_in_a_new_file_when_theirs_is_deleted_and_what_was_in_it_is_lost(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = StoredJournal(Ledger(database), folder=tmp_path / "writers")
    recorded(journal, range(40))
    delete(tmp_path)
    recorded(journal, range(40, 100))
    assert (tmp_path / "portico.db").exists()
    assert (lost(database), journal.state) == (40, JournalState(recorded=100, stored=100, lost=40))
    journal.close()
    assert lost(database) == 40
    database.close()
    assert spelled(tmp_path) == list(range(40, 100))
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith(f"the store {tmp_path / 'portico.db'} was moved or deleted while it was open")


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_a_file_that_is_deleted_after_the_last_entry_is_missed_at_the_end(database: Database, tmp_path: Path) -> None:
    journal = StoredJournal(Ledger(database), folder=tmp_path / "writers")
    recorded(journal, range(40))
    delete(tmp_path)
    journal.close()
    assert lost(database) == 40


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_a_writer_that_was_killed_after_its_file_was_deleted_lost_all_that_is_not_in_the_new_one(
    database: Database, tmp_path: Path
) -> None:
    ledger, tally, entries = (
        Ledger(database),
        WriterCounter(tmp_path / "writers"),
        tuple(map(invocation, range(10))),
    )
    tally.numbers[0] = 25
    assert ledger.append(Batch(writer=tally.writer, entries=entries)) == 0
    delete(tmp_path)
    assert ledger.append(Batch(writer=tally.writer, first=10, entries=entries)) == 10
    tally.close(keep=True)
    found: list[int] = []
    settle(tmp_path / "writers", ledger, found.append)
    assert (found, lost(database)) == ([5], 15)


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_a_file_that_was_replaced_by_an_older_copy_has_lost_what_came_after(database: Database, tmp_path: Path) -> None:
    journal = StoredJournal(Ledger(database), pace=Pace(write=0.005))
    recorded(journal, range(30))
    database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = (tmp_path / "portico.db").read_bytes()
    recorded(journal, range(30, 50))
    delete(tmp_path)
    (tmp_path / "portico.db").write_bytes(copy)
    recorded(journal, range(50, 60))
    journal.close()
    assert (lost(database), journal.state.lost) == (20, 20)
    database.close()
    assert spelled(tmp_path) == [*range(30), *range(50, 60)]


def test_whatever_is_asked_first_notices_that_the_file_is_gone(database: Database, tmp_path: Path) -> None:
    store, signals = DatabaseDefinitions(database), open_change_feed(database)
    store.save(Offering(server="s"), "1")
    delete(tmp_path)
    assert store.load({"s": "1"}) == {}
    signals.announce("tiers")
    delete(tmp_path)
    assert signals.numbers() == {}
    assert (tmp_path / "portico.db").exists()
    signals.close()


def test_a_folder_that_is_gone_is_made_again(database: Database, tmp_path: Path) -> None:
    deep = open_database("sqlite", tmp_path / "deep")
    delete(tmp_path / "deep")
    (tmp_path / "deep").rmdir()
    DatabaseDefinitions(deep).save(Offering(server="s"), "1")
    assert (tmp_path / "deep" / "portico.db").exists()
    deep.close()


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_a_file_that_cannot_be_used_in_the_place_of_the_old_one_is_named_until_one_can(
    database: Database, tmp_path: Path
) -> None:
    store = DatabaseDefinitions(database)
    delete(tmp_path)
    damage(tmp_path / "portico.db")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"it is not a SQLite database. It is left as it is"):
            store.load({})
        with pytest.raises(StoreError, match=r"it is not a SQLite database"):
            store.save(Offering(server="s"), "1")
    delete(tmp_path)
    (tmp_path / "portico.db").mkdir()
    with pytest.raises(StoreError, match=r"it is not a regular file"):
        store.load({})
    (tmp_path / "portico.db").rmdir()
    store.save(Offering(server="s"), "1")
    assert store.load({"s": "1"}) == {"s": Offering(server="s")}


def test_a_closed_database_is_not_opened_again_because_its_file_is_gone(database: Database, tmp_path: Path) -> None:
    database.close()
    delete(tmp_path)
    with pytest.raises(StoreError, match="it is closed"):
        database.rows("SELECT 1")
    assert not list(tmp_path.glob("portico.db*"))


def test_a_transaction_whose_file_was_deleted_meanwhile_is_not_there_and_the_next_one_is(
    database: Database, tmp_path: Path
) -> None:
    save = "INSERT INTO jobs (job, ran_at) VALUES (:job, 1)"
    with database.transaction() as work:
        work.run(save, {"job": "a"})
        delete(tmp_path)
    database.run(save, {"job": "b"})
    assert database.rows("SELECT job FROM jobs") == [("b",)]


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_a_damaged_file_that_another_process_has_open_is_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ALONE_SECONDS", 0.05)
    open_database("sqlite", tmp_path).close()  # whoever opens it now finds it without a log
    with another_process(tmp_path) as other:
        damage(tmp_path / "portico.db")
        with pytest.raises(StoreError, match=r"another process still has it open. Stop `portico serve` and whatever"):
            open_database("sqlite", tmp_path)
        assert not list(tmp_path.glob("*corrupt*"))
        other.kill()
    open_database("sqlite", tmp_path).close()
    assert len(list(tmp_path.glob("portico.db.corrupt-*[0-9]"))) == 1


@pytest.mark.requirement("P-STORE-CORRUPT", "P-STORE-SHARED")
def test_processes_that_find_a_damaged_file_at_once_move_it_aside_once(tmp_path: Path) -> None:
    damage(tmp_path / "portico.db")
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    ended = [(process.communicate(timeout=60)[0], process.returncode) for process in processes]
    assert ended == [("open\n", 0)] * 4
    assert len(list(tmp_path.glob("portico.db.corrupt-*[0-9]"))) == 1


def test_a_file_that_is_being_moved_aside_is_waited_for(tmp_path: Path) -> None:
    open_database("sqlite", tmp_path).close()
    told = r"another process is moving it aside. Try again"
    with opening._alone_with(tmp_path / "portico.db"), pytest.raises(StoreError, match=told):
        SqliteDatabase(tmp_path / "portico.db", busy_seconds=0.01)
    open_database("sqlite", tmp_path).close()
