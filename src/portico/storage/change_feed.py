"""How processes that share a database tell each other what has changed, and take turns at jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from threading import Event, Lock
from time import monotonic, time
from typing import Protocol

from .database_interface import Database, Work, key, upsert
from .sqlite import SqliteDatabase, SqliteLock, said

POLL_SECONDS = 0.5
CHANNEL = "portico_signals"

_ANNOUNCE = upsert("signals", "topic", add="number")
_RAN = upsert("jobs", "job", replace="ran_at")


class ChangeSource(Protocol):
    """What differs between databases: how one hears of changes, and how one is alone with a job."""

    def ring(self, work: Work) -> None:
        """Make others listen, once the transaction is committed."""
        ...

    def begin(self) -> None:
        """Be sure to hear whatever is announced from now on."""
        ...

    def heard(self, seconds: float) -> bool:
        """Wait at most so long, or less, and say whether something may have been announced since the last time."""
        ...

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """Hold a job, as long as this process lives and no longer."""
        ...

    def close(self) -> None:
        """Stop listening; whoever waits comes back soon."""
        ...


class ChangeFeed:
    """How processes that share a database tell each other what has changed, and take turns at jobs.

    Each topic (`tiers`, `offerings`, `categories`) has a number that only ever grows; a bell spares looking at them.
    Every method may raise StoreError.
    """

    def __init__(self, database: Database, change_source: ChangeSource, *, now: Callable[[], float] = time) -> None:
        self._database, self._bell, self._now = database, change_source, now
        self._seen: dict[str, int] | None = None
        self._is_closed = Event()

    def announce(self, topic: str) -> None:
        """Count an announcement, and ring."""
        with self._database.transaction() as work:
            work.run(_ANNOUNCE, {"topic": key(topic), "number": 1})
            self._bell.ring(work)

    def numbers(self) -> dict[str, int]:
        """How often each topic was announced; what comes after this ends the next wait."""
        self._bell.begin()
        self._seen = self._read()
        return dict(self._seen)

    def wait(self, seconds: float) -> bool:
        """Wait for an announcement that `numbers` or an earlier wait has not seen."""
        if self._seen is None:
            self.numbers()
        end = monotonic() + seconds
        while not self._is_closed.is_set():
            left = end - monotonic()
            if self._bell.heard(max(0.0, min(POLL_SECONDS, left))) and self._has_changed():
                return True
            if left <= 0:
                break
        return False

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """Hold a job; the lock goes with the process that has it."""
        return self._bell.alone(job)

    def last_run(self, job: str) -> float:
        """When a job last ended well."""
        found = self._database.rows("SELECT ran_at FROM jobs WHERE job = :job", {"job": key(job)})
        return float(found[0][0]) if found else 0.0

    def ran(self, job: str) -> None:
        """Remember that a job has ended well."""
        self._database.run(_RAN, {"job": key(job), "ran_at": self._now()})

    def close(self) -> None:
        """Stop listening."""
        self._is_closed.set()
        self._bell.close()

    def _has_changed(self) -> bool:
        numbers = self._read()
        changed, self._seen = numbers != self._seen, numbers
        return changed

    def _read(self) -> dict[str, int]:
        return dict(self._database.rows("SELECT topic, number FROM signals"))


class FileChanges:
    """Looks twice a second whether another connection has changed the SQLite file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._version: object = None
        self._closed = Event()
        self._mine: set[str] = set()
        self._turn = Lock()

    def ring(self, work: Work) -> None:
        """There is nobody to tell: everybody looks."""

    def begin(self) -> None:
        """Whatever is announced changes the file."""

    def heard(self, seconds: float) -> bool:
        """Look, and wait a while if nothing has changed; a file that is in memory does not tell."""
        if self._database.path is None:
            self._closed.wait(seconds)
            return True  # there is one connection only, and it does not notice its own changes
        if self._has_changed():
            return True
        self._closed.wait(seconds)
        return self._has_changed()

    @contextmanager
    def alone(self, job: str) -> Iterator[bool]:
        """Hold the lock of a file beside the database: not the database's own, since the job may write."""
        path = self._database.path
        if path is None:
            with self._alone_here(job) as is_mine:
                yield is_mine
            return
        beside = path.with_name(f"{path.name}-{re.sub(r'[^A-Za-z0-9_-]', '_', job)[:80]}.lock")
        try:
            lock = SqliteLock(beside)
        except sqlite3.Error as error:
            raise said(str(beside), error) from error
        with closing(lock):
            yield lock.is_mine

    def close(self) -> None:
        """Wake whoever waits."""
        self._closed.set()

    def _has_changed(self) -> bool:
        before, self._version = self._version, self._database.rows("PRAGMA data_version")
        return before != self._version

    @contextmanager
    def _alone_here(self, job: str) -> Iterator[bool]:
        with self._turn:
            is_mine = job not in self._mine
            self._mine.add(job)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._turn:
                    self._mine.discard(job)
