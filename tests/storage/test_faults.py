"""What goes wrong with databases: each fault is named with what to do, and the store works again when it is over."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import psycopg
import pytest

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.errors import StoreError, StoreRefused
from portico.storage.database_interface import Database, postgres_address
from portico.storage.journal_tables import Ledger
from portico.storage.postgres import PostgresDatabase
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database

TOOL = ToolId("serena", "find_symbol")
CALL = Invocation(tool=TOOL, spelled="x" * 200, caller="ana", surface="rest", outcome=Outcome.DONE, seconds=0.1, at=1.0)
BATCH = Batch(writer="w", entries=(CALL,) * 500)

FILL = """
import resource, sys
from pathlib import Path
from portico.domain.server import Offering
from portico.errors import StoreError, StoreRefused
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database
store = DatabaseDefinitions(open_database("sqlite", Path(sys.argv[1])))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
try:
    for number in range(1_000):
        store.save(Offering(server=str(number), description="x" * 10_000), "1")
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.save(Offering(server="after"), "1")
print(sorted(store.load({"after": "1", "0": "1"})))
"""


@pytest.fixture
def server(migrated_url: str, tmp_path: Path) -> Iterator[Database]:
    database = open_database(migrated_url, tmp_path)
    yield database
    database.close()


class LossyWire:
    """Stands before a PostgreSQL's socket; when told to, it passes one COMMIT on and hangs up instead of answering."""

    def __init__(self, folder: Path, target: str) -> None:
        self._target = target
        self._parts: list[socket.socket] = []
        self.loses_commit = False
        self._listener = self._kept(socket.socket(socket.AF_UNIX))
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._threads = [self._started(self._accept)]

    def close(self) -> None:
        for part in self._parts:
            with suppress(OSError):
                part.shutdown(socket.SHUT_RDWR)
            part.close()
        for thread in self._threads:
            thread.join(20)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._kept(self._listener.accept()[0])
                server = self._kept(socket.socket(socket.AF_UNIX))
                server.connect(self._target)
                self._threads.append(self._started(self._pass_on, client, server))
                self._threads.append(self._started(self._pass_on, server, client))

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.loses_commit and b"COMMIT" in data:
                    self.loses_commit = False
                    if data.startswith(b"C"):  # the server's word that it is done
                        target.shutdown(socket.SHUT_RDWR)
                        return
                    self.loses_commit = True
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _kept(self, part: socket.socket) -> socket.socket:
        self._parts.append(part)
        return part

    def _started(self, work: Callable[..., None], *given: socket.socket) -> Thread:
        thread = Thread(target=work, args=given, daemon=True)
        thread.start()
        return thread


