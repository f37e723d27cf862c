"""Real databases for tests: one PostgreSQL for the whole run, started by the first test that needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from secrets import token_hex

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from portico.storage.database_interface import HEAD
from portico.storage.storage import open_database
from tests.postgres import running_postgres

OUTSIDE = "PORTICO_TEST_POSTGRES"
"""The variable that names a running server to use instead of one of our own."""

_TABLES = (
    "offerings failures vectors mcp_tools mcp_servers mcp_categories invocations lookups writers usage_days "
    "usage_latencies cache_counts signals jobs results result_pieces shapes learned_words events"
)
_EMPTY = "; ".join(f"DELETE FROM {table}" for table in _TABLES.split()).encode()


OWNER = "tester"
"""The ordinary user who logs in and owns the databases."""


class Postgres:
    """A server with as many databases as tests ask for."""

    def __init__(self, superuser_url: str) -> None:
        self._superuser_url, run = superuser_url, token_hex(4)  # a server that is not ours outlives its runs
        self._names = (f"test_{run}_{number}" for number in count(1))
        self._template: str | None = None
        self._emptied: list[str] = []
        with psycopg.connect(superuser_url, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (OWNER,)).fetchone():
                connection.execute("CREATE ROLE tester LOGIN CREATEROLE CREATEDB")
                connection.execute("ALTER ROLE tester SET createrole_self_grant = 'set, inherit'")

    def fresh(self) -> str:
        """The URL of a new, empty database."""
        return self._create(None)

    def migrated(self) -> str:
        """The URL of a database that has our tables and nothing in them; the migrations run only once for all."""
        if self._emptied:
            return self._emptied.pop()
        if self._template is None:
            url = self._create(None)
            open_database(url, Path()).close()
            self._template = _name(url)
        return self._create(self._template)

    def give_back(self, url: str) -> None:
        """Empty a migrated database for the next test; one that was changed in other ways is thrown away."""
        try:
            with psycopg.connect(url) as connection:
                connection.execute(_EMPTY)
                is_whole = connection.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)
        except psycopg.Error:
            is_whole = False
        if is_whole:
            self._emptied.append(url)
        else:
            self.drop(url)

    def drop(self, url: str) -> None:
        """Throw a database away, and end whoever still uses it."""
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(_name(url))))

    def _create(self, template: str | None) -> str:
        name = next(self._names)
        statement = sql.SQL("CREATE DATABASE {} OWNER tester TEMPLATE {}")
        self._run(statement.format(sql.Identifier(name), sql.Identifier(template or "template0")))
        return self._superuser_url.replace("//postgres:@/postgres?", f"//{OWNER}:@/{name}?", 1)

    def _run(self, statement: sql.Composed | sql.SQL) -> None:
        with psycopg.connect(self._superuser_url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL: the one that the environment names, or one that is started here and stopped at the end."""
    if outside := os.environ.get(OUTSIDE):
        yield Postgres(_superuser_url(outside))
        return
    with running_postgres() as url:
        yield Postgres(url)


def as_superuser(url: str) -> str:
    """The same database, with the login of a superuser."""
    return url.replace(f"//{OWNER}:", "//postgres:", 1)


def _name(url: str) -> str:
    return url.split("?")[0].rpartition("/")[2]


def _superuser_url(url: str) -> str:
    """The URL of a server's superuser in our spelling: tests put other users and databases into it."""
    folder = str(conninfo_to_dict(url).get("host", ""))
    assert folder.startswith("/"), f"{OUTSIDE} names the folder of a socket: postgresql://postgres@/postgres?host=/run"
    return f"postgresql://postgres:@/postgres?host={folder}"
