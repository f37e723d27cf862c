"""A store is opened by its name or URL, brought up to date, and shared by processes from the start."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import sql
from tests.databases import OWNER

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch
from portico.domain.server import Offering
from portico.errors import StoreError, StoreRefused
from portico.storage.database_interface import HEAD, REVISIONS, SCRIPT, Database, postgres_address
from portico.storage.journal import Pace, StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.migrations import configured, script, upgrade_file
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database

OLD_LAYOUT = """
CREATE TABLE offerings (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, saved_at REAL NOT NULL,
 offering BLOB NOT NULL);
CREATE TABLE failures (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, failed_at REAL NOT NULL,
 reason TEXT NOT NULL);
CREATE TABLE vectors (model TEXT NOT NULL, hash TEXT NOT NULL, used_at REAL NOT NULL, vector BLOB NOT NULL,
 PRIMARY KEY (model, hash));
CREATE INDEX vectors_by_use ON vectors (used_at);
""".strip().split(";\n")
"""How a file looked before migrations were Alembic's: `user_version` counted the first three statements."""

OPEN_AND_WRITE = """
import sys
from pathlib import Path
from portico.domain.server import Offering
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage import migrations, postgres  # loading them takes longer than what is raced for
from portico.storage.storage import open_database
print("ready", flush=True)
sys.stdin.read()
store = DatabaseDefinitions(open_database(sys.argv[1], Path(sys.argv[2])))
for number in range(20):
    store.save(Offering(server=f"{sys.argv[3]}-{number}"), "1")
store.close()
"""

TABLES = {
    "alembic_version",
    "cache_counts",
    "failures",
    "invocations",
    "jobs",
    "result_pieces",
    "results",
    "shapes",
    "learned_words",
    "events",
    "lookups",
    "mcp_categories",
    "mcp_servers",
    "mcp_tools",
    "offerings",
    "signals",
    "usage_days",
    "usage_latencies",
    "vectors",
    "writers",
}


