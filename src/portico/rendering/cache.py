"""The one cache of answers: each is made once, however many ask for it, and kept for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar, cast

import anyio

ENTRIES_KEPT = 1_024
BYTES_KEPT = 32 * 1_024 * 1_024
STALE = 2  # a value of up to so many lifetimes is given where a new one cannot be made

T = TypeVar("T")


def body_size(value: object) -> int:
    """The bytes of an answer, or of its body; what has none is small."""
    body = value if isinstance(value, bytes) else getattr(value, "body", b"")
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
    is_given_up: bool = False  # whether its maker was cancelled: somebody else makes the answer then


@dataclass(slots=True, kw_only=True)
class AnswerCache:
    """Keeps the answers that were asked for last, for one event loop.

    The first asker makes an answer in its own task, so that there is no other task to be left behind; the others wait
    for it. When the maker is cancelled, one of those who wait takes its place.
    """

    entries: int = ENTRIES_KEPT
    room: int = BYTES_KEPT  # bytes that all answers together may take; one that takes more is not kept
    size: Callable[[Any], int] = body_size
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[Hashable, _Kept] = field(default_factory=OrderedDict)
    _flights: dict[Hashable, _Flight] = field(default_factory=dict)
    _counts: dict[str, list[int]] = field(default_factory=dict)
    _bytes: int = 0
    _era: int = 0  # grows with each `clear`: what was begun before is not kept after

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
        place, counts = (name, key), self._counts_of(name) if counted else [0, 0]
        while True:
            if (kept := self._find(place, version, ttl)) is not None:
                counts[0] += 1
                return cast(T, kept.value)
            flight = self._flights.get(place)
            if flight is None:
                counts[1] += 1
                return await self._make(place, make, ttl, version)
            await flight.done.wait()
            if not flight.is_given_up and flight.version == version:
                counts[0] += 1
                if flight.error is not None:
                    raise flight.error
                return cast(T, flight.value)

    def get_now(self, name: str, key: Hashable, make: Callable[[], T], *, version: Hashable = None) -> T:
        """The same for an answer whose making waits for nobody; it has no lifetime but that of its version."""
        place, counts = (name, key), self._counts_of(name)
        if (kept := self._find(place, version, inf)) is not None:
            counts[0] += 1
            return cast(T, kept.value)
        counts[1] += 1
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

    def _counts_of(self, name: str) -> list[int]:
        return self._counts.setdefault(name, [0, 0])

    def _find(self, place: Hashable, version: Hashable, ttl: float) -> _Kept | None:
        kept = self._kept.get(place)
        if kept is None or kept.version != version or self.clock() - kept.at >= ttl:
            return None
        self._kept.move_to_end(place)
        return kept

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
