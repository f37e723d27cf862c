"""Storage without a database: definitions, vectors and a short journal that last as long as the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from time import time
from types import MappingProxyType

from portico.domain.call import Invocation
from portico.domain.journal_entries import CallQuery, Entry, Lookup, RecordedCall
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import LearnedWords, Usage, words_learned

USAGE_KEPT = 20_000
"""Tools whose usage is kept."""

VECTORS_KEPT = 20_000


@dataclass(slots=True)
class MemoryDefinitions:
    """Remembers offerings until the process ends."""

    vectors_kept: int = VECTORS_KEPT
    _kept: dict[str, tuple[Offering, str]] = field(default_factory=dict)
    _failed: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    _vectors: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Those used last at the end."""
    _lock: Lock = field(default_factory=Lock)

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        """The offerings whose fingerprint is still the same."""
        return {name: kept[0] for name, mark in servers.items() if (kept := self._kept.get(name)) and kept[1] == mark}

    def save(self, offering: Offering, fingerprint: str) -> None:
        """Remember one server's offering."""
        self._kept[offering.server] = (offering, fingerprint)
        self._failed.pop(offering.server, None)

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked."""
        self._failed[server] = (fingerprint, reason, time())

    def failures(self, servers: Mapping[str, str], *, within: float) -> dict[str, str]:
        """Why servers could not be asked, as long as that is recent."""
        since = time() - within
        rows = ((name, self._failed[name]) for name in servers if name in self._failed)
        return {name: reason for name, (mark, reason, at) in rows if mark == servers[name] and at >= since}

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is remembered of these servers."""
        for name in servers:
            self._kept.pop(name, None)
            self._failed.pop(name, None)

    def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The vectors that are remembered under these hashes."""
        with self._lock:
            found = {hash: kept for hash in hashes if (kept := self._vectors.pop((model, hash), None)) is not None}
            self._vectors |= {(model, hash): vector for hash, vector in found.items()}
            return found

    def save_vectors(self, model: str, rows: Mapping[str, bytes]) -> None:
        """Remember vectors; those not used for longest make room."""
        with self._lock:
            for hash, vector in rows.items():
                self._vectors.pop((model, hash), None)
                self._vectors[model, hash] = vector
            for key in list(islice(self._vectors, max(0, len(self._vectors) - self.vectors_kept))):
                del self._vectors[key]

    def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class MemoryJournal:
    """Keeps the newest invocations and the usage of the tools that were called last, and no more."""

    recent: deque[Invocation] = field(default_factory=lambda: deque(maxlen=1_000))
    lookups: deque[Lookup] = field(default_factory=lambda: deque(maxlen=1_000))
    _usage: dict[ToolId, Usage] = field(default_factory=dict)
    _learned: LearnedWords = field(default_factory=LearnedWords)

    def record(self, entry: Entry) -> None:
        """Keep one entry, and count it."""
        if isinstance(entry, Lookup):
            self.lookups.append(entry)
            return
        self.recent.append(entry)
        if entry.tool is None:
            return
        usage = self._usage.pop(entry.tool, Usage()) + entry
        if usage.calls:
            self._usage[entry.tool] = usage
        if len(self._usage) > USAGE_KEPT:
            del self._usage[next(iter(self._usage))]
        if entry.words:
            now = time()
            self._learned.add(words_learned([entry], now), now)

    async def written(self) -> str:
        """There is nothing to wait for."""
        return ""

    def usage(self) -> Mapping[ToolId, Usage]:
        """Usage as it stands, and as it will."""
        return MappingProxyType(self._usage)

    def learned(self) -> LearnedWords:
        """The words that are learned, as they stand and as they will."""
        return self._learned

    def forget_learned(self) -> int:
        """Forget these words, and say how many there were."""
        before, self._learned = self._learned, LearnedWords()
        return len(before)

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        """The last calls that a query asks for, the newest first."""
        known = [RecordedCall(number=number, entry=entry) for number, entry in enumerate(list(self.recent), start=1)]
        return [call for call in reversed(known) if query.passes(call)][: query.limit]

    def entries(self, since: float) -> list[Entry]:
        """What is kept from a moment on, the oldest first."""
        known: list[Entry] = [*self.recent, *self.lookups]
        return sorted((entry for entry in known if entry.at >= since), key=lambda entry: entry.at)
