"""A database as the config names it: its URL, its driver, and one connection for each caller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from portico.domain.call import Caller
from portico.errors import ConfigError, extra_for

from .read_connection import Mode, OwnConnection, OwnQuery, QueryLimits

if TYPE_CHECKING:
    from .database_session import DatabaseEngine

_SPELLINGS: Mapping[str, str] = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg2": "postgresql+psycopg",
    "sqlite+aiosqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "mssql": "mssql+pyodbc",
    "oracle": "oracle+oracledb",
    "teradata": "teradatasql",
}
"""Schemes that people have in their configs, and the one driver that reaches the database."""

_DRIVERS: Mapping[str, tuple[str, str]] = {
    "mysql+pymysql": ("pymysql", "pymysql"),
    "mariadb+pymysql": ("pymysql", "pymysql"),
    "mssql+pyodbc": ("pyodbc", "pyodbc"),
    "oracle+oracledb": ("oracledb", "oracledb"),
    "teradatasql": ("teradatasqlalchemy", "teradatasqlalchemy"),
    "snowflake": ("snowflake.sqlalchemy", "snowflake-sqlalchemy"),
    "bigquery": ("sqlalchemy_bigquery", "sqlalchemy-bigquery"),
    "databricks": ("databricks.sqlalchemy", "databricks-sqlalchemy"),
    "redshift": ("sqlalchemy_redshift", "sqlalchemy-redshift"),
    "duckdb": ("duckdb_engine", "duckdb-engine"),
    "clickhouse": ("clickhouse_sqlalchemy", "clickhouse-sqlalchemy"),
    "trino": ("trino", "'trino[sqlalchemy]'"),
    "hana": ("sqlalchemy_hana", "sqlalchemy-hana"),
}
"""The module of each driver that Portico does not bring along, and how it is installed."""

EXAMPLES = "sqlite:///file.db or postgresql://user:password@host/database"
CONNECT_SECONDS = 5

_PORT = re.compile(r"(?:[^:/]*(?::[^@]*)?@)?(?:\[[^/?]+\]|[^/:?]+)?(?::([^/?]*))?")
"""The part before the database's name in a URL, as SQLAlchemy reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a database is, as SQLAlchemy spells it."""

    dialect: str
    url: str = field(repr=False)
    file: Path | None = None
    """Where a SQLite database lies."""


def read_address(url: str, *, needs_driver: bool = True) -> Address:
    """Take a URL as people write it; whoever only wants to know the kind of database needs no driver.

    Raises:
        ConfigError: it is no URL of a database, or its driver is not installed.
    """
    scheme, mark, rest = url.strip().partition("://")
    scheme = scheme.lower()
    if not mark or not scheme or any(map(str.isspace, scheme)) or "\0" in url:
        raise ConfigError("this is no URL of a database", where="DATABASE_URI", fix=f"Write {EXAMPLES}")
    driver = _SPELLINGS.get(scheme, scheme)
    if driver == "sqlite":
        return Address(dialect="sqlite", url="sqlite://", file=_sqlite_file(rest))
    if needs_driver:
        _check_driver(driver)
    port = _PORT.match(rest)
    if port and port[1] and not port[1].isdecimal():  # SQLAlchemy, which is loaded later, would stumble over it
        raise ConfigError("the port of the URL is no number", where="DATABASE_URI", fix=f"Write {EXAMPLES}")
    if driver.startswith("postgresql"):
        rest = rest.replace("?ssl=", "?sslmode=").replace("&ssl=", "&sslmode=")  # asyncpg's word for it
    return Address(dialect=driver.partition("+")[0], url=f"{driver}://{rest}")


def missing_driver(driver: str, package: str = "") -> ConfigError:
    """The error of a kind of database that has no driver here."""
    known = f"Run: pip install {package}" if package else f"Install its SQLAlchemy dialect, or write {EXAMPLES}"
    return ConfigError(f"the driver for {driver!r} is not installed", where="DATABASE_URI", fix=known)


def _sqlite_file(rest: str) -> Path:
    path = unquote(rest.removeprefix("/").partition("?")[0]) if rest.startswith("/") else ""
    if not path or path == ":memory:":
        fix = "Write sqlite:///file.db, or sqlite:////folder/file.db for an absolute path"
        raise ConfigError("a SQLite database in memory has nothing to read", where="DATABASE_URI", fix=fix)
    return Path(path).expanduser()


def _check_driver(driver: str) -> None:
    module, package = _DRIVERS.get(driver, ("", ""))
    try:
        is_there = not module or find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is not there either
        is_there = False
    if not is_there:
        raise missing_driver(driver, package)


LOCAL_CALLER = Caller()


class DatabaseSource:
    """Gives connections that read; SQLAlchemy is loaded and the database opened by the first of them."""

    def __init__(
        self,
        url: str,
        *,
        rows: int = 1_000,
        bytes: int = 1_000_000,
        seconds: float = 30.0,
        role: str = "",
        roles: Mapping[str, str] | None = None,
        mode: Mode = Mode.READ,
        allow_superuser: bool = False,
    ) -> None:
        """Check the spelling and the driver.

        `role` is what PostgreSQL becomes before each reading; `roles` say so for single callers, and `*` for others.
        A login that is a superuser, or may read files of the server, is refused unless `allow_superuser` says so.

        Raises:
            ConfigError: the URL cannot be used, its driver is not installed, or a limit is not above nothing.
        """
        if min(rows, bytes, seconds) <= 0:
            raise ConfigError("a limit must be above 0", where="rows, bytes, seconds", fix="Leave it out")
        self._address = read_address(url)
        if (role or roles) and self._address.dialect != "postgresql":
            raise ConfigError(f"a {self.shown} has no roles to become", where="role", fix="Leave it out")
        self.limits = QueryLimits(rows=rows, bytes=bytes, seconds=seconds)
        self.mode = mode
        self._login: dict[str, Any] = {"role": role, "roles": roles or {}, "allow_superuser": allow_superuser}
        self._lock = Lock()
        self._opened: DatabaseEngine | None = None

    @property
    def dialect(self) -> str:
        """The kind of database, before anything is opened."""
        return self._address.dialect

    @property
    def shown(self) -> str:
        """The database in messages: nothing of where it is or who logs in, which may be a secret."""
        return f"{self._address.dialect} database"

    def reading(self, caller: Caller = LOCAL_CALLER) -> AbstractContextManager[OwnConnection]:
        """A connection for one caller, which blocks; afterwards it is nobody's, and rolled back unless it may write.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        return self._open().reading(caller)

    def asking(self, caller: Caller = LOCAL_CALLER) -> AbstractContextManager[OwnQuery]:
        """A connection for queries that we have built ourselves, with as few trips as the database allows.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        return self._open().asking(caller)

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> DatabaseEngine:
        with self._lock:
            if self._opened is None:
                self._opened = self._made()
            return self._opened

    def _made(self) -> DatabaseEngine:
        # SQLAlchemy takes a fifth of a second to load, which a start without a database must not pay.
        with extra_for("databases"):
            from .database_session import DatabaseEngine
            from .postgres_session import PostgresEngine
            from .sqlite_session import SqliteEngine
        if self.dialect == "sqlite":
            return SqliteEngine(self._address, self.limits, self.mode)
        if self.dialect == "postgresql":
            return PostgresEngine(self._address, self.limits, self.mode, **self._login)
        return DatabaseEngine(self._address, self.limits, self.mode)
