"""A ledger, tier records and change signals in plain dictionaries, which two applications may share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.journal_entries import Batch, CallQuery, Entry, RecordedCall, Report
from portico.domain.server import Packaging
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import LearnedWords, Standing, Usage
from portico.errors import StoreError


@dataclass
class FakeLedger:
    """Ledger, tier records and signals in one; `away` makes each method fail as with a lost database."""

    used: dict[ToolId, Usage] = field(default_factory=dict)
    summed: Report = field(default_factory=lambda: Report(days=7))
    stood: dict[ToolId, Standing] = field(default_factory=dict)
    catalogs: list[CatalogSnapshot] = field(default_factory=list)
    written: dict[str, Category] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    pruned: list[int] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)
    clock: float = 0.0
    """The time at which jobs end."""
    busy: bool = False
    """Whether another process is at the job."""
    overtaken: float = 0.0
    """When another process ended the job, just before it was ours."""
    away: str = ""
    shipped: dict[str, Category] = field(default_factory=dict)
    stuck: str = ""
    """Why nothing can be pruned."""

    def append(self, batch: Batch) -> None:
        raise NotImplementedError

    def usage(self) -> dict[ToolId, Usage]:
        self._answer()
        return dict(self.used)

    def learned(self) -> LearnedWords:
        self._answer()
        return LearnedWords()

    def usage_count(self, tool: ToolId, days: int) -> int:
        return self.used[tool].within(days, self.clock)

    def stored(self, writer: str) -> int:
        return 0

    def count_lost(self, writer: str, entries: int) -> None:
        raise NotImplementedError

    def report(self, *, days: int, limit: int) -> Report:
        self._answer()
        return self.summed

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        self._answer()
        return []

    def check(self) -> None:
        self._answer()

    def prune(self, *, keep_days: int) -> int:
        self._answer()
        if self.stuck:
            raise StoreError(self.stuck)
        self.pruned.append(keep_days)
        return 0

    def standings(self) -> dict[ToolId, Standing]:
        self._answer()
        return dict(self.stood)

    def keep_catalog(
        self,
        snapshot: CatalogSnapshot,
        packaging: Mapping[str, Packaging],
        standings: Mapping[ToolId, Standing] | None = None,
    ) -> None:
        self._answer()
        self.catalogs.append(snapshot)
        self.stood |= standings or {}

    def categories(self) -> dict[str, Category]:
        self._answer()
        return dict(self.written)

    def keep_categories(self, categories: Iterable[Category], *, shipped: bool = False) -> None:
        self._answer()
        if shipped:
            self.shipped = {category.name: category for category in categories}
        else:
            self.written |= {category.name: category for category in categories}

    def drop_category(self, name: str) -> bool:
        self._answer()
        return self.written.pop(name, None) is not None

    def announce(self, topic: str) -> None:
        self._answer()
        self.announced.append(topic)

    def numbers(self) -> dict[str, int]:
        return {topic: self.announced.count(topic) for topic in self.announced}

    def wait(self, seconds: float) -> bool:
        return False

    @contextmanager
    def alone(self, job: str) -> Iterator[bool]:
        if self.overtaken:
            self.ended[job] = self.overtaken
        yield not self.busy

    def last_run(self, job: str) -> float:
        self._answer()
        return self.ended.get(job, 0.0)

    def ran(self, job: str) -> None:
        self._answer()
        self.ended[job] = self.clock

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        if self.away:
            raise StoreError(self.away)


@dataclass
class FakeUsageJournal:
    """A journal with given usage figures."""

    used: dict[ToolId, Usage] = field(default_factory=dict)
    trouble: str = ""

    def record(self, entry: Entry) -> None:
        raise NotImplementedError

    async def written(self) -> str:
        return self.trouble

    def usage(self) -> Mapping[ToolId, Usage]:
        return self.used

    def learned(self) -> LearnedWords:
        return LearnedWords()
