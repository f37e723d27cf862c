"""A connection at work: one caller asks, rows come back within the limits, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Connection as SqlConnection
from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.types import NullType

from portico.domain.caller import Caller

from .connection import Binds, Result
from .doors import Door
from .expanding import expanded
from .faults import DRIVERS, HANDLED, Faults, translated
from .limits import Limits
from .looking import Looking
from .modes import Mode
from .statements import read_statement
from .taking import taken
from .values import checked_binds

AT_ONCE = 16
"""Rows that are asked of a server at once, so that large ones do not come together."""
MANY = 1_000
"""The same where all statements are ours and read many small rows."""


class Reading(Looking):
    """What a tool is given as `conn`."""

    def __init__(self, connection: SqlConnection, door: Door, limits: Limits, faults: Faults, database: str) -> None:
        super().__init__(door, faults, database, connection)
        self._connection, self._limits = connection, limits

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> Result:
        """Run one statement that reads."""
        sql, binds = expanded(sql, self.dialect, binds)
        statement = read_statement(sql, self.dialect)
        values = checked_binds(statement, binds, self.dialect)
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        with self._translated():
            self._door.admit(self._connection, statement)
            return self._asked(statement.text, values, most)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> Result:
        """Run one query whose words are ours: it was built of names that the database has, with values beside it."""
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        with self._translated():
            return self._asked(sql, dict(binds), most)

    def performed(self, sql: str, binds: Binds) -> Result:
        """Run one statement of ours that is no query: what it has to say, if anything, is not asked for in parts."""
        clause = text(sql if binds else sql.replace(":", "\\:"))
        with self._translated(), self._connection.execute(_bound(clause, binds), dict(binds)) as found:
            if not found.returns_rows:
                return Result(columns=(), rows=())
            rows = ((False, row) for row in found)
            return taken(tuple(found.keys()), rows, self._limits.rows, self._limits.bytes)

    def stop(self) -> None:
        """End what runs, from another thread."""
        with self._translated():
            self._door.stop(self._connection)

    def explain(self, sql: str, binds: Binds | None = None) -> Result:
        """Ask for the plan."""
        sql, binds = expanded(sql, self.dialect, binds)
        statement = read_statement(sql, self.dialect)
        values = checked_binds(statement, binds, self.dialect)
        with self._translated():
            self._door.admit(self._connection, statement)
            columns, rows = self._door.explained(self._connection, statement.text, values)
        return taken(tuple(columns), ((False, row) for row in rows), self._limits.rows, self._limits.bytes)

    def _asked(self, sql: str, values: dict[str, Any], most: int) -> Result:
        sized = self._door.sized(sql)
        options = {"stream_results": True, "max_row_buffer": MANY if self._door.mode is Mode.STEADY else AT_ONCE}
        with self._connection.execute(_bound(text(sized or sql), values), values, execution_options=options) as found:
            columns = tuple(found.keys())
            rows = _with_size(found) if sized else ((False, row) for row in found)
            return taken(columns[1:] if sized else columns, rows, most, self._limits.bytes)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(self._faults, HANDLED):
            yield


@contextmanager
def reading(door: Door, caller: Caller, limits: Limits, faults: Faults, database: str) -> Iterator[Reading]:
    """A connection for one caller; it goes back without a trace, unless its door writes and nothing went wrong."""
    try:
        connection = door.engine.connect()
    except DRIVERS as error:
        raise faults.unreached(error) from error
    with translated(faults, DRIVERS), connection:
        try:
            with door.begin(connection, caller), closing(Reading(connection, door, limits, faults, database)) as given:
                yield given
            if door.mode is Mode.WRITE:
                connection.commit()
        finally:
            connection.rollback()
            if door.mode is Mode.WRITE:
                # What a tool has set for its session, a role or a path, outlives a commit; nobody else may meet it.
                connection.invalidate()


def _bound(clause: TextClause, binds: Binds) -> TextClause:
    """The database settles the type of each value from where it stands: a date may come as text."""
    return clause.bindparams(*(bindparam(name, type_=NullType()) for name in binds))


def _with_size(found: Iterable[Sequence[Any]]) -> Iterator[tuple[bool, Sequence[Any]]]:
    for is_large, *row in found:
        yield bool(is_large), row
