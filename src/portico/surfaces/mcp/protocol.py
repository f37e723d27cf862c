"""HTTP on the wire within bounds: bytes and time of a head, time of a body, number of connections.

The web server has no limits of its own for these. They belong here, because a request whose head is not complete, or
whose body does not come, never reaches an application.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from portico.domain.http import HttpLimits

from .refusals import Refusal

MOST_HEADERS = 200
DISCARDED = 128 * 1024 * 1024
"""Bytes of a body that are read and thrown away after its request was refused, so that the client sees the answer."""
SPARE_FILES = 128
"""File descriptors that connections leave for everything else."""
MALFORMED = Refusal(status=400, code="malformed", message="this is not an HTTP request that can be read")
FULL = Refusal(
    status=503,
    code="busy",
    message="there are as many connections as there may be, and all are in use",
    details=("http.connections in the config says how many",),
    retry_s=1,
)


class _TooLarge(Exception):
    """Stops the parser in the middle of a head."""


IDLE, HEAD, BODY = range(3)
"""What a connection is at: between two requests, a head that has begun, a body that has begun."""


def bounded(limits: HttpLimits) -> type[asyncio.Protocol]:
    """The protocol of connections with these limits; connections leave some file descriptors to others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(limits.connections, max(16, files - SPARE_FILES)) if files > 0 else limits.connections
    return type("LimitedConnection", (BoundedConnection,), {"limits": limits, "most": most})


class BoundedConnection(HttpToolsProtocol):
    """One connection; nothing is added to a request that arrives at once, as nearly all do."""

    limits = HttpLimits()
    most = limits.connections

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._phase = HEAD
        self._unparsed = 0
        """Bytes since something was complete: a head, or a part of a body."""
        self._head, self._most_head = 0, self.limits.max_head
        self._discarded = 0
        self._began = self._heard = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or one that does nothing away for it."""
        super().connection_made(transport)
        if len(self.connections) > self.most and not self._make_room():
            self._refuse(FULL)
        else:
            self._arm(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and see to it that the rest comes soon."""
        self._unset_keepalive_if_required()
        if self._phase == IDLE:
            self._phase = HEAD
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nothing is upgraded here; the request is answered as if it had not asked
        except httptools.HttpParserError as error:
            self._refuse(self._head_too_large() if isinstance(error.__context__, _TooLarge) else MALFORMED)
            return
        if self._phase != IDLE:
            self._wait_for_rest()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._phase, self._head = HEAD, 0

    def on_url(self, url: bytes) -> None:
        """A part of the first line."""
        self._head += len(url)
        if self._head > self._most_head:
            raise _TooLarge
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; those after a body are read and not kept."""
        self._head += len(name) + len(value) + 4
        if self._head > self._most_head:
            raise _TooLarge
        if self._phase == HEAD:
            # What the server's own method does, without a call more for each header of each request.
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is complete: the request may begin."""
        if len(self.headers) > MOST_HEADERS:
            raise _TooLarge
        if not self.url.startswith(b"/"):
            self._name_target()
        self._phase, self._unparsed = BODY, 0
        self._disarm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body; after a refusal it is thrown away, up to a point."""
        self._unparsed = 0
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > DISCARDED:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has come whole."""
        self._phase, self._unparsed = IDLE, 0
        self._disarm()
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def _name_target(self) -> None:
        """A target with a host in it names us as the Host header does; another name is one Host header too many."""
        target = httptools.parse_url(self.url)
        host = (target.host or b"") + (b":%d" % target.port if target.port else b"")
        if [value.strip() for name, value in self.headers if name == b"host"] != [host]:
            self.headers.append((b"host", host))

    def _wait_for_rest(self) -> None:
        if self._unparsed > self.limits.max_head:
            self._refuse(self._head_too_large())
            return
        self._heard = self.loop.time()
        if self._timer is None:
            is_head = self._phase == HEAD
            self._began = self._heard
            self._arm(self.limits.head_s if is_head else min(self.limits.body_idle_s, self.limits.body_s))

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(max(seconds, 0.01), self._look)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """See whether what is awaited has come or still has time; time that we let pass ourselves does not count."""
        self._timer = None
        if self.transport.is_closing() or self._phase == IDLE:
            return
        now = self.loop.time()
        if self.flow.read_paused or (self._phase == HEAD and self._is_at_work()):
            self._began = self._heard = now
        left = self._left(now)
        if left > 0:
            self._arm(left)
        elif self._phase == HEAD and not self._unparsed:
            self.transport.close()  # nobody has asked anything
        else:
            self._refuse(self._too_slow())

    def _left(self, now: float) -> float:
        limits = self.limits
        if self._phase == HEAD:
            return self._began + limits.head_s - now
        return min(self._began + limits.body_s, self._heard + limits.body_idle_s) - now

    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its client; False when all others are at work."""
        others = (other for other in self.connections if isinstance(other, BoundedConnection) and other is not self)
        oldest = min(filter(_is_waiting, others), key=lambda other: other._heard, default=None)
        if oldest is not None:
            oldest._refuse(FULL)
            self.connections.discard(oldest)
        return oldest is not None

    def _too_slow(self) -> Refusal:
        if self._phase == HEAD:
            message, setting = "the head of the request did not come in time", "http.head_s"
        else:
            message, setting = "the body of the request did not come in time", "http.body_s and http.body_idle_s"
        return Refusal(status=408, code="too_slow", message=message, details=(f"{setting} in the config say when",))

    def _head_too_large(self) -> Refusal:
        message = f"the first line and the headers may have {self.limits.max_head:,} bytes and {MOST_HEADERS} headers"
        details = ("http.max_head in the config raises that",)
        return Refusal(status=431, code="too_large", message=message, details=details)

    def _refuse(self, refusal: Refusal) -> None:
        """Say why, unless an answer to somebody else's request would stand in its place, and close."""
        self._disarm()
        if not self.transport.is_closing():
            if self._may_answer():
                self.transport.write(self._written(refusal))
            self.transport.close()

    def _may_answer(self) -> bool:
        if self._phase == BODY:
            return self._is_at_work() and not self.cycle.response_started and not self.pipeline
        return self._phase == HEAD and not self._is_at_work()

    def _written(self, refusal: Refusal) -> bytes:
        body = refusal.body((getattr(self, "url", b"") or b"").partition(b"?")[0].decode("latin-1"))
        headers = {**refusal.headers, "content-type": "application/json", "content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items())
        return STATUS_LINE[refusal.status] + lines.encode() + b"\r\n" + body


def _is_waiting(connection: BoundedConnection) -> bool:
    """Whether a connection waits for its client, and not the client for us."""
    return connection._phase == BODY or not connection._is_at_work()
