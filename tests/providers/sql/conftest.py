"""Small databases of each engine, and sources that read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from portico.providers.sql import DatabaseSource, ReadConnection

TABLES = """
CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, salary NUMERIC(12, 2), born DATE);
INSERT INTO people VALUES (1, 'Ada', 5200.50, '1990-12-10'), (2, 'Bob', NULL, NULL), (3, 'Eve; --', -1, '2001-01-31');
CREATE TABLE "odd ""table" ("a b" INTEGER, "SELECT" TEXT);
INSERT INTO "odd ""table" VALUES (1, 'x');
CREATE VIEW names AS SELECT name FROM people;
"""
POSTGRES_ONLY = """
CREATE SEQUENCE numbers;
CREATE FUNCTION hire() RETURNS integer LANGUAGE sql AS 'INSERT INTO people(id) VALUES (99); SELECT 1';
CREATE FUNCTION hire_quietly() RETURNS integer LANGUAGE plpgsql STABLE AS
  'BEGIN INSERT INTO people(id) VALUES (98); RETURN 1; END';
CREATE FUNCTION by_row(people) RETURNS integer LANGUAGE sql AS 'INSERT INTO people(id) VALUES (97); SELECT 1';
CREATE FUNCTION twice(n integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2 * n';
CREATE SCHEMA other;
CREATE TABLE other.things (id INTEGER);
"""


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """A SQLite file with the tables."""
    file = tmp_path / "data" / "staff.db"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(TABLES)
    return file


@pytest.fixture
def sqlite_url(sqlite_file: Path) -> str:
    """The same as a URL."""
    return f"sqlite:///{sqlite_file}"


@pytest.fixture
def filled_url(postgres_url: str) -> str:
    """A PostgreSQL database with the tables."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(TABLES.encode())
        connection.execute(POSTGRES_ONLY.encode())
    return postgres_url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """A database of each engine."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "filled_url"))


@pytest.fixture
def source(url: str) -> Iterator[DatabaseSource]:
    """A source of each engine, with the limits that it has by itself."""
    opened = DatabaseSource(url)
    yield opened
    opened.close()


@pytest.fixture
def conn(source: DatabaseSource) -> Iterator[ReadConnection]:
    """An open connection."""
    with source.reading() as connection:
        yield connection
