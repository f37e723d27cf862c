"""The journal: recording appends to a queue, and one thread writes it to the database."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from time import monotonic

from portico.domain.journal import Batch, Entry
from portico.domain.tool import ToolId
from portico.domain.usage import Usage
from portico.errors import StoreError, StoreRefused
from portico.protocols import Ledger

from .crash_counter import WriterCounter, counted, settle
from .ledger import CacheCounts, CacheDeltas, UsageBook

LARGEST = 5_000
"""Entries in one batch at most."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of one batch."""

    stored: int = 0
    refused: int = 0
    """Entries that the ledger cannot take."""
    dropped: int = 0
    """Entries that had been left out before, and are counted now."""
    gone: int = 0
    """Entries that had been stored before, and are no longer there."""
    reason: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    batch: Batch
    receipt: Receipt = field(default_factory=Receipt)
    """What is to be said when the batch is stored."""


class WriteQueue:
    """Sends entries in their order, each exactly once; for one thread."""

    def __init__(self, ledger: Ledger, writer: str) -> None:
        self._ledger, self._writer = ledger, writer
        self._first, self._has_refused = 0, False
        self._taken: deque[Entry] = deque()
        self._parcels: deque[_Parcel] = deque()

    @property
    def is_packed(self) -> bool:
        """Whether there is a batch to send."""
        return bool(self._parcels)

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        return not self._parcels and not self._taken

    def take(self, entries: Sequence[Entry]) -> None:
        """Accept entries."""
        self._taken.extend(entries)

    def pack(self, dropped: int, caches: Mapping[str, tuple[int, int]]) -> None:
        """Make a batch of the oldest entries; from here on it is sent as it is, so that no retry stores it twice."""
        next_entry = self._taken.popleft
        entries = tuple([next_entry() for _ in range(min(len(self._taken), LARGEST))])
        batch = Batch(writer=self._writer, first=self._first, entries=entries, dropped=dropped, caches=caches)
        self._first = batch.end
        self._parcels.append(_Parcel(batch=batch, receipt=Receipt(stored=len(entries), dropped=dropped)))

    def send(self) -> Receipt | None:
        """Send the oldest batch; one that the ledger does not take is halved instead, to find the culprit.

        Raises:
            StoreError: the ledger cannot be written now; the batch is kept.
        """
        parcel = self._parcels[0]
        try:
            gone = self._ledger.append(parcel.batch)
        except Exception as error:  # an entry must not hold up all that come after it
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                raise  # the ledger is away, whatever is in the batch
            if not parcel.batch.entries and not parcel.batch.caches:
                raise StoreError(f"the journal's ledger fails without a reason that we know: {error!r}") from error
            self._parcels.popleft()
            self._parcels.extendleft(reversed(_smaller(parcel, error)))
            if len(parcel.batch.entries) == 1:
                self._log_refusal(error)
            return None
        self._parcels.popleft()
        return replace(parcel.receipt, gone=gone)

    def _log_refusal(self, error: Exception) -> None:
        """Say it once: what is wrong with one entry may be wrong with thousands."""
        level = logging.DEBUG if self._has_refused else logging.WARNING
        logger.log(level, "an entry cannot be written to the journal and is left out, as others may be: %r", error)
        self._has_refused = True


def _smaller(parcel: _Parcel, error: Exception) -> list[_Parcel]:
    """The halves of a batch; a single entry is left out and counted, and counts of caches are left out."""
    batch = parcel.batch
    size = len(batch.entries)
    if not size:
        return [replace(parcel, batch=replace(batch, caches={}))]
    if size == 1:
        left = replace(batch, entries=(), dropped=batch.dropped + 1)
        return [_Parcel(batch=left, receipt=replace(parcel.receipt, stored=0, refused=1, reason=repr(error)))]
    cut = size // 2
    first = replace(batch, entries=batch.entries[:cut], dropped=0, caches={})
    second = replace(batch, first=first.end, entries=batch.entries[cut:])
    return [
        _Parcel(batch=first, receipt=Receipt(stored=cut)),
        _Parcel(batch=second, receipt=replace(parcel.receipt, stored=size - cut)),
    ]


BUFFER = 50_000
"""Entries that wait for the store at most."""
URGENT = 2_000
"""So many that wait are written at once."""

