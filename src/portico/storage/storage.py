"""The storage of an application, in a database or in memory, and how the store that the config names is opened."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from zlib import crc32

from portico.domain.journal_entries import CallQuery, Entry, RecordedCall, Report
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage, summed_up
from portico.errors import StoreError, StoreRefused, extra_for
from portico.protocols import DefinitionStore, Journal

from .catalog_tables import TierRecords
from .change_feed import ChangeFeed, FileChanges
from .database_interface import Database, bring_up, postgres_address, sqlite_file
from .events import DatabaseEvents, EventLog
from .journal import StoredJournal
from .journal_tables import CacheCounts, Ledger
from .memory import MemoryDefinitions, MemoryJournal
from .remembered_offerings import DatabaseDefinitions, LearnedSchemas
from .results import ResultStore
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

ALONE_SECONDS = 2.0
"""How long we wait until nobody else has a damaged file open: other starts find it damaged, too, and let go of it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Everything that is remembered; without a database it is gone with the process, and the parts that need one None.

    Every method may block, and raise StoreError.
    """

    definitions: DefinitionStore = field(default_factory=MemoryDefinitions)
    journal: Journal = field(default_factory=MemoryJournal)
    events: EventLog = field(default_factory=EventLog)
    ledger: Ledger | None = None
    tiers: TierRecords | None = None
    changes: ChangeFeed | None = None
    results: ResultStore | None = None
    """Where results go that have no room in memory."""
    schemas: LearnedSchemas | None = None
    name: str = "memory"
    """The store as it may be shown."""
    journal_mode: str = "memory"
    keep_days: int = 90
    closing: tuple[Callable[[], None], ...] = ()
    """Closes all of it, in this order."""

    def start(self) -> None:
        """Let the journal begin at once, for a process that goes on until it is told to stop; does not wait."""
        self.events.start()
        if isinstance(self.journal, StoredJournal):
            self.journal.start()

    def usage(self, recorded: Mapping[ToolId, Usage]) -> dict[ToolId, Usage]:
        """How the tools have done, as stored, or as recorded here where that knows of more calls."""
        stored = self.ledger.usage() if self.ledger is not None else {}
        newer = {id: usage for id, usage in recorded.items() if id not in stored or usage.calls > stored[id].calls}
        return {**stored, **newer}

    def report(self, *, days: int, limit: int, caller: str = "") -> Report:
        """The journal of the last days, summed up; without a database, what this process knows.

        Learned words are those that count for everybody, and those that this caller taught.
        """
        now = time()
        if self.ledger is not None:
            found, learned = self.ledger.report(days=days, limit=limit), self.ledger.learned()
        else:
            found = summed_up(dict(self.journal.usage()), days=days, limit=limit, now=now)
            learned = self.journal.learned()
        return replace(found, learned=learned.lines(caller, limit, now))

    def forget_learned(self) -> int:
        """Forget the words that were learned from use, and say how many there were."""
        if self.ledger is not None:
            if isinstance(self.journal, StoredJournal):
                self.journal.flush()  # else what waits to be written would be there afterwards
            forgotten = self.ledger.forget_learned()
            self.reread()
            return forgotten
        return self.journal.forget_learned() if isinstance(self.journal, MemoryJournal) else 0

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        """Single calls out of the journal, the newest first; without a database, the last ones of this process."""
        if self.ledger is not None:
            return self.ledger.calls(query)
        return self.journal.calls(query) if isinstance(self.journal, MemoryJournal) else []

    def entries(self, since: float) -> Iterator[Entry]:
        """Every entry of the journal from a moment on, the oldest first; without a database, those of this process."""
        if self.ledger is not None:
            return self.ledger.entries(since)
        return iter(self.journal.entries(since) if isinstance(self.journal, MemoryJournal) else ())

    def prune(self) -> None:
        """Drop old entries of the journal and old events."""
        self.events.prune()
        if self.ledger is not None:
            self.ledger.prune(keep_days=self.keep_days)

    def settle(self) -> None:
        """Count what processes lost that ended without notice."""
        if isinstance(self.journal, StoredJournal):
            self.journal.settle_now()

    def reread(self) -> None:
        """Read usage and learned words anew, in which other processes have a share."""
        if isinstance(self.journal, StoredJournal):
            self.journal.reread()


def open_storage(
    store: str,
    data: Path,
    *,
    name: str,
    journal_mode: str,
    keep_days: int,
    buffer: int,
    wait_seconds: float,
    caches: CacheCounts,
) -> Storage:
    """Open a store with all that belongs to it; a server that is away is no reason to fail.

    Raises:
        ConfigError, StoreError: as `open_database` does.
    """
    is_durable = journal_mode == "durable"
    database = open_database(store, data, durable=is_durable, patient=True)
    # One in memory is gone with its only writer, and has no more room than memory.
    is_kept = database.dialect != "sqlite" or sqlite_file(store, data) is not None
    changes, ledger = open_change_feed(database), Ledger(database)
    journal = StoredJournal(
        ledger,
        folder=data / "journal" / f"{crc32(database.where.encode()):08x}" if is_kept else None,
        durable=is_durable,
        buffer=buffer,
        wait_seconds=wait_seconds,
        caches=caches,
    )
    events = EventLog(DatabaseEvents(database, keep_days=keep_days))
    return Storage(
        definitions=DatabaseDefinitions(database),
        events=events,
        journal=journal,
        ledger=ledger,
        tiers=TierRecords(database),
        changes=changes,
        results=ResultStore(database) if is_kept else None,
        schemas=LearnedSchemas(database),
        name=name,
        journal_mode=journal_mode,
        keep_days=keep_days,
        closing=(changes.close, events.close, journal.close, database.close),
    )


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


def open_change_feed(database: Database) -> ChangeFeed:
    """How the processes that share this database tell each other of changes; closed before the database is."""
    if isinstance(database, SqliteDatabase):
        return ChangeFeed(database, FileChanges(database))
    from portico.storage.postgres import PostgresChanges, PostgresDatabase

    assert isinstance(database, PostgresDatabase), "there is no third kind"
    return ChangeFeed(database, PostgresChanges(database))


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
