"""SQLite: one file that any number of processes read and one at a time writes."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import RLock, get_ident
from time import monotonic, sleep
from urllib.parse import quote

from portico.errors import StoreError, StoreRefused

from .database_interface import HEAD, SCRIPT, Binds, Database, Dialect, Row, Work, brief, bring_up, refusal, trouble

_REFUSALS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, UnicodeError, OverflowError)
_UNKNOWN_KIND = "Error binding parameter"
"""How newer versions of Python begin what they say of a value that no column can hold."""

DAMAGED = "The file is damaged: stop Portico and move it away to start afresh"

_ADVICE = {
    sqlite3.SQLITE_FULL: "The disk is full: make room",
    sqlite3.SQLITE_IOERR: "The disk is full or broken: make room, or set PORTICO_HOME to another folder",
    sqlite3.SQLITE_BUSY: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_LOCKED: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or set PORTICO_HOME to a folder that is",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_AT_THE_DOOR = (
    "Move the file away to start afresh (definitions are fetched again), or set PORTICO_HOME to a folder that can be "
    "written"
)
_AT_A_LOSS = "Run `portico doctor` to have the file checked"


def said(where: str, error: Exception) -> StoreError:
    """The error for a statement that could not be run."""
    is_refusal = isinstance(error, _REFUSALS) or str(error).startswith(_UNKNOWN_KIND)
    return refusal(where, error) if is_refusal else trouble(where, error, _ADVICE.get(code_of(error), _AT_A_LOSS))


def unopened(where: str, error: Exception) -> StoreError:
    """The error for a file that could not be opened."""
    advice = _ADVICE.get(code_of(error), _AT_THE_DOOR)
    return StoreError(f"the store {where} cannot be opened: {brief(error)}. {advice}")


def is_damaged(error: StoreError) -> bool:
    """Whether an error came of a file that is no database, or no longer one."""
    cause = getattr(error.__cause__, "orig", None) or error.__cause__  # a migration wraps what SQLite said
    return code_of(cause) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def code_of(error: BaseException | None) -> int:
    """The primary code of what SQLite said; its extended codes have more in the upper bits."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


class SqliteLock:
    """Held by one at a time, or `shared` by any number; until it is closed, or its process ends."""

    def __init__(self, path: Path, *, shared: bool = False, seconds: float = 0.0) -> None:
        """Take it, waiting at most so long; `is_mine` says whether it was free.

        Raises:
            sqlite3.Error: the file cannot be had.
        """
        self._connection = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
        self.is_mine = self._take(shared)

    def close(self) -> None:
        """Let go."""
        self._connection.close()

    def _take(self, shared: bool) -> bool:
        try:
            # A transaction that has read, be it nothing, keeps out whoever wants to be alone.
            for step in ("BEGIN", "SELECT 1 FROM sqlite_master") if shared else ("BEGIN EXCLUSIVE",):
                self._connection.execute(step).fetchall()
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_BUSY:
                return False
            self._connection.close()
            raise
        return True


