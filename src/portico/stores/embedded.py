"""SQLite: one file that any number of processes read and one at a time writes; nothing to set up."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from threading import RLock
from time import monotonic, sleep
from typing import Any

from portico.errors import StoreError

from .database import Binds, Dialect, Row, Work, refusal, trouble
from .schema import HEAD, SCRIPT

BUSY_SECONDS = 10.0
WAL_PAGES = 4_000
"""Pages after which the log is copied into the file: the more, the less often those that every batch changes."""
_RETRY_SECONDS = 0.02
_REFUSALS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, UnicodeError, OverflowError)
_UNKNOWN_KIND = "Error binding parameter"
"""How newer versions of Python begin what they say of a value that no column can hold."""
_BIND = re.compile(r":([a-z_]+)")

_ADVICE = {
    sqlite3.SQLITE_FULL: "The disk is full: make room",
    sqlite3.SQLITE_IOERR: "The disk is full or broken: make room, or set PORTICO_HOME to another folder",
    sqlite3.SQLITE_BUSY: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_LOCKED: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or set PORTICO_HOME to a folder that is",
    sqlite3.SQLITE_CORRUPT: "The file is damaged: stop Portico and move it away to start afresh",
    sqlite3.SQLITE_NOTADB: "The file is damaged: stop Portico and move it away to start afresh",
}
_AT_THE_DOOR = (
    "Move the file away to start afresh (definitions are fetched again), or set PORTICO_HOME to a folder that can be "
    "written"
)
_AT_A_LOSS = "Run `portico doctor` to have the file checked"


class SqliteDatabase:
    """A database file, or one in memory that ends with it.

    One connection reads and another writes, so that nobody who reads waits for a writer.
    """

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path | None, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.where = str(path) if path else "in memory"
        self._durable, self._busy_seconds = durable, busy_seconds
        self._is_closed = False
        self._reader = self._open()
        self._writer = None if path else self._reader
        self._reading = RLock()
        self._writing = RLock() if path else self._reading

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement that reads."""
        with self._reading:
            self._see_open()
            return _SqliteWork(self._reader, self.where).rows(sql, binds)

    def run(self, sql: str, binds: Binds | Sequence[Binds] = ()) -> int:
        """Run a statement that writes, in a transaction of its own."""
        with self.transaction() as work:
            return work.run(sql, binds)

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        """Add rows, in a transaction of their own."""
        with self.transaction() as work:
            work.insert(table, rows)

    @contextmanager
    def transaction(self) -> Iterator[Work]:
        """Take the only seat that writes; other processes are waited for."""
        with self._writing:
            work = _SqliteWork(self._write_connection(), self.where)
            work.run("BEGIN IMMEDIATE")
            try:
                yield work
                work.run("COMMIT")
            except BaseException:
                with suppress(StoreError):  # a full disk has ended the transaction already
                    work.run("ROLLBACK")
                raise

    def version(self) -> str:
        """The last migration that ran, or that the file was made with."""
        return _version(self)

    def upgrade(self) -> None:
        """Make the tables of an empty file; one that has tables goes through its migrations."""
        with self.transaction() as work:  # another process may be quicker, and is then waited for
            if _version(work) == HEAD:
                return
            is_empty = not work.rows("SELECT 1 FROM sqlite_master LIMIT 1")
            if is_empty:
                for statement in SCRIPT.read_text(encoding="utf-8").split(";\n"):
                    work.run(statement)
        if not is_empty:
            # What runs migrations takes a quarter of a second to load, and hardly any start needs it.
            import_module("portico.stores.upgrading").upgrade_file(self.path, self._busy_seconds)

    def check(self) -> None:
        """Read the whole file.

        Raises:
            StoreError: something in it does not fit.
        """
        found = [line for (line,) in self.rows("PRAGMA integrity_check(3)") if line != "ok"]
        if found:
            raise trouble(self.where, found[0], _ADVICE[sqlite3.SQLITE_CORRUPT])

    def close(self) -> None:
        """Close the file."""
        with self._writing, self._reading:
            self._is_closed = True
            self._reader.close()
            if self._writer is not None:
                self._writer.close()

    def _see_open(self) -> None:
        if self._is_closed:
            raise trouble(self.where, "it is closed", "Open it again")

    def _write_connection(self) -> sqlite3.Connection:
        self._see_open()
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def _open(self) -> sqlite3.Connection:
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.touch(mode=0o600)  # it holds what callers have searched for
            connection = sqlite3.connect(
                self.path or ":memory:", timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                _switch_to_wal(connection, self._busy_seconds)
                connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
                connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            except sqlite3.Error:
                connection.close()
                raise
            return connection
        except (OSError, sqlite3.Error) as error:
            advice = _ADVICE.get(_code(error), _AT_THE_DOOR)
            raise StoreError(f"the store {self.where} cannot be opened: {error}. {advice}") from error


class SqliteLock:
    """A lock that its process cannot leave behind: SQLite's own, on a file that has nothing in it."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            self.is_mine = self._take()
        except sqlite3.Error as error:
            raise trouble(str(path), error, _advice(error)) from error

    def close(self) -> None:
        """Let go."""
        self._connection.close()

    def _take(self) -> bool:
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_BUSY:
                return False
            self._connection.close()
            raise
        return True


class _SqliteWork:
    """One connection while it is somebody's turn."""

    __slots__ = ("_connection", "_where")

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection, self._where = connection, where

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        try:
            return self._connection.execute(sql, binds or ()).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise _said(self._where, error) from error

    def run(self, sql: str, binds: Binds | Sequence[Binds] = ()) -> int:
        try:
            if isinstance(binds, Sequence) and binds:
                by_place, take = _by_place(sql)
                return self._connection.executemany(by_place, map(take, binds)).rowcount
            return self._connection.execute(sql, binds).rowcount
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise _said(self._where, error) from error

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        if rows:
            values = ", ".join(f":{column}" for column in rows[0])
            self.run(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({values})", rows)  # noqa: S608 - our words


def is_damaged(error: StoreError) -> bool:
    """Whether an error came of a file that is no database, or no longer one."""
    cause = getattr(error.__cause__, "orig", None) or error.__cause__  # a migration wraps what SQLite said
    return _code(cause) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _switch_to_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Have a log written ahead; processes that do so at once wait here, since SQLite itself does not make them wait."""
    end = monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or monotonic() >= end:
                raise
        sleep(_RETRY_SECONDS)


def _version(work: Work) -> str:
    if not work.rows("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"):
        return ""
    found = work.rows("SELECT version_num FROM alembic_version")
    return str(found[0][0]) if found else ""


@cache
def _by_place(sql: str) -> tuple[str, Callable[[Binds], Row]]:
    """The statement with binds by place, and what takes them out of a mapping: many rows are bound much faster so."""
    names: list[str] = _BIND.findall(sql)
    if len(names) == 1:
        return _BIND.sub("?", sql), lambda binds: (binds[names[0]],)
    return _BIND.sub("?", sql), itemgetter(*names)


def _said(where: str, error: Exception) -> StoreError:
    """What SQLite said, in our words."""
    is_refusal = isinstance(error, _REFUSALS) or str(error).startswith(_UNKNOWN_KIND)
    return refusal(where, error) if is_refusal else trouble(where, error, _advice(error))


def _advice(error: Any) -> str:
    return _ADVICE.get(_code(error), _AT_A_LOSS)


def _code(error: BaseException | None) -> int:
    """The primary code of what SQLite said; its extended codes have more in the upper bits."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
