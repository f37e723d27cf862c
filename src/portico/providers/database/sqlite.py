"""SQLite: a file that is opened for reading only, and asks a guard before every step."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, cast

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, inspect, text
from sqlalchemy.exc import DisconnectionError

from portico.domain.caller import Caller

from .doors import CONNECT_SECONDS, POOLED, driver_of
from .limits import Limits
from .modes import Mode
from .statements import Statement
from .stopping import stopped_after

LARGEST_VALUE = 16_000_000
"""Bytes of one value, also of one that is only worked out on the way."""
MOST_MEMORY = 512_000_000
"""Bytes that SQLite may hold in this process, whoever asks: one statement can make thousands of large values."""
STEPS = 2_000
"""Steps of SQLite's machine between two looks at the clock."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_BARRED = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "zipfile", "fsdir"})
_PRAGMAS = frozenset({"data_version", "read_uncommitted"})
"""Asked by full-text tables and by SQLAlchemy, without a value: they tell and change nothing."""
_BUILT_IN = ("SELECT 1 FROM json_each('[]')", "SELECT 1 FROM json_tree('[]')")
"""Tables that SQLite itself brings; to the guard their first use looks like making one."""
_VIRTUAL = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}


class _Guarded(sqlite3.Connection):
    """A connection with a time at which it stops, and a guard that looks away from what is ours."""

    until: float = math.inf
    is_ours: bool = False


class SqliteDoor:
    """Two engines on one file: what agents ask goes through the guard, our own looks at the schema do not."""

    def __init__(self, file: Path, limits: Limits, *, mode: Mode = Mode.READ) -> None:
        self._file, self._seconds, self.mode = file, limits.seconds, mode
        self.engine = _engine(lambda: _guard(self._connect()), limits)
        self._looking = _engine(self._connect, limits)
        for engine in (self.engine, self._looking):
            event.listen(engine, "connect", self._mark)
            event.listen(engine, "checkout", self._check)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """A file knows no callers; it only has its time."""
        guarded = cast(_Guarded, driver_of(connection))
        _wake(guarded)
        guarded.until = monotonic() + self._seconds
        try:
            # The clock is looked at between steps, of which some take long; an interruption is seen after each.
            with stopped_after(self._seconds, guarded.interrupt), _steady(guarded, self.mode):
                yield
        finally:
            guarded.until = math.inf

    def admit(self, connection: Connection, statement: Statement) -> None:
        """The guard asks at every step."""

    def sized(self, sql: str) -> str | None:
        """Values are limited by SQLite itself, and rows are taken one by one."""
        return None

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The query plan; the bytecode tells an agent nothing."""
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"), binds)
        return list(plan.keys()), [tuple(row) for row in plan]

    @contextmanager
    def inspecting(self, connection: Connection) -> Iterator[Any]:
        """Of a connection whose statements are all ours."""
        with self._looking.connect() as looking:
            yield inspect(looking)

    def stop(self, connection: Connection) -> None:
        """Interrupt the statement that runs."""
        cast(_Guarded, driver_of(connection)).interrupt()

    def close(self) -> None:
        """Let go of the file."""
        self.engine.dispose()
        self._looking.dispose()

    def _mark(self, driver: Any, record: Any) -> None:
        record.info["file"] = self._identity()

    def _check(self, driver: Any, record: Any, proxy: Any) -> None:
        """A file that was put in the place of another is opened anew, and one that is gone is not read on."""
        if record.info.get("file") != self._identity():
            raise DisconnectionError

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self) -> _Guarded:
        address = f"{self._file.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            address, uri=True, check_same_thread=False, timeout=CONNECT_SECONDS, factory=_Guarded, isolation_level=None
        )
        try:
            heap = f"hard_heap_limit={MOST_MEMORY}"
            for pragma in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", heap):
                connection.execute(f"PRAGMA {pragma}")
            for limit, value in _LIMITS.items():
                connection.setlimit(limit, value)
            connection.execute("SELECT count(*) FROM sqlite_master")  # a file that is no database is told here
        except sqlite3.Error:
            connection.close()
            raise
        connection.text_factory = _text
        return connection


def _engine(creator: Any, limits: Limits) -> Engine:
    return create_engine(
        "sqlite://",
        creator=creator,
        poolclass=QueuePool,
        pool_size=POOLED,
        max_overflow=POOLED,
        pool_timeout=limits.seconds,
        isolation_level="AUTOCOMMIT",
    )


def _guard(connection: _Guarded) -> _Guarded:
    """Let a connection do nothing but read, with the functions that SQLite itself brings."""
    for statement in _BUILT_IN:
        with suppress(sqlite3.Error):  # a SQLite that was built without JSON
            connection.execute(statement)
    built_in = {str(row[0]).lower() for row in connection.execute("SELECT name FROM pragma_function_list")} - _BARRED

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _ALLOWED or connection.is_ours:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if str(second).lower() in built_in else sqlite3.SQLITE_DENY
        is_telling = action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS and not second
        return sqlite3.SQLITE_OK if is_telling else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    connection.set_progress_handler(lambda: int(monotonic() > connection.until), STEPS)
    return connection


@contextmanager
def _steady(connection: _Guarded, mode: Mode) -> Iterator[None]:
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


def _own(connection: _Guarded, sql: str) -> None:
    connection.is_ours = True
    try:
        connection.execute(sql)
    finally:
        connection.is_ours = False


def _wake(connection: _Guarded) -> None:
    """Let virtual tables declare their columns, which looks like writing to the guard; once for each schema."""
    connection.is_ours = True
    try:
        names = [str(row[0]) for row in connection.execute(_VIRTUAL)]
        for name in names:
            with suppress(sqlite3.Error):  # one whose module is not there cannot be read, and says so when it is
                connection.execute('SELECT 1 FROM "{}" LIMIT 0'.format(name.replace('"', '""')))  # noqa: S608
    finally:
        connection.is_ours = False


def _text(raw: bytes) -> str | bytes:
    """Text as it was stored; what is none stays bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
