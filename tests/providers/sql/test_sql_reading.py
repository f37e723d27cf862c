"""Values go in and come out as they are, names are those that the database knows, and errors tell no secrets."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from portico.domain.call import Caller
from portico.errors import CallError, ConfigError, InvalidArguments, Sent, UpstreamGone
from portico.providers.sql import DatabaseSource, ReadConnection
from portico.providers.sql.database_session import DatabaseEngine
from portico.providers.sql.database_source import Address
from portico.providers.sql.read_connection import QueryLimits
from portico.providers.sql.sql_values import plain

QUOTES = ("'", "''", '"', "`", "\\'", "$$", "%27", "';", '";', "')", "%s", "%(x)s", "?", ":x", "::int", "{0}", "\\")
MIDDLES = (
    " OR 1=1",
    "; DROP TABLE people",
    " UNION SELECT name FROM people",
    "||pg_sleep(9)",
    ") --",
    "/*",
    " AND 1=2",
)
ENDS = (" --", "#", "/*", ";", "")
INJECTIONS = ["".join(parts) for parts in itertools.product(QUOTES, MIDDLES, ENDS)]


def test_there_are_enough_injection_strings():
    assert len(INJECTIONS) >= 500


@pytest.mark.requirement("T66")
def test_injected_sql_in_a_bound_value_stays_a_value(conn: ReadConnection):
    for text in INJECTIONS:
        assert conn.rows("SELECT :v AS v", {"v": text}).rows == ((text,),)
        assert conn.rows("SELECT id FROM people WHERE name = :v", {"v": text}).rows == ()
    assert conn.rows("SELECT count(*) FROM people").rows == ((3,),)


def test_injected_sql_in_a_name_is_a_name_that_does_not_exist(conn: ReadConnection):
    table = conn.find("people")
    for text in INJECTIONS[::7]:
        with pytest.raises(InvalidArguments, match="is called"):
            conn.find(text)
        with pytest.raises(InvalidArguments, match="is called"):
            conn.column(table, text)
    assert conn.rows("SELECT count(*) FROM people").rows == ((3,),)


@pytest.mark.requirement("T68")
@pytest.mark.parametrize(
    "text", ["", "''", "a:b :c", "100 %", "%(x)s", "?", "line\nbreak", "emoji 🚪", "\u202eright to left", "é", "\t"]
)
def test_text_makes_the_round_trip_unchanged(conn: ReadConnection, text: str):
    assert conn.rows("SELECT :v", {"v": text}).rows == ((text,),)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1], "a list"),
        ({"a": 1}, "an object"),
        (10**400, "too large"),
        (2**63, "too large"),
        ("\ud800", "surrogate"),
        (object(), "of the type"),
    ],
)
def test_a_value_that_cannot_be_bound_is_refused_before_anything_is_sent(conn: ReadConnection, value, says):
    with pytest.raises(InvalidArguments, match=says) as caught:
        conn.rows("SELECT :v", {"v": value})
    assert caught.value.sent is Sent.NOTHING


@pytest.mark.requirement("T68")
def test_numbers_that_only_one_engine_keeps_come_back_exactly_or_are_refused(conn: ReadConnection):
    lost, kept = (math.nan, "a\0b") if conn.dialect == "sqlite" else ("a\0b", math.nan)
    for value in (math.inf, -math.inf, kept):
        assert conn.rows("SELECT :v", {"v": value}).rows == ((plain(value),),)
    with pytest.raises(InvalidArguments, match="cannot keep") as caught:
        conn.rows("SELECT :v", {"v": lost})
    assert caught.value.sent is Sent.NOTHING


def test_missing_and_unknown_binds_are_named(conn: ReadConnection):
    with pytest.raises(InvalidArguments) as caught:
        conn.rows("SELECT :a", {"b": 1})
    assert "missing: a value for :a" in str(caught.value)
    assert "no placeholder :b" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal("12.50"), 12.5),
        (Decimal("3.00"), 3),
        (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
        (Decimal("NaN"), "NaN"),
        (2**53 - 1, 2**53 - 1),
        (2**53, str(2**53)),
        (math.nan, "NaN"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(days=1, seconds=90, microseconds=500_000), "P1DT90.5S"),
        (-timedelta(days=1), "-P1DT0S"),
        (b"\0\xff", {"base64": "AP8="}),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([Decimal(1), {"a": b""}], [1, {"a": {"base64": ""}}]),
    ],
)
def test_what_json_cannot_say_is_written_as_the_guide_says(value, shown):
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


def test_times_of_postgresql_come_as_iso_texts_even_where_python_knows_none(filled_url: str):
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        row = conn.rows(
            "SELECT timestamptz '2026-01-02 03:04:05+00' AT TIME ZONE 'UTC', date 'infinity', interval '1 mon 2 days', "
            "numeric '1.5', '\\x00ff'::bytea, ARRAY[1, 2], '{\"a\": [1]}'::jsonb, time '12:30', 'NaN'::float8"
        ).rows[0]
    source.close()
    expected = (
        "2026-01-02T03:04:05",
        "infinity",
        "P1M2D",
        1.5,
        {"base64": "AP8="},
        [1, 2],
        {"a": [1]},
        "12:30:00",
        "NaN",
    )
    assert row == expected


def test_text_that_is_no_text_in_sqlite_comes_as_bytes(sqlite_url: str):
    source = DatabaseSource(sqlite_url)
    with source.reading() as conn:
        assert conn.rows("SELECT CAST(x'ff41' AS TEXT)").rows == (({"base64": "/0E="},),)
    source.close()


def test_a_date_may_be_bound_as_text(conn: ReadConnection):
    assert conn.rows("SELECT name FROM people WHERE born > :day", {"day": "2000-01-01"}).rows == (("Eve; --",),)


def test_the_order_and_the_columns_of_a_query_are_kept(conn: ReadConnection):
    found = conn.rows("SELECT id, id, name AS n FROM people ORDER BY id DESC")
    assert found.columns == ("id", "id", "n")
    assert [row[0] for row in found.rows] == [3, 2, 1]
    assert conn.rows("WITH p AS (SELECT id FROM people) SELECT max(id) FROM p").rows == ((3,),)
    assert conn.rows("VALUES (1), (2)").rows == ((1,), (2,))
    assert conn.rows("SELECT 1 WHERE 1 = 0").rows == ()


def test_names_are_found_in_any_case_and_near_ones_are_told(conn: ReadConnection):
    assert conn.find("PEOPLE").name == "people"
    assert conn.column(conn.find("people"), "NAME").name == "name"
    with pytest.raises(InvalidArguments, match="did you mean: people"):
        conn.find("peple")
    with pytest.raises(InvalidArguments, match="did you mean: salary"):
        conn.column(conn.find("people"), "sallary")
    with pytest.raises(InvalidArguments, match="no schema is called 'nowhere'"):
        conn.tables("nowhere")


def test_odd_names_are_quoted(conn: ReadConnection):
    table = conn.find('odd "table')
    column = conn.column(table, "a b")
    assert conn.rows(f"SELECT {conn.quoted(column)} FROM {conn.quoted(table)}").rows == ((1,),)
    assert "a b" in conn.ddl(table)


def test_tables_of_other_schemas_are_found_by_both_parts(filled_url: str):
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        assert conn.schemas() == ("public", "other")
        assert conn.find("other.things").schema == "other"
        assert conn.rows(f"SELECT count(*) FROM {conn.quoted(conn.find('things', 'other'))}").rows == ((0,),)
    source.close()


def test_the_inspector_is_there_for_the_rest(conn: ReadConnection):
    assert "people" in conn.inspector.get_table_names()
    assert conn.inspector.get_view_names() == ["names"]


def test_a_plan_is_told_and_nothing_is_run(conn: ReadConnection):
    assert conn.explain("SELECT * FROM people WHERE id = :id", {"id": 1}).rows
    with pytest.raises(CallError):
        conn.explain("DELETE FROM people")
    with pytest.raises(CallError):
        conn.explain("ANALYZE SELECT 1")


WRONG = [
    "SELECT * FROM nowhere",
    "SELECT nothing FROM people",
    "SELECT FROM FROM",
    "SELECT 1 +",
    "SELECT name FROM people GROUP BY",
    "SELECT nofunction(1)",
    "SELECT * FROM people JOIN",
    "SELECT (SELECT id, name FROM people)",
    "SELECT CAST(name AS integer) + 'x'::integer FROM people",
    "SELECT current_user::integer",
    "SELECT 1 / 0 FROM nowhere",
    "SELECT * FROM people WHERE id = ANY('x')",
    "SELECT now() - 'nonsense'::interval + pg_read_file('/etc/passwd')",
    "SELECT :x",
    "SELECT version()::integer",
    "SELECT current_setting('data_directory')::integer",
    "SELECT abs(1, 2, 3)",
    "WITH a AS (SELECT 1) SELECT * FROM b",
    "SELECT * FROM pg_stat_file('/etc/passwd')",
    "SELECT load_extension('/secret')",
]


@pytest.mark.requirement("T76")
def test_errors_say_nothing_of_how_the_database_is_reached(source: DatabaseSource, url: str):
    secrets = [
        part for part in ("postgres", url, url.partition("host=")[2], str(url.partition("sqlite:///")[2])) if part
    ]
    for number, sql in itertools.product(range(5), WRONG):
        with pytest.raises(CallError) as caught, source.reading() as conn:
            conn.rows(f"{sql} -- {number}")
        assert not [secret for secret in secrets if secret in str(caught.value)], str(caught.value)


def test_a_server_that_is_away_is_told_without_its_address():
    source = DatabaseSource("postgresql+asyncpg://secretuser:secretword@127.0.0.1:1/secretname")
    with pytest.raises(UpstreamGone) as caught, source.reading():
        pass
    assert "cannot be reached" in str(caught.value)
    assert caught.value.sent is Sent.NOTHING
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    assert "secret" not in repr(source._address)


def test_a_file_that_is_not_there_or_no_database_is_told_without_its_path(tmp_path):
    (tmp_path / "junk.db").write_bytes(b"no database at all" * 100)
    for name in ("missing.db", "junk.db"):
        source = DatabaseSource(f"sqlite:///{tmp_path / name}")
        with pytest.raises(UpstreamGone) as caught, source.reading():
            pass
        assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"])
def test_every_spelling_of_a_postgresql_url_is_taken(filled_url: str, scheme: str):
    source = DatabaseSource(f"{scheme}://{filled_url.partition('://')[2]}")
    with source.reading() as conn:
        assert conn.dialect == "postgresql"
    source.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("teradata://user:secret@host:1025/database", "pip install teradatasqlalchemy"),
        ("teradatasql://user:secret@host", "pip install teradatasqlalchemy"),
        ("mysql://user:secret@host/db", "pip install pymysql"),
        ("snowflake://user:secret@account", "pip install snowflake-sqlalchemy"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("nonsense", "no URL"),
        ("sqlite:///a\0b.db", "no URL"),
        ("", "no URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_with_what_to_do(url: str, says: str):
    with pytest.raises(ConfigError, match=says) as caught:
        DatabaseSource(url)
    assert "secret" not in str(caught.value)


def test_an_option_that_the_driver_does_not_know_is_no_mistake_of_the_caller():
    source = DatabaseSource("postgresql://user:secret@127.0.0.1:1/db?nonsense=1")
    with pytest.raises(UpstreamGone, match="tell the operator") as caught, source.reading():
        pass
    assert caught.value.sent is Sent.NOTHING
    assert "secret" not in str(caught.value)


def test_a_kind_of_database_that_nobody_knows_is_told_when_it_is_opened():
    with (
        pytest.raises(ConfigError, match="'unheardof' is not installed") as caught,
        DatabaseSource("unheardof://user:secret@host/db").reading(),
    ):
        pass
    assert "secret" not in str(caught.value)


def test_nothing_loads_sqlalchemy_before_a_database_is_read(sqlite_url: str):
    code = (
        "import sys; from portico.providers.sql import DatabaseSource; "
        "import portico.providers.database_tools.queries_and_tables; "
        f"source = DatabaseSource({sqlite_url!r}); assert 'sqlalchemy' not in sys.modules; "
        "assert 'mcp' not in sys.modules; source.reading().__enter__(); assert 'sqlalchemy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_role_is_taken_on_for_each_reading(filled_url: str):
    with psycopg.connect(filled_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader")
        connection.execute("GRANT SELECT ON other.things TO reader; GRANT USAGE ON SCHEMA other TO reader")
        source = DatabaseSource(filled_url, role="reader")
        with source.reading() as conn:
            assert conn.rows("SELECT current_user").rows == (("reader",),)
            assert conn.rows("SELECT count(*) FROM other.things").rows == ((0,),)
            with pytest.raises(CallError, match="permission denied for table people"):
                conn.rows("SELECT * FROM people")
        source.close()
        connection.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_any_other_database_of_sqlalchemy_is_read_the_plain_way(sqlite_file: Path):
    opened = DatabaseEngine(Address(dialect="other", url=f"sqlite:///{sqlite_file}"), QueryLimits(rows=2))
    with opened.reading(Caller()) as conn:
        found = conn.rows("SELECT name FROM people WHERE id > :low ORDER BY id", {"low": 0})
        assert (found.rows, found.truncated) == ((("Ada",), ("Bob",)), True)
        assert [table.name for table in conn.tables()] == ["names", 'odd "table', "people"]
        assert conn.explain("SELECT 1").rows
        with pytest.raises(InvalidArguments, match="no such table"):
            conn.rows("SELECT * FROM nowhere")
    opened.close()


def test_percent_signs_and_colons_of_a_query_stay_what_they_are(conn: ReadConnection):
    assert conn.rows("SELECT 7 % 4, '12:30', 'a%b' LIKE 'a%', '::'").rows[0][:2] == (3, "12:30")
    assert conn.explain("SELECT 7 % 4, ':x', name FROM people WHERE name LIKE '%a%' AND id = :id", {"id": 1}).rows
