"""Keeps results that were too large to be given whole: in memory while there is room, else in the store."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_urlsafe
from sys import getsizeof
from threading import Lock
from time import monotonic, time

from portico.domain.call import Caller, Kept, Part, ResultLimits
from portico.errors import NextCall, StoreError, UnknownResult
from portico.storage.results import ResultStore

MEGABYTE = 1_000_000
ID_BYTES = 12  # nobody guesses so many
_HANDLE = re.compile(r"r_[\w-]{16}", re.ASCII)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _InMemory:
    kept: Kept
    size: int
    until: float
    """By the clock that nobody sets."""


@dataclass(slots=True, kw_only=True)
class Results:
    """Keeps results under handles that nobody can guess, each for its caller alone; may be used from several threads.

    What has no room in memory goes to the store before its handle is known to anybody; where replicas share the store,
    everything does, since the next question may reach any of them.
    """

    limits: ResultLimits = field(default_factory=ResultLimits)
    store: ResultStore | None = None
    clock: Callable[[], float] = monotonic
    now: Callable[[], float] = time
    _kept: dict[str, _InMemory] = field(default_factory=dict)  # the oldest first
    _used: int = 0
    _lock: Lock = field(default_factory=Lock)

    def keep(
        self,
        caller: Caller,
        tool: str,
        parts: tuple[Part, ...],
        seen: int = 0,
        tokens: int = 0,
        *,
        is_clients_own: bool = False,
    ) -> str:
        """Keep a result, and say its handle; empty when there is no room for it anywhere. May block.

        One that is its client's own is given to no other client of the same name.
        """
        kept = Kept(
            id=f"r_{token_urlsafe(ID_BYTES)}",
            caller=_client_of(caller) if is_clients_own else caller.name,
            tool=tool,
            parts=parts,
            seen=seen,
            tokens=tokens,
            expires_at=self.now() + self.limits.expire_s,
        )
        is_shared = self.store is not None and self.store.is_shared
        is_written, is_held = is_shared and self._store(kept), self._remember(kept)
        return kept.id if is_held or is_written or (not is_shared and self._store(kept)) else ""

    def find(self, caller: Caller, id: str) -> Kept:
        """The result of a handle. May block.

        Raises:
            UnknownResult: nothing is kept under it for this caller; another's or an expired one looks the same.
        """
        self.sweep()
        held = self._kept.get(id)
        kept = held.kept if held else self._stored(id)
        is_over = held is None and kept is not None and kept.expires_at <= self.now()
        if kept is None or is_over or kept.caller not in (caller.name, _client_of(caller)):
            reason = (
                f"nothing is kept for you under {id[:80]!r}: results are kept for {self.limits.expire_s / 60:g} minutes"
            )
            details = (reason, "call the tool again, and narrow it if you can")
            raise UnknownResult("read_result", details=details, next_call=NextCall("search", {"query": ""}))
        return kept

    def sweep(self) -> None:
        """Let go of what has expired in memory."""
        with self._lock:
            now = self.clock()
            for id in [id for id, held in self._kept.items() if held.until <= now]:
                self._used -= self._kept.pop(id).size

    def sweep_store(self) -> None:
        """Let go of what has expired in the store; blocks."""
        if self.store is not None:
            self.store.sweep(self.now())

    def _remember(self, kept: Kept) -> bool:
        self.sweep()
        starts = [segment.starts for part in kept.parts for segment in part.segments]
        size = sum(getsizeof(part.text) for part in kept.parts) + sum(map(getsizeof, starts))
        with self._lock:
            if self._used + size > self.limits.memory_mb * MEGABYTE:
                return False
            self._used += size
            self._kept[kept.id] = _InMemory(kept, size, self.clock() + self.limits.expire_s)
            return True

    def _store(self, kept: Kept) -> bool:
        if self.store is None:
            return False
        try:
            self.store.save(kept, room=self.limits.store_mb * MEGABYTE, now=self.now())
        except StoreError as error:
            logger.warning("a result could not be kept: %s", error)
            return False
        return True

    def _stored(self, id: str) -> Kept | None:
        if self.store is None or not _HANDLE.fullmatch(id):
            return None
        try:
            return self.store.load(id)
        except StoreError as error:
            logger.warning("a result cannot be read: %s", error)
            raise store_unreadable(id) from error


def _client_of(caller: Caller) -> str:
    """One of several clients of a name, by a digest: the id of its session must not stand in a store."""
    return f"{caller.name} {blake2b(caller.client.encode(), digest_size=16).hexdigest()}"


def store_unreadable(id: str) -> UnknownResult:
    """The error while the store, which may have the result, cannot be read; it tells nothing about the handle."""
    reason = f"{id[:80]!r} is not in memory, and the store cannot be read now: try again in a moment"
    return UnknownResult("read_result", details=(reason,), next_call=NextCall("read_result", {"id": id[:80]}))
