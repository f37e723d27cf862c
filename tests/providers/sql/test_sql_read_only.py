"""Nothing that an agent writes into a query changes the database or leaves a file."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from tests.databases import as_superuser

from portico.errors import CallError, Refused
from portico.providers.sql import DatabaseSource

EVERYWHERE = [
    "INSERT INTO people VALUES (9, 'x', 1, NULL)",
    "UPDATE people SET name = 'x'",
    "DELETE FROM people",
    "DROP TABLE people",
    "CREATE TABLE t (a INTEGER)",
    "CREATE TEMP TABLE t (a INTEGER)",
    "CREATE VIEW v AS SELECT 1",
    "ALTER TABLE people ADD COLUMN x TEXT",
    "WITH x AS (SELECT 1) DELETE FROM people",
    "WITH x AS (SELECT 1) INSERT INTO people(id) SELECT * FROM x",
    "WITH x AS (SELECT 9) UPDATE people SET id = 10 WHERE id = 1",
    "WITH x AS (DELETE FROM people RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO people(id) VALUES (9) RETURNING *) SELECT * FROM x",
    "SELECT 1; DELETE FROM people",
    "COMMIT; DELETE FROM people",
    "COMMIT",
    "ROLLBACK",
    "BEGIN",
    "SAVEPOINT a",
    "SELECT 1 /* */; COMMIT; DROP TABLE people; --",
    "SELECT 1) AS q; DROP TABLE people; SELECT (1",
    "EXPLAIN DELETE FROM people",
    "VACUUM",
    "REINDEX TABLE people",
    "ANALYZE",
]
SQLITE = [
    "ATTACH DATABASE '{folder}/other.db' AS other",
    "DETACH DATABASE main",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA user_version = 7",
    "SELECT * FROM pragma_user_version",
    "SELECT * FROM pragma_table_info('people')",
    "SELECT load_extension('{folder}/evil')",
    "SELECT writefile('{folder}/out', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT regexp('(a+)+$', 'aaaa')",
    "VACUUM INTO '{folder}/copy.db'",
    "REPLACE INTO people(id) VALUES (1)",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "CREATE TRIGGER t AFTER INSERT ON people BEGIN DELETE FROM people; END",
    "WITH x AS (SELECT 1) REPLACE INTO people(id) SELECT 1",
]
POSTGRES = [
    "SELECT hire()",
    "SELECT hire_quietly()",
    "SELECT (p).by_row FROM people p",
    "SELECT p.by_row FROM people p",
    "SELECT by_row(p) FROM people p",
    "SELECT nextval('numbers')",
    "SELECT setval('numbers', 99)",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT \"set_config\"('role', 'postgres', false)",
    "SELECT pg_catalog.set_config('statement_timeout', '0', true)",
    "SET ROLE postgres",
    "SET TRANSACTION READ WRITE",
    "RESET ALL",
    "COPY people TO '{folder}/out'",
    "COPY people FROM PROGRAM 'touch {folder}/out'",
    "COPY (SELECT 1) TO PROGRAM 'touch {folder}/out'",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '{folder}/out')",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_create(4711)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT dblink_exec('dbname=postgres', 'DROP TABLE people')",
    "SELECT query_to_xml('DELETE FROM people', true, true, '')",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT pg_reload_conf()",
    "SELECT pg_create_physical_replication_slot('s')",
    "SELECT * INTO t FROM people",
    "CREATE TABLE t AS SELECT * FROM people",
    "SELECT * FROM people FOR UPDATE",
    "LOCK TABLE people",
    "DO $$ BEGIN DELETE FROM people; END $$",
    "CALL hire()",
    "PREPARE a AS DELETE FROM people",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN a",
    "MERGE INTO people p USING people q ON p.id = q.id WHEN MATCHED THEN DELETE",
    "TRUNCATE people",
    "GRANT ALL ON people TO PUBLIC",
]


def _attempts(own: list[str], folder: Path) -> list[str]:
    return [sql.replace("{folder}", str(folder)) for sql in (*EVERYWHERE, *own)]


def _refused(source: DatabaseSource, sql: str) -> str:
    """Why a query did not come through; its plan may be told, as long as nothing is run."""
    with source.reading() as conn, suppress(CallError):
        conn.explain(sql)
    with source.reading() as conn, pytest.raises(CallError) as caught:
        conn.rows(sql)
    return str(caught.value)


def _files(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.requirement("P-DATABASE-READ-ONLY", "T71")
def test_writing_through_a_sqlite_query_is_impossible(sqlite_url: str, sqlite_file: Path, tmp_path: Path):
    attempts = _attempts(SQLITE, sqlite_file.parent)
    assert len(attempts) >= 40
    before = _files(tmp_path)
    source = DatabaseSource(sqlite_url)
    for sql in attempts:
        assert _refused(source, sql), sql
    with source.reading() as conn:
        assert conn.rows("SELECT count(*) FROM people").rows == ((3,),)
    source.close()
    assert _files(tmp_path) == before


def _fingerprint(url: str) -> list[tuple[object, ...]]:
    """Everything that an attempt could have changed."""
    asked = [
        "SELECT md5(string_agg(p::text, ',' ORDER BY id)) FROM people p",
        "SELECT count(*), md5(string_agg(relname || relacl::text, ',' ORDER BY oid)) FROM pg_class WHERE oid > 16383",
        "SELECT count(*) FROM pg_proc",
        "SELECT last_value, is_called FROM numbers",
        "SELECT count(*) FROM pg_largeobject_metadata",
        "SELECT count(*) FROM pg_replication_slots",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
        "SELECT count(*) FROM pg_roles",
        "SELECT count(*) FROM pg_prepared_statements",
    ]
    with psycopg.connect(url) as connection:
        return [tuple(connection.execute(sql.encode()).fetchone() or ()) for sql in asked]


@pytest.mark.requirement("P-DATABASE-READ-ONLY", "T71")
def test_writing_through_a_postgresql_query_is_impossible_even_for_a_superuser(filled_url: str, tmp_path: Path):
    attempts = _attempts(POSTGRES, tmp_path)
    assert len(attempts) >= 40
    before, files = _fingerprint(filled_url), _files(tmp_path)
    source = DatabaseSource(as_superuser(filled_url), allow_superuser=True)
    with source.reading() as conn:
        assert conn.rows("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").rows == ((True,),)
    for sql in attempts:
        assert _refused(source, sql), sql
    source.close()
    assert _fingerprint(filled_url) == before
    assert _files(tmp_path) == files


def test_functions_that_only_read_can_be_called(filled_url: str):
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        sql = "SELECT twice(2), upper('a'), count(*), random() < 2, now() IS NOT NULL FROM people"
        assert conn.rows(sql).rows == ((4, "A", 3, True, True),)
    source.close()


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
def test_the_engine_itself_refuses_when_the_words_are_not_looked_at(filled_url: str, sqlite_url: str):
    for url in (filled_url, sqlite_url):
        source = DatabaseSource(url)
        with source.reading() as conn, pytest.raises(Refused, match=r"read-only|not authorized"):
            conn.performed("DELETE FROM people", {})
        source.close()


def test_a_transaction_cannot_be_made_a_writing_one(filled_url: str):
    source = DatabaseSource(filled_url)
    with source.reading() as conn:
        driver = conn._connection.connection.driver_connection  # type: ignore[attr-defined]
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            driver.execute("SET TRANSACTION READ WRITE")
    source.close()


def test_full_text_tables_of_sqlite_are_read_also_when_they_are_new(sqlite_url: str, sqlite_file: Path):
    source = DatabaseSource(sqlite_url)
    with source.reading() as conn:
        conn.rows("SELECT 1")
    import_rows = "CREATE VIRTUAL TABLE notes USING fts5(body); INSERT INTO notes VALUES ('a door')"
    with closing(sqlite3.connect(sqlite_file)) as writer:
        writer.executescript(import_rows)
    with source.reading() as conn:
        assert conn.rows("SELECT body FROM notes WHERE notes MATCH 'door'").rows == (("a door",),)
        assert [table.name for table in conn.tables() if table.name.startswith("notes")] == ["notes"]
    source.close()
