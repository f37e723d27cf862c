"""The journal: recording appends to a queue, one thread writes it to the database, and a counter outlives a kill."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from time import monotonic

from portico.domain.journal_entries import Batch, Entry, JournalState
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import LearnedWords, Usage
from portico.errors import StoreError, StoreRefused

from .journal_tables import CacheCounts, CacheDeltas, Ledger, UsageCache

try:
    import fcntl
except ImportError:  # there is no such thing on Windows, and so nothing that tells whether a writer still lives
    fcntl = None  # type: ignore[assignment]

LARGEST = 5_000  # entries in one batch at most

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Parcel:
    batch: Batch
    refusal: str = ""
    """Why its one entry was left out, which then counts as dropped."""


def _trouble_of(batch: Batch, error: Exception) -> StoreError | None:
    """Why a batch has to wait; None where it is the batch that the ledger does not take."""
    if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
        return error
    if not batch.entries and not batch.caches:
        return StoreError(f"the journal's ledger fails without a reason that we know: {error!r}")
    return None


def _smaller(parcel: _Parcel, error: Exception) -> list[_Parcel]:
    """The halves of a batch; a single entry is left out and counted, and counts of caches are left out."""
    batch, size = parcel.batch, len(parcel.batch.entries)
    if not size:
        return [replace(parcel, batch=replace(batch, caches={}))]
    if size == 1:
        return [_Parcel(replace(batch, entries=(), dropped=batch.dropped + 1), repr(error))]
    first = replace(batch, entries=batch.entries[: size // 2], dropped=0, caches={})
    return [_Parcel(first), _Parcel(replace(batch, first=first.end, entries=batch.entries[size // 2 :]))]


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


@dataclass(slots=True)
class _Counts:
    """Entries by what became of them, and the latest trouble."""

    accepted: int = 0
    settled: int = 0
    """Accepted ones that are stored, or that the store cannot take."""
    stored: int = 0
    refused: int = 0
    dropped: int = 0
    """Not accepted, for want of room."""
    told: int = 0
    """Dropped ones that the store knows of."""
    late: int = 0
    """Recorded after the end."""
    lost: int = 0
    gone: int = 0
    trouble: str = ""
    is_left_out: bool = False
    """Whether the last entry was not accepted."""


class _Inbox:
    """Entries on their way to the thread that writes, and what became of them; all of it is guarded by one lock.

    Nobody holds the lock for longer than it takes to swap a list.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.Lock()
        self.progress = threading.Condition(self.lock)
        self.bell, self.closing, self.given_up = threading.Event(), threading.Event(), threading.Event()
        self.entries: list[Entry] = []
        self.waiters: dict[asyncio.Future[str], int] = {}
        self.rereads: list[Future[bool]] = []
        self.counts = _Counts()
        self.is_idle = self.is_hurried = self.is_serving = self.has_ended = False

    def put(self, entry: Entry, numbers: memoryview[int] | list[int]) -> bool:
        """Accept an entry, or leave it out and count it; says whether the thread has to be woken. Holds the lock."""
        counts = self.counts
        if self.closing.is_set():
            counts.late += 1
            counts.is_left_out = True
            return False
        numbers[0] += 1
        counts.is_left_out = counts.accepted - counts.settled >= self.limit
        if counts.is_left_out:
            counts.dropped += 1
            return False
        counts.accepted += 1
        self.entries.append(entry)
        if not self.is_idle and len(self.entries) != URGENT:
            return False
        self.is_idle = False
        return True

    @property
    def has_untold(self) -> bool:
        """Whether entries were dropped of which the store does not know."""
        return self.counts.told < self.counts.dropped

    def hurry(self) -> None:
        """Have everything written at once; holds the lock."""
        self.is_hurried = True
        self.bell.set()

    def why_not(self) -> str:
        """The reason for which the last entry was left out."""
        if self.closing.is_set():
            return "it is closed"
        verb = "waits" if self.limit == 1 else "wait"
        return f"{counted(self.limit)} {verb} for the store already ({self.counts.trouble or 'it is slow'})"


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
        self._wait_seconds, self._pace = wait_seconds, pace or Pace()
        self._caches, self._usage = CacheDeltas(caches), UsageCache(ledger)
        self._inbox, self._counter = _Inbox(buffer), WriterCounter(None)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin at once what else the first entry begins, for a process that goes on until it is told to stop.

        What ended processes lost is counted now, and again every minute. Returns without waiting for any of it.
        """
        with self._inbox.lock:
            self._inbox.is_serving = True
            if self._thread is None and not self._inbox.closing.is_set():
                self._start_thread()
        self._inbox.bell.set()

    def settle_now(self) -> int:
        """Count what ended processes lost, for whoever is about to read it; blocks. Says how many entries that were.

        Raises:
            StoreError: the store cannot be asked; what was not counted is counted later.
        """
        found: list[int] = []

        def note(lost: int) -> None:
            found.append(lost)
            with self._inbox.lock:
                self._inbox.counts.lost += lost

        if self._folder is not None:
            settle(self._folder, self._ledger, note)
        return sum(found)

    def reread(self, seconds: float = 5.0) -> bool:
        """Read usage from the ledger anew, once what was recorded until now is in it; blocks. Says whether it was."""
        with self._inbox.lock:
            if self._thread is None:
                wanted = None
            elif self._inbox.has_ended:
                return False
            else:
                wanted = Future[bool]()
                self._inbox.rereads.append(wanted)
                self._inbox.hurry()
        if wanted is None:
            return self._usage.refresh_early()
        try:
            return wanted.result(seconds)
        except TimeoutError:
            return False

    def record(self, entry: Entry) -> None:
        """Keep one entry until it is written; where there is no room it is left out, and counted."""
        with self._inbox.lock:
            if self._thread is None:
                self._start_thread()
            is_due = self._inbox.put(entry, self._counter.numbers)
        if is_due:
            self._inbox.bell.set()

    async def written(self) -> str:
        """Return at once; a durable journal first waits until everything recorded until now is in the store.

        The answer is empty, or says in one line why it is not there yet.
        """
        if not self._is_durable:
            return ""
        loop, inbox = asyncio.get_running_loop(), self._inbox
        with inbox.lock:
            if inbox.counts.is_left_out:
                return f"not in the journal: {inbox.why_not()}"
            if inbox.counts.settled >= inbox.counts.accepted:
                return ""
            if inbox.has_ended:
                return _ENDED
            future: asyncio.Future[str] = loop.create_future()
            inbox.waiters[future] = inbox.counts.accepted
        expiry = loop.call_later(self._wait_seconds, self._expire, future)
        try:
            return await future
        finally:
            expiry.cancel()
            with inbox.lock:
                inbox.waiters.pop(future, None)

    def usage(self) -> Mapping[ToolId, Usage]:
        """How the tools have done so far, without a moment's wait; the first to ask lets the ledger be read."""
        return self._usage.current

    def learned(self) -> LearnedWords:
        """The words that callers searched with before they called a tool; read and kept with usage."""
        return self._usage.learned

    @property
    def state(self) -> JournalState:
        """How it is doing."""
        with self._inbox.lock:
            counts = self._inbox.counts
            return JournalState(
                waiting=counts.accepted - counts.settled,
                recorded=counts.accepted + counts.dropped + counts.late,
                stored=counts.stored,
                dropped=counts.dropped + counts.refused + counts.late,
                lost=counts.lost + counts.gone,
                trouble=counts.trouble,
            )

    @property
    def writer(self) -> str:
        """What this process is called in the ledger, from its first entry on."""
        return self._counter.writer

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until everything recorded until now is stored, or counted as dropped; blocks. Says whether it is."""
        with self._inbox.lock:
            counts = self._inbox.counts
            accepted, dropped = counts.accepted, counts.dropped
            self._inbox.hurry()
            return self._inbox.progress.wait_for(lambda: counts.settled >= accepted and counts.told >= dropped, seconds)

    def close(self) -> None:
        """Write what is left; what cannot be written in a few seconds is counted as lost by the next start. Blocks."""
        with self._inbox.lock:
            self._inbox.closing.set()
            thread = self._thread
        self._inbox.bell.set()
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(self._pace.close)
        self._inbox.given_up.set()
        if waiting := self.state.waiting:
            said = f"{counted(waiting)} {'is' if waiting == 1 else 'are'}"
            logger.warning("%s not in the journal: the store could not be written at the end", said)

    def _start_thread(self) -> None:
        self._counter = WriterCounter(self._folder)
        writer = _WriterThread(
            ledger=self._ledger,
            inbox=self._inbox,
            counter=self._counter,
            usage=self._usage,
            caches=self._caches,
            pace=self._pace,
            collect_seconds=0.0 if self._is_durable else self._pace.write,
            count_losses=self.settle_now if self._folder is not None else None,
        )
        self._thread = threading.Thread(target=writer.run, name="portico-journal", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is on its way out
            self._inbox.closing.set()
            self._inbox.counts.trouble = f"its thread cannot be started: {error}"

    def _expire(self, future: asyncio.Future[str]) -> None:
        if not future.done():
            reason = self._inbox.counts.trouble or f"the store has not answered within {self._wait_seconds:g} s"
            serving = self._inbox.is_serving
            until = "it is written when the store is back" if serving else "it is tried until the end"
            future.set_result(f"not in the journal yet: {reason}; {until}")


@dataclass(slots=True, kw_only=True)
class _WriterThread:
    """What the writing thread does."""

    ledger: Ledger
    inbox: _Inbox
    counter: WriterCounter
    usage: UsageCache
    caches: CacheDeltas
    pace: Pace
    collect_seconds: float
    """How long more entries are waited for before some are written."""
    count_losses: Callable[[], object] | None
    """Counts what other processes lost."""
    taken: deque[Entry] = field(default_factory=deque)
    parcels: deque[_Parcel] = field(default_factory=deque)
    """What is sent next, as it is: so no retry stores an entry twice."""
    packed: int = 0
    """Entries of this writer that are in a parcel, or were."""
    has_refused: bool = False
    taken_at: float = 0.0
    settle_at: float = 0.0
    dropped_before: int = 0

    def run(self) -> None:
        """Write until the journal is closed, and then what is left."""
        self.usage.begin()
        self.taken_at = monotonic()
        pause = 0.0
        while not self.inbox.given_up.is_set():
            is_last = self.inbox.closing.is_set()
            is_quiet = self._await_entries()
            self._take()
            if self._send():
                pause = 0.0
                self._settle()
                if is_last:
                    break
                self._reload(is_quiet)
            else:
                pause = min(max(2 * pause, self.pace.first_pause), self.pace.longest_pause)
                (self.inbox.given_up if is_last else self.inbox.closing).wait(pause)
        self._end()

    def _await_entries(self) -> bool:
        """Wait for something to write, and then a moment for more of it, unless there is reason for haste.

        Says whether nobody has recorded anything for a while.
        """
        inbox, is_quiet = self.inbox, False
        if self.taken or self.parcels or inbox.closing.is_set():
            return False
        with inbox.lock:
            is_idle = inbox.is_idle = not inbox.entries and not inbox.has_untold
        if is_idle:
            is_quiet = not inbox.bell.wait(self._idle_seconds())
        inbox.bell.clear()
        with inbox.lock:
            inbox.is_idle = False
            may_wait = 0 < len(inbox.entries) < URGENT and not inbox.is_hurried
        if may_wait and not inbox.closing.is_set():
            # A slow write is no reason to wait for long after it: more would be lost with the process.
            since = 0.0 if is_idle else monotonic() - self.taken_at
            inbox.bell.wait(max(0.0, self.collect_seconds - since))
        return is_quiet

    def _idle_seconds(self) -> float:
        chores = [max(self.pace.quiet, self._reload_seconds - self.usage.age)]
        chores += [self.settle_at - monotonic()] * (self.count_losses is not None)
        chores += [self.pace.caches] * self.caches.is_counted
        return max(0.0, min(chores))

    @property
    def _reload_seconds(self) -> float:
        return self.pace.reload if self.usage.is_loaded else self.pace.retry

    def _reload(self, is_quiet: bool) -> None:
        """Read usage again when somebody asks for it, or when it is old and nobody is likely to wait for it."""
        with self.inbox.lock:
            wanted, self.inbox.rereads = self.inbox.rereads, []
        age, limit = self.usage.age, self._reload_seconds
        is_due = age >= limit and (is_quiet or age >= self.pace.overdue * limit)
        is_read = self.usage.refresh() if wanted or is_due else False
        for future in wanted:
            future.set_result(is_read)

    def _take(self) -> None:
        self.taken_at = monotonic()
        with self.inbox.lock:
            entries, self.inbox.entries, self.inbox.is_hurried = self.inbox.entries, [], False
        if entries:
            self.usage.add(entries)
            self.taken.extend(entries)

    def _send(self) -> bool:
        """Send everything that was taken, in its order; says whether the store took it."""
        while self.parcels or self._pack():
            parcel = self.parcels[0]
            try:
                gone = self.ledger.append(parcel.batch)
            except Exception as error:  # noqa: BLE001  an entry must not hold up all that come after it
                trouble = _trouble_of(parcel.batch, error)
                if trouble is not None:
                    self._note_trouble(trouble)
                    return False
                self.parcels.popleft()
                self.parcels.extendleft(reversed(_smaller(parcel, error)))
                if len(parcel.batch.entries) == 1:
                    self._log_refusal(error)
            else:
                self.parcels.popleft()
                self._account(parcel, gone)
        return True

    def _pack(self) -> bool:
        """Make a batch of the oldest entries; says whether there is anything to send."""
        with self.inbox.lock:
            dropped = self.inbox.counts.dropped - self.inbox.counts.told
        is_needed = bool(dropped or self.taken)
        at_once = is_needed or self.inbox.closing.is_set()
        caches = self.caches.take(every=0.0 if at_once else self.pace.caches)
        if is_needed or caches:
            entries = tuple([self.taken.popleft() for _ in range(min(len(self.taken), LARGEST))])
            batch = Batch(
                writer=self.counter.writer, first=self.packed, entries=entries, dropped=dropped, caches=caches
            )
            self.packed = batch.end
            self.parcels.append(_Parcel(batch))
        return bool(self.parcels)

    def _log_refusal(self, error: Exception) -> None:
        """Say it once: what is wrong with one entry may be wrong with thousands."""
        level = logging.DEBUG if self.has_refused else logging.WARNING
        logger.log(level, "an entry cannot be written to the journal and is left out, as others may be: %r", error)
        self.has_refused = True

    def _account(self, parcel: _Parcel, gone: int) -> None:
        refused, inbox, counts = int(bool(parcel.refusal)), self.inbox, self.inbox.counts
        with inbox.lock:
            counts.settled += len(parcel.batch.entries) + refused
            counts.stored += len(parcel.batch.entries)
            counts.refused += refused
            counts.told += parcel.batch.dropped - refused
            counts.gone = max(counts.gone, gone)
            due = list(takewhile(lambda future: inbox.waiters[future] <= counts.settled, inbox.waiters))
            for future in due:
                del inbox.waiters[future]
            inbox.progress.notify_all()
            trouble, counts.trouble = counts.trouble, ""
            dropped, self.dropped_before = counts.dropped - self.dropped_before, counts.dropped
        _tell(due, f"not in the journal: the entry cannot be written ({parcel.refusal})" if refused else "")
        if trouble:
            said = f"{counted(dropped)} {'was' if dropped == 1 else 'were'}"
            logger.warning("the journal is written again; %s dropped meanwhile", said)

    def _note_trouble(self, error: StoreError) -> None:
        with self.inbox.lock:
            is_new, self.inbox.counts.trouble = not self.inbox.counts.trouble, str(error)
        if is_new and self.inbox.is_serving:
            kept = counted(self.inbox.limit)
            logger.warning("the journal cannot be written: %s. Up to %s wait until the store is back", error, kept)
        elif is_new:  # whether it will be back before the end is told then
            logger.warning("the journal cannot be written: %s", error)

    def _settle(self) -> None:
        if self.count_losses is None or monotonic() < self.settle_at:
            return
        pause = self.pace.retry
        try:
            self.count_losses()
            pause = self.pace.settle
        except Exception as error:  # noqa: BLE001  what others lost must not end what this one writes
            logger.debug("what other processes lost cannot be counted now: %s", error)
        self.settle_at = monotonic() + pause

    def _end(self) -> None:
        inbox, counter = self.inbox, self.counter
        with inbox.lock:
            is_all_told = (
                not self.taken and not self.parcels and not inbox.entries and inbox.counts.told >= inbox.counts.dropped
            )
        if is_all_told and counter.numbers[0]:
            with suppress(StoreError):  # a writer that is gone need not be remembered, but what it stored must be there
                stored = self.ledger.stored(counter.writer)
                self.ledger.count_lost(counter.writer, max(0, counter.numbers[0] - stored))
        with inbox.lock:
            counter.close(keep=not is_all_told)
            inbox.has_ended = True
            inbox.progress.notify_all()
            waiters, inbox.waiters = list(inbox.waiters), {}
            rereads, inbox.rereads = inbox.rereads, []
        for future in rereads:
            future.set_result(False)
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


SUFFIX = ".count"
MARK = b"portico1"
"""Tells a counter from whatever else a file of that name may hold."""

_FORM = struct.Struct("=8sQ")
_TRIES = 10


class WriterCounter:
    """How many entries a new writer has recorded, in a file that is locked while the writer lives."""

    def __init__(self, folder: Path | None) -> None:
        """Begin at 0; where no file can be had, the number is kept in memory and nothing else changes."""
        self.writer = _name()
        self.numbers: memoryview[int] | list[int] = [0]
        """The number is the first and only one: raising it costs no call, and outlives the process."""
        self._file, self._path = -1, Path()
        if folder is None or fcntl is None:
            return
        try:
            self._open(folder)
        except (OSError, ValueError) as error:
            logger.debug("entries that a killed process loses are not counted: %s", error)

    @property
    def is_kept(self) -> bool:
        """Whether the number outlives the process."""
        return self._file >= 0

    def close(self, *, keep: bool) -> None:
        """End the writer: its file goes when everything is accounted for, and is kept for the next start if not."""
        if not self.is_kept:
            return
        self.numbers = [self.numbers[0]]
        if not keep:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        os.close(self._file)  # which gives up the lock
        self._file = -1

    def _open(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = self._own_file(folder)
        try:
            # Written, not truncated to size: a page that no block stands behind would end us on a full disk.
            os.write(file, _FORM.pack(MARK, 0))
            self.numbers = memoryview(mmap.mmap(file, _FORM.size))[len(MARK) :].cast("Q")
        except BaseException:
            os.close(file)
            self._path.unlink(missing_ok=True)
            raise
        self._file = file

    def _own_file(self, folder: Path) -> int:
        """A new file, locked and in its place: in between, others may take it for a dead writer's."""
        for _ in range(_TRIES):
            self._path = folder / f"{self.writer}{SUFFIX}"
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            if _lock(file) and _is_at(self._path, file):
                return file
            os.close(file)
            self._path.unlink(missing_ok=True)
            self.writer = _name()
        raise OSError(f"files in {folder} cannot be locked")


