"""One caller's connection at work: rows come back within the limits, and what runs too long is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Lock, Timer
from typing import Any

import orjson
from sqlalchemy import Connection as SqlConnection
from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.types import NullType

from portico.domain.call import Caller

from .connection import Binds, Column, Mode, QueryLimits, QueryResult, TableName
from .faults import DRIVERS, HANDLED, Faults, translated
from .introspection import Door, Inspection, quoted
from .statements import expanded, read_statement
from .values import checked_binds, plain


class Looking:
    """The half of a `conn` that looks around; the inspector is made when it is first needed."""

    def __init__(self, door: Door, faults: Faults, database: str, connection: SqlConnection | None = None) -> None:
        self._door, self._faults, self._database = door, faults, database
        self._link = connection
        self._open = ExitStack()
        self._look: Inspection | None = None

    @property
    def dialect(self) -> str:
        """What SQL is spoken."""
        return str(self._door.engine.dialect.name)

    @property
    def inspector(self) -> Any:
        """SQLAlchemy's inspector; on SQLite it has a connection of its own, past the guard."""
        with self._looking() as look:
            return look.inspector

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas, the default one first."""
        with self._looking() as look:
            return look.schemas()

    def tables(self, schema: str = "") -> tuple[TableName, ...]:
        """The tables and views of a schema."""
        with self._looking() as look:
            return look.tables(schema)

    def find(self, table: str, schema: str = "") -> TableName:
        """The table or view of that name."""
        with self._looking() as look:
            return look.find(table, schema)

    def columns(self, table: TableName) -> tuple[Column, ...]:
        """The columns of a table in their order."""
        with self._looking() as look:
            return look.columns(table)

    def column(self, table: TableName, name: str) -> Column:
        """One column by name."""
        with self._looking() as look:
            return look.column(table, name)

    def ddl(self, table: TableName) -> str:
        """The statements that would create a table or view."""
        with self._looking() as look:
            return look.ddl(table)

    def quoted(self, subject: TableName | Column | str) -> str:
        """A name between this database's quotes."""
        return quoted(self._door.engine.dialect, subject)

    def close(self) -> None:
        """Let go of what was opened on the way."""
        self._open.close()

    @contextmanager
    def _looking(self) -> Iterator[Inspection]:
        with translated(self._faults, HANDLED):
            if self._look is None:
                inspector = self._open.enter_context(self._door.inspecting(self._link))
                self._look = Inspection(inspector, self._database)
            yield self._look


Rows = tuple[tuple[Any, ...], ...]


def taken(columns: tuple[str, ...], found: Iterable[tuple[bool, Sequence[Any]]], most: int, room: int) -> QueryResult:
    """Rows as JSON can say them; each comes with whether it is known to be too large."""
    rows: list[tuple[Any, ...]] = []
    for is_large, raw in found:
        if len(rows) == most:
            return cut_by_rows(columns, tuple(rows), most)
        is_large = is_large or _weight(raw) > room
        row = tuple(map(plain, raw)) if not is_large else ()
        room -= len(orjson.dumps(row, default=str))
        if is_large or room < 0:
            return cut_by_bytes(columns, tuple(rows))
        rows.append(row)
    return QueryResult(columns=columns, rows=tuple(rows))


def cut_by_rows(columns: tuple[str, ...], rows: Rows, most: int) -> QueryResult:
    """Rows of which there are more than may be shown."""
    note = f"only the first {most} rows are shown. Add WHERE, GROUP BY, or LIMIT and OFFSET to see others"
    return QueryResult(columns=columns, rows=rows, truncated=True, note=note)


def cut_by_bytes(columns: tuple[str, ...], rows: Rows) -> QueryResult:
    """Rows behind which one would have made the answer too large."""
    which = f"row {len(rows) + 1} and those after it"
    note = f"{which} are left out: the answer would be too large. Choose fewer columns, or parts of long values"
    return QueryResult(columns=columns, rows=rows, truncated=True, note=note)


def _weight(raw: Sequence[Any]) -> int:
    """Bytes that a row has at least, told before any of it is written anew."""
    return sum(len(value) for value in raw if isinstance(value, str | bytes))


@contextmanager
def stopped_after(seconds: float, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when the context is still open after so long; never later, which the lock makes sure of."""
    turn, is_over = Lock(), False

    def ring() -> None:
        with turn:
            if not is_over:
                stop()

    timer = Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turn:
            is_over = True


AT_ONCE = 16
"""Rows that are asked of a server at once, so that large ones do not come together."""
MANY = 1_000
"""The same where all statements are ours and read many small rows."""


class ReadSession(Looking):
    """What a tool is given as `conn`."""

    def __init__(
        self, connection: SqlConnection, door: Door, limits: QueryLimits, faults: Faults, database: str
    ) -> None:
        super().__init__(door, faults, database, connection)
        self._connection, self._limits = connection, limits

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> QueryResult:
        """Run one statement that reads."""
        sql, binds = expanded(sql, self.dialect, binds)
        statement = read_statement(sql, self.dialect)
        values = checked_binds(statement, binds, self.dialect)
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        with self._translated():
            self._door.admit(self._connection, statement)
            return self._asked(statement.text, values, most)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query whose words are ours: it was built of names that the database has, with values beside it."""
        most = self._limits.rows if limit is None else max(1, min(limit, self._limits.rows))
        with self._translated():
            return self._asked(sql, dict(binds), most)

    def performed(self, sql: str, binds: Binds) -> QueryResult:
        """Run one statement of ours that is no query: what it has to say, if anything, is not asked for in parts."""
        clause = text(sql if binds else sql.replace(":", "\\:"))
        with self._translated(), self._connection.execute(_bound(clause, binds), dict(binds)) as found:
            if not found.returns_rows:
                return QueryResult(columns=(), rows=())
            rows = ((False, row) for row in found)
            return taken(tuple(found.keys()), rows, self._limits.rows, self._limits.bytes)

    def stop(self) -> None:
        """End what runs, from another thread."""
        with self._translated():
            self._door.stop(self._connection)

    def explain(self, sql: str, binds: Binds | None = None) -> QueryResult:
        """Ask for the plan."""
        sql, binds = expanded(sql, self.dialect, binds)
        statement = read_statement(sql, self.dialect)
        values = checked_binds(statement, binds, self.dialect)
        with self._translated():
            self._door.admit(self._connection, statement)
            columns, rows = self._door.explained(self._connection, statement.text, values)
        return taken(tuple(columns), ((False, row) for row in rows), self._limits.rows, self._limits.bytes)

    def _asked(self, sql: str, values: dict[str, Any], most: int) -> QueryResult:
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
def reading(door: Door, caller: Caller, limits: QueryLimits, faults: Faults, database: str) -> Iterator[ReadSession]:
    """A connection for one caller; it goes back without a trace, unless its door writes and nothing went wrong."""
    try:
        connection = door.engine.connect()
    except DRIVERS as error:
        raise faults.unreached(error) from error
    with translated(faults, DRIVERS), connection:
        try:
            with (
                door.begin(connection, caller),
                closing(ReadSession(connection, door, limits, faults, database)) as given,
            ):
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
