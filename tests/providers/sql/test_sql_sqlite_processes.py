"""Agents' SQL on SQLite runs in a process that can be killed, has little memory, and ends with the gateway."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from select import poll
from threading import Event, Thread
from time import process_time

import pytest

from portico.errors import CallError, InvalidArguments, UpstreamGone, UpstreamTimeout
from portico.providers.sql import DatabaseSource
from portico.providers.sql.sqlite_session import KEPT_WARM, SqliteEngine, SqliteProcess, SqliteProcesses

LONG_STEPS = [
    "SELECT length(replace(hex(zeroblob(7900000)), '0', hex(zeroblob(4000000))))",
    "SELECT instr(hex(zeroblob(7900000)), hex(zeroblob(3000000)) || 'x')",
    "SELECT sum(instr(hex(zeroblob(7900000)), hex(zeroblob(3000000)) || x)) FROM (SELECT 1 AS x UNION SELECT 2)",
    "SELECT trim(hex(zeroblob(7900000)), hex(randomblob(4000000)))",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
]
GATEWAY = """
import sys
from portico.providers.sql import DatabaseSource
source = DatabaseSource(sys.argv[1], seconds=120)
with source.reading() as conn:
    conn.rows("SELECT 1")
    print(*source._open().processes.pids(), flush=True)
    if sys.argv[2] == "busy":
        print("busy", flush=True)
        conn.rows("SELECT instr(hex(zeroblob(7900000)), hex(zeroblob(3000000)) || 'x')")
    sys.stdin.read()
