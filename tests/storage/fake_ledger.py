"""A ledger in memory that keeps its port's promises, goes away when told to, and can be waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from portico.domain.journal_entries import Batch, CallQuery, Entry, Losses, RecordedCall, Report
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import LearnedWords, Usage
from portico.errors import StoreError
from portico.storage.journal_tables import fold_usage as fold

WAIT_SECONDS = 20


@dataclass(slots=True)
class FakeLedger:
    """Keeps batches, and remembers who wrote how many entries."""

    batches: list[Batch] = field(default_factory=list)
    """Those that were stored."""
    tries: list[Batch] = field(default_factory=list)
    writers: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    known: dict[ToolId, Usage] = field(default_factory=dict)
    """Usage that other processes have stored."""
    away: str = ""
    """While this is set, everything raises it."""
    swallows: int = 0
    """So many times a batch is stored and its answer gets lost."""
    hates: Callable[[Entry], bool] = lambda entry: False
    """Entries that it cannot take."""
    refusal: Exception = field(default_factory=lambda: TypeError("an entry of the wrong kind"))
    """What it says of them."""
    reads: int = 0
    """How often usage was asked for."""
    unreadable: str = ""
    """While this is set, usage cannot be read, and everything else works."""
    gate: threading.Event = field(default_factory=threading.Event)
    """While this is not set, `append` does not return."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.gate.set()

    def append(self, batch: Batch) -> int:
        with self.changed:
            self.tries.append(batch)
            self.changed.notify_all()
        assert self.gate.wait(WAIT_SECONDS)
        self._answer()
        if any(self.hates(entry) for entry in batch.entries):
            raise self.refusal
        with self.changed:
            stored = self.writers.get(batch.writer, 0)
            assert batch.first <= stored, "entries are missing"
            if batch.first == stored:
                self.batches.append(batch)
                self.writers[batch.writer] = batch.end
            self.changed.notify_all()
        if self.swallows:
            self.swallows -= 1
            raise StoreError("the answer got lost")
        return 0

    def usage(self) -> dict[ToolId, Usage]:
        with self.changed:
            self.reads += 1
            self.changed.notify_all()
        self._answer()
        if self.unreadable:
            raise StoreError(self.unreadable)
        found = dict(self.known)
        for tool, usage in fold(self.entries).items():
            found[tool] = found.get(tool, Usage()) + usage
        return found

    def learned(self) -> LearnedWords:
        return LearnedWords()

    def usage_count(self, tool: ToolId, days: int) -> int:
        raise NotImplementedError

    def stored(self, writer: str) -> int:
        self._answer()
        return self.writers.get(writer, 0)

    def count_lost(self, writer: str, entries: int) -> None:
        self._answer()
        with self.changed:
            self.lost[writer] = self.lost.get(writer, 0) + entries
            self.changed.notify_all()

    def report(self, *, days: int, limit: int) -> Report:
        dropped = sum(batch.dropped for batch in self.batches)
        return Report(days=days, losses=Losses(dropped=dropped, lost=sum(self.lost.values())))

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        self._answer()
        return []

    def check(self) -> None:
        self._answer()

    def prune(self, *, keep_days: int) -> int:
        raise NotImplementedError

    @property
    def entries(self) -> list[Entry]:
        """All that was stored, in its order."""
        return [entry for batch in self.batches for entry in batch.entries]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something was tried, stored or counted."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_SECONDS)

    def _answer(self) -> None:
        if self.away:
            raise StoreError(self.away)
