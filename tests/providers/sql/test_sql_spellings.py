"""A function that may do more than read is refused in every spelling, for a superuser and for an ordinary login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.databases import as_superuser

from portico.errors import CallError, Refused
from portico.providers.sql import DatabaseSource

SETUP = """
CREATE TYPE place AS (path text, mode integer);
CREATE TABLE files (id integer, path text, pid integer, spot place);
INSERT INTO files VALUES (1, '{file}', 0, ('{file}', 1));
CREATE VIEW shown AS SELECT id, path FROM files;
CREATE FUNCTION by_row(files) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1.path); END';
CREATE FUNCTION by_place(place) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1.path); END';
CREATE FUNCTION by_any(anyelement) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark(''any''); END';
CREATE FUNCTION by_list(VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1[1]); END';
CREATE FUNCTION by_default(text, integer DEFAULT 1) RETURNS text LANGUAGE plpgsql
  AS 'BEGIN RETURN portico_mark($1); END';
CREATE FUNCTION portico_mark(text) RETURNS text LANGUAGE plpgsql
  AS 'BEGIN PERFORM pg_advisory_lock(4712); RETURN ''the secret word''; END';
CREATE FUNCTION "Odd Name"(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1); END';
CREATE FUNCTION signed(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1); END';
CREATE FUNCTION prefixed(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1); END';
CREATE OPERATOR <=#=> (LEFTARG = text, RIGHTARG = text, FUNCTION = signed);
CREATE OPERATOR #!! (RIGHTARG = text, FUNCTION = prefixed);
CREATE FUNCTION to_place(text) RETURNS place LANGUAGE plpgsql
  AS 'BEGIN PERFORM portico_mark($1); RETURN ROW($1, 1); END';