_ENDED = "not in the journal: it was closed before the store was back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the journal waits for what, in seconds."""

    write: float = 0.05
    """From one write to the next; a kill loses what was recorded in this time, and in that of one write."""
    first_pause: float = 0.1
    longest_pause: float = 2.0
    """Between two tries while the store is away."""
    reload: float = 60.0
    """How old usage may become, in which other processes have a share."""
    retry: float = 5.0
    """Between two tries to read usage, or to count losses, where the store did not answer."""
    quiet: float = 0.5
    """For so long nobody must have recorded anything before usage is read again: whoever comes meanwhile waits."""
    overdue: float = 10.0
    """Usage that is so many times as old as it may become is read again even if it is never quiet."""
    settle: float = 60.0
    """Between two looks for processes that ended without notice."""
    caches: float = 10.0
    """Between two writes of nothing but counts of caches."""
    close: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """How a journal has done since its process began."""

    waiting: int = 0
    """Entries that are not in the store yet."""
    recorded: int = 0
    stored: int = 0
    """Taken by the store; what was deleted with its file afterwards is in `lost` as well."""
    dropped: int = 0
    """Left out: there was no room for them, or the store cannot take them."""
    lost: int = 0
    """What other processes took with them when they ended, as far as this one has counted it, and what was deleted."""
    trouble: str = ""
    """Why the store cannot be written just now."""


