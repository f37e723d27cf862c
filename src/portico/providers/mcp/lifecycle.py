"""The one task that owns a server's connection: opens it on first use, closes it when idle, opens it again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup

from portico.domain.call import OnProgress, waiting_for_start
from portico.errors import Sent

from .connect import Connection, Dialler
from .transport import Fault, Lost, Patience, Unauthorized

FIRST = 0.5
CAP = 300.0
PARKED = 1800.0
"""Seconds for which refused credentials are not tried again; a person has to act."""


class Backoff:
    """The first new try is free, the next waits half a second, each further one twice as long, with jitter."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def fail(self, now: float, *, parked: bool = False) -> None:
        """Count one failure."""
        self._failures += 1
        delay = 0.0 if self._failures == 1 else min(FIRST * 2.0 ** min(self._failures - 2, 20), CAP)
        # Jitter only lengthens: many gateways must not come back at one moment, nor any too early.
        self._until = now + (PARKED if parked else delay * (1 + 0.1 * self._jitter()))

    def reset(self) -> None:
        """Forget all failures."""
        self._failures, self._until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next try is allowed."""
        return max(0.0, self._until - now)


logger = logging.getLogger(__name__)

DRAIN = 5.0
"""Seconds that calls in flight get when the gateway closes."""
STEADY = 60.0
"""A connection that has lived so long, or has answered a call, was no failure."""

CALLS_AT_ONCE = 256
"""Calls that one server is given at a time: a slow one must not gather all of the gateway's work."""

Outcome = Connection | Fault


