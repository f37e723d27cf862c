"""A reading of a SQLite file: what is asked runs in another process, looks at the schema are our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from portico.errors import CallError

from .connection import Binds, Result
from .expanding import expanded
from .faults import DRIVERS, Faults, late
from .limits import Limits
from .looking import Looking
from .sqlite import SqliteDoor
from .sqlite_processes import SqliteFault, SqliteProcess
from .sqlite_worker import sent_value
from .statements import read_statement
from .taking import cut_by_bytes, cut_by_rows
from .values import checked_binds


class SqliteReading(Looking):
    """What a tool is given as `conn`; it takes a process when it first asks something."""

    def __init__(self, door: SqliteDoor, limits: Limits, faults: Faults, database: str) -> None:
        super().__init__(door, faults, database)
        self._processes, self._limits = door.processes, limits
        self._until = monotonic() + limits.seconds
        self._process: SqliteProcess | None = None
        self._is_stopped = False

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> Result:
        """Run one statement that reads."""
        words, values = self._checked(sql, binds)
        return self.prepared(words, values, limit=limit)

    def explain(self, sql: str, binds: Binds | None = None) -> Result:
        """The query plan; the bytecode tells an agent nothing."""
        words, values = self._checked(sql, binds)
        return self.prepared(f"EXPLAIN QUERY PLAN {words}", values)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> Result:
        """Run one query whose words were checked before."""
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        return self._asked(sql, binds, most)

    def performed(self, sql: str, binds: Binds) -> Result:
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

    def _asked(self, sql: str, binds: Binds, most: int) -> Result:
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
def sqlite_reading(door: SqliteDoor, limits: Limits, faults: Faults, database: str) -> Iterator[SqliteReading]:
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


def _result(found: dict[str, Any], most: int) -> Result:
    columns, rows = tuple(found["columns"]), tuple(map(tuple, found["rows"]))
    if found["cut"] == "rows":
        return cut_by_rows(columns, rows, most)
    return cut_by_bytes(columns, rows) if found["cut"] else Result(columns=columns, rows=rows)
