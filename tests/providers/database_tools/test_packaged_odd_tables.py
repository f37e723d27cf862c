"""Packaged tools on tables that nobody would make on purpose."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from portico.errors import InvalidArguments
from portico.providers.database_tools import data_quality, text_search
from portico.providers.database_tools import queries_and_tables as tables
from portico.providers.database_tools import users_and_roles as permissions
from portico.providers.sql import DatabaseSource, ReadConnection

TABLES = """
CREATE TABLE games (score INTEGER, body TEXT);
INSERT INTO games VALUES (77, 'a good game');
CREATE TABLE extremes (v DOUBLE PRECISION);
CREATE TABLE blank (n INTEGER, t TEXT);
CREATE TABLE "a:b %s ""q'" (":x" INTEGER, "{}" TEXT, "p%%q" INTEGER);
INSERT INTO "a:b %s ""q'" VALUES (-1, 'one word', NULL);
"""
HUGE = "INSERT INTO extremes VALUES (1e308), (-1e308), (1e300)"
ENDLESS = "INSERT INTO extremes VALUES ('NaN'), ('Infinity'), (1)"


@pytest.fixture(params=["sqlite", "postgresql"])
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReadConnection]:
    """A connection to the odd tables, on each engine."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'odd.db'}"
        with closing(sqlite3.connect(tmp_path / "odd.db")) as writer:
            writer.executescript(f"{TABLES}{HUGE}")
    else:
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url) as server:
            server.execute(f"{TABLES}{ENDLESS}".encode())
    source = DatabaseSource(url)
    with source.reading() as connection:
        yield connection
    source.close()


def test_a_score_does_not_hide_a_column_of_that_name(conn: ReadConnection):
    (hit,) = text_search.handle_rag_searchText(conn, "good game", "games")["hits"]
    assert hit.pop("portico_score") > 0
    assert hit == {"score": 77, "body": "a good game"}


def test_statistics_of_numbers_without_bounds_are_still_json(conn: ReadConnection):
    found = data_quality.handle_qlty_univariateStatistics(conn, "extremes", "v")
    assert json.loads(json.dumps(found, allow_nan=False))["count"] == 3
    assert found["max"] == (1e308 if conn.dialect == "sqlite" else "NaN")


def test_an_empty_table_is_summarised_as_one(conn: ReadConnection):
    assert tables.handle_base_tablePreview(conn, "blank")["rows"] == []
    found = data_quality.handle_qlty_univariateStatistics(conn, "blank", "n")
    assert (found["count"], found["mean"], found["median"]) == (0, None, None)
    assert data_quality.handle_qlty_missingValues(conn, "blank")["columns"][0]["percent"] == 0.0


def test_signs_of_placeholders_and_templates_in_names_mean_nothing(conn: ReadConnection):
    name = "a:b %s \"q'"
    assert tables.handle_base_tablePreview(conn, name)["rows"] == [[-1, "one word", None]]
    assert '":x"' in tables.handle_base_tableDDL(conn, name)["ddl"]
    missing = data_quality.handle_qlty_missingValues(conn, name)["columns"]
    assert [column["missing"] for column in missing] == [0, 0, 1]
    assert data_quality.handle_qlty_negativeValues(conn, name)["columns"][0] == {"column": ":x", "negative": 1}
    assert data_quality.handle_qlty_distinctCategories(conn, name, "{}")["values"] == [
        {"value": "one word", "count": 1}
    ]
    assert text_search.handle_rag_searchText(conn, "word", name)["hits"][0][":x"] == -1


def test_a_role_is_known_however_many_there_are(postgres_url: str):
    many = "DO $$ BEGIN FOR i IN 1..1200 LOOP EXECUTE 'CREATE ROLE \"!crowd' || i || '\"'; END LOOP; END $$"
    with psycopg.connect(postgres_url) as server:
        server.execute(many.encode())
        server.commit()
        source = DatabaseSource(postgres_url)
        try:
            with source.reading() as conn:
                assert permissions.handle_sec_userRoles(conn, "postgres")["roles"][0]["superuser"]
                with pytest.raises(InvalidArguments, match="no user or role is called 'nobody at all'"):
                    permissions.handle_sec_userRoles(conn, "nobody at all")
        finally:
            source.close()
            server.execute(many.replace("CREATE ROLE", "DROP ROLE").encode())
