"""SQLite: files opened for reading only, with a guard before every step."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkstemp
from time import monotonic
from typing import Any, cast

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, inspect, text
from sqlalchemy.exc import DisconnectionError

from portico.domain.call import Caller
from portico.errors import CallError, StoreError

from .connection import Binds, Mode, QueryLimits, QueryResult
from .faults import DRIVERS, Faults, late
from .introspection import CONNECT_SECONDS, POOLED, driver_of
from .session import Looking, cut_by_bytes, cut_by_rows, stopped_after
from .sqlite_processes import SqliteFault, SqliteProcess, SqliteProcesses
from .sqlite_worker import STEPS, Guarded, connect, guard, identity, sent_value, wake
from .statements import ReadStatement, expanded, read_statement
from .values import checked_binds

Rows = Sequence[Sequence[Any]]


def make_sqlite(file: Path, schema: str, tables: Mapping[str, Rows]) -> None:
    """Write a new file with these tables; one that is there stays as it is.

    Raises:
        StoreError: the folder cannot be written.
    """
    if file.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        number, name = mkstemp(prefix=f"{file.stem}-", suffix=".new", dir=file.parent)
        os.close(number)
        draft = Path(name)
        try:
            _write(draft, schema, tables)
            draft.replace(file)  # two processes that start together make the same file
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        reason = f"{file} cannot be made: {error}. Make its folder writable, or set DATABASE_URI"
        raise StoreError(reason) from error


def _write(file: Path, schema: str, tables: Mapping[str, Rows]) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(schema)
        for table, rows in tables.items():
            marks = ", ".join("?" for _ in rows[0])
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our words


MOST_MEMORY = 512_000_000
"""Bytes that SQLite may hold in the gateway's own process, for what we ask ourselves."""