CREATE CAST (text AS place) WITH FUNCTION to_place(text);
CREATE FUNCTION step(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($2); END';
CREATE AGGREGATE gathered(text) (SFUNC = step, STYPE = text);
CREATE FUNCTION is_fine(text) RETURNS boolean LANGUAGE plpgsql
  AS 'BEGIN PERFORM portico_mark($1); RETURN true; END';
CREATE DOMAIN checked AS text CHECK (is_fine(VALUE));
CREATE FUNCTION total(files) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1.path); END';
CREATE FUNCTION total(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN portico_mark($1); END';
CREATE TABLE bills (id integer, total numeric);
INSERT INTO bills VALUES (1, 9.5);
CREATE FUNCTION crosstab(text) RETURNS SETOF text LANGUAGE plpgsql STABLE AS 'BEGIN RETURN QUERY EXECUTE $1; END';
CREATE SCHEMA ours;
CREATE TABLE ours.prefixed (id integer);
INSERT INTO ours.prefixed VALUES (7);
GRANT USAGE ON SCHEMA ours TO plain_login;
GRANT SELECT ON ALL TABLES IN SCHEMA public, ours TO plain_login;
"""

SPELLINGS = [
    "SELECT ('{file}'::text).pg_read_file",
    "SELECT ('{file}'::text) . pg_read_file",
    "SELECT ('{file}'::text)./* */pg_read_file",
    "SELECT ('{file}'::text).\"pg_read_file\"",
    "SELECT ('{file}'::text).PG_Read_File",
    "SELECT (CAST('{file}' AS text)).pg_read_file",
    "SELECT (text '{file}').pg_read_file",
    "SELECT ((('{file}'::text))).pg_read_file",
    "SELECT ('{file}'::text COLLATE \"C\").pg_read_file",
    "SELECT (E'{file}'::text).pg_read_file",
    "SELECT ($a${file}$a$::text).pg_read_file",
    "SELECT ('{file}'::varchar).pg_read_file",
    "SELECT x.pg_read_file FROM unnest(ARRAY['{file}']) x",
    "SELECT x.pg_read_file FROM unnest(ARRAY['{file}']) AS x",
    'SELECT "x"."pg_read_file" FROM unnest(ARRAY[\'{file}\']) "x"',
    "SELECT x.pg_read_file FROM unnest(ARRAY['{file}']) WITH ORDINALITY x(pg_read, n)",
    "SELECT (x.y).pg_read_file FROM (VALUES ('{file}'::text)) x(y)",
    "SELECT (x).y.pg_read_file FROM (VALUES ('{file}'::text)) x(y)",
    "SELECT (ARRAY['{file}'])[1].pg_read_file",
    "SELECT ((ARRAY['{file}'])[1]).pg_read_file",
    "SELECT (string_to_array('{file}', ','))[1].pg_read_file",
    "SELECT (:p).pg_read_file",
    "SELECT (:p::text).pg_read_file",
    "SELECT (SELECT '{file}'::text).pg_read_file",
    "SELECT (SELECT path FROM files).pg_read_file",
    "SELECT (CASE WHEN true THEN '{file}'::text END).pg_read_file",
    "SELECT (coalesce('{file}'::text, 'x')).pg_read_file",
    "SELECT (f.path).pg_read_file FROM files f",
    "SELECT (f).path.pg_read_file FROM files f",
    "SELECT (f.spot).path.pg_read_file FROM files f",
    "SELECT ((f.spot).path).pg_read_file FROM files f",
    "WITH c AS (SELECT '{file}'::text AS t) SELECT (t).pg_read_file FROM c",
    "WITH c AS (SELECT '{file}'::text AS t) SELECT (c.t).pg_read_file FROM c",
    "WITH c AS MATERIALIZED (SELECT path FROM files) SELECT (SELECT path FROM c).pg_read_file",
    "VALUES (('{file}'::text).pg_read_file)",
    "SELECT 1 WHERE ('{file}'::text).pg_read_file IS NOT NULL",
    "SELECT 1 ORDER BY ('{file}'::text).pg_read_file",
    "SELECT 1 GROUP BY ('{file}'::text).pg_read_file",
    "SELECT count(*) FILTER (WHERE ('{file}'::text).pg_read_file <> '')",
    "SELECT 1 LIMIT length(('{file}'::text).pg_read_file)",
    "SELECT 1 LIMIT ('4712'::bigint).pg_try_advisory_lock::integer",
    "SELECT * FROM files f, LATERAL (SELECT (f.path).pg_read_file) x",
    "SELECT * FROM pg_read_file('{file}')",
    "SELECT * FROM files f CROSS JOIN LATERAL pg_read_file(f.path)",
    "SELECT * FROM ROWS FROM (pg_ls_dir('/'), generate_series(1, 2)) AS x",
    "SELECT (p).* FROM (SELECT pg_stat_file('{file}') p) x",
    "SELECT pg_catalog.pg_read_file('{file}')",
    'SELECT "pg_catalog" . "pg_read_file" (\'{file}\')',
    "SELECT pg_read_binary_file('{file}')",
    "SELECT ('{file}'::text).pg_read_binary_file",
    "SELECT ('{folder}'::text).pg_ls_dir",
    "SELECT ('{file}'::text).lo_import",
    "SELECT (0).lo_get",
    "SELECT (0::oid).lo_create",
    "SELECT (4712::bigint).pg_advisory_lock",
    "SELECT (4712).pg_advisory_lock_shared",
    "SELECT (4712).pg_try_advisory_lock",
    "SELECT (4712).pg_advisory_xact_lock",
    "SELECT (pg_backend_pid()).pg_terminate_backend",
    "SELECT (pg_backend_pid()).pg_cancel_backend",
    "SELECT x.pg_terminate_backend FROM pg_backend_pid() x",
    "SELECT x.pid.pg_terminate_backend FROM pg_stat_activity x",
    "SELECT (x.pid).pg_terminate_backend FROM pg_stat_activity x WHERE x.pid = pg_backend_pid()",
    "SELECT ('a'::text).pg_create_restore_point",
    "SELECT (0.5::double precision).setseed",
    "SELECT ('SELECT rolpassword::tsvector FROM pg_authid'::text).ts_stat",
    "SELECT * FROM ts_stat('SELECT path::tsvector FROM files')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT t, s FROM x')",
    "SELECT query_to_xml('SELECT 1', true, true, '')",
    "SELECT table_to_xml('pg_authid', true, true, '')",
    "SELECT table_to_xml(1260, true, true, '')",
    "SELECT schema_to_xml('pg_catalog', true, true, '')",
    "SELECT database_to_xml(true, true, '')",
    "SELECT cursor_to_xml('c', 1, true, true, '')",
    "SELECT * FROM crosstab('SELECT rolname, rolname, rolpassword FROM pg_authid')",
    "SELECT ('SELECT 1'::text).crosstab",
    "SELECT (f).by_row FROM files f",
    "SELECT f.by_row FROM files f",
    "SELECT files.by_row FROM files",
    "SELECT by_row(f) FROM files f",
    "SELECT (f.spot).by_place FROM files f",
    "SELECT (ROW('{file}', 1)::place).by_place",
    "SELECT x.by_any FROM (SELECT 1) x",
    "SELECT (1).by_any",
    "SELECT ('{file}'::text).by_default",
    "SELECT (ARRAY['{file}']).by_list",
    "SELECT ('{file}'::text).\"Odd Name\"",
    "SELECT '{file}'::text <=#=> 'x'",
    "SELECT '{file}'::text OPERATOR(public.<=#=>) 'x'",
    "SELECT path <=#=>path FROM files",
    "SELECT #!! '{file}'::text",
    "SELECT 1 WHERE #!!'{file}'::text = ''",
    "SELECT '{file}'::text::place",
    "SELECT CAST('{file}'::text AS public.place)",
    "SELECT place('{file}'::text)",
    "SELECT ('{file}'::text).place",
    "SELECT gathered(path) FROM files",
    "SELECT gathered(path) OVER () FROM files",
    "SELECT '{file}'::checked",
    "SELECT CAST('{file}' AS checked)",
    "SELECT (path).total FROM files, bills",
    "SELECT ('{file}'::text).total FROM bills",
    "SELECT x.total FROM unnest(ARRAY['{file}']) x, bills",
    "SELECT x.total FROM bills x, LATERAL (SELECT x.total FROM unnest(ARRAY['{file}']) x) y",
    "WITH bills AS (SELECT '{file}'::text AS path) SELECT bills.total FROM bills",
    "SELECT f.total FROM files f, bills b",
    "SELECT * FROM pg_authid",
    "WITH a AS (TABLE pg_authid) SELECT * FROM a",
    'SELECT rolpassword FROM pg_catalog."pg_authid"',
    "SELECT U&\"pg\\005fread\\005ffile\"('{file}')",
    "EXPLAIN ANALYZE SELECT pg_read_file('{file}')",
    "PREPARE a AS SELECT pg_read_file('{file}')",
    "EXECUTE a",
    "DO $$ BEGIN PERFORM pg_advisory_lock(4712); END $$",
    "COPY (SELECT pg_read_file('{file}')) TO STDOUT",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT ('numbers'::regclass).nextval",
]
POWERFUL = [
    "SELECT * FROM pg_stats WHERE tablename = 'pg_authid'",
    "SELECT most_common_vals FROM pg_catalog.pg_stats",
    "SELECT stavalues1 FROM pg_statistic",
    "SELECT * FROM pg_stats_ext_exprs",
    "SELECT * FROM pg_toast.pg_toast_2964",
    "SELECT * FROM pg_largeobject",
]
READABLE = {
    "SELECT b.total FROM bills b": 9.5,
    "SELECT bills.total FROM bills": 9.5,
    "SELECT b.total FROM public.bills AS b WHERE b.total > 1": 9.5,
    "SELECT b.total FROM files f JOIN bills b ON b.id = f.id": 9.5,
    "SELECT p.id FROM ours.prefixed p": 7,
    "SELECT prefixed.id FROM ours.prefixed": 7,
    "SELECT upper(f.path) IS NOT NULL FROM files f": True,
    "SELECT (f.spot).mode FROM files f": 1,
    "SELECT (f).id FROM files f": 1,
    "SELECT s.id FROM shown s WHERE s.path LIKE '%' OR s.id <> 5 - -3": 1,
    "SELECT (now() AT TIME ZONE 'UTC') IS NOT NULL": True,
    "SELECT ('pg_terminate_backend'::regproc)::text": "pg_terminate_backend",
    "SELECT 'pg_read_file(''x'')'::text": "pg_read_file('x')",
    "SELECT 1 AS pg_read_file": 1,
    "SELECT sum(x) FROM generate_series(1, 3) AS x": 6,
}


@pytest.fixture(params=["superuser", "ordinary"])
def attacked(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> Iterator[DatabaseSource]:
    """A database with a secret file beside it, as each login sees it."""
    (tmp_path / "secret").write_text("the secret word")
    superuser = as_superuser(postgres_url)
    with psycopg.connect(superuser) as connection:
        connection.execute(b"DROP ROLE IF EXISTS plain_login")
        connection.execute(b"CREATE ROLE plain_login LOGIN")
        connection.execute(SETUP.replace("{file}", str(tmp_path / "secret")).encode())
        connection.execute(b"ANALYZE")
    ordinary = postgres_url.replace("//tester:", "//plain_login:")
    is_super = request.param == "superuser"
    source = DatabaseSource(superuser if is_super else ordinary, allow_superuser=is_super)
    yield source
    source.close()
    with psycopg.connect(superuser) as connection:
        connection.execute(b"DROP OWNED BY plain_login; DROP ROLE plain_login")


def _locks(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    return int(found[0]) if found else -1


@pytest.mark.requirement("T71")
@pytest.mark.requirement("P-DATABASE-READ-ONLY")
def test_no_spelling_calls_a_function_that_may_do_more_than_read(
    attacked: DatabaseSource, postgres_url: str, tmp_path: Path
):
    assert len(SPELLINGS) >= 60
    for spelling in SPELLINGS:
        sql = spelling.replace("{file}", str(tmp_path / "secret")).replace("{folder}", str(tmp_path))
        binds = {"p": str(tmp_path / "secret")} if ":p" in sql.replace("::", "") else {}
        for ask in ("rows", "explain"):
            with attacked.reading() as conn, pytest.raises(CallError) as caught:
                getattr(conn, ask)(sql, binds)
            assert "nothing was sent" in str(caught.value), (sql, str(caught.value))
            assert "the secret word" not in str(caught.value)
    assert _locks(postgres_url) == 0


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
def test_columns_and_relations_are_read_whatever_functions_are_called_like_them(attacked: DatabaseSource):
    for sql, value in READABLE.items():
        with attacked.reading() as conn:
            assert conn.rows(sql).rows == ((value,),), sql


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
@pytest.mark.parametrize("attacked", ["superuser"], indirect=True)
def test_a_superuser_is_not_shown_values_of_barred_relations_by_a_detour(attacked: DatabaseSource):
    for sql in POWERFUL:
        with attacked.reading() as conn, pytest.raises(Refused, match="shows passwords or files"):
            conn.rows(sql)


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
@pytest.mark.parametrize("attacked", ["ordinary"], indirect=True)
def test_statistics_are_read_by_an_ordinary_login(attacked: DatabaseSource):
    with attacked.reading() as conn:
        assert conn.rows("SELECT count(*) > 0 FROM pg_stats WHERE tablename = 'files'").rows == ((True,),)


@pytest.mark.requirement("P-DATABASE-READ-ONLY")
@pytest.mark.parametrize("rest", ["", " / 0"])
def test_locks_of_a_session_end_with_its_reading(postgres_url: str, rest: str):
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            b"CREATE FUNCTION held() RETURNS integer LANGUAGE plpgsql STABLE "
            b"AS 'BEGIN PERFORM pg_advisory_lock(4711); RETURN 1; END'"
        )
    source = DatabaseSource(postgres_url)
    try:
        with source.reading() as conn:
            if rest:
                with pytest.raises(CallError):
                    conn.rows(f"SELECT held(){rest}")
            else:
                conn.rows("SELECT held()")
        assert _locks(postgres_url) == 0
    finally:
        source.close()


@pytest.mark.requirement("P-DATABASE-SUPERUSER")
def test_a_superuser_is_refused_unless_the_config_allows_it(postgres_url: str):
    source = DatabaseSource(as_superuser(postgres_url))
    with pytest.raises(Refused, match=r"login 'postgres' is a superuser.*allow_superuser: true"), source.reading():
        pass
    with pytest.raises(Refused, match="superuser"), source.asking():
        pass
    allowed = DatabaseSource(as_superuser(postgres_url), allow_superuser=True)
    with allowed.reading() as conn, allowed.asking() as question:
        assert conn.rows("SELECT 1").rows == question.prepared("SELECT 1", {}).rows == ((1,),)
    allowed.close()


@pytest.mark.requirement("P-DATABASE-SUPERUSER")
@pytest.mark.parametrize(
    "power", ["pg_read_server_files", "pg_write_server_files", "pg_execute_server_program", "postgres"]
)
def test_a_login_with_the_powers_of_one_is_refused_too(postgres_url: str, power: str):
    with psycopg.connect(as_superuser(postgres_url)) as connection:
        connection.execute(f"CREATE ROLE strong LOGIN IN ROLE {power}".encode())
    role = "postgres" if power == "postgres" else ""
    source = DatabaseSource(postgres_url.replace("//tester:", "//strong:"), role=role)
    try:
        with pytest.raises(Refused, match="superuser" if role else power), source.reading():
            pass
    finally:
        source.close()
        with psycopg.connect(as_superuser(postgres_url)) as connection:
            connection.execute(b"DROP ROLE strong")