"""


def _processes(source: DatabaseSource) -> SqliteProcesses:
    database = source._open()
    assert isinstance(database, SqliteEngine)
    return database.processes


@pytest.fixture
def source(sqlite_url: str) -> Iterator[DatabaseSource]:
    """A source whose calls have little time."""
    opened = DatabaseSource(sqlite_url, seconds=0.5)
    yield opened
    opened.close()


@pytest.mark.requirement("T72")
@pytest.mark.requirement("P-SQLITE-PROCESS")
@pytest.mark.parametrize("sql", LONG_STEPS)
def test_no_statement_outlives_its_time_and_the_next_one_is_answered(source: DatabaseSource, sql: str):
    with source.reading() as conn:
        conn.rows("SELECT 1")
    used = process_time()
    with pytest.raises((UpstreamTimeout, InvalidArguments)), source.reading() as conn:
        conn.rows(sql)
    assert process_time() - used < 0.3, "the gateway itself does not work meanwhile"
    with source.reading() as conn:
        assert conn.rows("SELECT 1").rows == ((1,),)


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_process_that_was_killed_is_gone_and_replaced(sqlite_url: str):
    source = DatabaseSource(sqlite_url, seconds=0.2)
    with source.reading() as conn:
        conn.rows("SELECT 1")
    (before,) = _processes(source).pids()
    with pytest.raises(UpstreamTimeout), source.reading() as conn:
        conn.rows(LONG_STEPS[1])
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    with source.reading() as conn:
        conn.rows("SELECT 1")
    assert before not in _processes(source).pids()
    source.close()
    assert _processes(source).pids() == ()


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_process_is_used_again_and_few_are_kept(source: DatabaseSource):
    for _ in range(5):
        with source.reading() as conn:
            conn.rows("SELECT 1")
    assert len(_processes(source).pids()) == 1
    together = Event()
    with ThreadPoolExecutor(4) as pool:

        def ask(_: int) -> None:
            with source.reading() as conn:
                conn.rows("SELECT 1")
                together.wait(0.1)

        list(pool.map(ask, range(4)))
    assert len(_processes(source).pids()) <= KEPT_WARM


@pytest.mark.requirement("T73")
@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_memory_is_taken_from_the_process_and_never_from_the_gateway(sqlite_url: str):
    source = DatabaseSource(sqlite_url, seconds=20)
    with source.reading() as conn:
        conn.rows("SELECT 1")
    (pid,) = _processes(source).pids()
    many = ", ".join(f"hex(zeroblob({7_000_000 + number}))" for number in range(60))
    with pytest.raises(InvalidArguments, match="larger than this database may"), source.reading() as conn:
        conn.rows(f"SELECT {many}")
    limits = Path(f"/proc/{pid}/limits").read_text()
    (space,) = (int(line.split()[3]) for line in limits.splitlines() if line.startswith("Max address space"))
    assert space < 600_000_000
    source.close()


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_process_that_dies_by_itself_is_told_and_replaced(sqlite_url: str):
    source = DatabaseSource(sqlite_url, seconds=20)
    with source.reading() as conn:
        conn.rows("SELECT 1")
        (pid,) = _processes(source).pids()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(UpstreamGone, match="has ended in the middle"):
            conn.rows("SELECT 1")
        assert conn.rows("SELECT 2").rows == ((2,),), "the same reading goes on with another"
    source.close()


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_statement_is_stopped_from_another_thread(sqlite_url: str):
    source = DatabaseSource(sqlite_url, seconds=60)
    with source.reading() as conn:
        conn.rows("SELECT 1")
        stopping = Thread(target=conn.stop)

        def ask() -> None:
            stopping.start()
            conn.rows(LONG_STEPS[1])

        with pytest.raises(CallError):
            ask()
        stopping.join()
    source.close()


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_who_finds_all_processes_busy_waits_and_is_told(sqlite_file: Path):
    processes = SqliteProcesses(sqlite_file, most=1)
    first = processes.take(1)
    with pytest.raises(UpstreamTimeout, match="in use"):
        processes.take(0.01)
    processes.give_back(first)
    assert processes.take(0.01) is first
    processes.give_back(first)
    processes.close()


@pytest.mark.requirement("P-SQLITE-PROCESS")
@pytest.mark.parametrize("how", ["idle", "busy"])
def test_processes_end_with_a_gateway_that_is_killed(sqlite_url: str, how: str):
    command = [sys.executable, "-c", GATEWAY, sqlite_url, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        pid = int(gateway.stdout.readline())
        if how == "busy":
            assert gateway.stdout.readline() == "busy\n"
        watched = os.pidfd_open(pid)
        gateway.kill()
    try:
        ended = _ends(watched)
    finally:
        os.close(watched)
    assert ended, "it has noticed that nobody will read its answer"


def _ends(watched: int) -> bool:
    waiting = poll()
    waiting.register(watched)
    return bool(waiting.poll(10_000))


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_process_knows_nothing_of_the_environment(sqlite_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_TOKEN", "a secret")
    process = SqliteProcess(sqlite_file)
    try:
        process.ask({"sql": "SELECT 1", "binds": {}, "rows": 1, "bytes": 1_000}, 5)
        assert b"a secret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    finally:
        with suppress(ProcessLookupError):
            process.close()


@pytest.mark.requirement("P-SQLITE-PROCESS")
def test_a_reading_takes_no_lock_away_from_others_in_this_process(sqlite_url: str, sqlite_file: Path):
    source = DatabaseSource(sqlite_url)
    with source.reading() as conn:
        conn.rows("SELECT 1")
    with closing(sqlite3.connect(sqlite_file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with source.reading() as conn:
            assert conn.rows("SELECT count(*) FROM people").rows == ((3,),)
        attempt = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        other = subprocess.run([sys.executable, "-c", attempt, str(sqlite_file)], capture_output=True, check=False)
        assert b"database is locked" in other.stderr
    source.close()


def test_values_of_every_kind_go_in_and_come_back(sqlite_url: str):
    source = DatabaseSource(sqlite_url)
    with source.reading() as conn:
        given = {"a": 1, "b": 1.5, "c": "x'y\0", "d": None, "e": True, "f": b"\xff\0", "g": float("inf"), "h": 2**62}
        marks = ", ".join(f":{name}" for name in given)
        ((*found,),) = conn.rows(f"SELECT {marks}", given).rows
        assert found == [1, 1.5, "x'y\0", None, 1, {"base64": "/wA="}, "Infinity", str(2**62)]
        assert conn.rows("SELECT typeof(:a), ':no' || '\\:' AS \"a:b\"", {"a": 2}).rows == (("integer", ":no\\:"),)
    source.close()
