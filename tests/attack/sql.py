"""Statements that mean to write, to read what is not in tables, to lock, or never to end."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.attack.suite import LIMITS, Attempt, Suite, flaw
from tests.attack.target import Target
from tests.databases import Postgres, as_superuser, postgres_server
from tests.providers.sql.registry.registry_world import INJECTIONS

WORD = "the-word-in-the-secret-file"
TABLES = "CREATE TABLE people (id INTEGER, name TEXT); INSERT INTO people VALUES (1, 'ada'), (2, 'bob')"
WRITES = (
    "DELETE FROM people", "UPDATE people SET name = 'x'", "DROP TABLE people", "INSERT INTO people VALUES (3, 'x')",
    "WITH x AS (DELETE FROM people RETURNING *) SELECT * FROM x", "SELECT 1; DELETE FROM people",
    "COMMIT; DROP TABLE people", "CREATE TABLE t (a INTEGER)", "CREATE TEMP TABLE t (a INTEGER)",
    "WITH x AS (SELECT 1) UPDATE people SET id = 9",
)  # fmt: skip
ONLY_SQLITE = (
    "ATTACH DATABASE '{file}.db' AS other", "PRAGMA writable_schema = ON", "VACUUM INTO '{file}.db'",
    "SELECT load_extension('{file}')", "SELECT writefile('{file}.out', 'x')", "SELECT readfile('{file}')",
    "SELECT instr(hex(zeroblob({n})), 'z')", "SELECT hex(randomblob({n}))",
    "SELECT replace(hex(zeroblob({n})), '0', 'ab')",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 3000000) SELECT count(*) FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 2000) SELECT count(*) FROM r a, r b",
)  # fmt: skip
CALLS = {
    "pg_read_file": "'{file}'::text", "pg_ls_dir": "'/'::text", "pg_stat_file": "'{file}'::text",
    "pg_sleep": "1::float8",
    "pg_advisory_lock": "{n}::bigint", "pg_try_advisory_lock": "{n}::bigint", "pg_terminate_backend": "{pid}::integer",
    "pg_cancel_backend": "{pid}::integer", "lo_import": "'{file}'::text",
    "pg_notify": "'a', 'b'", "nextval": "'numbers'::regclass",
    "query_to_xml": "'DELETE FROM people RETURNING id', true, true, ''", "pg_read_binary_file": "'{file}'::text",
}  # fmt: skip
SHAPES = (
    "SELECT {f}({a})", "SELECT ({a}).{f}", "SELECT (({a})).{f}", "SELECT ({a}) . /* */ {f}", 'SELECT ({a})."{f}"',
    "SELECT (SELECT ({a})).{f}", "SELECT x.{f} FROM (SELECT {a}) x(x)", "SELECT x.{f} FROM unnest(ARRAY[{a}]) x",
    "SELECT (ARRAY[{a}])[1].{f}", "SELECT (:p).{f}", "SELECT 1 ORDER BY ({a}).{f}", "SELECT 1 WHERE ({a}).{f} IS NULL",
    "SELECT count(*) FROM people GROUP BY ({a}).{f}", "SELECT CASE WHEN ({a}).{f} IS NULL THEN 1 END",
    "VALUES (({a}).{f})",
    "SELECT * FROM {f}({a})", "SELECT * FROM LATERAL {f}({a}) y", "SELECT pg_catalog.{f}({a})", "SELECT \"{f}\"({a})",
    "WITH x AS (SELECT {a} AS v) SELECT (x.v).{f} FROM x", "SELECT (p.v).{f} FROM (SELECT {a} AS v) p",
    "SELECT array_agg(({a}).{f})", "SELECT 1 FROM people HAVING ({a}).{f} IS NULL", "SELECT ROW(({a}).{f})",
)  # fmt: skip


class Database(Suite):
    """What an agent may write into `base_readQuery`, in a home with a secret file."""

    file: Path
    mark: str = ""
    locked: int = 0

    def config(self, home: Path) -> dict[str, Any]:
        """The packaged tools over a database of its own."""
        self.file = home / "secret.txt"
        self.file.write_text(WORD)
        self.fill(home)
        self.mark = self.state()
        return {"scripts": LIMITS}

    def fill(self, home: Path) -> None:
        """Make the database, and tell the gateway of it."""
        raise NotImplementedError

    def state(self) -> str:
        """A mark of everything that must not change."""
        raise NotImplementedError

    def statement(self, chance: Random) -> str:
        """One hostile statement."""
        raise NotImplementedError

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Statements, and texts that would like to be part of one."""
        while True:
            number = int(10 ** chance.uniform(3, 7))
            if chance.random() < 0.3:
                sql, binds = "SELECT name FROM people WHERE name = :p", {"p": chance.choice(INJECTIONS)}
            else:
                sql, binds = self.statement(chance).replace("{n}", str(number)), {}
                sql = sql.replace("{file}", str(self.file))
                if ":p" in sql:
                    binds = {"p": str(self.file)}
            given = {"name": "base_readQuery", "arguments": {"sql": sql, **({"params": binds} if binds else {})}}
            reply = target.talk.call("discover", "call_tool", given)
            yield Attempt(sql[:40], flaw(reply) or self.effect(sql, reply.text))

    def effect(self, sql: str, text: str) -> str:
        """What a statement has done that it must not do."""
        if WORD in text:
            return f"read a file: {sql[:60]}"
        if self.state() != self.mark:
            self.mark = self.state()
            return f"changed the database: {sql[:60]}"
        before, self.locked = self.locked, self.locks()
        return f"left a lock: {sql[:60]}" if self.locked > before else ""

    def locks(self) -> int:
        """How many locks are held that outlast a statement."""
        return 0

    def aftermath(self, target: Target) -> list[str]:
        """No file is left that was not there."""
        return [f"made the file {path.name}" for path in self.file.parent.glob("secret.txt?*")]


