"""JSON-RPC with a server: messages to bytes and back, and answers paired with requests."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from portico.domain.call import OnProgress
from portico.errors import Sent

from .elicitation import Notifications
from .transport import (
    HEAD,
    UNCANCELLABLE,
    VALUES_LIMIT,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    Lost,
    OnLost,
    RequestDialect,
    TooLarge,
    Waiting,
    progress_of,
    stamped,
    unwrapped,
    values_of,
)

_BOM = b"\xef\xbb\xbf"
_OBJECT = b'{"jsonrpc"'
_MENDED_UP_TO, _REPLACED_UP_TO = 4 * 1024 * 1024, 16 * 1024 * 1024
"""Bytes of a message that is mended, and of one that is only freed of what is not UTF-8: both take several copies."""
_ID_FIRST = re.compile(rb'^[^{]{0,200}\{[^{}\[\]]{0,300}?"id"\s*:\s*("?)(\d{1,18})\1\s*[,}]')
_ID_LAST = re.compile(rb'[,}\]]\s*"id"\s*:\s*("?)(\d{1,18})\1\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*$')


class Garbled(ValueError):
    """Bytes that are no message; `id` is that of the answer they were meant to be, where it can be seen."""

    def __init__(self, id: Any = None) -> None:
        super().__init__("not a JSON message")
        self.id = id


def encode(message: Any) -> bytes:
    """One message on one line."""
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # orjson refuses integers beyond 64 bits, which JSON allows.
        return json.dumps(message, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode(data: bytes | bytearray) -> Any:
    """The message in some bytes: past a byte order mark or a banner, with what is not UTF-8 replaced.

    Raises:
        Garbled: there is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_leniently(data)


def looks_like_message(data: bytes | bytearray) -> bool:
    """Whether a long text may still become a message: it begins as one, or has one behind a banner."""
    head = bytes(data[:HEAD])
    return _OBJECT in head or head.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


def answered_id(data: bytes | bytearray) -> int | None:
    """The id of the answer that some bytes begin or end, found without parsing them."""
    found = _ID_FIRST.search(bytes(data[:HEAD])) or _ID_LAST.search(bytes(data[-HEAD:]))
    return int(found[2]) if found else None


def _decode_leniently(data: bytes | bytearray) -> Any:
    if len(data) > _REPLACED_UP_TO:
        raise Garbled(answered_id(data))
    start = data.find(_OBJECT)
    body = bytes(data[start:] if start > 0 else data.removeprefix(_BOM))
    if body.lstrip()[:1] not in (b"{", b"["):
        raise Garbled
    # Behind a banner with a quote in it, what was counted as a string is none.
    if start > 0 and values_of(body) > VALUES_LIMIT:
        raise Garbled(answered_id(body))
    return _mended(body) if len(body) <= _MENDED_UP_TO else _replaced(body)


def _replaced(body: bytes) -> Any:
    try:
        return orjson.loads(body.decode("utf-8", "replace").encode())
    except orjson.JSONDecodeError as error:
        raise Garbled(answered_id(body)) from error


def _mended(body: bytes) -> Any:
    found: Any = None
    try:
        found = json.loads(body.decode("utf-8", "replace"))
        # Through orjson again: a lone surrogate becomes "?", and NaN, which no surface could write, is refused.
        return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Garbled(found.get("id") if isinstance(found, dict) else answered_id(body)) from error


logger = logging.getLogger(__name__)

REPLYING = 30.0
"""Seconds that a server gets to take our answer to its own request."""
BATCH_LIMIT = 1_000
"""Messages in one batch, which only one old revision knows."""


class MessageWriter(Protocol):
    """Carries whole messages one way; what comes back is given to `Peer.receive`."""

    @property
    def pid(self) -> int | None:
        """The process at the other end."""
        ...

    @property
    def stderr(self) -> str:
        """Its last words."""
        ...

    async def send(self, data: bytes, patience: ExchangeTimeouts) -> None:
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

    def __init__(self, server: str, inbox: Notifications, on_lost: OnLost) -> None:
        self.fault: Lost | None = None
        self.dialect = RequestDialect()
        self.junk = self.stray = 0
        self._server, self._inbox, self._on_lost = server, inbox, on_lost
        self._waiting: dict[Any, Waiting] = {}
        self._last_id = 0
        self.wire: MessageWriter

    @property
    def pid(self) -> int | None:
        """The child process, where there is one."""
        return self.wire.pid

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        return self.wire.stderr

    async def request(
        self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts, on_progress: OnProgress | None = None
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
        await self.wire.send(encode(reply), ExchangeTimeouts(REPLYING))

    def _take_progress(self, params: Mapping[str, Any]) -> None:
        token = params.get("progressToken")
        waiting = self._waiting.get(token) if isinstance(token, int) else None
        if waiting is not None:
            waiting.advance(progress_of(params))

    def _take_junk(self, data: bytes | bytearray, garbled: Garbled) -> None:
        waiting = self._pop(garbled.id)
        if waiting is not None:
            waiting.finish(ExchangeFault("the server's answer is not valid JSON", sent=Sent.ANSWERED))
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
