"""Whether a request is sent to a server, when, and how often: its breaker, its queue, and what may be repeated."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from time import monotonic
from typing import Any

import anyio

from portico.domain.call import waiting_for_start
from portico.domain.server import ServerLimits
from portico.errors import Sent

from .connect import ServerConnection
from .message_limits_and_errors import BadStatus, BrokenOff, Crowded, ExchangeFault, ExchangeTimeouts, Lost, Permanent


class BreakerState(StrEnum):
    """What a breaker does with the next call."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """One call is let through, to see whether the server answers again."""


class CircuitBreaker:
    """Refuses calls to a server that has failed several in a row, until one that it lets through is answered."""

    def __init__(
        self,
        limits: ServerLimits,
        tell: Callable[[str, str], None],
        clock: Callable[[], float] = monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._limits, self._tell, self._clock, self._jitter = limits, tell, clock, jitter
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._reason = ""
        self._opened_at = self._until = 0.0
        self._is_probing = False

    @property
    def trouble(self) -> str:
        """Why calls are refused; empty while they are not."""
        if self.state is BreakerState.CLOSED:
            return ""
        ago = self._clock() - self._opened_at
        return f"the breaker of this server is open for {ago:.1f} s: {self._limits.failures} calls failed in a row"

    def check(self) -> None:
        """Do nothing where a call may go on.

        Raises:
            Lost: the breaker is open.
        """
        if self.state is BreakerState.CLOSED:
            return
        left = self._until - self._clock()
        if left > 0 or self._is_probing:
            when = f"in {max(left, 0.1):.1f} s" if left > 0 else "when the one call that was let through has ended"
            raise Lost(
                self.trouble,
                f"the last one: {self._reason}",
                f"the next try is possible {when}",
            )

    def admit(self) -> bool:
        """Let a call through; true when all depends on it.

        Raises:
            Lost: the breaker is open.
        """
        self.check()
        if self.state is BreakerState.CLOSED:
            return False
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN
            self._tell("breaker_half_open", "one call is let through, to see whether the server answers again")
        self._is_probing = True
        return True

    def end_probe(self) -> None:
        """Let the next call be the one that all depends on, if this one has decided nothing."""
        self._is_probing = False

    def succeed(self, *, is_probe: bool) -> None:
        """Take the news that the server has answered a call; one that began before it opened closes no breaker."""
        if self.state is BreakerState.CLOSED:
            self._failures = 0
        elif is_probe:
            self.reset()

    def fail(self, fault: ExchangeFault, *, is_probe: bool) -> None:
        """Take the news that a call failed through the server's fault."""
        if not self._limits.failures or (self.state is not BreakerState.CLOSED and not is_probe):
            return
        self._failures += 1
        if not is_probe and self._failures < self._limits.failures:
            return
        now = self._clock()
        if self.state is BreakerState.CLOSED:
            self._opened_at = now
        # Jitter only lengthens: many gateways must not ask a server at one moment.
        cooldown = self._limits.cooldown_s * (1 + self._jitter())
        self.state, self._until, self._is_probing = BreakerState.OPEN, now + cooldown, False
        self._reason = fault.details[0] if fault.details else "it gave no answer"
        self._tell("breaker_open", f"{self._reason}; calls are refused for {cooldown:.1f} s")

    def reset(self) -> None:
        """Close it, and forget all failures."""
        was_open = self.state is not BreakerState.CLOSED
        self.state, self._failures, self._is_probing = BreakerState.CLOSED, 0, False
        if was_open:
            self._tell("breaker_closed", "calls are let through again")


