"""Values behave as they would if they stood in the SQL, and odd ones come back whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from portico.errors import InvalidArguments, Sent
from portico.providers.sql import DatabaseSource, ReadConnection


def test_numbers_count_as_literals_do(conn: ReadConnection):
    assert conn.rows("SELECT :a * :b", {"a": 200, "b": 200}).rows == ((40_000,),)
    assert conn.rows("SELECT :a + 1", {"a": 2**40}).rows == ((2**40 + 1,),)
    assert conn.rows("SELECT round(:f, 1), substr('abc', :n, 1)", {"f": 1.25, "n": 2}).rows == ((1.3, "b"),)
    assert conn.rows("SELECT :f", {"f": 0.1}).rows == ((0.1,),)


@pytest.mark.parametrize("sql", ["id IN :ids", "id IN (:ids)", "id in /* all */ ( :ids )", "NOT id NOT IN :ids"])
def test_a_list_behind_in_is_taken_value_by_value(conn: ReadConnection, sql: str):
    asked = f"SELECT name FROM people WHERE {sql} AND id > :low ORDER BY id"
    assert conn.rows(asked, {"ids": [1, 2], "low": 0}).rows == (("Ada",), ("Bob",))
    assert conn.rows(asked, {"ids": [3], "low": 0}).rows == (("Eve; --",),)
    assert conn.explain(asked, {"ids": [1, 2], "low": 0}).rows


def test_injected_sql_in_a_list_stays_a_value(conn: ReadConnection):
    hostile = ["Ada') OR 1=1 --", "x'; DROP TABLE people; --", ":ids", "%s"]
    assert conn.rows("SELECT id FROM people WHERE name IN :names", {"names": hostile}).rows == ()
    assert conn.rows("SELECT id FROM people WHERE name IN :names", {"names": [*hostile, "Ada"]}).rows == ((1,),)


@pytest.mark.parametrize(
    ("sql", "values", "says"),
    [
        ("SELECT id FROM people WHERE id IN :ids", [], "1 to 1000"),
        ("SELECT id FROM people WHERE id IN :ids", list(range(1_001)), "1 to 1000"),
        ("SELECT id FROM people WHERE id = :ids", [1], "behind IN"),
        ("SELECT id FROM people WHERE id IN :ids AND id = :ids", [1], "behind IN"),
        ("SELECT id FROM people WHERE id IN :ids", [[1]], "a list"),
        ("SELECT id FROM people WHERE id IN (SELECT :ids)", [1], "behind IN"),
        ("SELECT ':ids'", [1], "no placeholder :ids"),
    ],
)
def test_a_list_that_cannot_be_taken_is_told_before_anything_is_sent(conn: ReadConnection, sql, values, says):
    with pytest.raises(InvalidArguments, match=says) as caught:
        conn.rows(sql, {"ids": values})
    assert caught.value.sent is Sent.NOTHING


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("(repeat('[', 5000) || repeat(']', 5000))::json", "[" * 5_000 + "]" * 5_000),
        ("(repeat('[', 300) || repeat(']', 300))::jsonb", "[" * 300 + "]" * 300),
        ("repeat('9', 5000)::json", "9" * 5_000),
        ('\'{"a": 0.12345678901234567890, "b": 1.5}\'::jsonb', {"a": "0.12345678901234567890", "b": 1.5}),
        ("date '0044-03-15 BC'", "0044-03-15 BC"),
        ("timestamp '0044-03-15 12:00 BC'", "0044-03-15T12:00:00 BC"),
        ("ARRAY[timestamp 'infinity']", ["infinity"]),
    ],
)
def test_odd_values_of_postgresql_come_whole(filled_url: str, sql: str, shown: object):
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        assert conn.rows(f"SELECT {sql}").rows == ((shown,),)
    source.close()


ODD = """
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN small AS integer CHECK (value < 10);
CREATE TABLE odd (p pair, d small, at point, "50 %" integer);
CREATE MATERIALIZED VIEW kept AS SELECT 1 AS a;
CREATE SCHEMA "Dot.ted";
CREATE TABLE "Dot.ted"."T.x" (a int);
"""


def test_types_that_sqlalchemy_does_not_know_have_their_names(filled_url: str):
    with psycopg.connect(filled_url) as connection:
        connection.execute(ODD.encode())
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        table = conn.find("odd")
        assert [(column.type, column.kind) for column in conn.columns(table)][:3] == [
            ("pair", "other"),
            ("small", "number"),
            ("point", "other"),
        ]
        assert "at point" in conn.ddl(table)
        assert '"50 %" INTEGER' in conn.ddl(table)
        assert conn.ddl(conn.find("kept")).startswith("CREATE MATERIALIZED VIEW")
        assert conn.find("dot.ted.t.x") == conn.find("T.x", "Dot.ted")
    source.close()


HARD = 'CREATE TABLE "a:b :c %s" (":x" INTEGER, "p%%q" INTEGER, "new\nline" INTEGER, "\\:w" INTEGER)'


def test_names_with_the_signs_of_placeholders_are_names(url: str):
    statements = (HARD, 'INSERT INTO "a:b :c %s" VALUES (1, 2, 3, 4)', 'CREATE TABLE "Dotted.Name" (a INTEGER)')
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection, connection:
            for statement in statements:
                connection.execute(statement)
    else:
        with psycopg.connect(url) as server:
            for statement in statements:
                server.execute(statement.encode())
    source = DatabaseSource(url)
    with source.reading() as conn:
        table = conn.find("a:b :c %s")
        columns = [conn.quoted(column) for column in conn.columns(table)]
        asked = f"SELECT {', '.join(columns)} FROM {conn.quoted(table)} WHERE {columns[0]} = :x"
        assert conn.rows(asked, {"x": 1}).rows == ((1, 2, 3, 4),)
        assert conn.find("dotted.name").name == "Dotted.Name"
    source.close()
