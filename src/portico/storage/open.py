"""Opens the storage that the config names."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, time

from portico.errors import StoreError, StoreRefused, extra_for

from .addresses import postgres_address, sqlite_file
from .changes import DatabaseChangeFeed, FileChanges
from .database import Database, bring_up
from .sqlite import (
    BUSY_SECONDS,
    SqliteDatabase,
    SqliteLock,
    damaged,
    identity_of,
    is_damaged,
    presence_of,
    refuse_foreign,
    unopened,
)

AGAIN_SECONDS = 600.0
"""After so long without a mention, trouble is told in full again."""
STILL_AWAY = "the store is still away"


class BrieflyAgain(logging.Filter):
    """Lets a `StoreError` be told in full once; later records that mention the same one only say it is still so.

    For the handler of a program: it sees the records of all loggers.
    """

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten what was told already; every record passes."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._briefly(part) for part in record.args)
        return True

    def _briefly(self, part: object) -> object:
        if not isinstance(part, StoreError) or isinstance(part, StoreRefused):
            return part
        now, text = self._now(), str(part)
        before, self._told = self._told.get(text), {k: at for k, at in self._told.items() if now - at < AGAIN_SECONDS}
        self._told[text] = now
        return text if before is None or now - before >= AGAIN_SECONDS else STILL_AWAY


ALONE_SECONDS = 2.0
"""How long we wait until nobody else has a damaged file open: other starts find it damaged, too, and let go of it."""

logger = logging.getLogger(__name__)


def open_database(
    store: str, data: Path, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS, patient: bool = False
) -> Database:
    """Open a store as it is spelled in the config; the default, `sqlite`, is a file in the data folder.

    The default file is moved aside when it is damaged, never overwritten, and a new one begun; a file that the config
    names is refused when it is damaged or not a database of ours. With `patient`, a server that is away is no reason to
    fail: it is asked again at every use until it is back. One that is there and cannot be used is a reason
    nevertheless.

    Raises:
        ConfigError: the driver of PostgreSQL is not installed.
        StoreRefused: it belongs to a newer Portico, or is not fit for what is stored.
        StoreError: it is spelled wrongly, or cannot be reached or written.
    """
    address = postgres_address(store)
    if address is not None:
        # SQLAlchemy takes a fifth of a second to load, which a command that reads a SQLite file must not pay.
        with extra_for("PostgreSQL stores"):
            from portico.storage.postgres import PostgresDatabase

            server = PostgresDatabase(address)
        return _brought_up(server, server.bring_up, patient=patient)
    path, default = sqlite_file(store, data), sqlite_file("sqlite", data)
    is_ours_to_move = path is not None and default is not None and path.resolve() == default.resolve()
    return open_file(path, durable=durable, busy_seconds=busy_seconds, is_ours_to_move=is_ours_to_move)


def open_file(
    path: Path | None, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS, is_ours_to_move: bool = False
) -> Database:
    """Open a SQLite file, or one in memory; a file of somebody else's is refused and left as it is.

    What is damaged is refused as well, unless it is ours to move: then it is moved aside, never overwritten, and a new
    one begun.

    Raises:
        StoreRefused: it belongs to a newer Portico or to another program, or is damaged and not ours to move.
        StoreError: it cannot be written, is locked, or is damaged and still open elsewhere.
    """
    seen = identity_of(path) if path else None
    if path is not None and not is_ours_to_move:
        refuse_foreign(path)
    try:
        return _open_file(path, durable, busy_seconds)
    except StoreError as error:
        if path is None or not is_damaged(error):
            raise
        if not is_ours_to_move:
            raise damaged(path) from error
    with _alone_with(path):
        if identity_of(path) == seen:  # else another process was quicker
            _move_aside(path)
    return _open_file(path, durable, busy_seconds)


def open_change_feed(database: Database) -> DatabaseChangeFeed:
    """How the processes that share this database tell each other of changes; closed before the database is."""
    if isinstance(database, SqliteDatabase):
        return DatabaseChangeFeed(database, FileChanges(database))
    from portico.storage.postgres import PostgresChanges, PostgresDatabase

    assert isinstance(database, PostgresDatabase), "there is no third kind"
    return DatabaseChangeFeed(database, PostgresChanges(database))


def _open_file(path: Path | None, durable: bool, busy_seconds: float) -> Database:
    database = SqliteDatabase(path, durable=durable, busy_seconds=busy_seconds)
    return _brought_up(database, lambda: bring_up(database))


def _brought_up(database: Database, up: Callable[[], None], *, patient: bool = False) -> Database:
    try:
        up()
    except BaseException as error:
        if patient and isinstance(error, StoreError) and not isinstance(error, StoreRefused):
            return database
        database.close()
        raise
    return database


@contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """While this is open nobody else has the file open: what they write would go to a file that nobody finds."""
    try:
        lock = SqliteLock(presence_of(path), seconds=ALONE_SECONDS)
    except sqlite3.Error as error:
        raise unopened(str(path), error) from error
    with closing(lock):
        if not lock.is_mine:
            raise StoreError(
                f"the store {path} is damaged, and another process still has it open. Stop `portico serve` and "
                "whatever else uses this store, then try again: the file is moved aside and a new one begun"
            )
        yield


def _move_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.corrupt-{int(time())}")
    for suffix in ("", "-wal", "-shm"):  # a new file must not be given the old one's log
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    logger.warning(
        "the store %s is damaged: kept as %s, definitions are fetched again and usage is counted anew", path, aside.name
    )
