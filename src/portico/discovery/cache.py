"""The one cache of answers: each is made once, however many ask for it, and kept for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import anyio

ENTRIES_KEPT = 1_024
STALE = 2
"""A value of up to so many lifetimes is given where a new one cannot be made."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    value: Any
    at: float


@dataclass(slots=True)
class _Flight:
    """One making of an answer, for which others may wait."""

    era: int
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
    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[Hashable, _Kept] = field(default_factory=OrderedDict)
    _flights: dict[Hashable, _Flight] = field(default_factory=dict)
    _counts: dict[str, list[int]] = field(default_factory=dict)
    _era: int = 0
    """Grows with each `clear`: what was begun before is not kept after."""

    async def get(
        self, name: str, key: Hashable, make: Callable[[], Awaitable[T]], ttl: float, *, counted: bool = True
    ) -> T:
        """The answer under a key of a named kind, not older than its lifetime in seconds; made when there is none.

        What the making raises reaches all who wait, and is not kept; an older answer is given instead where there is
        one that is not older than two lifetimes.
        """
        place = (name, key)
        while True:
            kept = self._kept.get(place)
            if kept is not None and self.clock() - kept.at < ttl:
                self._kept.move_to_end(place)
                self._count(name, 0, counted)
                return cast(T, kept.value)
            flight = self._flights.get(place)
            if flight is None:
                self._count(name, 1, counted)
                return await self._make(place, make, ttl)
            await flight.done.wait()
            if not flight.is_given_up:
                self._count(name, 0, counted)
                return cast(T, _landed(flight))

    def clear(self) -> None:
        """Forget every answer; one that is being made now is given to those who wait for it, and not kept."""
        self._era += 1
        self._kept.clear()
        self._flights.clear()

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Hits and misses of each kind of answer so far; who waits for an answer in the making counts as a hit."""
        return {name: (hits, misses) for name, (hits, misses) in self._counts.items()}

    def __len__(self) -> int:
        return len(self._kept)

    async def _make(self, place: Hashable, make: Callable[[], Awaitable[T]], ttl: float) -> T:
        flight = self._flights[place] = _Flight(era=self._era)
        try:
            flight.value = await make()
            self._keep(place, flight)
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

    def _keep(self, place: Hashable, flight: _Flight) -> None:
        if flight.era != self._era:
            return
        self._kept[place] = _Kept(flight.value, self.clock())
        self._kept.move_to_end(place)
        while len(self._kept) > self.entries:
            self._kept.popitem(last=False)

    def _count(self, name: str, column: int, counted: bool) -> None:
        if counted:
            self._counts.setdefault(name, [0, 0])[column] += 1


def _landed(flight: _Flight) -> Any:
    if flight.error is not None:
        raise flight.error
    return flight.value