_MAGIC = b"SQLite format 3\0"
_DATABASE_SUFFIXES = frozenset({".db", ".db3", ".sqlite", ".sqlite3"})
_OUR_COLUMNS = frozenset({"server", "fingerprint", "saved_at", "offering"})
"""The columns of the table `offerings`, which every layout of ours has had."""
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def refuse_foreign(path: Path) -> None:
    """Do nothing for a file that is ours or not there yet; nothing is written, whatever it is.

    Raises:
        StoreRefused: it is somebody else's file, or a damaged one.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise _foreign(path, "it is not a regular file")
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
    except OSError:
        return  # whoever opens it says why that cannot be done
    if not head:
        _refuse_empty(path)
    elif head != _MAGIC:
        raise _foreign(path, "it is not a SQLite database")
    elif not _holds_ours(path):
        raise _foreign(path, "its tables are not Portico's")


def _refuse_empty(path: Path) -> None:
    """An empty file is a database that was begun when it looks like one."""
    is_begun = any(path.with_name(path.name + ending).exists() for ending in ("-wal", "-open.lock"))
    if not is_begun and path.suffix.lower() not in _DATABASE_SUFFIXES:
        raise _foreign(path, "it is an empty file that is not called a database")


def _holds_ours(path: Path) -> bool:
    """Whether a SQLite file holds our tables, or none at all."""
    has_log = path.with_name(f"{path.name}-wal").exists()
    # Without a log the file is read as it lies: SQLite would otherwise put files beside it.
    address = f"file:{quote(str(path.absolute()))}?mode=ro" + ("" if has_log else "&immutable=1")
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            is_empty = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            columns = {row[1] for row in connection.execute("PRAGMA table_info(offerings)")}
    except sqlite3.Error as error:
        if code_of(error) in _DAMAGE:
            raise damaged(path) from error
        return True  # whoever opens it says why that cannot be done
    return is_empty or columns >= _OUR_COLUMNS


def damaged(path: Path) -> StoreRefused:
    """The error for a damaged file that the config names, and that is therefore not ours to move."""
    return StoreRefused(
        f"the store {path} is damaged, and is left as it is because the config names it. Move it away yourself to "
        "begin a new one, or point `store` at another file"
    )


def _foreign(path: Path, why: str) -> StoreRefused:
    return StoreRefused(
        f"the store {path} is not a database of Portico's: {why}. It is left as it is; point `store` at another file, "
        "or delete the line to use the default"
    )


BUSY_SECONDS = 10.0
WAL_PAGES = 4_000
"""Pages after which the log is copied into the file: the more, the less often those that every batch changes."""
_RETRY_SECONDS = 0.02
_PRESENCE = "-open.lock"
"""What the name of the file ends in that everybody holds who has the database open."""
_BIND = re.compile(r":([a-z_]+)")

logger = logging.getLogger(__name__)


class SqliteDatabase(Database):
    """A database file, or one in memory that ends with it.

    One connection reads and another writes, so that nobody who reads waits for a writer. When the file is taken away
    or replaced while it is open, the one that is in its place is used from then on, or a new one begun.
    """

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path | None, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.where = str(path) if path else "in memory"
        self._durable, self._busy_seconds = durable, busy_seconds
        self._is_closed = False
        self._reopener = 0
        """The thread that is opening the file again."""
        self._opened: tuple[int, int] | None = None
        """The file that is open, as long as it is as it should be."""
        self._held: list[sqlite3.Connection | SqliteLock] = []
        self._reading = RLock()
        self._writing = RLock() if path else self._reading
        self._writer: sqlite3.Connection | None = None
        self._take_place()

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement that reads."""
        self._see_file()
        with self._reading:
            self._see_open()
            return _SqliteWork(self._reader, self.where).rows(sql, binds)

    @contextmanager
    def transaction(self) -> Iterator[Work]:
        """Take the only seat that writes; other processes are waited for."""
        with self._writing:
            self._see_file()
            self._see_open()
            if self._writer is None:
                self._writer = self._open()
            work = _SqliteWork(self._writer, self.where)
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
        if not is_empty and self.path is not None:
            # What runs migrations takes a quarter of a second to load, and hardly any start needs it.
            from portico.storage.migrations import upgrade_file

            upgrade_file(self.path, self._busy_seconds)

    def check(self) -> None:
        """Read the whole file.

        Raises:
            StoreError: something in it does not fit.
        """
        found = [line for (line,) in self.rows("PRAGMA integrity_check(3)") if line != "ok"]
        if found:
            raise trouble(self.where, found[0], DAMAGED)

    def close(self) -> None:
        """Close the file."""
        with self._writing, self._reading:
            self._is_closed = True
            self._leave_place()

    def _see_file(self) -> None:
        """See to it that what is open is what lies there: what is written to a file without a name is never found."""
        if self._is_in_place or self._reopener == get_ident():
            return
        with self._writing, self._reading:
            if self._is_in_place:
                return
            self._reopener = get_ident()
            try:
                self._reopen()
            except BaseException:
                self._opened = None  # so that the next one tries again
                raise
            finally:
                self._reopener = 0

    @property
    def _is_in_place(self) -> bool:
        if self.path is None or self._is_closed:
            return True
        return self._opened is not None and self._opened == identity_of(self.path)

    def _reopen(self) -> None:
        if self._opened is not None:
            logger.warning(
                "the store %s was moved or deleted while it was open: what lies there now is used, or a new one begun, "
                "and what this process had stored is counted as lost",
                self.where,
            )
        self._leave_place()
        if self.path is not None:
            refuse_foreign(self.path)
        self._take_place()
        bring_up(self)

    def _take_place(self) -> None:
        """Open the file, and let everybody see that it is in use."""
        try:
            if self.path is not None:
                self._show_presence(self.path)
                self._opened = identity_of(self.path)
            self._reader = self._open()
            self._writer = None if self.path else self._reader
        except BaseException:
            self._leave_place()
            raise

    def _leave_place(self) -> None:
        while self._held:
            self._held.pop().close()

    def _show_presence(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # it holds what callers have searched for
            lock = SqliteLock(presence_of(path), shared=True, seconds=self._busy_seconds)
        except (OSError, sqlite3.Error) as error:
            raise unopened(self.where, error) from error
        self._held.append(lock)
        if not lock.is_mine:
            raise trouble(self.where, "another process is moving it aside", "Try again")

    def _see_open(self) -> None:
        if self._is_closed:
            raise trouble(self.where, "it is closed", "Open it again")

    def _open(self) -> sqlite3.Connection:
        try:
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
            self._held.append(connection)
            return connection
        except (OSError, sqlite3.Error) as error:
            raise unopened(self.where, error) from error


class _SqliteWork:
    """One connection while it is somebody's turn."""

    __slots__ = ("_connection", "_where")

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection, self._where = connection, where

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        try:
            return self._connection.execute(sql, binds or ()).fetchall()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise said(self._where, error) from error

    def run(self, sql: str, binds: Binds | Sequence[Binds] | None = None) -> int:
        try:
            if isinstance(binds, Sequence):
                by_place, take = _by_place(sql)
                return self._connection.executemany(by_place, map(take, binds)).rowcount if binds else 0
            return self._connection.execute(sql, binds or ()).rowcount
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise said(self._where, error) from error

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        if rows:
            values = ", ".join(f":{column}" for column in rows[0])
            self.run(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({values})", rows)  # noqa: S608 - our words


def presence_of(path: Path) -> Path:
    """The file beside a database that is locked by everybody who has it open."""
    return path.with_name(path.name + _PRESENCE)


def identity_of(path: Path) -> tuple[int, int] | None:
    """What tells the file that lies there from any other; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _switch_to_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Have a log written ahead; processes that do so at once wait here, since SQLite itself does not make them wait."""
    end = monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or monotonic() >= end:
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
