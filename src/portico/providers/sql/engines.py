"""What one kind of database needs so that it is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from portico.domain.call import Caller
from portico.errors import ConfigError

from .addresses import EXAMPLES, Address, missing_driver
from .connection import Limits, Mode
from .statements import Statement

POOLED = 5
CONNECT_SECONDS = 5


class Door(Protocol):
    """One way into a database, through which nothing is written unless its mode says so."""

    engine: Engine
    mode: Mode

    def begin(self, connection: Connection, caller: Caller) -> AbstractContextManager[None]:
        """Make a connection read-only, within its time, and known as this caller's, while the context is open."""
        ...

    def admit(self, connection: Connection, statement: Statement) -> None:
        """Return when a statement may be sent.

        Raises:
            Refused: it calls what it must not.
        """
        ...

    def sized(self, sql: str) -> str | None:
        """The statement with a first column that tells whether a row is too large to be sent; None without one."""
        ...

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The columns and rows of a plan."""
        ...

    def inspecting(self, connection: Connection | None) -> AbstractContextManager[Any]:
        """SQLAlchemy's inspector, of this connection where the door has no other."""
        ...

    def stop(self, connection: Connection) -> None:
        """End what a connection is at work on, from another thread."""
        ...

    def close(self) -> None:
        """Let go of every connection."""
        ...


class AnyDoor:
    """Whatever SQLAlchemy has a driver for: words are checked, and everything is rolled back at the end.

    What the database itself forbids its user is the real lock here; the guide says so.
    """

    def __init__(self, address: Address, limits: Limits, *, mode: Mode = Mode.READ) -> None:
        self._limits, self.mode = limits, mode
        self.engine = opened(address.url, pool_timeout=limits.seconds)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """Ask for a transaction that reads where the database knows one."""
        if self.mode is Mode.WRITE:
            yield
            return
        if connection.dialect.name in ("mysql", "mariadb"):
            connection.rollback()
            connection.exec_driver_sql(f"SET SESSION MAX_EXECUTION_TIME={int(1_000 * self._limits.seconds)}")
            connection.exec_driver_sql("START TRANSACTION READ ONLY")
        elif connection.dialect.name == "oracle":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        yield

    def admit(self, connection: Connection, statement: Statement) -> None:
        """The words were checked already."""

    def sized(self, sql: str) -> str | None:
        """No common way to tell."""
        return None

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """Most databases know EXPLAIN."""
        result = connection.execute(text(f"EXPLAIN {sql}"), binds)
        return list(result.keys()), [tuple(row) for row in result]

    @contextmanager
    def inspecting(self, connection: Connection | None) -> Iterator[Any]:
        """Of the same connection."""
        yield inspect(connection)

    def stop(self, connection: Connection) -> None:
        """No common way to do it; the database's own limit ends it."""

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


def opened(url: Any, **options: Any) -> Engine:
    """An engine; nothing is connected yet.

    Raises:
        ConfigError: the URL cannot be read, or there is no driver.
    """
    try:
        return create_engine(url, pool_size=POOLED, max_overflow=POOLED, **options)
    except NoSuchModuleError as error:
        raise missing_driver(str(url).partition("://")[0]) from error
    except ModuleNotFoundError as error:
        raise missing_driver(str(error.name), str(error.name)) from error
    except (ArgumentError, ValueError, SQLAlchemyError) as error:
        raise ConfigError("the URL cannot be read", where="DATABASE_URI", fix=f"Write {EXAMPLES}") from error


def driver_of(connection: Connection) -> DBAPIConnection:
    """The driver's own connection."""
    driver: DBAPIConnection | None = connection.connection.driver_connection
    assert driver is not None
    return driver
