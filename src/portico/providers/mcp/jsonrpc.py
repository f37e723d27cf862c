"""JSON-RPC over a duplex stream: answers are paired with requests by their ids."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from math import isfinite
from typing import Any

from portico.domain.call import OnProgress
from portico.errors import Sent

from .message_limits_and_errors import (
    UNCANCELLABLE,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    GarbledMessage,
    JsonObject,
    Lost,
    OnLost,
    Progress,
    TooLarge,
    Transport,
    add_envelope,
    answered_id,
    cancellation,
    decode,
    encode,
    looks_like_message,
    read_progress,
    read_result,
)
from .server_questions import Notifications

logger = logging.getLogger(__name__)

PROGRESS_BACKLOG = 64
"""Progress that a slow listener may be behind; of a flood only the newest is passed on."""
REPLYING = 30.0
"""Seconds that a server gets to take our answer to its own request."""
BATCH_LIMIT = 1_000
"""Messages in one batch, which only one old revision knows."""


class PendingRequest:
    """Ends with an answer, a fault, or by itself when its time is up."""

    __slots__ = ("_deadline", "_ends", "_future", "_loop", "_progress", "_timer", "_wake", "timeouts")

    def __init__(self, timeouts: ExchangeTimeouts) -> None:
        self.timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[JsonObject | ExchangeFault] = self._loop.create_future()
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_BACKLOG)
        self._wake: asyncio.Future[None] | None = None
        now = self._loop.time()
        self._ends, self._deadline = now + timeouts.total, now + timeouts.first
        self._timer = self._loop.call_at(self._deadline, self._check_time) if isfinite(self._deadline) else None

    def finish(self, outcome: JsonObject | ExchangeFault) -> None:
        """Take the answer, or the fault that replaces it; only the first counts."""
        if not self._future.done():
            self._future.set_result(outcome)
            self._wake_up()

    def advance(self, progress: Progress) -> None:
        """Take one sign of progress, which starts the time again."""
        # The timer is left alone and looks at the deadline when it fires: a flood costs no timers.
        self._deadline = min(self._loop.time() + self.timeouts.idle, self._ends)
        self._progress.append(progress)
        self._wake_up()

    async def outcome(self, on_progress: OnProgress | None) -> JsonObject:
        """The answer, when every sign of progress before it has been passed on.

        Raises:
            ExchangeFault: there is none.
        """
        while on_progress is not None:
            while self._progress:
                await on_progress(*self._progress.popleft())
            if self._future.done():
                break
            self._wake = self._loop.create_future()
            await self._wake
        outcome = await self._future
        if isinstance(outcome, ExchangeFault):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Release the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _check_time(self) -> None:
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_time)
        else:
            self.finish(self.timeouts.expired(at_end=self._deadline >= self._ends))


class JsonRpcTransport(Transport):
    """A transport over whole messages in both directions; what comes is given to `receive`."""

    def __init__(self, server: str, notifications: Notifications, on_lost: OnLost) -> None:
        super().__init__(on_lost)
        self._server, self._notifications = server, notifications
        self._pending: dict[Any, PendingRequest] = {}
        self._has_warned = False

    @abstractmethod
    async def send(self, data: bytes, timeouts: ExchangeTimeouts) -> None:
        """Hand over one message, waiting while the other end is behind.

        Raises:
            ExchangeFault: it was not handed over, or may have been: `sent` says.
        """

    @abstractmethod
    def send_soon(self, data: bytes) -> None:
        """Hand over one message that nobody waits for; it is dropped when the other end is behind."""

    async def request(
        self, method: str, params: JsonObject, timeouts: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer."""
        if self.fault is not None:
            raise Lost(*self.fault.details, cause=self.fault.cause)
        self._last_id = id = self._last_id + 1
        params = add_envelope(params, self.dialect.envelope, None if on_progress is None else id)
        pending = self._pending[id] = PendingRequest(timeouts)
        is_written = False
        try:
            await self.send(encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}), timeouts)
            is_written = True
            return read_result(await pending.outcome(on_progress))
        finally:
            pending.stop()
            is_unanswered = self._pending.pop(id, None) is not None
            if is_unanswered and is_written and method not in UNCANCELLABLE and self.fault is None:
                self.send_soon(encode(cancellation(id)))

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send one notification."""
        self.send_soon(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def listen(self) -> None:
        """Return at once: a duplex stream is always read."""

    def lose(self, fault: Lost) -> None:
        """Take the news that the other end is gone."""
        if self.fault is None:
            self.fault = fault
            self._fail_all(Lost(*fault.details, sent=Sent.UNKNOWN, cause=fault.cause))
            self._on_lost()

    def close_requests(self) -> None:
        """Fail what still waits, because the transport is being closed."""
        self._fail_all(Lost("the connection was closed by the gateway", sent=Sent.UNKNOWN))

    def bounds_of(self, data: bytearray) -> Bounds:
        """The bounds of the message that begins with some bytes; 0 when it cannot become one."""
        if not looks_like_message(data):
            return Bounds(0, 0)
        pending = self._pending.get(answered_id(data))
        return Bounds() if pending is None else pending.timeouts.bounds

    def refuse(self, data: bytearray, fault: TooLarge) -> bool:
        """Fail the request that an answer beyond its bounds belongs to; false when it cannot be told which that is."""
        if not looks_like_message(data):
            self._skip(data)
            return True
        pending = self._pop(answered_id(data))
        if pending is not None:
            pending.finish(fault)
        return pending is not None

    def receive(self, data: bytes | bytearray) -> None:
        """Take one message; never raises."""
        try:
            message = decode(data)
        except GarbledMessage as garbled:
            if (pending := self._pop(garbled.id)) is not None:
                pending.finish(ExchangeFault("the server's answer is not valid JSON", sent=Sent.ANSWERED))
            self._skip(data)
            return
        batch = message if isinstance(message, list) else [message]
        if len(batch) > BATCH_LIMIT:
            self._skip(data)
            return
        for one in batch:
            if not isinstance(one, dict):
                self._skip(data)
            elif "method" in one:
                self._take_call(one)
            elif (pending := self._pop(one.get("id"))) is not None:
                pending.finish(one)

    def _fail_all(self, fault: Lost) -> None:
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.finish(fault)

    def _pop(self, id: Any) -> PendingRequest | None:
        if isinstance(id, str) and id.isdecimal() and len(id) < 20:
            id = int(id)
        return self._pending.pop(id, None) if isinstance(id, int | float) else None

    def _take_call(self, message: JsonObject) -> None:
        method, params = message["method"], message.get("params")
        if message.get("id") is not None:
            if (reply := self._notifications.answer(message, self._reply)) is not None:
                self.send_soon(encode(reply))
        elif method == "notifications/progress":
            progress = params if isinstance(params, dict) else {}
            token = progress.get("progressToken")
            pending = self._pending.get(token) if isinstance(token, int) else None
            if pending is not None:
                pending.advance(read_progress(progress))
        elif isinstance(method, str):
            self._notifications.receive(method, params)

    async def _reply(self, reply: JsonObject) -> None:
        await self.send(encode(reply), ExchangeTimeouts(REPLYING))

    def _skip(self, data: bytes | bytearray) -> None:
        if not self._has_warned:
            self._has_warned = True
            head = bytes(data[:80])
            logger.warning("server %r writes what is no MCP message; skipped, first: %r", self._server, head)
