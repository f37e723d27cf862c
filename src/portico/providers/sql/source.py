"""A database as the config names it: its address, and one connection for each caller that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import unquote

from portico.domain.call import Caller
from portico.errors import ConfigError, extra_for

from .connection import Mode, OwnConnection, OwnQuery, QueryLimits

if TYPE_CHECKING:
    from .open import OpenDatabase


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
"""What people have in their configs, and the one driver that reaches it."""

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

_PORT = re.compile(r"(?:[^:/]*(?::[^@]*)?@)?(?:\[[^/?]+\]|[^/:?]+)?(?::([^/?]*))?")
"""What stands before the database's name in a URL, as SQLAlchemy reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a database is, as SQLAlchemy spells it."""

    dialect: str
    url: str = field(repr=False)
    file: Path | None = None
    """Where a SQLite database lies."""

    @property
    def shown(self) -> str:
        """The kind of database, for people; everything else may be a secret."""
        return f"{self.dialect} database"


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
    _check_port(rest)
    if driver.startswith("postgresql"):
        rest = rest.replace("?ssl=", "?sslmode=").replace("&ssl=", "&sslmode=")  # asyncpg's word for it
    return Address(dialect=driver.partition("+")[0], url=f"{driver}://{rest}")


def _check_port(rest: str) -> None:
    """Find what SQLAlchemy would stumble over, which is loaded only when the database is opened."""
    port = _PORT.match(rest)
    if port and port[1] and not port[1].isdecimal():
        raise ConfigError("the port of the URL is no number", where="DATABASE_URI", fix=f"Write {EXAMPLES}")


def missing_driver(driver: str, package: str = "") -> ConfigError:
    """What to say when there is no driver for a kind of database."""
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
            raise ConfigError(f"a {self._address.shown} has no roles to become", where="role", fix="Leave it out")
        self.limits = QueryLimits(rows=rows, bytes=bytes, seconds=seconds)
        self._role, self._roles, self.mode = role, dict(roles or {}), mode
        self._allow_superuser = allow_superuser
        self._turn = Lock()
        self._opened: OpenDatabase | None = None

    @property
    def dialect(self) -> str:
        """The kind of database, before anything is opened."""
        return self._address.dialect

    @property
    def shown(self) -> str:
        """What it may be called in messages: nothing of where it is or who logs in."""
        return self._address.shown

    @contextmanager
    def reading(self, caller: Caller = LOCAL_CALLER) -> Iterator[OwnConnection]:
        """A connection for one caller, which blocks; afterwards it is nobody's, and rolled back unless it may write.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        with self._open().reading(caller) as connection:
            yield connection

    @contextmanager
    def asking(self, caller: Caller = LOCAL_CALLER) -> Iterator[OwnQuery]:
        """The same for queries that we have built ourselves, with as few trips as the database allows.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        with self._open().asking(caller) as question:
            yield question

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        with self._turn:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> OpenDatabase:
        with self._turn:
            if self._opened is None:
                # SQLAlchemy takes a fifth of a second to load, which a start without a database must not pay.
                with extra_for("databases"):
                    from portico.providers.sql import open as opening
                self._opened = opening.open_door(
                    self._address,
                    self.limits,
                    role=self._role,
                    roles=self._roles,
                    mode=self.mode,
                    allow_superuser=self._allow_superuser,
                )
            return self._opened