class StoredJournal:
    """Writes entries to a ledger in the background; safe among threads, and never in the way of a call."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        folder: Path | None = None,
        durable: bool = False,
        buffer: int = BUFFER,
        wait_seconds: float = 10.0,
        caches: CacheCounts | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Start nothing; `folder` has the counters that outlive processes, and belongs to this one database."""
        self._ledger, self._folder, self._is_durable = ledger, folder, durable
        self._limit, self._wait_seconds, self._pace = buffer, wait_seconds, pace or Pace()
        self._caches = CacheDeltas(caches)
        self._book = UsageBook(ledger)
        self._thread: threading.Thread | None = None
        self._tally = WriterCounter(None)
        self._taken_at, self._is_quiet, self._settle_at = 0.0, False, 0.0
        self._bell, self._closing, self._given_up = threading.Event(), threading.Event(), threading.Event()
        # What follows is guarded by the lock, which nobody holds for longer than it takes to swap a list.
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._numbers = self._tally.numbers
        self._buffer: list[Entry] = []
        self._waiters: dict[asyncio.Future[str], int] = {}
        self._accepted = self._settled = 0
        self._stored = self._dropped = self._told = self._refused = self._late = self._lost = self._gone = 0
        self._trouble, self._dropped_before = "", 0
        self._rereads_wanted = self._rereads = 0
        self._is_idle = self._is_hurried = self._is_left_out = self._is_closed = self._has_ended = False
        self._is_serving = self._is_reread = False

    def start(self) -> None:
        """Begin at once what else the first entry begins, for a process that goes on until it is told to stop.

        What ended processes lost is counted now, and again every minute. Returns without waiting for any of it.
        """
        with self._lock:
            self._is_serving = True
            if self._thread is None and not self._is_closed:
                self._start()
        self._bell.set()

    def settle_now(self) -> int:
        """Count what ended processes lost, for whoever is about to read it; blocks. Says how many entries that were.

        Raises:
            StoreError: the store cannot be asked; what was not counted is counted later.
        """
        found: list[int] = []

        def note(lost: int) -> None:
            found.append(lost)
            with self._lock:
                self._lost += lost

        if self._folder is not None:
            settle(self._folder, self._ledger, note)
        return sum(found)

    def reread(self, seconds: float = 5.0) -> bool:
        """Read usage from the ledger anew, once what was recorded until now is in it; blocks. Says whether it was."""
        with self._lock:
            if self._thread is not None:
                self._rereads_wanted += 1
                wanted = self._rereads_wanted
                self._is_hurried = True
                self._bell.set()
                is_done = self._progress.wait_for(lambda: self._rereads >= wanted or self._has_ended, seconds)
                return is_done and self._rereads >= wanted and self._is_reread
        return self._book.refresh_early()

    def record(self, entry: Entry) -> None:
        """Keep one entry until it is written; where there is no room it is left out, and counted."""
        with self._lock:
            if self._thread is None:
                self._start()
            if self._is_closed:
                self._late += 1
                self._is_left_out = True
                return
            self._numbers[0] += 1
            waiting = self._accepted - self._settled
            if waiting >= self._limit:
                self._dropped += 1
                self._is_left_out = True
                return
            self._is_left_out = False
            self._accepted += 1
            self._buffer.append(entry)
            if not self._is_idle and len(self._buffer) != URGENT:
                return
            self._is_idle = False
        self._bell.set()

    async def written(self) -> str:
        """Return at once; a durable journal first waits until everything recorded until now is in the store.

        The answer is empty, or says in one line why it is not there yet.
        """
        if not self._is_durable:
            return ""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_left_out:
                return f"not in the journal: {self._why_not()}"
            if self._settled >= self._accepted:
                return ""
            if self._has_ended:
                return _ENDED
            future: asyncio.Future[str] = loop.create_future()
            self._waiters[future] = self._accepted
        expiry = loop.call_later(self._wait_seconds, self._expire, future)
        try:
            return await future
        finally:
            expiry.cancel()
            with self._lock:
                self._waiters.pop(future, None)

    def usage(self) -> Mapping[ToolId, Usage]:
        """How the tools have done so far, without a moment's wait; the first to ask lets the ledger be read."""
        return self._book.current

    @property
    def state(self) -> JournalState:
        """How it is doing."""
        with self._lock:
            return JournalState(
                waiting=self._accepted - self._settled,
                recorded=self._accepted + self._dropped + self._late,
                stored=self._stored,
                dropped=self._dropped + self._refused + self._late,
                lost=self._lost + self._gone,
                trouble=self._trouble,
            )

    @property
    def writer(self) -> str:
        """What this process is called in the ledger, from its first entry on."""
        return self._tally.writer

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until everything recorded until now is stored, or counted as dropped; blocks. Says whether it is."""
        with self._lock:
            accepted, dropped = self._accepted, self._dropped
            self._is_hurried = True
            self._bell.set()
            return self._progress.wait_for(lambda: self._settled >= accepted and self._told >= dropped, seconds)

    def close(self) -> None:
        """Write what is left; what cannot be written in a few seconds is counted as lost by the next start. Blocks."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._closing.set()
        self._bell.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._pace.close)
        self._given_up.set()
        if waiting := self.state.waiting:
            verb = "is" if waiting == 1 else "are"
            logger.warning(
                "%s %s not in the journal: the store could not be written at the end", counted(waiting), verb
            )

    def _start(self) -> None:
        self._tally = WriterCounter(self._folder)
        self._numbers = self._tally.numbers
        self._thread = threading.Thread(target=self._run, name="portico-journal", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is on its way out
            self._is_closed, self._trouble = True, f"its thread cannot be started: {error}"

    def _why_not(self) -> str:
        if self._is_closed:
            return "it is closed"
        verb = "waits" if self._limit == 1 else "wait"
        return f"{counted(self._limit)} {verb} for the store already ({self._trouble or 'it is slow'})"

    def _expire(self, future: asyncio.Future[str]) -> None:
        if not future.done():
            reason = self._trouble or f"the store has not answered within {self._wait_seconds:g} s"
            until = "it is written when the store is back" if self._is_serving else "it is tried until the end"
            future.set_result(f"not in the journal yet: {reason}; {until}")

    # From here on everything runs in the writing thread.

    def _run(self) -> None:
        write_queue = WriteQueue(self._ledger, self._tally.writer)
        self._book.begin()
        self._taken_at = monotonic()
        pause = 0.0
        while not self._given_up.is_set():
            is_last = self._closing.is_set()
            self._await_entries(write_queue)
            self._take(write_queue)
            if self._send(write_queue):
                pause = 0.0
                self._settle()
                if is_last:
                    break
                self._reload()
            else:
                pause = min(max(2 * pause, self._pace.first_pause), self._pace.longest_pause)
                (self._given_up if is_last else self._closing).wait(pause)
        self._end(write_queue)

    def _await_entries(self, write_queue: WriteQueue) -> None:
        """Wait for something to write, and then a moment for more of it, unless there is reason for haste."""
        self._is_quiet = False
        if not write_queue.is_empty or self._closing.is_set():
            return
        with self._lock:
            is_idle = self._is_idle = not self._buffer and self._told >= self._dropped
        if is_idle:
            self._is_quiet = not self._bell.wait(self._idle_seconds())
        self._bell.clear()
        with self._lock:
            self._is_idle = False
            may_wait = 0 < len(self._buffer) < URGENT and not self._is_durable and not self._is_hurried
        if may_wait and not self._closing.is_set():
            # A slow write is no reason to wait for long after it: more would be lost with the process.
            since = 0.0 if is_idle else monotonic() - self._taken_at
            self._bell.wait(max(0.0, self._pace.write - since))

    def _idle_seconds(self) -> float:
        chores = [self._settle_at - monotonic()] * (self._folder is not None)
        chores += [self._pace.caches] * self._caches.is_counted
        return max(0.0, min([*chores, max(self._pace.quiet, self._reload_seconds - self._book.age)]))

    @property
    def _reload_seconds(self) -> float:
        return self._pace.reload if self._book.is_loaded else self._pace.retry

    def _reload(self) -> None:
        """Read usage again when somebody asks for it, or when it is old and nobody is likely to wait for it."""
        with self._lock:
            wanted = self._rereads_wanted
        if wanted > self._rereads:
            is_read = self._book.refresh()
            with self._lock:
                self._rereads, self._is_reread = wanted, is_read
                self._progress.notify_all()
            return
        age, limit = self._book.age, self._reload_seconds
        if age >= limit and (self._is_quiet or age >= self._pace.overdue * limit):
            self._book.refresh()

    def _take(self, write_queue: WriteQueue) -> None:
        self._taken_at = monotonic()
        with self._lock:
            entries, self._buffer, self._is_hurried = self._buffer, [], False
        if entries:
            self._book.add(entries)
            write_queue.take(entries)

    def _send(self, write_queue: WriteQueue) -> bool:
        """Send everything that was taken; says whether the store took it."""
        while write_queue.is_packed or self._pack(write_queue):
            try:
                receipt = write_queue.send()
            except StoreError as error:
                self._note_trouble(error)
                return False
            if receipt is not None:
                self._account(receipt)
        return True

    def _pack(self, write_queue: WriteQueue) -> bool:
        with self._lock:
            dropped = self._dropped - self._told
        is_needed = bool(dropped) or not write_queue.is_empty
        at_once = is_needed or self._closing.is_set()
        caches = self._caches.take(every=0.0 if at_once else self._pace.caches)
        if is_needed or caches:
            write_queue.pack(dropped, caches)
        return write_queue.is_packed

    def _account(self, receipt: Receipt) -> None:
        with self._lock:
            self._settled += receipt.stored + receipt.refused
            self._stored += receipt.stored
            self._refused += receipt.refused
            self._told += receipt.dropped
            self._gone = max(self._gone, receipt.gone)
            due = list(takewhile(lambda future: self._waiters[future] <= self._settled, self._waiters))
            for future in due:
                del self._waiters[future]
            self._progress.notify_all()
            trouble, self._trouble = self._trouble, ""
            dropped, self._dropped_before = self._dropped - self._dropped_before, self._dropped
        _tell(due, f"not in the journal: the entry cannot be written ({receipt.reason})" if receipt.reason else "")
        if trouble:
            verb = "was" if dropped == 1 else "were"
            logger.warning("the journal is written again; %s %s dropped meanwhile", counted(dropped), verb)

    def _note_trouble(self, error: StoreError) -> None:
        with self._lock:
            is_new, self._trouble = not self._trouble, str(error)
        if is_new and self._is_serving:
            kept = counted(self._limit)
            logger.warning("the journal cannot be written: %s. Up to %s wait until the store is back", error, kept)
        elif is_new:  # whether it will be back before the end is told then
            logger.warning("the journal cannot be written: %s", error)

    def _settle(self) -> None:
        if self._folder is None or monotonic() < self._settle_at:
            return
        pause = self._pace.retry
        try:
            self.settle_now()
            pause = self._pace.settle
        except Exception as error:  # noqa: BLE001  what others lost must not end what this one writes
            logger.debug("what other processes lost cannot be counted now: %s", error)
        self._settle_at = monotonic() + pause

    def _end(self, write_queue: WriteQueue) -> None:
        with self._lock:
            is_all_told = write_queue.is_empty and not self._buffer and self._told >= self._dropped
        if is_all_told and self._tally.numbers[0]:
            with suppress(StoreError):  # a writer that is gone need not be remembered, but what it stored must be there
                stored = self._ledger.stored(self._tally.writer)
                self._ledger.count_lost(self._tally.writer, max(0, self._tally.numbers[0] - stored))
        with self._lock:
            self._tally.close(keep=not is_all_told)
            self._numbers = self._tally.numbers
            self._has_ended = True
            self._progress.notify_all()
            waiters, self._waiters = list(self._waiters), {}
        _tell(waiters, _ENDED)


def _tell(futures: Iterable[asyncio.Future[str]], answer: str) -> None:
    """Resolve futures, each in its own loop: with one call for all of a loop, since every call wakes it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[str]]] = {}
    for future in futures:
        by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, own in by_loop.items():
        with suppress(RuntimeError):  # the loop of whoever gave up may be closed by now
            loop.call_soon_threadsafe(_resolve, own, answer)


def _resolve(futures: Iterable[asyncio.Future[str]], answer: str) -> None:
    for future in futures:
        if not future.done():
            future.set_result(answer)
