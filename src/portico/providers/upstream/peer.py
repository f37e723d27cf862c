"""JSON-RPC over one duplex wire: pairs answers with requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from portico.domain.call import OnProgress
from portico.errors import Sent

from .bounds import Bounds, TooLarge
from .codec import Garbled, answered_id, decode, encode, looks_like_message
from .faults import Fault, Lost, unwrapped
from .inbox import Inbox
from .link import OnLost, Patience
from .protocol import UNCANCELLABLE, Dialect, stamped
from .waiting import Waiting, progress_of

logger = logging.getLogger(__name__)

REPLYING = 30.0
"""Seconds that a server gets to take our answer to its own request."""
BATCH_LIMIT = 1_000
"""Messages in one batch, which only one old revision knows."""


class Wire(Protocol):
    """Carries whole messages one way; what comes back is given to `Peer.receive`."""

    @property
    def pid(self) -> int | None:
        """The process at the other end."""
        ...

    @property
    def stderr(self) -> str:
        """Its last words."""
        ...

    async def send(self, data: bytes, patience: Patience) -> None:
        """Hand over one message, waiting while the other end is behind.

        Raises:
            Fault: it was not handed over, or may have been: `sent` says.
        """
        ...

    def send_soon(self, data: bytes) -> None:
        """Hand over one message that nobody waits for; it is dropped when the other end is behind."""
        ...

    async def aclose(self) -> None:
        """Close the wire; bounded in time."""
        ...


class Peer:
    """The link over a duplex wire."""

    def __init__(self, server: str, inbox: Inbox, on_lost: OnLost) -> None:
        self.fault: Lost | None = None
        self.dialect = Dialect()
        self.junk = self.stray = 0
        self._server, self._inbox, self._on_lost = server, inbox, on_lost
        self._waiting: dict[Any, Waiting] = {}
        self._last_id = 0
        self.wire: Wire

    @property
    def pid(self) -> int | None:
        """The child process, where there is one."""
        return self.wire.pid

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        return self.wire.stderr

    async def request(
        self, method: str, params: Mapping[str, Any], patience: Patience, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer."""
        if self.fault is not None:
            raise Lost(*self.fault.details)
        self._last_id = id = self._last_id + 1
        params = stamped(params, self.dialect.envelope, None if on_progress is None else id)
        waiting = self._waiting[id] = Waiting(patience)
        written = False
        try:
            await self.wire.send(encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}), patience)
            written = True
            return unwrapped(await waiting.outcome(on_progress))
        finally:
            waiting.stop()
            if self._waiting.pop(id, None) is not None and written and method not in UNCANCELLABLE:
                self._cancel(id)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send one notification."""
        self.wire.send_soon(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def listen(self) -> None:
        """Return at once: a duplex wire is always read."""

    async def aclose(self) -> None:
        """Fail what still waits and close the wire."""
        self._fail_all(Lost("the connection was closed by the gateway", sent=Sent.UNKNOWN))
        await self.wire.aclose()

    def lose(self, fault: Lost) -> None:
        """Take the news that the wire is gone."""
        if self.fault is None:
            self.fault = fault
            self._fail_all(Lost(*fault.details, sent=Sent.UNKNOWN))
            self._on_lost()

    def bound(self, data: bytearray) -> Bounds:
        """How long the message that begins with some bytes may become; 0 when it cannot become one."""
        if not looks_like_message(data):
            return Bounds(0, 0)
        waiting = self._waiting.get(answered_id(data))
        return Bounds() if waiting is None else waiting.bounds

    def refuse(self, data: bytearray, fault: TooLarge) -> bool:
        """Fail the request that an answer beyond its bounds belongs to; false when it cannot be told which that is."""
        if not looks_like_message(data):
            self._take_junk(data, Garbled())
            return True
        waiting = self._pop(answered_id(data))
        if waiting is not None:
            waiting.finish(fault)
        return waiting is not None

    def receive(self, data: bytes | bytearray) -> None:
        """Take one message from the wire; never raises."""
        try:
            message = decode(data)
        except Garbled as garbled:
            self._take_junk(data, garbled)
            return
        if isinstance(message, list) and len(message) > BATCH_LIMIT:
            self._take_junk(data, Garbled())
            return
        for one in message if isinstance(message, list) else (message,):
            if not isinstance(one, dict):
                self._take_junk(data, Garbled())
            elif "method" in one:
                self._take_call(one)
            else:
                self._take_answer(one)

    def _take_answer(self, message: Mapping[str, Any]) -> None:
        waiting = self._pop(message.get("id"))
        if waiting is None:
            self.stray += 1
        else:
            waiting.finish(message)

    def _pop(self, id: Any) -> Waiting | None:
        if isinstance(id, str) and id.isdecimal() and len(id) < 20:
            id = int(id)
        return self._waiting.pop(id, None) if isinstance(id, int | float) else None

    def _take_call(self, message: Mapping[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        if message.get("id") is not None:
            self._reply(message)
        elif method == "notifications/progress":
            self._take_progress(params if isinstance(params, dict) else {})
        elif isinstance(method, str):
            self._inbox.receive(method, params)

    def _reply(self, request: Mapping[str, Any]) -> None:
        if (reply := self._inbox.answer(request, self._send_reply)) is not None:
            self.wire.send_soon(encode(reply))

    async def _send_reply(self, reply: Mapping[str, Any]) -> None:
        await self.wire.send(encode(reply), Patience(REPLYING))

    def _take_progress(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        waiting = self._waiting.get(token) if isinstance(token, int) else None
        if waiting is not None:
            waiting.advance(progress_of(params))

    def _take_junk(self, data: bytes | bytearray, garbled: Garbled) -> None:
        waiting = self._pop(garbled.id)
        if waiting is not None:
            waiting.finish(Fault("the server's answer is not valid JSON", sent=Sent.ANSWERED))
        self.junk += 1
        if self.junk == 1:
            logger.warning(
                "server %r writes what is no MCP message; skipped, first: %r", self._server, bytes(data[:80])
            )

    def _cancel(self, id: int) -> None:
        if self.fault is None:
            params = {"requestId": id, "reason": "the caller no longer waits"}
            self.wire.send_soon(encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))

    def _fail_all(self, fault: Lost) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.finish(fault)