class Sqlite(Database):
    """The same over a SQLite file."""

    def fill(self, home: Path) -> None:
        """One file with two people."""
        self.base = home / "people.sqlite"
        with closing(sqlite3.connect(self.base)) as connection:
            connection.executescript(TABLES)
        self.environ = {"DATABASE_URI": f"sqlite:///{self.base}", "MCP_PROFILE": "base"}

    def state(self) -> str:
        """Every byte of the file."""
        return hashlib.sha256(self.base.read_bytes()).hexdigest()

    def statement(self, chance: Random) -> str:
        """Writing, reading of files, and long work."""
        return chance.choice([*WRITES, *ONLY_SQLITE])


class Postgresql(Database):
    """The same over a PostgreSQL, as a login that may read files of the server and end sessions."""

    def __init__(self, name: str) -> None:
        """The server starts with the config."""
        super().__init__(name=name)
        self._closing = ExitStack()

    def fill(self, home: Path) -> None:
        """A database, a login without the rights of a superuser, and a session that could be ended."""
        server: Postgres = self._closing.enter_context(postgres_server())
        self.url = as_superuser(server.fresh())
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(TABLES.encode())
            for statement in (
                "CREATE SEQUENCE numbers",
                "CREATE ROLE agent LOGIN PASSWORD 'x'",
                "GRANT pg_read_server_files, pg_signal_backend TO agent",
                "GRANT ALL ON people, numbers TO agent",
                "GRANT CREATE ON SCHEMA public TO agent",
            ):
                connection.execute(statement.encode())
        self.watcher = psycopg.connect(self.url, autocommit=True)
        self._closing.callback(self.watcher.close)
        other = psycopg.connect(self.url, autocommit=True, user="agent")
        self._closing.callback(other.close)
        self.other = other.info.backend_pid
        # Its login has rights like a superuser's, which the gateway refuses unless told: here the guard must hold.
        uri = _as_agent(self.url)
        self.environ = {"DATABASE_URI": uri, "MCP_PROFILE": "base", "DATABASE_ALLOW_SUPERUSER": "true"}

    def state(self) -> str:
        """The rows, the sequence, and whether the other session lives."""
        query = (
            "SELECT (SELECT md5(string_agg(p::text, ',' ORDER BY p::text)) FROM people p),"
            " (SELECT last_value FROM numbers),"
            " (SELECT count(*) FROM pg_stat_activity WHERE pid = %s), (SELECT count(*) FROM pg_class)"
        )
        with suppress(psycopg.Error):
            return repr(self.watcher.execute(query, [self.other]).fetchone())
        return "a table is gone"

    def locks(self) -> int:
        """Advisory locks of sessions."""
        with suppress(psycopg.Error):
            found = self.watcher.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
            return int(found[0]) if found else 0
        return 0

    def statement(self, chance: Random) -> str:
        """Writing, and functions in every spelling."""
        if chance.random() < 0.15:
            return chance.choice(WRITES)
        name = chance.choice(sorted(CALLS))
        sql = chance.choice(SHAPES).replace("{f}", name).replace("{a}", CALLS[name])
        return sql.replace("{pid}", str(self.other))

    def close(self) -> None:
        """Stop the server."""
        self._closing.close()


def _as_agent(url: str) -> str:
    """The same database under the login of the agent."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://agent:x@{rest.partition('@')[2]}"
