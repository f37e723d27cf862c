"""A query has its time, its rows and its bytes, and its caller; nobody else is touched by what it did."""

from __future__ import annotations

import random
import resource
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from time import monotonic

import psycopg
import pytest

from portico.domain.call import Caller
from portico.errors import CallError, ConfigError, InvalidArguments, Refused, UpstreamTimeout
from portico.providers.sql import DatabaseSource
from portico.providers.sql.postgres_session import application_name

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
CARTESIAN = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10000) "
    "SELECT count(*) FROM r a, r b, r c WHERE a.n + b.n + c.n < 0"
)


def _others(url: str) -> list[str]:
    sql = b"SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(sql + b" AND state = 'active'")]


def _nobody_works(url: str) -> bool:
    """Whether the server has come to rest, within a bound."""
    pause, until = Condition(), monotonic() + 10
    while _others(url) and monotonic() < until:
        with pause:
            pause.wait(0.05)
    return not _others(url)


@pytest.mark.parametrize("sql", [ENDLESS, CARTESIAN])
@pytest.mark.requirement("P-DATABASE-LIMITS", "T72")
def test_a_query_that_never_ends_is_cut(url: str, sql: str):
    source = DatabaseSource(url, seconds=0.3)
    with pytest.raises(UpstreamTimeout, match="longer than it may"), source.reading() as conn:
        conn.rows(sql)
    with source.reading() as conn:
        assert conn.rows("SELECT 1").rows == ((1,),), "the next one has its whole time"
    source.close()


@pytest.mark.requirement("T72")
@pytest.mark.parametrize("sql", ["SELECT pg_sleep(60)", "SELECT pg_sleep(0.02) FROM generate_series(1, 900)", ENDLESS])
def test_nothing_runs_on_in_the_server_when_time_is_up(filled_url: str, sql: str):
    source = DatabaseSource(filled_url, seconds=0.5)
    with pytest.raises(UpstreamTimeout), source.reading() as conn:
        conn.rows(sql)
    assert _nobody_works(filled_url)
    for _ in range(12):  # more than the pool holds: every connection has come back
        with source.reading() as conn:
            assert conn.rows("SELECT 1").rows == ((1,),)
    source.close()


@pytest.mark.requirement("P-DATABASE-LIMITS", "T73")
def test_ten_million_rows_are_cut_at_the_limit_and_never_loaded(url: str):
    source = DatabaseSource(url, rows=500)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with source.reading() as conn:
        found = conn.rows(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10000000) SELECT n FROM r"
            if conn.dialect == "sqlite"
            else "SELECT n FROM generate_series(1, 10000000) AS n"
        )
    source.close()
    assert [row[0] for row in found.rows] == list(range(1, 501))
    assert found.truncated
    assert "LIMIT and OFFSET" in found.shown()["next"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.requirement("T73")
def test_a_huge_cell_is_not_sent(url: str):
    source = DatabaseSource(url)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with source.reading() as conn:
        if conn.dialect == "sqlite":
            with pytest.raises(InvalidArguments, match="Ask for less"):
                conn.rows("SELECT hex(zeroblob(500000000))")
        else:
            found = conn.rows("SELECT n, CASE n WHEN 2 THEN repeat('x', 100000000) END FROM generate_series(1, 3) n")
            assert found.rows == ((1, None),)
            assert found.truncated
            assert "row 2 and those after it" in found.note
    source.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.requirement("P-DATABASE-LIMITS")
def test_bytes_are_counted_while_rows_come(url: str):
    source = DatabaseSource(url, bytes=10_000)
    filler = "x" * 1_000
    with source.reading() as conn:
        found = conn.rows("SELECT a.id, :filler AS f FROM people a, people b, people c", {"filler": filler})
    source.close()
    assert found.truncated
    assert 8 <= len(found.rows) <= 9
    assert "too large" in found.note


def test_a_caller_may_ask_for_fewer_rows_and_never_for_more(url: str):
    source = DatabaseSource(url, rows=2)
    with source.reading() as conn:
        assert len(conn.rows("SELECT * FROM people", limit=1).rows) == 1
        assert len(conn.rows("SELECT * FROM people", limit=100).rows) == 2
        assert len(conn.rows("SELECT * FROM people", limit=-5).rows) == 1
    source.close()


def test_a_limit_of_nothing_is_no_limit_and_refused():
    with pytest.raises(ConfigError, match="above 0"):
        DatabaseSource("sqlite:///x.db", rows=0)


WHO = "SELECT current_setting('portico.caller'), application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"


def test_the_database_knows_the_caller_through_every_fault(filled_url: str):
    source = DatabaseSource(filled_url, seconds=5)
    chance = random.Random(3)
    jobs = [(f"user {chance.randrange(20)}", chance.random() < 0.1) for _ in range(600)]

    def ask(job: tuple[str, bool]) -> bool:
        name, fails = job
        try:
            with source.reading(Caller(name=name, surface="test")) as conn:
                told = conn.rows(WHO).rows == ((name, f"portico:test:{name}"),)
                if fails:
                    conn.rows("SELECT 1 / 0")
                return told
        except CallError:
            return told

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, jobs))
    source.close()


@pytest.mark.requirement("T75")
@pytest.mark.parametrize(
    "name", ["o'hara", "*/ DROP TABLE people; --", "line\nbreak", '"', "Zoë 🚪", "%s %(x)s :x", "x" * 500]
)
def test_a_hostile_name_of_a_caller_is_recorded_as_it_is(filled_url: str, name: str):
    source = DatabaseSource(filled_url)
    with source.reading(Caller(name=name)) as conn:
        ((told, application),) = conn.rows(WHO).rows
    source.close()
    assert told == name
    assert application == application_name(Caller(name=name))
    assert application.isascii()
    assert len(application) <= 63


def test_a_name_that_no_database_takes_is_refused(filled_url: str):
    source = DatabaseSource(filled_url)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(Refused, match="no database takes"), source.reading(Caller(name=name)):
            pass
    source.close()


def test_a_connection_forgets_its_caller(filled_url: str):
    source = DatabaseSource(filled_url)
    with source.reading(Caller(name="ana")) as conn:
        conn.rows("SELECT 1")
    with psycopg.connect(filled_url) as other:
        left = other.execute("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'portico%'")
        assert left.fetchall() == [("portico",)]
    source.close()