def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds that only another process can make true."""
    pause = Event()
    for _ in range(1_000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def test_a_full_disk_is_named_and_nothing_is_half_written(tmp_path: Path) -> None:
    database = open_database("sqlite", tmp_path)
    ledger = Ledger(database)
    with database.transaction() as work:
        ((pages,),) = work.rows("PRAGMA page_count")
        work.rows(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(
        StoreError, match=r"portico.db did not answer: database or disk is full. The disk is full: make"
    ):
        ledger.append(BATCH)
    assert (ledger.stored("w"), ledger.usage(), database.rows("SELECT 1 FROM invocations")) == (0, {}, [])
    with database.transaction() as work:
        work.rows("PRAGMA max_page_count = 100000")
    ledger.append(BATCH)
    ledger.append(BATCH)
    assert ledger.usage()[TOOL].calls == 500
    database.check()
    database.close()


@pytest.mark.requirement("F31")
@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be limited there")
def test_a_disk_that_is_really_full_is_named_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said, after = done.stdout.splitlines()
    assert "did not answer: disk I/O error. The disk is full or broken: make room" in said or "disk is full" in said
    assert (after, done.stderr) == ("['0', 'after']", "")


def test_a_file_that_another_process_holds_is_named_and_can_still_be_read(tmp_path: Path) -> None:
    database = open_database("sqlite", tmp_path, busy_seconds=0.05)
    ledger, store = Ledger(database), DatabaseDefinitions(database)
    store.save(Offering(server="s"), "1")
    with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"database is locked. Another process has held the file for too long"):
            ledger.append(BATCH)
        assert store.load({"s": "1"}) == {"s": Offering(server="s")}
        other.execute("ROLLBACK")
    ledger.append(BATCH)
    assert ledger.usage()[TOOL].calls == 500
    database.close()


def test_a_new_file_that_another_process_holds_is_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            StoreError, match=r"cannot be opened: database is locked. Another process has held the file"
        ):
            open_database("sqlite", tmp_path, busy_seconds=0.05)
    open_database("sqlite", tmp_path).close()


def test_whoever_reads_does_not_wait_for_a_writer_of_the_same_process(tmp_path: Path) -> None:
    database = open_database("sqlite", tmp_path)
    store = DatabaseDefinitions(database)
    store.save(Offering(server="s"), "1")
    with database.transaction() as work, ThreadPoolExecutor(1) as pool:
        work.run("DELETE FROM offerings")
        assert pool.submit(store.load, {"s": "1"}).result(20) == {"s": Offering(server="s")}
    assert store.load({"s": "1"}) == {}
    database.close()


def test_a_transaction_that_fails_is_undone_and_the_next_one_works(database: Database) -> None:
    save = "INSERT INTO jobs (job, ran_at) VALUES (:job, 1)"
    with pytest.raises(ZeroDivisionError), database.transaction() as work:
        assert 1 // (work.run(save, {"job": "a"}) - 1)
    with pytest.raises(StoreError, match=r"(?i)unique"), database.transaction() as work:
        work.run(save, [{"job": "a"}, {"job": "a"}])
    with pytest.raises(StoreError, match="nowhere"):
        database.rows("SELECT * FROM nowhere")
    assert database.run(save, [{"job": "a"}, {"job": "b"}]) == 2
    assert database.rows("SELECT job FROM jobs ORDER BY job") == [("a",), ("b",)]


REFUSED = {
    "the same key twice": [{"job": "a", "at": 1.0}, {"job": "a", "at": 1.0}],
    "nothing where something must be": [{"job": None, "at": 1.0}],
    "half of a pair": [{"job": "\ud83d", "at": 1.0}],
    "a kind that no column has": [{"job": object(), "at": 1.0}],
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.requirement("P-STORE-REFUSES")
def test_what_a_database_does_not_take_is_told_from_one_that_is_away(database: Database, kind: str) -> None:
    with pytest.raises(StoreRefused, match="refused what it was given"):
        database.run("INSERT INTO jobs (job, ran_at) VALUES (:job, :at)", REFUSED[kind])
    assert database.rows("SELECT * FROM jobs") == []


def test_a_number_that_is_too_large_is_refused(database: Database) -> None:
    with pytest.raises(StoreRefused, match="refused what it was given"):
        database.run("INSERT INTO signals (topic, number) VALUES ('a', :number)", {"number": 2**70})


@pytest.mark.parametrize("statement", ["SELECT * FROM nowhere", "SELECT nothing FROM jobs", "no words of SQL"])
def test_a_statement_that_cannot_be_run_is_no_refusal_of_what_it_was_given(database: Database, statement: str) -> None:
    with pytest.raises(StoreError, match="did not answer") as raised:
        database.rows(statement)
    assert not isinstance(raised.value, StoreRefused)


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_a_file_damaged_while_it_is_open_is_named(tmp_path: Path) -> None:
    database = open_database("sqlite", tmp_path)
    store = DatabaseDefinitions(database)
    for number in range(100):
        store.save(Offering(server=str(number), description="x" * 2_000), "1")
    database.close()
    database = open_database("sqlite", tmp_path)
    content = bytearray((tmp_path / "portico.db").read_bytes())
    content[len(content) // 2 :] = b"\xaa" * (len(content) - len(content) // 2)
    (tmp_path / "portico.db").write_bytes(content)
    with pytest.raises(StoreError, match=r"malformed. The file is damaged: stop Portico and move it away"):
        DatabaseDefinitions(database).load({"1": "1"})
    database.close()


@pytest.mark.requirement("F35")
def test_connections_that_the_server_ended_are_replaced(server: Database, migrated_url: str) -> None:
    ledger = Ledger(server)
    ledger.append(BATCH)
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert ended is not None
    assert ended[0] > 0
    ledger.append(Batch(writer="w", first=500, entries=(CALL,)))
    assert ledger.usage()[TOOL].calls == 501


def test_an_append_whose_connection_is_ended_is_written_once_when_it_is_sent_again(
    server: Database, migrated_url: str
) -> None:
    ledger = Ledger(server)
    with psycopg.connect(migrated_url) as other, psycopg.connect(migrated_url, autocommit=True) as admin:
        other.execute("LOCK TABLE usage_latencies IN EXCLUSIVE MODE")
        blocked = "pid <> pg_backend_pid() AND datname = current_database() AND wait_event_type = 'Lock'"
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(ledger.append, BATCH)
            until(lambda: bool(admin.execute(f"SELECT 1 FROM pg_stat_activity WHERE {blocked}").fetchall()))
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {blocked}")
            with pytest.raises(StoreError, match=r"did not answer: .*terminat.*Check that the server runs"):
                sent.result(20)
        other.rollback()
    assert ledger.stored("w") == 0
    ledger.append(BATCH)
    ledger.append(BATCH)
    assert ledger.usage()[TOOL].calls == 500
    assert server.rows("SELECT COUNT(*) FROM invocations") == [(500,)]


def test_a_batch_whose_commit_was_never_answered_is_written_once(migrated_url: str) -> None:
    address = postgres_address(migrated_url)
    assert address is not None
    with TemporaryDirectory() as folder:  # a socket's path must be short
        wire = LossyWire(Path(folder), f"{address.options['host']}/.s.PGSQL.5432")
        database = PostgresDatabase(replace(address, options={"host": folder}))
        ledger = Ledger(database)
        database.check()
        wire.loses_commit = True
        with pytest.raises(StoreError, match="did not answer"):
            ledger.append(BATCH)
        assert not wire.loses_commit
        assert ledger.stored("w") == 500
        ledger.append(BATCH)
        assert database.rows("SELECT COUNT(*) FROM invocations") == [(500,)]
        assert ledger.usage()[TOOL].calls == 500
        database.close()
        wire.close()


def test_a_server_that_is_too_slow_is_not_waited_for(migrated_url: str) -> None:
    address = postgres_address(migrated_url)
    assert address is not None
    database = PostgresDatabase(address, statement_seconds=0.05)
    with pytest.raises(StoreError, match="statement timeout"):
        database.rows("SELECT pg_sleep(20)")
    database.check()
    database.close()


@pytest.mark.requirement("T44")
def test_a_statement_that_fails_does_not_tell_what_was_in_it(database: Database) -> None:
    with pytest.raises(StoreError) as raised:
        database.run("INSERT INTO nowhere VALUES (:word)", {"word": "s3cret"})
    assert "s3cret" not in str(raised.value)
