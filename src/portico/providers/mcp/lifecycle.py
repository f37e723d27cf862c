"""The life of one server: opened on first use, closed when idle, opened again after a failure."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from portico.domain.call import OnProgress, waiting_for_start
from portico.domain.server import ServerSpec, pause_after

from .call_gate import CallGate
from .connect import Connector, ServerConnection
from .message_limits_and_errors import (
    ExchangeFault,
    ExchangeTimeouts,
    JsonObject,
    Lost,
    Missing,
    Permanent,
)

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

FIRST, CAP = 0.5, 300.0
PARKED = inf
"""Seconds for which what only a person can change is not tried again."""
UNPARKED = "it is parked: mend that, then have the config read again (change it, SIGHUP or `POST /api/v1/reload`)"


class Backoff:
    """The first new try is free, the next waits half a second, each further one twice as long, with jitter."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def fail(self, now: float, *, parked: bool = False) -> None:
        """Count one failure."""
        delay = pause_after(self._failures, FIRST, CAP) if self._failures else 0.0
        self._failures += 1
        # Jitter only lengthens: many gateways must not come back at one moment, nor any too early.
        self._until = now + (PARKED if parked else delay * (1 + 0.1 * self._jitter()))

    def reset(self) -> None:
        """Forget all failures."""
        self._failures, self._until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next try is allowed."""
        return max(0.0, self._until - now)


class IdleTime:
    """The seconds that a server is kept without use: more of them where it came back soon after it was stopped."""

    def __init__(self, seconds: float) -> None:
        self._shortest = self.seconds = seconds
        self.used_at = 0.0
        """When the last use ended."""

    def begin(self, now: float) -> None:
        """Take the beginning of a use."""
        if self.used_at:
            self.note(now - self.used_at)

    def note(self, pause: float) -> None:
        """Take the time between two uses; only one that the shortest time does not cover says something."""
        longest = KEPT_LONGER * self._shortest
        if pause > longest:
            self.seconds = self._shortest
        elif pause > self._shortest:
            self.seconds = min(pause * MARGIN, longest)


KEPT_LONGER, MARGIN = 4.0, 1.5
"""How many times longer an often used server is kept, at most, and how much longer than its last pause was."""
CLOSING = "the gateway is closing"
DRAIN = 5.0
"""Seconds that calls in flight get when the gateway closes."""
STEADY = 60.0
"""A connection that has lived so long, or has answered a call, was no failure."""


class ConnectionLifecycle:
    """Keeps at most one connection to one server, in a task of its own."""

    def __init__(self, spec: ServerSpec, connector: Connector) -> None:
        self._connector = connector
        self._backoff, self._kept = Backoff(), IdleTime(spec.timeouts.idle)
        self._gate = CallGate(spec.limits, connector.tell)
        self.connection: ServerConnection | None = None
        """The open connection."""
        self.failure: ExchangeFault | None = None
        """The reason that there is no connection, when one was wanted or lost."""
        self._opening: asyncio.Future[ServerConnection | ExchangeFault] | None = None
        self._opening_scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._in_flight = 0
        self._opened_at = 0.0
        self._has_worked = self._is_closing = False

    async def request(
        self, method: str, params: JsonObject, timeouts: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request over the connection, as far as the gate lets it through.

        Raises:
            ExchangeFault: there is no answer.
        """

        async def exchange(connection: ServerConnection, timeouts: ExchangeTimeouts) -> dict[str, Any]:
            self._in_flight += 1
            try:
                return await connection.request(method, params, timeouts, on_progress)
            finally:
                self._release()

        result = await self._gate.run(self._connected, exchange, timeouts)
        self._has_worked = True
        return result

    async def use(self, work: Callable[[ServerConnection], Awaitable[Result]]) -> Result:
        """Run some work over one connection, which stays open meanwhile.

        Raises:
            ExchangeFault: there is no connection, or the work failed.
        """
        connection = await self._connected()
        self._in_flight += 1
        try:
            return await work(connection)
        finally:
            self._release()

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why the server is of no use just now, in sentences; empty when it is."""
        if self.failure is not None:
            return (*self.failure.details, *([UNPARKED] if isinstance(self.failure, Permanent) else []))
        return tuple(filter(None, [self._gate.breaker.trouble]))

    def retry_now(self) -> None:
        """Forget earlier failures: somebody has mended something."""
        self._backoff.reset()
        self._gate.breaker.reset()

    async def wait_until_idle(self) -> None:
        """Return when nothing is in flight."""
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()

    async def aclose(self) -> None:
        """Let calls in flight end, for a bounded time, and close the connection for good."""
        self._is_closing = True
        self.connection = None
        self._wake.set()
        if self._opening_scope is not None:
            self._opening_scope.cancel()
        if self._task is not None and not self._task.done():
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _connected(self) -> ServerConnection:
        """The connection, opened where there is none."""
        if not self._in_flight:
            self._kept.begin(asyncio.get_running_loop().time())
        return self.connection or await self._connect()

    async def _connect(self) -> ServerConnection:
        if self._is_closing:
            raise Lost(CLOSING)
        if self._opening is None:
            loop = asyncio.get_running_loop()
            self._refuse_early(loop.time())
            self._opening = loop.create_future()
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._run(), name=f"upstream {self._connector.spec.name}")
        with waiting_for_start():
            outcome = await asyncio.shield(self._opening)
        if isinstance(outcome, ExchangeFault):
            raise outcome.with_traceback(None)
        if self._is_closing:  # in the moment in which it was opened: nobody waits for who has not sent anything yet
            raise Lost(CLOSING)
        return outcome

    def _refuse_early(self, now: float) -> None:
        """Try nothing while it would be of no use."""
        if isinstance(self.failure, Missing) and self._connector.is_there():
            self._backoff.reset()
        wait = self._backoff.wait(now)
        if wait > 0:
            reason = self.failure.details if self.failure is not None else ()
            spelled = f"{wait:.1f} s" if wait < 100 else f"{wait / 60:.0f} min"
            said = f"this was not tried again yet; the next try is possible in {spelled}"
            raise Lost(*reason, said if wait < inf else UNPARKED)

    async def _run(self) -> None:
        while self._opening is not None:
            try:
                await self._live(self._opening)
            except Exception:
                name = self._connector.spec.name
                logger.exception("the connection to server %r failed in a way that was not foreseen", name)
                self._fail(Lost("the gateway made a mistake with this server; see its log"))

    async def _live(self, opening: asyncio.Future[ServerConnection | ExchangeFault]) -> None:
        """One connection, from opening to closing."""
        outcome: ServerConnection | ExchangeFault = Lost("the gateway stopped opening the connection")
        try:
            async with anyio.create_task_group() as tasks:
                outcome = await self._open(tasks)
                self._opening = None
                opening.set_result(outcome)
                if isinstance(outcome, ServerConnection):
                    await self._watch(outcome)
                tasks.cancel_scope.cancel()
        finally:
            self.connection = None
            if self._opening is opening:
                self._opening = None
            is_open = isinstance(outcome, ServerConnection)
            if not opening.done():
                opening.set_result(Lost("the connection was stopped") if is_open else outcome)
            if isinstance(outcome, ServerConnection):
                if outcome.transport.fault is None and self._is_closing:
                    self._connector.tell("stopped", CLOSING)
                await outcome.transport.aclose()

    async def _open(self, tasks: TaskGroup) -> ServerConnection | ExchangeFault:
        fault: ExchangeFault = Lost(CLOSING)
        start = self._connector.spec.timeouts.start
        with anyio.move_on_after(start + 1.0) as scope:
            self._opening_scope = scope
            if self._is_closing:
                return fault
            try:
                connection = await self._connector.open(tasks, self._on_lost)
            except ExchangeFault as found:
                # The call that waits for this connection has not been sent, whatever the handshake sent.
                kind = type(found) if isinstance(found, Permanent) else Lost
                fault = kind(*found.details, cause=found.cause)
            else:
                self._wake.clear()
                said = "started" if self.failure is None else "restarted"
                self._kept.used_at = self._opened_at = asyncio.get_running_loop().time()
                self._has_worked, self.failure = False, None
                self.connection = None if self._is_closing else connection
                self._connector.tell(said, f"it speaks {connection.about.version}")
                return connection
        if scope.cancelled_caught and not self._is_closing:
            fault = Lost(f"the server did not start within {start:g} s", "raise its `timeouts.start`", cause="timeout")
        self._fail(fault)
        return fault

    def _on_lost(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and connection.transport.fault is not None:
            self._fail(connection.transport.fault)
            self._wake.set()

    def _fail(self, fault: ExchangeFault) -> None:
        now = asyncio.get_running_loop().time()
        if self._has_worked or (self._opened_at and now - self._opened_at > STEADY):
            self._backoff.reset()
        was_open = bool(self._opened_at)
        self._has_worked, self._opened_at = False, 0.0
        self.failure = fault
        is_parked = isinstance(fault, Permanent)
        self._backoff.fail(now, parked=is_parked)
        words = self._connector.transport.stderr if self._connector.transport is not None else ""
        kind = "parked" if is_parked else "exited" if was_open else "failed"
        self._connector.tell(kind, "; ".join(fault.details), words)

    async def _watch(self, connection: ServerConnection) -> None:
        """Return when the connection has died, is no longer used, or is to be closed."""
        while connection.transport.fault is None and not self._is_closing:
            idle = self._kept.seconds
            left = idle or inf
            if idle and not self._in_flight and not connection.subscriptions.watched:
                left = self._kept.used_at + idle - asyncio.get_running_loop().time()
            if left <= 0:
                self.connection = None  # before anything is waited for: a call that comes now needs another one
                self._connector.tell("stopped", f"it was not used for {idle:g} s")
                return
            with anyio.move_on_after(left):
                await self._wake.wait()
        with anyio.move_on_after(DRAIN):
            while self._in_flight and connection.transport.fault is None:
                self._wake.clear()
                await self._wake.wait()

    def _release(self) -> None:
        self._in_flight -= 1
        self._kept.used_at = asyncio.get_running_loop().time()
        if not self._in_flight:
            self._idle.set()
        if self._is_closing and not self._in_flight:
            self._wake.set()
