"""The demo shop on both engines, for tests of what reads it."""

from __future__ import annotations

import random

import psycopg

from portico.providers.database_tools import demo_database

_POSTGRES = (
    demo_database.SCHEMA.replace("strftime('%Y-%m', o.ordered)", "to_char(o.ordered, 'YYYY-MM')")
    .replace("CREATE VIRTUAL TABLE articles USING fts5(title, body)", "CREATE TABLE articles (title TEXT, body TEXT)")
    .encode()
)


def fill_postgres(url: str) -> None:
    """Put the demo's tables into an empty PostgreSQL database."""
    with psycopg.connect(url) as connection:
        connection.execute(_POSTGRES)
        for table, rows in demo_database._tables(random.Random(7)).items():
            marks = ", ".join("%s" for _ in rows[0])
            with connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})".encode(), rows)
