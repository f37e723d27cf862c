"""The one cache of answers: each is made once, however many ask for it, and kept for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import anyio

from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import ToolId

ENTRIES_KEPT = 1_024
BYTES_KEPT = 32 * 1_024 * 1_024
EACH_KEPT = 64
"""Values of one snapshot."""
STALE = 2
"""A value of up to so many lifetimes is given where a new one cannot be made."""

T = TypeVar("T")


def body_size(value: object) -> int:
    """The bytes of an answer's body; what has none is small."""
    body = getattr(value, "body", b"")
    return len(body) if isinstance(body, bytes) else 0


@dataclass(frozen=True, slots=True)
class _Kept:
    value: Any
    at: float
    version: Hashable
    size: int


@dataclass(slots=True)
class _Flight:
    """One making of an answer, for which others may wait."""

    era: int
    version: Hashable
    done: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    error: Exception | None = None
    is_given_up: bool = False
    """Whether its maker was cancelled: somebody else makes the answer then."""


@dataclass(slots=True, kw_only=True)
class AnswerCache:
    """Keeps the answers that were asked for last, for one event loop.

    The first asker makes an answer in its own task, so that there is no other task to be left behind; the others wait
    for it. When the maker is cancelled, one of those who wait takes its place.
    """

    entries: int = ENTRIES_KEPT
    room: int = BYTES_KEPT
    """Bytes that all answers together may take; one that takes more is not kept."""
    size: Callable[[Any], int] = body_size
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[Hashable, _Kept] = field(default_factory=OrderedDict)
    _flights: dict[Hashable, _Flight] = field(default_factory=dict)
    _counts: dict[str, list[int]] = field(default_factory=dict)
    _bytes: int = 0
    _era: int = 0
    """Grows with each `clear`: what was begun before is not kept after."""

    async def get(
        self,
        name: str,
        key: Hashable,
        make: Callable[[], Awaitable[T]],
        ttl: float,
        *,
        version: Hashable = None,
        counted: bool = True,
    ) -> T:
        """The answer under a key of a named kind, not older than its lifetime in seconds; made when there is none.

        An answer of another version is made anew, and takes the place of the one that was kept.

        What the making raises reaches all who wait, and is not kept; an older answer is given instead where there is
        one that is not older than two lifetimes.
        """
        place = (name, key)
        while True:
            kept = self._kept.get(place)
            if kept is not None and kept.version == version and self.clock() - kept.at < ttl:
                self._kept.move_to_end(place)
                self._count(name, 0, counted)
                return cast(T, kept.value)
            flight = self._flights.get(place)
            if flight is None:
                self._count(name, 1, counted)
                return await self._make(place, make, ttl, version)
            await flight.done.wait()
            if not flight.is_given_up and flight.version == version:
                self._count(name, 0, counted)
                return cast(T, _landed(flight))

    def get_now(self, name: str, key: Hashable, make: Callable[[], T], *, version: Hashable = None) -> T:
        """The same for an answer whose making waits for nobody; it has no lifetime but that of its version."""
        place = (name, key)
        kept = self._kept.get(place)
        if kept is not None and kept.version == version:
            self._kept.move_to_end(place)
            self._count(name, 0, True)
            return cast(T, kept.value)
        self._count(name, 1, True)
        value = make()
        self._keep(place, value, version)
        return value

    def clear(self) -> int:
        """Forget every answer, and say how many there were.

        One that is being made now is given to those who wait for it, and not kept.
        """
        forgotten = len(self._kept)
        self._era += 1
        self._bytes = 0
        self._kept.clear()
        self._flights.clear()
        return forgotten

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Hits and misses of each kind of answer so far; who waits for an answer in the making counts as a hit."""
        return {name: (hits, misses) for name, (hits, misses) in self._counts.items()}

    def __len__(self) -> int:
        return len(self._kept)

    async def _make(self, place: Hashable, make: Callable[[], Awaitable[T]], ttl: float, version: Hashable) -> T:
        flight = self._flights[place] = _Flight(era=self._era, version=version)
        try:
            flight.value = await make()
            if flight.era == self._era:
                self._keep(place, flight.value, version)
        except Exception as error:
            old = self._kept.get(place)
            if old is None or self.clock() - old.at >= STALE * ttl:
                flight.error = error
                raise
            flight.value = old.value
        except BaseException:
            flight.is_given_up = True
            raise
        finally:
            if self._flights.get(place) is flight:
                del self._flights[place]
            flight.done.set()
        return cast(T, flight.value)

    def _keep(self, place: Hashable, value: object, version: Hashable) -> None:
        self._forget(place)
        size = self.size(value)
        if size > self.room:
            return
        self._kept[place] = _Kept(value, self.clock(), version, size)
        self._bytes += size
        while len(self._kept) > self.entries or self._bytes > self.room:
            self._forget(next(iter(self._kept)))

    def _forget(self, place: Hashable) -> None:
        old = self._kept.pop(place, None)
        self._bytes -= old.size if old is not None else 0

    def _count(self, name: str, column: int, counted: bool) -> None:
        if counted:
            self._counts.setdefault(name, [0, 0])[column] += 1


@dataclass(slots=True)
class PerSnapshot(Generic[T]):
    """Values that follow from a snapshot: each is made once, and gone with its snapshot."""

    _kept: WeakKeyDictionary[CatalogSnapshot, dict[Hashable, T]] = field(default_factory=WeakKeyDictionary)
    _lock: Lock = field(default_factory=Lock)
    """Answers of the tiers are written in a worker thread."""

    def get(self, snapshot: CatalogSnapshot, key: Hashable, make: Callable[[], T]) -> T:
        """The value under a key; of very many, the one that was made first makes room."""
        with self._lock:
            kept = self._kept.setdefault(snapshot, {})
            if key in kept:
                return kept[key]
        value = make()
        with self._lock:
            kept[key] = value
            if len(kept) > EACH_KEPT:
                del kept[next(iter(kept))]
        return value


@dataclass(slots=True)
class Sights:
    """A number for each set of tools that a caller sees, so that no key keeps the set of a snapshot long gone."""

    _numbers: WeakKeyDictionary[CatalogSnapshot, dict[frozenset[ToolId], int]] = field(
        default_factory=WeakKeyDictionary
    )

    def number(self, snapshot: CatalogSnapshot, visible: frozenset[ToolId]) -> int:
        """What tells this set from every other set of the same snapshot."""
        known = self._numbers.setdefault(snapshot, {})
        return known.setdefault(visible, len(known))


def _landed(flight: _Flight) -> Any:
    if flight.error is not None:
        raise flight.error
    return flight.value