def old_file(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    for statement in OLD_LAYOUT[: 4 if version == 3 else version]:
        connection.execute(statement)
    connection.execute('INSERT INTO offerings VALUES (\'s\', \'1\', 5.0, \'{"server": "s", "title": "kept"}\')')
    if version == 3:
        connection.execute("INSERT INTO vectors VALUES ('m', 'a', 5.0, x'31')")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


def schema_of(path: Path) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    stamp = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    connection.close()
    assert stamp == [(HEAD,)]
    return [(kind, name, re.sub(r"\s+", " ", sql or "").replace(" ,", ",")) for kind, name, sql in rows]


@pytest.mark.requirement("S1-49", "S1-50", "S1-51", "S1-52")
def test_a_fresh_database_has_all_tables(database: Database) -> None:
    where = (
        "sqlite_master WHERE type = 'table'"
        if database.dialect == "sqlite"
        else "pg_tables WHERE tableowner = current_user AND schemaname = 'public'"
    )
    name = "name" if database.dialect == "sqlite" else "tablename"
    assert {table for (table,) in database.rows(f"SELECT {name} FROM {where}")} == TABLES
    named = {
        "mcp_tools": "id, server_id, tool_name, display_name, description, parameters_schema, primary_category, tier, "
        "tier_score, avg_latency_ms, success_count, total_invocations",
        "mcp_categories": "category_name, display_name, description, sort_order",
        "mcp_servers": "id, server_name, display_name, docker_image, network_mode, is_active",
        "invocations": "at, server, tool, outcome, seconds",
    }
    assert [database.rows(f"SELECT {columns} FROM {table}") for table, columns in named.items()] == [[]] * 4
    assert database.version() == HEAD


def test_the_script_for_a_fresh_file_is_what_the_migrations_make(tmp_path: Path) -> None:
    assert SCRIPT.read_text(encoding="utf-8") == script()
    open_database("sqlite", tmp_path / "script").close()
    upgrade_file(tmp_path / "migrated.db", 1.0)
    assert schema_of(tmp_path / "script" / "portico.db") == schema_of(tmp_path / "migrated.db")


def test_the_known_revisions_are_those_of_the_migrations() -> None:
    found = ScriptDirectory.from_config(configured()).walk_revisions()
    assert tuple(reversed([step.revision for step in found])) == REVISIONS


@pytest.mark.requirement("P-STORE-SHARED", "P-STORE-MIGRATES")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_the_previous_layout_is_adopted_with_what_is_in_it(tmp_path: Path, version: int) -> None:
    old_file(tmp_path / "portico.db", version)
    store = DatabaseDefinitions(open_database("sqlite", tmp_path))
    assert store.load({"s": "1"}) == {"s": Offering(server="s", title="kept")}
    assert store.load_vectors("m", ["a"]) == ({"a": b"1"} if version == 3 else {})
    store.save_vectors("m", {"b": b"2"})
    store.save_failure("t", "1", "away")
    assert store.database.version() == HEAD
    store.close()
    again = open_database("sqlite", tmp_path)
    assert {name for (name,) in again.rows("SELECT name FROM sqlite_master WHERE type = 'table'")} == TABLES
    again.close()


@pytest.mark.requirement("P-STORE-MIGRATES")
def test_a_postgresql_database_of_the_first_revision_is_brought_up_to_date(postgres_url: str, tmp_path: Path) -> None:
    database = open_database(postgres_url, tmp_path)
    gone = TABLES - {"offerings", "failures", "vectors", "alembic_version"}
    database.run(f"DROP TABLE {', '.join(sorted(gone))}")
    database.run("UPDATE alembic_version SET version_num = '0001'")
    database.close()
    again = open_database(postgres_url, tmp_path)
    assert again.version() == HEAD
    assert again.rows("SELECT * FROM usage_days") == []
    again.close()


@pytest.mark.requirement("P-STORE-MIGRATES", "F36")
def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    old_file(tmp_path / "portico.db", 3)
    connection = sqlite3.connect(tmp_path / "portico.db")
    connection.execute("CREATE TABLE usage_days (somebody TEXT)")
    before = connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    with pytest.raises(StoreError, match="cannot be brought up to date: table usage_days already exists"):
        open_database("sqlite", tmp_path)
    assert connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == before
    connection.close()


@pytest.mark.parametrize("patient", [False, True])
def test_a_store_of_a_newer_program_is_left_alone(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest, patient: bool
) -> None:
    database.run("UPDATE alembic_version SET version_num = '9999'")
    store = "sqlite" if database.dialect == "sqlite" else request.getfixturevalue("migrated_url")
    with pytest.raises(StoreRefused, match=r"written by a newer Portico .*'9999'.*Update Portico"):
        open_database(store, tmp_path, patient=patient)
    assert database.version() == "9999"


@pytest.mark.requirement("P-STORE-SHARED", "P-STORE-MIGRATES")
@pytest.mark.parametrize("kind", ["sqlite", "old sqlite", "postgresql"])
def test_processes_that_open_a_new_store_at_once_all_succeed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("postgres_url") if kind == "postgresql" else "sqlite"
    if kind == "old sqlite":
        old_file(tmp_path / "portico.db", 3)
    command = [sys.executable, "-c", OPEN_AND_WRITE, store, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([*command, str(n)], text=True, **pipes) for n in range(4)]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.close()
        process.stdin = None
    ended = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
    assert ended == [("", 0)] * 4
    opened = DatabaseDefinitions(open_database(store, tmp_path))
    names = [f"{process}-{n}" for process in range(4) for n in range(20)]
    assert len(opened.load(dict.fromkeys(names, "1"))) == 80
    opened.close()


@pytest.mark.requirement("P-STORE-LIGHT")
def test_a_sqlite_store_that_is_up_to_date_loads_no_library_for_databases(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from portico.storage.journal_tables import Ledger
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database, open_change_feed
from portico.storage.catalog_tables import TierRecords
for _ in range(2):
    database = open_database("sqlite", Path(sys.argv[1]))
    DatabaseDefinitions(database).load({}), Ledger(database).usage(), TierRecords(database).standings()
    open_change_feed(database).close()
    database.close()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"sqlalchemy", "alembic", "psycopg", "mako"}))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("store", ["memory", "sqlite://", "sqlite:///:memory:"])
def test_a_store_in_memory_ends_with_its_process(tmp_path: Path, store: str) -> None:
    opened = DatabaseDefinitions(open_database(store, tmp_path))
    opened.save(Offering(server="s"), "1")
    assert opened.load({"s": "1"}) == {"s": Offering(server="s")}
    opened.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["my store.db", "100%41?.db", "a#b.db", "%2e%2e.db"])
def test_a_sqlite_file_may_be_named_and_its_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    open_database(f"sqlite:///{tmp_path}/{name}", tmp_path / "elsewhere").close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [name, f"{name}-open.lock"]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_understood(postgres_url: str, tmp_path: Path, scheme: str) -> None:
    database = open_database(postgres_url.replace("postgresql", scheme, 1), tmp_path)
    database.check()
    assert database.where.startswith("postgresql:///")
    database.close()