def settle(folder: Path, ledger: Ledger, on_lost: Callable[[int], None]) -> None:
    """Count what writers lost that are no longer there, each exactly once; `on_lost` hears how many entries it were.

    Raises:
        StoreError: the ledger cannot be asked; what is not settled yet stays for the next time.
    """
    if fcntl is None or not folder.is_dir():
        return
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if lost := _settle(path, ledger):
            on_lost(lost)
            logger.warning("a process that ended without notice took %s of the journal with it", counted(lost))


def counted(entries: int) -> str:
    """A number of entries, for people."""
    return "1 entry" if entries == 1 else f"{entries:,} entries"


def _settle(path: Path, ledger: Ledger) -> int:
    with _ended(path) as file:
        if file is None:
            return 0
        recorded = _read(file)
        lost = 0
        if recorded:
            ledger.append(Batch(writer=path.stem))  # waits for what a killed process had under way in the database
            lost = max(0, recorded - ledger.stored(path.stem))
            ledger.count_lost(path.stem, lost)
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return lost


@contextmanager
def _ended(path: Path) -> Iterator[int | None]:
    """The open file of a writer that is gone, ours alone until the end of the block; None if it is not for us."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file if _lock(file) and _is_at(path, file) else None
    finally:
        os.close(file)


def _name() -> str:
    return f"{os.getpid()}-{os.urandom(6).hex()}"


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(path: Path, file: int) -> bool:
    """Whether a path leads to this open file, and not to none or to another."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except OSError:
        return False


def _read(file: int) -> int:
    """The number in a file; 0 when it holds none."""
    with suppress(OSError, struct.error):
        mark, number = _FORM.unpack(os.read(file, _FORM.size + 1))
        return int(number) if mark == MARK else 0
    return 0
