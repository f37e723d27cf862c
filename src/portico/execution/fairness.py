"""Fair shares of what there is little of: each client waits in a line of its own, and the lines take turns."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from portico.errors import Busy

QUEUE = 1_000
WAIT_SECONDS = 60.0


@dataclass(slots=True)
class FairLimiter:
    """Lets so many run at once; while several clients wait, each gets every n-th place that becomes free.

    One client alone gets three quarters of the places and of the queue, so that the next one finds room. Whoever has no
    name shares everything with all others that have none, and may use it whole: a program that embeds the gateway.
    """

    at_once: int
    queue: int = QUEUE
    """How many may wait, over all clients."""
    _running: dict[str, int] = field(default_factory=dict)
    _lines: OrderedDict[str, deque[Future[None]]] = field(default_factory=OrderedDict)
    """Those who wait, by client; the first client is the next to get a place."""
    _busy: int = 0
    _waiting: int = 0

    @property
    def running(self) -> int:
        """How many have a place."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._waiting

    @asynccontextmanager
    async def turn(self, client: str, subject: str, *, seconds: float = WAIT_SECONDS) -> AsyncIterator[None]:
        """Hold a place while the block runs; waits for one.

        Raises:
            Busy: too many wait already, or none became free in time.
        """
        if self._busy < self.at_once and self._may_run(client):
            self._take(client)
        else:
            await self._wait(client, subject, seconds)
        try:
            yield
        finally:
            self._give_back(client)

    async def _wait(self, client: str, subject: str, seconds: float) -> None:
        line = self._lines.setdefault(client, deque())
        if self._waiting >= self.queue or len(line) >= self._share(client, self.queue):
            self._drop_empty(client)
            raise Busy(subject, details=(f"{self._busy} are at work and {self._waiting} wait; try again in a while",))
        place = get_running_loop().create_future()
        line.append(place)
        self._waiting += 1
        try:
            with anyio.fail_after(seconds):
                await place
        except TimeoutError as error:
            self._leave(client, place)
            raise Busy(subject, details=(f"no place became free for {seconds:g} s; try again in a while",)) from error
        except BaseException:
            self._leave(client, place)
            raise

    def _leave(self, client: str, place: Future[None]) -> None:
        """Wait no longer; a place that was given in the same moment goes to the next."""
        if place.done() and not place.cancelled():
            self._give_back(client)
            return
        line = self._lines.get(client)
        if line is not None and place in line:
            line.remove(place)
            self._waiting -= 1
            self._drop_empty(client)

    def _give_back(self, client: str) -> None:
        self._busy -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._admit()

    def _admit(self) -> None:
        """Give free places to those who wait, one client after the other."""
        for client in list(self._lines):
            if self._busy >= self.at_once:
                return
            line = self._lines[client]
            if not self._may_run(client):
                continue
            place = line.popleft()
            self._waiting -= 1
            self._lines.move_to_end(client)
            self._drop_empty(client)
            if not place.done():
                self._take(client)
                place.set_result(None)
        if self._busy < self.at_once and any(self._may_run(client) for client in self._lines):
            self._admit()

    def _take(self, client: str) -> None:
        self._busy += 1
        self._running[client] = self._running.get(client, 0) + 1

    def _may_run(self, client: str) -> bool:
        return self._running.get(client, 0) < self._share(client, self.at_once)

    def _share(self, client: str, whole: int) -> int:
        return max(1, whole * 3 // 4) if client else whole

    def _drop_empty(self, client: str) -> None:
        if not self._lines.get(client):
            self._lines.pop(client, None)


@dataclass(slots=True)
class Turns:
    """The limiters of servers whose calls hold something that there is little of: a thread, a connection."""

    _limiters: dict[tuple[str, int], FairLimiter] = field(default_factory=dict)

    def of(self, server: str, at_once: int) -> FairLimiter:
        """The limiter of a server for so many at once."""
        found = self._limiters.get((server, at_once))
        if found is None:
            found = self._limiters[server, at_once] = FairLimiter(at_once)
        return found
