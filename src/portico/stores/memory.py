"""Stores that last as long as the process, for the library and for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import time

from portico.domain.call import Invocation
from portico.domain.server import Offering


@dataclass(slots=True)
class MemoryStore:
    """Remembers offerings until the process ends."""

    _kept: dict[str, tuple[Offering, str]] = field(default_factory=dict)
    _failed: dict[str, tuple[str, str, float]] = field(default_factory=dict)

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

    def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class RecentJournal:
    """Keeps the newest invocations, and no more."""

    recent: deque[Invocation] = field(default_factory=lambda: deque(maxlen=1_000))

    def record(self, invocation: Invocation) -> None:
        """Keep one invocation."""
        self.recent.append(invocation)