@pytest.mark.parametrize("store", ["mysql://root:secret@host/db", "postgre", "sqlite:///", "sqlite3", "", "oracle://x"])
def test_another_store_is_refused_with_those_that_there_are(tmp_path: Path, store: str) -> None:
    with pytest.raises(StoreError, match=r"none that Portico knows. Write `sqlite`, `memory`") as raised:
        open_database(store, tmp_path)
    assert "secret" not in str(raised.value)


@pytest.mark.requirement("P-STORE-SECRET")
def test_a_postgresql_that_is_away_is_named_without_its_user_and_password(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match=f"postgresql://127.0.0.1:{port}/db did not answer") as raised:
            open_database(f"postgresql://ana:s3cret@127.0.0.1:{port}/db", tmp_path)
    assert "s3cret" not in str(raised.value)
    assert "ana" not in str(raised.value)
    assert "Check that the server runs" in str(raised.value)


@pytest.mark.requirement("P-STORE-SECRET")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:s3/cret@host/db",
        "postgresql://ana:s3#cret@host/db",
        "postgresql://ana:s3cret@host:many/db",
        "postgresql://ana:s3cret@[host/db",
    ],
)
def test_a_url_that_cannot_be_read_is_explained_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        StoreError, match=r"URL of the store cannot be read. Write postgresql://user:password"
    ) as raised:
        open_database(url, tmp_path)
    assert "cret" not in str(raised.value)


def test_a_url_is_taken_apart_as_it_is_meant() -> None:
    address = postgres_address("postgres://ana:p%40ss@w@db.example:6543/my%20db?ssl=require&host=/run/pg")
    assert address is not None
    assert (address.user, address.password, address.host, address.port) == ("ana", "p@ss@w", "db.example", 6543)
    assert (address.database, address.options) == ("my db", {"sslmode": "require", "host": "/run/pg"})
    assert "p@ss" not in repr(address) + address.shown
    assert address.shown == "postgresql://db.example:6543/my db"


@pytest.mark.requirement("P-STORE-SECRET")
def test_a_login_that_is_refused_is_told_without_the_user(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r'role "\.\.\." does not exist') as raised:
        open_database(postgres_url.replace(f"{OWNER}:", "mallory:", 1), tmp_path)
    assert "mallory" not in str(raised.value)


@pytest.mark.requirement("P-STORE-ADVICE", "P-STORE-REFUSES")
def test_a_database_that_cannot_hold_every_text_is_refused_with_what_to_do(postgres_url: str, tmp_path: Path) -> None:
    latin = postgres_url.replace("/test_", "/latin_", 1)
    name = sql.Identifier(latin.split("?")[0].rpartition("/")[2])
    made = "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(sql.SQL(made).format(name))  # type: ignore[arg-type]
        with pytest.raises(StoreError, match=r"its encoding is LATIN1. Make a database with CREATE DATABASE"):
            open_database(latin, tmp_path)
        with pytest.raises(StoreRefused, match="its encoding is LATIN1"):
            open_database(latin, tmp_path, patient=True)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.mark.requirement("P-STORE-MIGRATES")
