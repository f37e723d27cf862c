"""Usage in memory: what the ledger knew when it was last asked, and what was recorded here since."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from time import monotonic
from types import MappingProxyType

from portico.domain.call import Invocation, Outcome
from portico.domain.journal import Entry
from portico.domain.tool import ToolId
from portico.domain.usage import Usage, bucket_of, counts, day_of
from portico.ports import Ledger

_DONE = Outcome.DONE
_COUNTED = tuple(outcome for outcome in Outcome if counts(outcome))

logger = logging.getLogger(__name__)


class UsageBook:
    """Readers never wait for the database; one thread adds to what they see."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._usage: dict[ToolId, Usage] = {}
        self._seen: Mapping[ToolId, Usage] = MappingProxyType(self._usage)
        self._loading = threading.Lock()
        self._is_loaded = self._was_tried = False
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
            if not self._is_loaded:
                self._load()

    def refresh(self, older_than: float) -> None:
        """Read the ledger again when that is so long ago; everything that was added here must be in it by now."""
        if not self._is_loaded or monotonic() - self._read_at >= older_than:
            self._load()

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries."""
        self._publish(fold(entries))

    def _load(self) -> None:
        is_first, self._was_tried, self._read_at = not self._was_tried, True, monotonic()
        try:
            usage = self._ledger.usage()
        except Exception as error:  # noqa: BLE001  ranking without usage is better than no ranking
            level = logging.WARNING if is_first else logging.DEBUG
            logger.log(level, "usage cannot be read, so tools count as never called until it can: %s", error)
            return
        self._is_loaded = True
        self._usage, self._seen = usage, MappingProxyType(usage)

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
    sums: dict[ToolId, _Sum] = {}
    for entry in entries:
        if isinstance(entry, Invocation) and entry.tool is not None and entry.outcome in _COUNTED:
            try:
                found = sums.get(entry.tool)
                if found is None:
                    found = sums[entry.tool] = _Sum()
                found.add(entry)
            except (ArithmeticError, TypeError, ValueError):
                continue
    return {tool: found.usage() for tool, found in sums.items() if found.calls}


class _Sum:
    """A usage in the making: adding frozen ones one by one would copy their tables each time."""

    __slots__ = ("calls", "days", "done", "latencies", "seconds", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.calls = self.done = self.tokens_in = self.tokens_out = 0
        self.seconds = 0.0
        self.latencies: dict[int, int] = {}
        self.days: dict[int, int] = {}

    def add(self, invocation: Invocation) -> None:
        bucket, day = bucket_of(invocation.seconds), day_of(invocation.at)
        self.latencies[bucket] = self.latencies.get(bucket, 0) + 1
        self.days[day] = self.days.get(day, 0) + 1
        self.calls += 1
        self.done += invocation.outcome is _DONE
        self.seconds += invocation.seconds
        self.tokens_in += invocation.tokens_in
        self.tokens_out += invocation.tokens_out

    def usage(self) -> Usage:
        return Usage(
            calls=self.calls,
            done=self.done,
            seconds=self.seconds,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            latencies=self.latencies,
            days=self.days,
        )
