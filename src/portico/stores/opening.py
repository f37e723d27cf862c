"""Opens the database that the config names, with its tables as this program needs them."""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import time

from portico.errors import StoreError

from .addresses import postgres_address, sqlite_file
from .database import Database
from .embedded import BUSY_SECONDS, SqliteDatabase, is_damaged
from .schema import bring_up
from .signals import DatabaseSignals, FileBell

logger = logging.getLogger(__name__)


def open_database(
    store: str, data: Path, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS, patient: bool = False
) -> Database:
    """Open a store as it is spelled in the config; the default, `sqlite`, is a file in the data folder.

    A SQLite file that is damaged is moved aside, never overwritten, and a new one begun. With `patient`, a server that
    is away is no reason to fail: it is asked at the first use, and again at every one until it is back.

    Raises:
        StoreError: it is spelled wrongly, cannot be reached or written, or belongs to a newer Portico.
    """
    address = postgres_address(store)
    if address is not None:
        # SQLAlchemy takes a fifth of a second to load, which a command that reads a SQLite file must not pay.
        server: Database = import_module("portico.stores.postgres").PostgresDatabase(address)
        return server if patient else _brought_up(server)
    return open_file(sqlite_file(store, data), durable=durable, busy_seconds=busy_seconds)


def open_file(path: Path | None, *, durable: bool = False, busy_seconds: float = BUSY_SECONDS) -> Database:
    """Open a SQLite file, or one in memory; what is damaged is moved aside, never overwritten, and a new one begun.

    Raises:
        StoreError: it cannot be written, is locked, or belongs to a newer Portico.
    """
    try:
        return _brought_up(SqliteDatabase(path, durable=durable, busy_seconds=busy_seconds))
    except StoreError as error:
        if path is None or not is_damaged(error):
            raise
    _move_aside(path)
    return _brought_up(SqliteDatabase(path, durable=durable, busy_seconds=busy_seconds))


def open_signals(database: Database) -> DatabaseSignals:
    """How the processes that share this database tell each other of changes; closed before the database is."""
    if isinstance(database, SqliteDatabase):
        return DatabaseSignals(database, FileBell(database))
    return DatabaseSignals(database, import_module("portico.stores.listening").PostgresBell(database))


def _brought_up(database: Database) -> Database:
    try:
        bring_up(database)
    except BaseException:
        database.close()
        raise
    return database


def _move_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.corrupt-{int(time())}")
    for suffix in ("", "-wal", "-shm"):  # a new file must not be given the old one's log
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    logger.warning(
        "the store %s is damaged: kept as %s, definitions are fetched again and usage is counted anew", path, aside.name
    )
