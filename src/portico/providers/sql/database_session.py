"""A database that SQLAlchemy reaches, and the session of one caller: rows within the limits, then a rollback."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from threading import Lock, Timer
from typing import Any

import orjson
from sqlalchemy import URL, Connection, Engine, TextClause, bindparam, create_engine, inspect, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.types import NullType

from portico.domain.call import Caller
from portico.errors import ConfigError

from .database_errors import DRIVERS, DriverErrors
from .database_source import EXAMPLES, Address, missing_driver
from .read_connection import Binds, Mode, OwnConnection, OwnQuery, QueryLimits, QueryResult
from .sql_lexer import ReadStatement, expand_lists, read_statement
from .sql_values import check_binds, plain
from .table_inspection import TableInspection

POOLED = 5
AT_ONCE = 16
"""Rows that are asked of a server at once, so that large ones do not come together."""
MANY = 1_000
"""Rows at once where all statements are ours and read many small rows."""


class DatabaseEngine:
    """Any database that SQLAlchemy has a driver for: words are checked, and everything is rolled back at the end.

    What the database itself forbids its user is the real lock here; the guide says so.
    """

    explain_with = "EXPLAIN"

    def __init__(
        self,
        address: Address,
        limits: QueryLimits,
        mode: Mode = Mode.READ,
        *,
        secrets: Collection[str] = (),
        **options: Any,
    ) -> None:
        """Make an engine; nothing is connected yet.

        Raises:
            ConfigError: the URL cannot be read, or there is no driver.
        """
        self.limits, self.mode = limits, mode
        self.engine = make_engine(address.url, pool_timeout=limits.seconds, **options)
        self.name = str(self.engine.url.database or "")
        self.errors = DriverErrors({*_secrets(self.engine.url), *secrets})

    @contextmanager
    def reading(self, caller: Caller) -> Iterator[OwnConnection]:
        """A session for one caller; it ends without a trace, unless this database is written and nothing went wrong."""
        try:
            connection = self.engine.connect()
        except DRIVERS as error:
            raise self.errors.unreached(error) from error
        with self.errors.translating(DRIVERS), connection:
            try:
                with self.begin(connection, caller), closing(ReadSession(self, connection)) as session:
                    yield session
                if self.mode is Mode.WRITE:
                    connection.commit()
            finally:
                connection.rollback()
                if self.mode is Mode.WRITE:
                    # What a tool has set for its session, a role or a path, outlives a commit; nobody else may meet it.
                    connection.invalidate()

    def asking(self, caller: Caller) -> AbstractContextManager[OwnQuery]:
        """A session for one caller's queries that are ours."""
        return self.reading(caller)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """While this is open a connection is read-only, within its time, and known as this caller's."""
        dialect = connection.dialect.name if self.mode is not Mode.WRITE else ""
        if dialect in ("mysql", "mariadb"):
            connection.rollback()
            connection.exec_driver_sql(f"SET SESSION MAX_EXECUTION_TIME={int(1_000 * self.limits.seconds)}")
            connection.exec_driver_sql("START TRANSACTION READ ONLY")
        elif dialect == "oracle":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        yield

    def admit(self, connection: Connection, statement: ReadStatement) -> None:
        """Return when a statement, whose words were checked already, may be sent.

        Raises:
            Refused: it calls what it must not.
        """

    def limit_row_size(self, sql: str) -> str | None:
        """The statement with a first column that tells whether a row is too large to be sent; None without one."""
        return None

    def explain(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The columns and rows of a plan."""
        result = connection.execute(text(f"{self.explain_with} {sql}"), binds)
        return list(result.keys()), [tuple(row) for row in result]

    @contextmanager
    def open_inspector(self, connection: Connection | None) -> Iterator[Any]:
        """SQLAlchemy's inspector, of this connection where there is no other."""
        yield inspect(connection)

    def stop(self, connection: Connection) -> None:
        """End what a connection is at work on, from another thread; without a common way, the database's limit does."""

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


def make_engine(url: str, **options: Any) -> Engine:
    """An engine with a small pool.

    Raises:
        ConfigError: the URL cannot be read, or there is no driver.
    """
    try:
        return create_engine(url, pool_size=POOLED, max_overflow=POOLED, **options)
    except NoSuchModuleError as error:
        raise missing_driver(url.partition("://")[0]) from error
    except ModuleNotFoundError as error:
        raise missing_driver(str(error.name), str(error.name)) from error
    except (ArgumentError, ValueError, SQLAlchemyError) as error:
        raise ConfigError("the URL cannot be read", where="DATABASE_URI", fix=f"Write {EXAMPLES}") from error


def _secrets(url: URL) -> Collection[str]:
    """The parts of a URL that no error may show."""
    found = {url.username, str(url.password or ""), url.host, url.render_as_string(hide_password=False)}
    for values in url.query.values():
        found.update([values] if isinstance(values, str) else values)
    folders = {str(Path(part)) for part in found if part and part.startswith("/")}
    return {part for part in found if part} | folders


def driver_of(connection: Connection) -> DBAPIConnection:
    """The driver's own connection."""
    driver: DBAPIConnection | None = connection.connection.driver_connection
    assert driver is not None
    return driver


class ReadSession(TableInspection):
    """The `conn` of a tool: one caller's connection at work."""

    def __init__(self, database: DatabaseEngine, connection: Connection) -> None:
        super().__init__(database, connection)
        self._connection = connection

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> QueryResult:
        """Run one statement that reads."""
        statement, values = checked_statement(sql, binds, self.dialect)
        with self.database.errors.translating():
            self.database.admit(self._connection, statement)
            return self._ask(statement.text, values, limit)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query whose words are ours: it was built of names that the database has, with values beside it."""
        with self.database.errors.translating():
            return self._ask(sql, dict(binds), limit)

    def performed(self, sql: str, binds: Binds) -> QueryResult:
        """Run one statement of ours that is no query: its answer, if there is one, is not asked for in parts."""
        clause = _untyped(text(sql if binds else sql.replace(":", "\\:")), binds)
        with self.database.errors.translating(), self._connection.execute(clause, dict(binds)) as found:
            if not found.returns_rows:
                return QueryResult(columns=(), rows=())
            return limit_rows(tuple(found.keys()), ((False, row) for row in found), self.database.limits)

    def explain(self, sql: str, binds: Binds | None = None) -> QueryResult:
        """Ask for the plan."""
        statement, values = checked_statement(sql, binds, self.dialect)
        with self.database.errors.translating():
            self.database.admit(self._connection, statement)
            columns, rows = self.database.explain(self._connection, statement.text, values)
        return limit_rows(tuple(columns), ((False, row) for row in rows), self.database.limits)

    def stop(self) -> None:
        """End what runs, from another thread."""
        with self.database.errors.translating():
            self.database.stop(self._connection)

    def _ask(self, sql: str, values: dict[str, Any], limit: int | None) -> QueryResult:
        sized = self.database.limit_row_size(sql)
        clause = _untyped(text(sized or sql), values)
        options = {"stream_results": True, "max_row_buffer": MANY if self.database.mode is Mode.STEADY else AT_ONCE}
        with self._connection.execute(clause, values, execution_options=options) as found:
            columns = tuple(found.keys())
            rows = ((bool(row[0]), row[1:]) for row in found) if sized else ((False, row) for row in found)
            return limit_rows(columns[1:] if sized else columns, rows, self.database.limits, limit)


def checked_statement(sql: str, binds: Binds | None, dialect: str) -> tuple[ReadStatement, dict[str, Any]]:
    """A statement that reads, and the values for its placeholders.

    Raises:
        CallError: it does more than read, or a value cannot be sent.
    """
    sql, binds = expand_lists(sql, dialect, binds)
    statement = read_statement(sql, dialect)
    return statement, check_binds(statement, binds, dialect)


def _untyped(clause: TextClause, binds: Binds) -> TextClause:
    """The database settles the type of each value from where it stands: a date may come as text."""
    return clause.bindparams(*(bindparam(name, type_=NullType()) for name in binds))


Rows = tuple[tuple[Any, ...], ...]


def limit_rows(
    columns: tuple[str, ...],
    found: Iterable[tuple[bool, Sequence[Any]]],
    limits: QueryLimits,
    wanted: int | None = None,
) -> QueryResult:
    """Rows as JSON can say them; each comes with whether it is known to be too large."""
    rows: list[tuple[Any, ...]] = []
    most, room = limits.rows_for(wanted), limits.bytes
    for is_large, raw in found:
        if len(rows) == most:
            return cut_by_rows(columns, tuple(rows))
        # The bytes that a row has at least are known before any of it is written as JSON.
        is_large = is_large or sum(len(value) for value in raw if isinstance(value, str | bytes)) > room
        row = tuple(map(plain, raw)) if not is_large else ()
        room -= len(orjson.dumps(row, default=str))
        if is_large or room < 0:
            return cut_by_bytes(columns, tuple(rows))
        rows.append(row)
    return QueryResult(columns=columns, rows=tuple(rows))


def cut_by_rows(columns: tuple[str, ...], rows: Rows) -> QueryResult:
    """Rows of which there are more than may be shown."""
    note = f"only the first {len(rows)} rows are shown. Add WHERE, GROUP BY, or LIMIT and OFFSET to see others"
    return QueryResult(columns=columns, rows=rows, truncated=True, note=note)


def cut_by_bytes(columns: tuple[str, ...], rows: Rows) -> QueryResult:
    """Rows behind which one would have made the answer too large."""
    which = f"row {len(rows) + 1} and those after it"
    note = f"{which} are left out: the answer would be too large. Choose fewer columns, or parts of long values"
    return QueryResult(columns=columns, rows=rows, truncated=True, note=note)


@contextmanager
def stop_after(seconds: float, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when the context is still open after so long; never later, which the lock makes sure of."""
    lock, is_over = Lock(), False

    def ring() -> None:
        with lock:
            if not is_over:
                stop()

    timer = Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