class SqliteDoor:
    """Two engines on one file for what we ask ourselves, with and without the guard, and processes for agents."""

    def __init__(self, file: Path, limits: QueryLimits, *, mode: Mode = Mode.READ) -> None:
        self._file, self._seconds, self.mode = file, limits.seconds, mode
        self.processes = SqliteProcesses(file)
        self._met: tuple[int, int] | None = None
        self.engine = _engine(lambda: guard(self._connect(), STEPS), limits)
        self._looking = _engine(self._connect, limits)
        for engine in (self.engine, self._looking):
            event.listen(engine, "connect", self._mark)
            event.listen(engine, "checkout", self._check)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """A file knows no callers; it only has its time."""
        guarded = cast(Guarded, driver_of(connection))
        wake(guarded)
        guarded.until = monotonic() + self._seconds
        try:
            # The clock is looked at between steps, of which some take long; an interruption is seen after each.
            with stopped_after(self._seconds, guarded.interrupt), _steady(guarded, self.mode):
                yield
        finally:
            guarded.until = math.inf

    def admit(self, connection: Connection, statement: ReadStatement) -> None:
        """The guard asks at every step."""

    def sized(self, sql: str) -> str | None:
        """Values are limited by SQLite itself, and rows are taken one by one."""
        return None

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The query plan; the bytecode tells an agent nothing."""
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"), binds)
        return list(plan.keys()), [tuple(row) for row in plan]

    @contextmanager
    def inspecting(self, connection: Connection | None) -> Iterator[Any]:
        """Of a connection whose statements are all ours."""
        with self._looking.connect() as looking:
            yield inspect(looking)

    def meet(self) -> None:
        """Make sure that there is a file which is a database; once for each file that stands there.

        Only SQLite may open it in this process: whoever closes a file takes away all locks that the process has on it.

        Raises:
            SQLAlchemyError: there is none.
        """
        found = identity(str(self._file))
        if found is None or found != self._met:
            with self._looking.connect():
                self._met = found

    def stop(self, connection: Connection) -> None:
        """Interrupt the statement that runs."""
        cast(Guarded, driver_of(connection)).interrupt()

    def close(self) -> None:
        """Let go of the file."""
        self.processes.close()
        self.engine.dispose()
        self._looking.dispose()

    def _mark(self, driver: Any, record: Any) -> None:
        record.info["file"] = identity(str(self._file))

    def _check(self, driver: Any, record: Any, proxy: Any) -> None:
        """A file that was put in the place of another is opened anew, and one that is gone is not read on."""
        if record.info.get("file") != identity(str(self._file)):
            raise DisconnectionError

    def _connect(self) -> Guarded:
        return connect(f"{self._file.resolve().as_uri()}?mode=ro", MOST_MEMORY, CONNECT_SECONDS)


def _engine(creator: Any, limits: QueryLimits) -> Engine:
    return create_engine(
        "sqlite://",
        creator=creator,
        poolclass=QueuePool,
        pool_size=POOLED,
        max_overflow=POOLED,
        pool_timeout=limits.seconds,
        isolation_level="AUTOCOMMIT",
    )


@contextmanager
def _steady(connection: Guarded, mode: Mode) -> Iterator[None]:
    """Let all statements see the file as it is at the first of them, where that is asked for."""
    if mode is not Mode.STEADY:
        yield
        return
    _own(connection, "BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # an interruption may have ended it
            _own(connection, "ROLLBACK")


def _own(connection: Guarded, sql: str) -> None:
    connection.is_ours = True
    try:
        connection.execute(sql)
    finally:
        connection.is_ours = False


class SqliteReading(Looking):
    """What a tool is given as `conn`; it takes a process when it first asks something."""

    def __init__(self, door: SqliteDoor, limits: QueryLimits, faults: Faults, database: str) -> None:
        super().__init__(door, faults, database)
        self._processes, self._limits = door.processes, limits
        self._until = monotonic() + limits.seconds
        self._process: SqliteProcess | None = None
        self._is_stopped = False

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> QueryResult:
        """Run one statement that reads."""
        words, values = self._checked(sql, binds)
        return self.prepared(words, values, limit=limit)

    def explain(self, sql: str, binds: Binds | None = None) -> QueryResult:
        """The query plan; the bytecode tells an agent nothing."""
        words, values = self._checked(sql, binds)
        return self.prepared(f"EXPLAIN QUERY PLAN {words}", values)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query whose words were checked before."""
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        return self._asked(sql, binds, most)

    def performed(self, sql: str, binds: Binds) -> QueryResult:
        """The same: a file has nothing that could be done without a query."""
        return self._asked(sql, binds, self._limits.rows)

    def stop(self) -> None:
        """Kill the process that works for this reading, from another thread; it asks nothing afterwards."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Give the process back."""
        super().close()
        self._give_back()

    def _checked(self, sql: str, binds: Binds | None) -> tuple[str, dict[str, Any]]:
        sql, binds = expanded(sql, "sqlite", binds)
        statement = read_statement(sql, "sqlite")
        return statement.plain, checked_binds(statement, binds, "sqlite")

    def _asked(self, sql: str, binds: Binds, most: int) -> QueryResult:
        try:
            values = {name: sent_value(value) for name, value in binds.items()}
        except TypeError as error:
            raise self._faults.mistaken(str(error)) from error
        request = {"sql": sql, "binds": values, "rows": most, "bytes": self._limits.bytes}
        try:
            found = self._taken().ask(request, self._left())
        except SqliteFault as fault:
            raise self._told(fault) from fault
        return _result(found, most)

    def _taken(self) -> SqliteProcess:
        """The process of this reading, or another when it has ended."""
        if self._process is None or not self._process.is_usable:
            self._give_back()
            self._process = self._processes.take(self._left())
        return self._process

    def _left(self) -> float:
        """The seconds that are left; asked again when a process was taken, which whoever stops it may have missed."""
        left = self._until - monotonic()
        if left <= 0 or self._is_stopped:
            raise late()
        return left

    def _give_back(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._processes.give_back(process)

    def _told(self, fault: SqliteFault) -> CallError:
        return self._faults.unreached(fault.orig) if fault.is_open else self._faults.told(fault.orig)


@contextmanager
def sqlite_reading(door: SqliteDoor, limits: QueryLimits, faults: Faults, database: str) -> Iterator[SqliteReading]:
    """A reading for one caller, of whom a file knows nothing.

    Raises:
        UpstreamGone: there is no such file, or it is no database.
    """
    try:
        door.meet()
    except DRIVERS as error:
        raise faults.unreached(error) from error
    given = SqliteReading(door, limits, faults, database)
    try:
        yield given
    finally:
        given.close()


def _result(found: dict[str, Any], most: int) -> QueryResult:
    columns, rows = tuple(found["columns"]), tuple(map(tuple, found["rows"]))
    if found["cut"] == "rows":
        return cut_by_rows(columns, rows, most)
    return cut_by_bytes(columns, rows) if found["cut"] else QueryResult(columns=columns, rows=rows)