class Owner:
    """Keeps at most one connection to one server."""

    def __init__(self, server: str, dialler: Dialler, idle: float, start: float) -> None:
        self._server, self._dialler, self._idle, self._start = server, dialler, idle, start
        self._backoff = Backoff()
        self._connection: Connection | None = None
        self._opening: asyncio.Future[Outcome] | None = None
        self._opening_scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._in_flight = 0
        self._used_at = self._opened_at = 0.0
        self._has_worked = self._is_closing = False
        self.failure: Fault | None = None
        """Why there is no connection, when one was wanted or lost."""

    @property
    def connection(self) -> Connection | None:
        """The open connection."""
        return self._connection

    async def request(
        self, method: str, params: Mapping[str, Any], patience: Patience, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request over the connection; what was certainly not sent is tried on one more.

        Raises:
            Fault: there is no answer.
        """
        for attempt in (1, 2):
            connection = self._connection or await self._connect()
            if self._in_flight >= CALLS_AT_ONCE:
                raise Fault(
                    f"the server is at work on {CALLS_AT_ONCE} calls already, the most that it is given at a time",
                    "make the call again when some of them have ended",
                )
            self._in_flight += 1
            try:
                result = await connection.request(method, params, patience, on_progress)
                self._has_worked = True
                return result
            except Lost as fault:
                if fault.sent is not Sent.NOTHING or attempt == 2:
                    raise
            finally:
                self._release()
        raise AssertionError("a second attempt returns or raises")

    async def use(self, work: Callable[[Connection], Any]) -> Any:
        """Run some work over one connection, which stays open meanwhile.

        Raises:
            Fault: there is no connection, or the work failed.
        """
        connection = self._connection or await self._connect()
        self._in_flight += 1
        try:
            return await work(connection)
        finally:
            self._release()

    def retry_now(self) -> None:
        """Forget earlier failures: somebody has mended something."""
        self._backoff.reset()

    async def aclose(self) -> None:
        """Let calls in flight end, for a bounded time, and close the connection for good."""
        self._is_closing = True
        self._connection = None
        self._wake.set()
        if self._opening_scope is not None:
            self._opening_scope.cancel()
        if self._task is not None and not self._task.done():
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _connect(self) -> Connection:
        if self._is_closing:
            raise Lost("the gateway is closing")
        if self._opening is None:
            self._refuse_in_backoff()
            self._opening = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run(), name=f"upstream {self._server}")
        with waiting_for_start():
            outcome = await asyncio.shield(self._opening)
        if isinstance(outcome, Fault):
            raise outcome.with_traceback(None)
        return outcome

    def _refuse_in_backoff(self) -> None:
        wait = self._backoff.wait(asyncio.get_running_loop().time())
        if wait > 0:
            reason = self.failure.details if self.failure is not None else ()
            raise Lost(*reason, f"this was not tried again yet; the next try is possible in {_spell(wait)}")

    async def _run(self) -> None:
        while self._opening is not None:
            try:
                await self._live(self._opening)
            except Exception:
                logger.exception("the connection to server %r failed in a way that was not foreseen", self._server)
                self._fail(Lost("the gateway made a mistake with this server; see its log"))

    async def _live(self, opening: asyncio.Future[Outcome]) -> None:
        """One connection, from opening to closing."""
        outcome: Outcome = Lost("the gateway stopped opening the connection")
        try:
            async with anyio.create_task_group() as chores:
                outcome = await self._open(chores)
                self._opening = None
                opening.set_result(outcome)
                if isinstance(outcome, Connection):
                    await self._watch(outcome)
                chores.cancel_scope.cancel()
        finally:
            self._connection = None
            if self._opening is opening:
                self._opening = None
            if not opening.done():
                opening.set_result(outcome if isinstance(outcome, Fault) else Lost("the connection was stopped"))
            if isinstance(outcome, Connection):
                await outcome.aclose()

    async def _open(self, chores: TaskGroup) -> Outcome:
        fault: Fault = Lost("the gateway is closing")
        with anyio.move_on_after(self._start + 1.0) as scope:
            self._opening_scope = scope
            if self._is_closing:
                return fault
            try:
                connection = await self._dialler.open(chores, self._on_lost)
            except Fault as found:
                # The call that waits for this connection has not been sent, whatever the handshake sent.
                kind = Unauthorized if isinstance(found, Unauthorized) else Lost
                fault = kind(*found.details)
            else:
                self._adopt(connection)
                return connection
        if scope.cancelled_caught and not self._is_closing:
            fault = Lost(f"the server did not start within {self._start:g} s", "raise its `timeouts.start`")
        self._fail(fault)
        return fault

    def _adopt(self, connection: Connection) -> None:
        self._wake.clear()
        self._used_at = self._opened_at = asyncio.get_running_loop().time()
        self._has_worked, self.failure = False, None
        self._connection = None if self._is_closing else connection

    def _on_lost(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.link.fault is not None:
            self._fail(connection.link.fault)
            self._wake.set()

    def _fail(self, fault: Fault) -> None:
        now = asyncio.get_running_loop().time()
        if self._has_worked or (self._opened_at and now - self._opened_at > STEADY):
            self._backoff.reset()
        self._has_worked, self._opened_at = False, 0.0
        self.failure = fault
        self._backoff.fail(now, parked=isinstance(fault, Unauthorized))

    async def _watch(self, connection: Connection) -> None:
        """Return when the connection has died, is no longer used, or is to be closed."""
        while connection.link.fault is None and not self._is_closing:
            left = self._idle_left(connection)
            if left <= 0:
                return
            with anyio.move_on_after(left):
                await self._wake.wait()
        with anyio.move_on_after(DRAIN):
            while self._in_flight and connection.link.fault is None:
                self._wake.clear()
                await self._wake.wait()

    def _idle_left(self, connection: Connection) -> float:
        if not self._idle:
            return inf
        if self._in_flight or connection.is_watching:
            return self._idle
        return self._used_at + self._idle - asyncio.get_running_loop().time()

    def _release(self) -> None:
        self._in_flight -= 1
        self._used_at = asyncio.get_running_loop().time()
        if self._is_closing and not self._in_flight:
            self._wake.set()


def _spell(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