class CallQueue:
    """Gives a server so many calls at a time; the others wait in the order in which they came, up to a bound."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self.running = 0
        """Calls that the server is at work on."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the next call has to wait."""
        return self.running >= self._limits.calls_at_once or bool(self._waiting)

    async def enter(self, seconds: float) -> None:
        """Take a place; whoever has one must `leave` it.

        Raises:
            Crowded: too many wait already, or none became free in time.
        """
        if not self.is_full:
            self.running += 1
            return
        if len(self._waiting) >= self._limits.queue:
            raise self._refusal(f"and {len(self._waiting)} more wait, which are as many as may")
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            with anyio.fail_after(seconds):
                await place
        except TimeoutError:
            self._give_up(place)
            raise self._refusal(f"and none of them has ended for {seconds:g} s") from None
        except BaseException:
            self._give_up(place)
            raise

    def leave(self) -> None:
        """Give a place back: to whoever has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1

    def _give_up(self, place: asyncio.Future[None]) -> None:
        """Wait no longer; a place that was given in the same moment goes to the next."""
        if place.done() and not place.cancelled():
            self.leave()
            return
        with suppress(ValueError):
            self._waiting.remove(place)

    def _refusal(self, said: str) -> Crowded:
        most = self._limits.calls_at_once
        return Crowded(
            f"the server is at work on {most} calls already, the most that it is given at a time, {said}",
            "make the call again when some of them have ended, or raise `calls_at_once` or `queue` of this server",
        )


Connect = Callable[[], Awaitable[ServerConnection]]
Exchange = Callable[[ServerConnection, ExchangeTimeouts], Awaitable[dict[str, Any]]]
AWAY = frozenset({502, 503})
"""What a proxy answers in the place of a server that is away."""


class CallGate:
    """Lets requests through to one server: in their turn, while its breaker is closed, and twice where that is safe."""

    def __init__(self, limits: ServerLimits, tell: Callable[[str, str], None]) -> None:
        self.breaker = CircuitBreaker(limits, tell)
        self._queue = CallQueue(limits)
        self._counted: ServerConnection | None = None
        """The lost connection that the breaker has counted: all the calls that one takes with it are one failure."""

    async def run(self, connect: Connect, exchange: Exchange, timeouts: ExchangeTimeouts) -> dict[str, Any]:
        """Make one exchange over a connection; what may be repeated is tried on one more.

        Raises:
            ExchangeFault: there is no answer.
        """
        self.breaker.check()
        if self._queue.is_full:
            with waiting_for_start():  # it is not the server's time
                await self._queue.enter(timeouts.first)
        else:
            await self._queue.enter(timeouts.first)
        is_probe = False
        try:
            is_probe = self.breaker.admit()
            return await self._run(connect, exchange, timeouts, is_probe=is_probe)
        finally:
            if is_probe:
                self.breaker.end_probe()
            self._queue.leave()

    async def _run(
        self, connect: Connect, exchange: Exchange, timeouts: ExchangeTimeouts, *, is_probe: bool
    ) -> dict[str, Any]:
        ends = asyncio.get_running_loop().time() + timeouts.total
        connection = await connect()
        try:
            return await self._judged(connection, exchange, timeouts, is_probe=is_probe)
        except ExchangeFault as fault:
            left = ends - asyncio.get_running_loop().time()
            if is_probe or left <= 0 or not _may_repeat(fault, timeouts):
                raise
            first, timeouts = fault, replace(timeouts, total=left)
        try:
            return await self._judged(await connect(), exchange, timeouts, is_probe=is_probe)
        except ExchangeFault as fault:
            # Of two tries, the one that may have taken effect is what the caller must hear of.
            is_less = fault.sent is Sent.NOTHING and first.sent is not Sent.NOTHING
            raise (first if is_less else fault) from None

    async def _judged(
        self, connection: ServerConnection, exchange: Exchange, timeouts: ExchangeTimeouts, *, is_probe: bool
    ) -> dict[str, Any]:
        """Make an exchange, and let the breaker know how it ended."""
        try:
            result = await exchange(connection, timeouts)
        except ExchangeFault as fault:
            self._judge(connection, fault, is_probe=is_probe)
            raise
        self.breaker.succeed(is_probe=is_probe)
        return result

    def _judge(self, connection: ServerConnection, fault: ExchangeFault, *, is_probe: bool) -> None:
        """Tell the breaker of a call that failed: an answer, whatever it says, shows that the server is there."""
        if fault.sent is Sent.ANSWERED:
            self.breaker.succeed(is_probe=is_probe)
            return
        if connection.transport.fault is not None:
            if connection is self._counted and not is_probe:
                return
            self._counted = connection
        self.breaker.fail(fault, is_probe=is_probe)


def _may_repeat(fault: ExchangeFault, timeouts: ExchangeTimeouts) -> bool:
    """Whether a request that failed so may be sent once more: it was not sent, or changes nothing."""
    if isinstance(fault, Lost) and fault.sent is Sent.NOTHING:
        return not isinstance(fault, Permanent)
    is_away = isinstance(fault, Lost | BrokenOff) or (isinstance(fault, BadStatus) and fault.status in AWAY)
    return timeouts.is_repeatable and is_away and fault.sent is Sent.UNKNOWN
