"""What hides a call from who reads the words finds the same refusal: databases and Portico read SQL alike."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.databases import as_superuser

from portico.errors import CallError
from portico.providers.sql import DatabaseSource
from portico.providers.sql.sql_lexer import read_statement

FUNCTIONS = """
CREATE FUNCTION by_default(people, n integer DEFAULT 1) RETURNS text LANGUAGE sql AS 'SELECT pg_read_file(''{file}'')';
CREATE FUNCTION by_any(anyelement) RETURNS text LANGUAGE sql AS 'SELECT pg_read_file(''{file}'')';
CREATE FUNCTION "{long}"() RETURNS text LANGUAGE sql AS 'SELECT pg_read_file(''{file}'')';
CREATE FUNCTION \u00c9() RETURNS text LANGUAGE sql AS 'SELECT pg_read_file(''{file}'')';
"""
LONG = "l" * 63
DISGUISES = [
    "SELECT $\u20ac$ ' $\u20ac$, pg_read_file('{file}'), $\u20ac$ ' $\u20ac$",
    "SELECT E'a'\n'\\'', pg_read_file('{file}') --'",
    "SELECT E'a' -- more\n  '\\'', pg_read_file('{file}') --'",
    "SELECT 1 AS \u20ace, 1 a\u00a0e, '\\', pg_read_file('{file}') --'",
    "SELECT 1 --\r, pg_read_file('{file}')",
    "SELECT (p).by_default FROM people p",
    "SELECT p.by_any FROM people p",
    "SELECT lllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll()",
    "SELECT \u00c9()",
    "SELECT * FROM pg_hba_file_rules",
    "SELECT rolpassword FROM pg_catalog.pg_authid",
    'SELECT passwd FROM "pg_shadow"',
]


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
@pytest.mark.parametrize("sql", DISGUISES)
def test_no_disguise_lets_a_query_read_a_file_or_a_password_of_the_server(filled_url: str, tmp_path: Path, sql: str):
    secret = tmp_path / "secret"
    secret.write_text("the secret word")
    with psycopg.connect(filled_url) as connection:
        connection.execute(FUNCTIONS.replace("{file}", str(secret)).replace("{long}", LONG).encode())
    source = DatabaseSource(as_superuser(filled_url), allow_superuser=True)
    with source.reading() as conn, pytest.raises(CallError) as caught:
        conn.rows(sql.replace("{file}", str(secret)))
    source.close()
    assert "nothing was sent" in str(caught.value)


def test_letters_beyond_ascii_belong_to_names():
    found = read_statement("SELECT \u20ac(1), a\u00a0b(2) FROM t", "postgresql")
    assert {"\u20ac", "a\u00a0b"} <= found.called
    assert read_statement("SELECT a\u00a0b FROM t WHERE x = :x", "sqlite").placeholders == {"x"}
