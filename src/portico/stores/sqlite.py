"""The SQLite store: one file, readable by any number of processes, written a server at a time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from time import time
from typing import Any

import orjson

from portico.domain.server import Offering
from portico.errors import StoreError

BUSY_SECONDS = 10.0
VECTORS_KEPT = 20_000
USE_SECONDS = 86_400.0
"""How exactly the last use of a vector is known: a start that only reads writes nothing for a day."""

logger = logging.getLogger(__name__)


def _create_offerings(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE offerings (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, saved_at REAL NOT NULL,"
        " offering BLOB NOT NULL)"
    )


def _create_failures(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE failures (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, failed_at REAL NOT NULL,"
        " reason TEXT NOT NULL)"
    )


def _create_vectors(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE vectors (model TEXT NOT NULL, hash TEXT NOT NULL, used_at REAL NOT NULL, vector BLOB NOT NULL,"
        " PRIMARY KEY (model, hash))"
    )
    connection.execute("CREATE INDEX vectors_by_use ON vectors (used_at)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_offerings, _create_failures, _create_vectors)
"""Append only: the number of those that ran is the file's `user_version`."""


def open_sqlite(path: Path) -> SqliteStore:
    """Open the store; a file that is no database is moved aside, never overwritten, and a new one begun.

    Raises:
        StoreError: the folder cannot be written, or the file is locked.
    """
    try:
        return SqliteStore(path)
    except StoreError as error:
        if not _is_corrupt(error.__cause__):
            raise
    aside = path.with_name(f"{path.name}.corrupt-{int(time())}")
    for suffix in ("", "-wal", "-shm"):  # a new file must not be given the old one's log
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    logger.warning("the store %s is damaged: kept as %s, definitions are fetched again", path, aside.name)
    return SqliteStore(path)


class SqliteStore:
    """Remembers each server's offering, and vectors of texts, in a database file; threads take turns."""

    def __init__(self, path: Path, *, vectors_kept: int = VECTORS_KEPT) -> None:
        self._path, self._vectors_kept = path, vectors_kept
        self._turn = RLock()
        self._connection = self._open()

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        """The offerings whose fingerprint is still the same; a row that cannot be read is as good as missing."""
        rows = self._run("SELECT server, fingerprint, offering FROM offerings")
        found = {}
        for server, fingerprint, blob in rows:
            if servers.get(server) == fingerprint and (offering := _decoded(blob)) is not None:
                found[server] = offering
        return found

    def save(self, offering: Offering, fingerprint: str) -> None:
        """Remember one server's offering, whole, in one transaction.

        Raises:
            StoreError: the file cannot be written, or the offering is not JSON.
        """
        try:
            blob = orjson.dumps(asdict(offering))
        except (TypeError, RecursionError) as error:
            raise StoreError(f"the offering of {offering.server!r} cannot be written as JSON: {error}") from error
        self._run(
            "INSERT INTO offerings VALUES (?, ?, ?, ?) ON CONFLICT (server) DO UPDATE SET"
            " fingerprint = excluded.fingerprint, saved_at = excluded.saved_at, offering = excluded.offering",
            (offering.server, fingerprint, time(), blob),
        )
        self._run("DELETE FROM failures WHERE server = ?", (offering.server,))

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked.

        Raises:
            StoreError: the file cannot be written.
        """
        self._run(
            "INSERT INTO failures VALUES (?, ?, ?, ?) ON CONFLICT (server) DO UPDATE SET"
            " fingerprint = excluded.fingerprint, failed_at = excluded.failed_at, reason = excluded.reason",
            (server, fingerprint, time(), reason),
        )

    def failures(self, servers: Mapping[str, str], *, within: float) -> dict[str, str]:
        """Why servers could not be asked, as long as that is recent."""
        rows = self._run("SELECT server, fingerprint, reason FROM failures WHERE failed_at >= ?", (time() - within,))
        return {server: reason for server, mark, reason in rows if servers.get(server) == mark}

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is remembered of these servers."""
        for server in servers:
            self._run("DELETE FROM offerings WHERE server = ?", (server,))
            self._run("DELETE FROM failures WHERE server = ?", (server,))

    def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The vectors that are remembered under these hashes."""
        wanted, now = orjson.dumps(list(hashes)).decode(), time()
        found = self._run(
            "SELECT hash, vector, used_at FROM vectors WHERE model = ? AND hash IN (SELECT value FROM json_each(?))",
            (model, wanted),
        )
        if any(used_at < now - USE_SECONDS for _, _, used_at in found):
            self._run(
                "UPDATE vectors SET used_at = ? WHERE model = ? AND hash IN (SELECT value FROM json_each(?))",
                (now, model, wanted),
            )
        return {hash: vector for hash, vector, _ in found}

    def save_vectors(self, model: str, rows: Mapping[str, bytes]) -> None:
        """Remember vectors in one transaction; those not used for longest make room.

        Raises:
            StoreError: the file cannot be written.
        """
        now = time()
        with self._transaction():
            for hash, vector in rows.items():
                self._run("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (model, hash, now, vector))
            ((kept,),) = self._run("SELECT count(*) FROM vectors")
            if kept > self._vectors_kept:
                self._run(
                    "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY used_at, rowid LIMIT ?)",
                    (kept - self._vectors_kept,),
                )

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                _migrate(connection)
            except sqlite3.DatabaseError:
                connection.close()
                raise
            return connection
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"the store {self._path} cannot be opened: {error}. Move the file away to start afresh "
                "(definitions are fetched again), or set PORTICO_HOME to a folder that can be written"
            ) from error

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            with self._turn:
                return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the store {self._path} did not answer: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._turn:
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                with suppress(StoreError):
                    self._run("ROLLBACK")
                raise


def _migrate(connection: sqlite3.Connection) -> None:
    with closing(connection.execute("PRAGMA user_version")) as cursor:
        (done,) = cursor.fetchone()
    if done == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        with closing(connection.execute("PRAGMA user_version")) as cursor:
            (done,) = cursor.fetchone()  # another process may have been quicker
        for migration in MIGRATIONS[done:]:
            migration(connection)
        connection.execute(f"PRAGMA user_version = {max(done, len(MIGRATIONS))}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _is_corrupt(cause: BaseException | None) -> bool:
    damaged = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
    return isinstance(cause, sqlite3.DatabaseError) and getattr(cause, "sqlite_errorcode", 0) & 0xFF in damaged


def _decoded(blob: bytes) -> Offering | None:
    try:
        fields: dict[str, Any] = orjson.loads(blob)
        for key in ("tools", "prompts", "resources", "templates"):
            fields[key] = tuple(fields.get(key, ()))
        return Offering(**fields)
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return None
