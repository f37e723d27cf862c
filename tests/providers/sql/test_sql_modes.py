"""What a source's transactions are for: reading, one steady look, or writing what was declared; and our own queries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import psycopg
import pytest

from portico.domain.call import Caller
from portico.errors import InvalidArguments, Refused, UpstreamError, UpstreamGone
from portico.providers.sql import DatabaseSource
from portico.providers.sql.read_connection import Mode


@pytest.fixture
def steady(url: str) -> Iterator[DatabaseSource]:
    made = DatabaseSource(url, mode=Mode.STEADY)
    yield made
    made.close()


def hire(url: str) -> None:
    """Add somebody, past Portico."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("INSERT INTO people (id, name) VALUES (50, 'New')")
        return
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO people (id, name) VALUES (50, 'New')")


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
def test_all_statements_of_a_steady_reading_see_one_moment_and_none_writes(url: str, steady: DatabaseSource) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    with steady.reading() as conn:
        before = conn.prepared("SELECT count(*) FROM people", {}).rows
        hire(url)
        assert conn.prepared("SELECT count(*) FROM people", {}).rows == before
    with steady.reading() as conn:
        assert conn.prepared("SELECT count(*) FROM people", {}).rows == ((before[0][0] + 1,),)
        with pytest.raises((Refused, InvalidArguments)):
            conn.performed("DELETE FROM people", {})


def test_a_steady_reading_of_a_file_does_not_wait_for_a_writer_that_waits_for_it(sqlite_file: Path) -> None:
    source = DatabaseSource(f"sqlite:///{sqlite_file}", mode=Mode.STEADY)
    with source.reading() as conn:
        conn.prepared("SELECT count(*) FROM people", {})
        writer = Thread(target=hire, args=(f"sqlite:///{sqlite_file}",))
        writer.start()
        sleep(0.2)  # nothing says that it has begun to wait
        begun = monotonic()
        assert "people" in [table.name for table in conn.tables()]
        assert monotonic() - begun < 2
    writer.join(10)
    assert not writer.is_alive()
    source.close()


def test_our_own_queries_answer_like_others_and_keep_the_limits(url: str) -> None:
    source = DatabaseSource(url, rows=2, bytes=2_000)
    with source.asking() as question, source.reading() as conn:
        sql = "SELECT id, name FROM people WHERE id >= :least ORDER BY id"
        mine, theirs = question.prepared(sql, {"least": 1}), conn.rows(sql, {"least": 1})
        assert (mine.columns, mine.rows, mine.truncated) == (theirs.columns, theirs.rows, True)
        assert question.prepared(sql, {"least": 1}, limit=1).rows == mine.rows[:1]
        exact = question.prepared(sql, {"least": 2})
        assert (len(exact.rows), exact.truncated) == (2, False)
        with pytest.raises(InvalidArguments, match="the database says"):
            question.prepared("SELECT nothing FROM people", {})
    with source.asking() as question:
        assert question.prepared("SELECT name FROM people WHERE name LIKE '%A%' OR id = :id", {"id": 1}).rows
    source.close()


@pytest.mark.requirement("P-DATABASE-LIMITS")
def test_rows_that_are_too_much_are_cut_by_the_server_without_their_columns(filled_url: str) -> None:
    source = DatabaseSource(filled_url, rows=1_000, bytes=10_000)
    with source.asking() as question:
        many = question.prepared("SELECT g, repeat('x', 3000) AS long FROM generate_series(1, 100000) g", {})
        assert (1 <= len(many.rows) <= 3, many.truncated) == (True, True)
        huge = question.prepared("SELECT 1 AS a, repeat('x', 30000000) AS b", {})
        assert (huge.rows, huge.columns, huge.truncated) == ((), ("a", "b"), True)
    source.close()


def test_a_writing_source_keeps_what_ended_well_and_nothing_else(filled_url: str) -> None:
    source = DatabaseSource(filled_url, mode=Mode.WRITE)
    with source.reading() as conn:
        assert conn.performed("UPDATE people SET name = :name WHERE id = 1", {"name": "Ida; --"}).rows == ()
        assert conn.performed("UPDATE people SET name = 'x' WHERE id = 99 RETURNING id", {}).columns == ("id",)
    with pytest.raises(UpstreamError), source.reading() as conn:
        conn.performed("WITH gone AS (DELETE FROM people RETURNING id) SELECT 1 / 0 FROM gone", {})
    with source.reading() as conn:
        assert conn.prepared("SELECT name FROM people ORDER BY id LIMIT 1", {}).rows == (("Ida; --",),)
    source.close()


def test_a_caller_has_its_own_role_or_that_of_everybody(filled_url: str) -> None:
    with psycopg.connect(filled_url) as connection:
        connection.execute("DROP ROLE IF EXISTS mode_role")
        connection.execute("CREATE ROLE mode_role")
    ana, ben = Caller(name="ana"), Caller(name="ben")
    source = DatabaseSource(filled_url, roles={"ana": "mode_role"})
    for way in (source.reading, source.asking):
        with way(ana) as conn:
            assert conn.prepared("SELECT current_user", {}).rows == (("mode_role",),)
        with pytest.raises(Refused, match="no role"), way(ben):
            pass
    source.close()
    wrong = DatabaseSource(filled_url, roles={"*": "no_such_role"})
    for way in (wrong.reading, wrong.asking):
        with pytest.raises((InvalidArguments, UpstreamGone)), way(ben):
            pass
    wrong.close()
    with psycopg.connect(filled_url) as connection:
        connection.execute("DROP ROLE mode_role")


def test_a_running_query_is_stopped_from_another_thread(filled_url: str, tmp_path: Path) -> None:
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        conn.stop()  # nothing runs, and nothing is hurt
        assert conn.prepared("SELECT 1", {}).rows == ((1,),)
    source.close()
