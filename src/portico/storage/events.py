"""What happened to servers and to gateways: kept for a while, written in the background, a flood as a few rows."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any, Protocol

from portico.domain import VERSION
from portico.domain.journal_entries import EventQuery, FleetEvent, RecordedEvent
from portico.domain.usage_and_tiers import DAY_SECONDS
from portico.errors import StoreError, StoreRefused
from portico.text.untrusted import on_one_line, printable

from .database_interface import Database, key

DAYS_KEPT = 30
ROWS_KEPT = 10_000
MEMORY_KEPT = 1_000
BUFFER = 1_000
"""Rows that wait for the store at most."""
TOGETHER = 1.0
"""Seconds within which what happens to one server again becomes one row."""
PAUSE = 2.0
"""Between two tries while the store is away."""
CLOSE_SECONDS = 3.0
TIDIED_AFTER = 500
"""Rows that one process writes before it looks whether there are too many."""
NAME, TEXT, STDERR = 200, 1_000, 4_000
"""Letters of a name, of what happened, and of the last words of a server."""

_COLUMNS = ("at", "gateway", "server", "kind", "text", "stderr", "times")
_SELECT = f"SELECT id, {', '.join(_COLUMNS)} FROM events"  # noqa: S608 - names of columns
_TOO_MANY = "DELETE FROM events WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET :most)"

logger = logging.getLogger(__name__)


class EventRows(Protocol):
    """Where events are kept."""

    def add(self, events: Sequence[FleetEvent]) -> None:
        """Keep some."""
        ...

    def find(self, query: EventQuery) -> list[RecordedEvent]:
        """Those that a query asks for, the newest first."""
        ...

    def prune(self) -> None:
        """Drop what is too old, and what is too much."""
        ...


class MemoryEvents:
    """The newest events, for as long as the process lives."""

    def __init__(self) -> None:
        self._kept: deque[RecordedEvent] = deque(maxlen=MEMORY_KEPT)
        self._number = 0

    def add(self, events: Sequence[FleetEvent]) -> None:
        """Keep some; the oldest make room."""
        for event in events:
            self._number += 1
            self._kept.append(RecordedEvent(number=self._number, event=event))

    def find(self, query: EventQuery) -> list[RecordedEvent]:
        """Those that a query asks for, the newest first."""
        return [kept for kept in reversed(list(self._kept)) if query.passes(kept)][: query.limit]

    def prune(self) -> None:
        """There is never too much."""


class DatabaseEvents:
    """Events in a database; any number of processes may write to it."""

    def __init__(
        self, database: Database, *, keep_days: int = DAYS_KEPT, most: int = ROWS_KEPT, now: Callable[[], float] = time
    ) -> None:
        self._database, self._now = database, now
        self._keep_days, self._most = min(keep_days, DAYS_KEPT), most
        self._added = 0

    def add(self, events: Sequence[FleetEvent]) -> None:
        """Keep some, in one transaction.

        Raises:
            StoreError: the database cannot be written.
        """
        self._database.insert("events", [_row(event) for event in events])
        self._added += len(events)
        if self._added >= TIDIED_AFTER:
            self.prune()

    def find(self, query: EventQuery) -> list[RecordedEvent]:
        """Those that a query asks for, the newest first."""
        conditions = ["id > :after", "at >= :since"]
        wanted: dict[str, Any] = {"after": query.after, "since": query.since, "most": query.limit}
        for name, value in {"server": query.server, "kind": query.kind}.items():
            if value:
                conditions.append(f"{name} = :{name}")
                wanted[name] = key(value)
        # Words of ours and names of columns; every value is bound.
        sql = f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT :most"
        return [
            RecordedEvent(number=number, event=FleetEvent(**dict(zip(_COLUMNS, told, strict=True))))
            for number, *told in self._database.rows(sql, wanted)
        ]

    def prune(self) -> None:
        """Drop what is too old, and what is too much.

        Raises:
            StoreError: the database cannot be written.
        """
        self._added = 0
        with self._database.transaction() as work:
            work.run("DELETE FROM events WHERE at < :before", {"before": self._now() - self._keep_days * DAY_SECONDS})
            work.run(_TOO_MANY, {"most": self._most})


def _row(event: FleetEvent) -> dict[str, Any]:
    row = {name: getattr(event, name) for name in _COLUMNS}
    return {**row, "server": key(event.server), "kind": key(event.kind)}


@dataclass(slots=True)
class _Waiting:
    event: FleetEvent
    since: float

    def add(self, event: FleetEvent) -> None:
        """One more of the same; the first time and the last words count."""
        known = self.event
        self.event = replace(event, at=known.at, stderr=event.stderr or known.stderr, times=known.times + event.times)


@dataclass(slots=True)
class EventLog:
    """Keeps what happens from its start on; recording never waits, and one thread writes."""

    rows: EventRows = field(default_factory=MemoryEvents)
    gateway: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}"[:NAME])
    """What this process is called in the record."""
    together: float = TOGETHER
    dropped: int = 0
    """Events that are not kept: there was no room, or the store does not take them."""
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _last: dict[tuple[str, str], _Waiting] = field(default_factory=dict)
    """The row that waits, by kind and server."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    _bell: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to record: a command that ends at once, and a program that only looks, have nothing to tell."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="portico-events", daemon=True)
            self._thread.start()
            self.record(FleetEvent(kind="gateway_started", text=f"Portico {VERSION}"))

    def record(self, event: FleetEvent) -> None:
        """Keep one event; never waits and never raises."""
        if self._thread is None or self._closing.is_set():
            return
        event = self._bounded(event)
        with self._lock:
            same, now = self._last.get((event.kind, event.server)), monotonic()
            if same is not None and now - same.since < self.together:
                same.add(event)
            elif len(self._waiting) >= BUFFER:
                self.dropped += 1
            else:
                waiting = self._last[event.kind, event.server] = _Waiting(event, now)
                self._waiting.append(waiting)
        self._bell.set()

    def find(self, query: EventQuery) -> list[RecordedEvent]:
        """Those that a query asks for, the newest first, also those that happened just now; blocks.

        Raises:
            StoreError: the store cannot be asked.
        """
        if self._thread is not None:
            with suppress(StoreError):  # what waits is told when it is in the store
                self._write(everything=True)
        return self.rows.find(query)

    def prune(self) -> None:
        """Drop what is too old, and what is too much; blocks.

        Raises:
            StoreError: the store cannot be asked.
        """
        self.rows.prune()

    def close(self) -> None:
        """Say that the gateway ends, and write what is left, for a bounded time; blocks."""
        if self._thread is None or self._closing.is_set():
            return
        self.record(FleetEvent(kind="gateway_stopped", text="it was told to stop"))
        self._closing.set()
        self._bell.set()
        self._thread.join(CLOSE_SECONDS)

    def _bounded(self, event: FleetEvent) -> FleetEvent:
        """The event with texts that are short and show what they say."""
        return replace(
            event,
            kind=event.kind[:NAME],
            text=on_one_line(event.text[:TEXT]),
            stderr=printable(event.stderr.replace("\r\n", "\n")[-STDERR:]),
            gateway=event.gateway or self.gateway,
        )

    def _run(self) -> None:
        is_troubled = False
        while True:
            self._bell.wait()
            is_last = self._closing.wait(self.together)
            self._bell.clear()
            try:
                self._write(everything=is_last)
                is_troubled = False
            except Exception as error:  # noqa: BLE001  what cannot be told must not end what can
                if not is_troubled:
                    logger.warning("what happens to servers is not recorded now: %s", error)
                is_troubled = True
                self._bell.set()
                self._closing.wait(PAUSE)
            if is_last:
                return
            with self._lock:
                if self._waiting:
                    self._bell.set()

    def _write(self, *, everything: bool) -> None:
        """Write what has waited long enough; what the store cannot be given now stays.

        Raises:
            StoreError: it cannot be written now.
        """
        with self._writing:
            due, dropped = self._take(everything=everything)
            told = [one.event for one in due]
            if dropped:
                text = f"{dropped:,} events are not in this record: there was no room for them"
                told.append(self._bounded(FleetEvent(kind="dropped", text=text, times=dropped)))
            try:
                if told:
                    self.rows.add(told)
            except Exception as error:
                is_away = isinstance(error, StoreError) and not isinstance(error, StoreRefused)
                with self._lock:
                    self.dropped += dropped if is_away else dropped + len(due)
                    self._waiting.extendleft(reversed(due if is_away else []))
                raise

    def _take(self, *, everything: bool) -> tuple[list[_Waiting], int]:
        """What is to be written now, and how many events were dropped since the last time."""
        due, now = [], monotonic()
        with self._lock:
            while self._waiting and (everything or now - self._waiting[0].since >= self.together):
                one = self._waiting.popleft()
                due.append(one)
                if self._last.get((one.event.kind, one.event.server)) is one:
                    del self._last[one.event.kind, one.event.server]
            dropped, self.dropped = self.dropped, 0
        return due, dropped
