"""PostgreSQL for queries of our own: prepared once, sent without a cursor, and cut by the server itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy import Connection as SqlConnection

from portico.domain.caller import Caller

from .connection import Binds, Result
from .doors import driver_of
from .faults import DRIVERS, HANDLED, Faults, translated
from .limits import Limits
from .postgres import TOLD, UNLOCK, PostgresDoor
from .taking import taken

_MARK = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")


class QuickReading:
    """One caller's connection for queries whose words are ours."""

    def __init__(
        self, connection: SqlConnection, door: PostgresDoor, caller: Caller, limits: Limits, faults: Faults
    ) -> None:
        self._connection, self._door, self._caller = connection, door, caller
        self._limits, self._faults = limits, faults

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> Result:
        """Run one query."""
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        with translated(self._faults, HANDLED):
            found = self._found(_sized(sql, most, self._limits.bytes).encode(), binds)
            columns = tuple(column.name for column in found.description or ())
            rows = ((row[-1] is None, row[:-1]) for row in found.fetchall())
            return taken(columns[:-1], rows, most, self._limits.bytes)

    def _found(self, asked: bytes, binds: Binds) -> psycopg.Cursor[Any]:
        driver = _driver(self._connection)
        try:
            return driver.execute(asked, dict(binds), prepare=True)
        except (FeatureNotSupported, InvalidSqlStatementName):
            # A column has changed since it was prepared, or a pooler gave us a session that has not seen it.
            driver.rollback()
            _begin(driver, self._door, self._caller)
            return driver.execute(asked, dict(binds), prepare=False)

    def stop(self) -> None:
        """End what runs, from another thread."""
        self._door.stop(self._connection)


@contextmanager
def quick_reading(door: PostgresDoor, caller: Caller, limits: Limits, faults: Faults) -> Iterator[QuickReading]:
    """A connection for one caller; it goes back without a trace."""
    with translated(faults, DRIVERS), _begun(door, caller, faults) as connection:
        driver = _driver(connection)
        try:
            yield QuickReading(connection, door, caller, limits, faults)
            if driver.pgconn.transaction_status == TransactionStatus.INTRANS:
                _command(driver, UNLOCK + b"; ROLLBACK")
            else:  # a statement has failed, and whoever asked did not mind
                _clear(connection)
        except BaseException:
            _clear(connection)
            raise


def _clear(connection: SqlConnection) -> None:
    """Undo everything after a failure; a connection that does not let us is thrown away."""
    driver = _driver(connection)
    try:
        driver.rollback()
        driver.execute(UNLOCK)
        driver.rollback()
    except psycopg.Error:
        connection.invalidate()


def _begun(door: PostgresDoor, caller: Caller, faults: Faults) -> SqlConnection:
    """A connection that knows whose it is; one that was lost while nobody used it is replaced once."""
    for is_last in (False, True):
        try:
            connection = door.engine.connect()
        except DRIVERS as error:
            raise faults.unreached(error) from error
        driver = _driver(connection)
        try:
            _begin(driver, door, caller)
        except BaseException as error:
            is_lost = driver.broken
            connection.invalidate()
            connection.close()
            if is_last or not (is_lost and isinstance(error, psycopg.Error)):
                raise
        else:
            return connection
    raise AssertionError("the last try returns or raises")


def _begin(driver: psycopg.Connection[Any], door: PostgresDoor, caller: Caller) -> None:
    """Say who asks, and make sure that the server has understood, before anything is asked."""
    settings = door.settings(caller)
    marks = ", ".join(f"set_config(%(n{i})s, %(v{i})s, true)" for i in range(len(settings)))
    names = {f"n{i}": name for i, name in enumerate(settings)}
    values = {f"v{i}": value for i, value in enumerate(settings.values())}
    who = f"SELECT {marks}, {TOLD}"
    _command(driver, b"BEGIN READ ONLY")
    door.check(driver.execute(who.encode(), {**names, **values}, prepare=True).fetchone() or (), settings)


def _command(driver: psycopg.Connection[Any], words: bytes) -> None:
    """Send a command past psycopg, which would forget its prepared statements at every end of a transaction."""
    if driver.pgconn.exec_(words).status != ExecStatus.COMMAND_OK:
        raise psycopg.OperationalError("the connection is lost")


def _driver(connection: SqlConnection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", driver_of(connection))


def _sized(sql: str, most: int, bytes: int) -> str:
    """At most one row more than is shown; from the row on that is too much, no columns are sent."""
    worded = _MARK.sub(r"%(\1)s", sql.replace("%", "%%"))
    # A column may have any of our names, and would be taken for what we mean; hence the spaces in two of them.
    return (
        'SELECT portico_row.* FROM (SELECT "portico asked".*, '  # noqa: S608 - the words are ours
        'sum(octet_length(CAST("portico asked" AS text))) OVER (ROWS UNBOUNDED PRECEDING) AS "portico sum" FROM (\n'
        f'{worded}\n) AS "portico asked" LIMIT {most + 1}) AS portico_summed '
        f'LEFT JOIN LATERAL (SELECT portico_summed.*) AS portico_row ON portico_summed."portico sum" <= {bytes}'
    )
