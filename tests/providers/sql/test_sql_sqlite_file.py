"""A SQLite file under pressure: it is replaced, locked, or asked for more than this process can hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from portico.errors import InvalidArguments, UpstreamGone, UpstreamTimeout
from portico.providers.sql import DatabaseSource
from portico.providers.sql.database_session import stop_after


@pytest.fixture
def source(sqlite_url: str):
    opened = DatabaseSource(sqlite_url, seconds=20)
    yield opened
    opened.close()


def test_a_file_that_takes_the_place_of_another_is_read(source: DatabaseSource, sqlite_file: Path, tmp_path: Path):
    with source.reading() as conn:
        assert conn.rows("SELECT count(*) FROM people").rows == ((3,),)
        assert conn.tables()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as writer:
        writer.executescript("CREATE TABLE people (id INTEGER); CREATE TABLE fresh (id INTEGER)")
    other.replace(sqlite_file)
    with source.reading() as conn:
        assert conn.rows("SELECT count(*) FROM people").rows == ((0,),)
        assert [table.name for table in conn.tables()] == ["fresh", "people"]


def test_a_file_that_is_gone_is_not_read_on(source: DatabaseSource, sqlite_file: Path):
    with source.reading() as conn:
        conn.rows("SELECT 1")
    sqlite_file.unlink()
    with pytest.raises(UpstreamGone), source.reading() as conn:
        conn.rows("SELECT 1")
    assert not sqlite_file.exists()


def test_a_file_that_another_program_holds_is_told_as_that(source: DatabaseSource, sqlite_file: Path, monkeypatch):
    monkeypatch.setattr("portico.providers.sql.sqlite_session.CONNECT_SECONDS", 0.01)
    with closing(sqlite3.connect(sqlite_file, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UpstreamGone, match="holds the database locked"), source.reading() as conn:
            conn.rows("SELECT * FROM people")


MANY = [f"hex(zeroblob({7_000_000 + number}))" for number in range(60)]


@pytest.mark.parametrize(
    "sql", [f"SELECT {', '.join(MANY)}", f"SELECT 1 WHERE {' OR '.join(f'{one} = 1' for one in MANY)}"]
)
@pytest.mark.requirement("P-DATABASE-LIMITS")
def test_a_statement_that_holds_too_much_at_once_is_refused(source: DatabaseSource, sql: str):
    with pytest.raises(InvalidArguments, match="larger than this database may"), source.reading() as conn:
        conn.rows(sql)
    with source.reading() as conn:
        assert conn.rows("SELECT 1").rows == ((1,),)


def test_a_row_that_is_too_large_is_left_out_unseen(source: DatabaseSource):
    with source.reading() as conn:
        found = conn.rows("SELECT 1, zeroblob(2000000)")
    assert (found.rows, found.truncated) == ((), True)


@pytest.mark.requirement("P-DATABASE-LIMITS")
def test_slow_steps_are_interrupted_between_two_looks_at_the_clock(sqlite_url: str, monkeypatch):
    monkeypatch.setattr("portico.providers.sql.sqlite_session.STEPS", 1_000_000_000)
    source = DatabaseSource(sqlite_url, seconds=0.3)
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT sum(length(randomblob(100000))) FROM r"
    )
    with pytest.raises(UpstreamTimeout), source.reading() as conn:
        conn.rows(endless)
    source.close()


def test_json_is_taken_apart_by_the_functions_of_sqlite(source: DatabaseSource):
    with source.reading() as conn:
        assert conn.rows("SELECT value FROM json_each(:json)", {"json": "[1, 2]"}).rows == ((1,), (2,))
        assert conn.rows("SELECT count(*) FROM json_tree(:json)", {"json": "[1, 2]"}).rows == ((3,),)


def test_nothing_is_stopped_after_its_end():
    rung = Event()
    with stop_after(3_600, rung.set):
        pass
    with stop_after(0, rung.set):
        assert rung.wait(5)


def test_a_mistake_of_a_tool_is_not_taken_for_one_of_the_database(source: DatabaseSource):
    with pytest.raises(OverflowError), source.reading():
        int(float("inf"))
