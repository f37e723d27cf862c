"""Usage in memory: what the ledger had when it was last read, and what was recorded here since."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from types import MappingProxyType

from portico.domain.call import Invocation
from portico.domain.journal import Entry, bounded
from portico.domain.tool import ToolId
from portico.domain.usage import Usage
from portico.protocols import Ledger

from .ledger import DaySum, day_sums

CacheCounts = Callable[[], Mapping[str, tuple[int, int]]]
"""Says hits and misses of each cache since the process began; called by the thread that writes."""

logger = logging.getLogger(__name__)


class CacheDeltas:
    """What a source of totals has counted since it was last asked."""

    def __init__(self, source: CacheCounts | None) -> None:
        self._source = source
        self._last: Mapping[str, tuple[int, int]] = {}
        self._taken_at = monotonic()

    @property
    def is_counted(self) -> bool:
        """Whether there is a source."""
        return self._source is not None

    def take(self, *, every: float) -> dict[str, tuple[int, int]]:
        """Hits and misses since the last time; none when that is not so many seconds ago."""
        if self._source is None or monotonic() - self._taken_at < every:
            return {}
        try:
            totals = dict(self._source())
        except Exception as error:  # noqa: BLE001  they are counted elsewhere, perhaps at this very moment
            logger.debug("the counts of caches cannot be read now: %s", error)
            return {}
        last, self._last, self._taken_at = self._last, totals, monotonic()
        deltas = {name: _minus(counts, last.get(name, (0, 0))) for name, counts in totals.items()}
        return {name: delta for name, delta in deltas.items() if any(delta)}


def _minus(counts: tuple[int, int], less: tuple[int, int]) -> tuple[int, int]:
    return counts[0] - less[0], counts[1] - less[1]


class UsageBook:
    """Readers never wait for the database; one thread adds to what they see."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._usage: dict[ToolId, Usage] = {}
        self._seen: Mapping[ToolId, Usage] = MappingProxyType(self._usage)
        self._loading = threading.Lock()
        self.is_loaded = self._was_tried = self._has_begun = False
        self._read_at = 0.0

    @property
    def current(self) -> Mapping[ToolId, Usage]:
        """Usage as it stands; whoever looks first lets the ledger be read."""
        if not self._was_tried and self._loading.acquire(blocking=False):
            try:
                self._load()
            finally:
                self._loading.release()
        return self._seen

    def begin(self) -> None:
        """Be loaded before the first entry is stored: from then on nobody else could tell what is in the ledger."""
        with self._loading:
            self._has_begun = True
            if not self.is_loaded:
                self._load()

    @property
    def age(self) -> float:
        """Seconds since the ledger was last read, or could not be."""
        return monotonic() - self._read_at

    def refresh(self) -> bool:
        """Read the ledger again; everything that was added here must be in it by now. Says whether it was read."""
        return self._load()

    def refresh_early(self) -> bool:
        """The same for any thread, as long as nothing was added; says whether it was read."""
        with self._loading:
            return not self._has_begun and self._load()

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries."""
        self._publish(fold(entries))

    def _load(self) -> bool:
        is_first, self._was_tried = not self._was_tried, True
        try:
            usage = self._ledger.usage()
        except Exception as error:  # noqa: BLE001  ranking without usage is better than no ranking
            level = logging.WARNING if is_first else logging.DEBUG
            logger.log(level, "usage cannot be read, so tools count as never called until it can: %s", error)
            return False
        finally:
            self._read_at = monotonic()  # from its end on: a read that takes long must not begin again at its end
        self.is_loaded = True
        self._usage, self._seen = usage, MappingProxyType(usage)
        return True

    def _publish(self, more: Mapping[ToolId, Usage]) -> None:
        """A value may be replaced under a reader's eyes; a new key would end a reader's loop: a new book then."""
        usage = self._usage
        if more.keys() - usage.keys():
            usage = {**usage, **dict.fromkeys(more.keys() - usage.keys(), Usage())}
        for tool, added in more.items():
            usage[tool] = usage[tool] + added
        if usage is not self._usage:
            self._usage, self._seen = usage, MappingProxyType(usage)


def fold(entries: Iterable[Entry]) -> dict[ToolId, Usage]:
    """The usage of each tool in some entries; one that makes no sense counts as none."""
    by_tool: dict[ToolId, dict[int, DaySum]] = {}
    for (tool, day), sums in day_sums(_sound(entries)).items():
        by_tool.setdefault(tool, {})[day] = sums
    return {tool: _usage(days) for tool, days in by_tool.items()}


def _sound(entries: Iterable[Entry]) -> Iterator[Invocation]:
    for entry in entries:
        if isinstance(entry, Invocation):
            try:
                yield bounded(entry)
            except TypeError:
                continue


def _usage(days: Mapping[int, DaySum]) -> Usage:
    latencies: dict[int, int] = {}
    for sums in days.values():
        for bucket, calls in sums.buckets.items():
            latencies[bucket] = latencies.get(bucket, 0) + calls
    return Usage(
        calls=sum(sums.calls for sums in days.values()),
        done=sum(sums.done for sums in days.values()),
        seconds=sum(sums.seconds for sums in days.values()),
        tokens_in=sum(sums.tokens_in for sums in days.values()),
        tokens_out=sum(sums.tokens_out for sums in days.values()),
        latencies=latencies,
        days={day: sums.calls for day, sums in days.items()},
    )