def test_a_store_of_the_second_revision_is_brought_up_to_date(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database.run("DROP INDEX usage_latencies_by_day")
    for table in ("results", "result_pieces", "shapes", "learned_words", "events"):
        database.run(f"DROP TABLE {table}")
    database.run("UPDATE alembic_version SET version_num = '0002'")
    store = "sqlite" if database.dialect == "sqlite" else request.getfixturevalue("migrated_url")
    again = open_database(store, tmp_path)
    assert again.version() == HEAD
    again.run("DROP INDEX usage_latencies_by_day")
    again.run("CREATE INDEX usage_latencies_by_day ON usage_latencies (day)")
    again.close()


@contextmanager
def closed_to_all(url: str, admin_url: str) -> Iterator[None]:
    """A database that lets nobody in."""
    name = sql.Identifier(url.split("?")[0].rpartition("/")[2])
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(allow.format(name, sql.SQL("false")))
        yield
        admin.execute(allow.format(name, sql.SQL("true")))


@pytest.mark.requirement("P-JOURNAL-AWAY", "P-JOURNAL-ONCE")
def test_one_that_turns_out_to_be_newer_when_it_is_back_refuses_no_entry(
    migrated_url: str, postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute("UPDATE alembic_version SET version_num = '9999'")
    with closed_to_all(migrated_url, postgres_url):
        database = open_database(migrated_url, tmp_path, patient=True)
        with pytest.raises(StoreError, match="not currently accepting connections"):
            database.check()
    newer = Event()

    class Watched(Ledger):
        def append(self, batch: Batch) -> int:
            try:
                return super().append(batch)
            except StoreError as error:
                if "newer Portico" in str(error):
                    newer.set()
                raise

    journal = StoredJournal(Watched(database), pace=Pace(first_pause=0.01, longest_pause=0.05))
    journal.record(
        Invocation(tool=None, spelled="a", caller="c", surface="t", outcome=Outcome.DONE, seconds=0.1, at=1.0)
    )
    assert newer.wait(30)
    assert (journal.state.waiting, journal.state.dropped) == (1, 0)
    with psycopg.connect(migrated_url, autocommit=True) as admin:
        admin.execute(sql.SQL("UPDATE alembic_version SET version_num = {}").format(HEAD))
    assert journal.flush(30)
    journal.close()
    assert database.rows("SELECT spelled FROM invocations") == [("a",)]
    database.close()


@pytest.mark.requirement("P-STORE-ADVICE", "P-STORE-REFUSES")
def test_a_database_in_which_no_tables_may_be_made_is_refused_with_what_to_do(
    postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader LOGIN")
        try:
            with pytest.raises(
                StoreRefused, match=r"cannot be brought up to date: permission denied.*may create tables"
            ):
                open_database(postgres_url.replace(f"{OWNER}:", "reader:", 1), tmp_path, patient=True)
        finally:
            admin.execute("DROP ROLE reader")


def foreign_files(folder: Path) -> list[Path]:
    """Files that somebody may have, none of them a database of ours."""
    diary, empty, shop, other = (folder / name for name in ("diary.txt", "notes", "shop.db", "alembic.db"))
    diary.write_text("Dear diary\n" * 50)
    empty.touch()
    for path, table in ((shop, "orders"), (other, "alembic_version")):
        connection = sqlite3.connect(path)
        connection.execute(f"CREATE TABLE {table} (version_num TEXT)")
        connection.commit()
        connection.close()
    return [diary, empty, shop, other]


@pytest.mark.requirement("P-STORE-FOREIGN")
def test_a_file_that_is_not_ours_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "theirs"
    folder.mkdir()
    for path in foreign_files(folder):
        before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
        with pytest.raises(StoreRefused, match=r"is not a database of Portico's.*It is left as it is"):
            open_database(f"sqlite:///{path}", home)
        assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()} == before, path
    link = folder / "link.db"
    link.symlink_to(folder / "diary.txt")
    with pytest.raises(StoreRefused):
        open_database(f"sqlite:///{link}", home)


@pytest.mark.requirement("P-STORE-FOREIGN", "F37")
def test_a_damaged_store_that_the_config_names_is_refused_and_the_default_is_moved(tmp_path: Path) -> None:
    for store, file in ((f"sqlite:///{tmp_path}/named.db", "named.db"), ("sqlite", "portico.db")):
        database = open_database(store, tmp_path)
        database.close()
        with (tmp_path / file).open("r+b") as stream:
            stream.seek(100)
            stream.write(b"\xff" * 4000)
    before = (tmp_path / "named.db").read_bytes()
    with pytest.raises(StoreRefused, match="is damaged, and is left as it is because the config names it"):
        open_database(f"sqlite:///{tmp_path}/named.db", tmp_path)
    assert (tmp_path / "named.db").read_bytes() == before
    open_database("sqlite", tmp_path).close()
    assert list(tmp_path.glob("portico.db.corrupt-*"))
    # The default file may be moved in whatever way the config spells it.
    (tmp_path / "portico.db").write_bytes(b"no database" * 100)
    open_database(f"sqlite:///{tmp_path}/portico.db", tmp_path).close()


@pytest.mark.requirement("P-STORE-FOREIGN")
def test_a_store_of_ours_that_was_not_closed_is_known_as_ours(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from portico.storage.storage import open_database;"
        "open_database(sys.argv[1], Path(sys.argv[2])); os._exit(0)"
    )
    store = f"sqlite:///{tmp_path}/killed.db"
    subprocess.run([sys.executable, "-c", code, store, str(tmp_path)], check=True, timeout=60)
    open_database(store, tmp_path).close()
