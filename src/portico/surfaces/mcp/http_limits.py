"""Limits of HTTP requests: heads, bodies, connections and their time; and how a refusal is written."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import mcp_types as types
import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from portico.domain.server import MEGABYTE, HttpLimits

ROOT = "/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRefusal:
    """A request that is not answered: why, and what to change."""

    status: int
    code: str
    message: str
    details: Sequence[str] = ()
    retry_s: int = 0
    """After how many seconds the same request may be tried again; 0 says nothing."""

    def body(self, path: str) -> bytes:
        """The JSON that says so, in the shape of what is served at this path."""
        if is_mcp(path):
            said = "; ".join((self.message, *self.details))
            error = {"code": types.INVALID_REQUEST, "message": said, "data": {"code": self.code}}
            return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})
        told = {"code": self.code, "message": self.message, "details": list(self.details), "next": ""}
        return orjson.dumps({"error": told})

    def response(self, path: str) -> Response:
        """The whole answer."""
        return Response(self.body(path), self.status, headers=self.headers, media_type="application/json")

    @property
    def headers(self) -> Mapping[str, str]:
        """What stands beside the body."""
        again = {"retry-after": str(self.retry_s)} if self.retry_s else {}
        return {"x-content-type-options": "nosniff", **again}


def is_mcp(path: str) -> bool:
    """Whether a path is one that MCP is spoken on."""
    return path == ROOT or path.startswith(f"{ROOT}/")


MOST_HEADERS = 200
DISCARDED = 128 * 1024 * 1024
"""Bytes of a body that are read and thrown away after its request was refused, so that the client sees the answer."""
SPARE_FILES = 128
"""File descriptors that connections leave for everything else."""
MALFORMED = HttpRefusal(status=400, code="malformed", message="this is not an HTTP request that can be read")
FULL = HttpRefusal(
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

    def _too_slow(self) -> HttpRefusal:
        if self._phase == HEAD:
            message, setting = "the head of the request did not come in time", "http.head_s"
        else:
            message, setting = "the body of the request did not come in time", "http.body_s and http.body_idle_s"
        return HttpRefusal(status=408, code="too_slow", message=message, details=(f"{setting} in the config say when",))

    def _head_too_large(self) -> HttpRefusal:
        message = f"the first line and the headers may have {self.limits.max_head:,} bytes and {MOST_HEADERS} headers"
        details = ("http.max_head in the config raises that",)
        return HttpRefusal(status=431, code="too_large", message=message, details=details)

    def _refuse(self, refusal: HttpRefusal) -> None:
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

    def _written(self, refusal: HttpRefusal) -> bytes:
        body = refusal.body((getattr(self, "url", b"") or b"").partition(b"?")[0].decode("latin-1"))
        headers = {**refusal.headers, "content-type": "application/json", "content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items())
        return STATUS_LINE[refusal.status] + lines.encode() + b"\r\n" + body


def _is_waiting(connection: BoundedConnection) -> bool:
    """Whether a connection waits for its client, and not the client for us."""
    return connection._phase == BODY or not connection._is_at_work()


SMALL = 64 * 1024
"""Bytes of a body that cost nothing to speak of: they are not counted."""
MOST_VALUES = 200_000
"""Values in one JSON body, and strings; each takes about a hundred bytes of memory once it is read."""
ALWAYS = frozenset({"/livez", "/readyz"})
"""Paths that are answered however much there is to do."""
BUSY = HttpRefusal(
    status=503,
    code="busy",
    message="the gateway is at work on as many requests as it may; try again in a moment",
    details=("http.requests and http.streams in the config say how many there may be",),
    retry_s=1,
)
CROWDED = HttpRefusal(
    status=503,
    code="busy",
    message="this body stood unfinished the longest while others needed the memory; send it again",
    details=("http.body_memory_mb in the config says how much there is",),
    retry_s=1,
)
ENCODED = HttpRefusal(
    status=400,
    code="encoded_body",
    message="this endpoint reads bodies as they are; send it without Content-Encoding",
)
FULL_OF_VALUES = HttpRefusal(
    status=413,
    code="too_many_values",
    message=f"a JSON body may hold {MOST_VALUES:,} values; send less at once",
)


class _Gone(Exception):
    """The client went away while it sent its body."""


class _Refused(Exception):
    def __init__(self, refusal: HttpRefusal) -> None:
        self.refusal = refusal


@dataclass(eq=False, slots=True)
class _Body:
    """What has come of one body."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    gives_way: bool = False
    """Whether it has lost its place; what it held is gone."""

    def take(self, message: Message) -> bool:
        """Add what has come; whether there is more to come."""
        if message["type"] != "http.request":
            raise _Gone
        part = message.get("body", b"")
        self.parts.append(part)
        self.size += len(part)
        return bool(message.get("more_body", False))

    def whole(self) -> bytes:
        """All of it."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


@dataclass(slots=True)
class BoundedBodies:
    """Gives an application whole bodies of bounded size, and as many requests at once as it may have."""

    app: ASGIApp
    limits: HttpLimits
    _at_once: list[int] = field(default_factory=lambda: [0, 0])
    """Requests that are worked on, and event streams that are open."""
    _unfinished: dict[_Body, None] = field(default_factory=dict)
    """Large bodies that are being received, the oldest first."""
    _held: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self.app(scope, receive, send)
            return
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        if b"content-length" in headers or b"transfer-encoding" in headers:
            try:
                receive = replayed(await self._read(headers, receive), receive)
            except _Gone:
                return
            except _Refused as found:
                await found.refusal.response(scope["path"])(scope, receive, send)
                return
        # Who has not sent everything yet is not worked on, and takes no place from others.
        is_stream = _is_stream(scope, headers)
        if self._at_once[is_stream] >= (self.limits.streams if is_stream else self.limits.requests):
            await BUSY.response(scope["path"])(scope, receive, send)
            return
        self._at_once[is_stream] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._at_once[is_stream] -= 1

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.max_body:
            raise _Refused(self._too_large())
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise _Refused(ENCODED)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")  # at once, as nearly all come
        else:
            received = _Body()
            received.take(message)
            del (
                message
            )  # nothing but the list holds what has come while more is awaited: it must be possible to let it go
            await self._read_on(received, receive)
            body = received.whole()
        if len(body) > self.limits.max_body:
            raise _Refused(self._too_large())
        if len(body) > SMALL and has_too_many_values(body):
            raise _Refused(FULL_OF_VALUES)
        return body

    async def _read_on(self, body: _Body, receive: Receive) -> None:
        """The rest of a body that came in parts; too many unfinished ones make the oldest of them give way."""
        self._unfinished[body] = None
        self._held += body.size
        try:
            has_more = True
            while has_more:
                before = body.size
                has_more = body.take(await receive())
                self._held += body.size - before if not body.gives_way else 0
                self._check(body)
        finally:
            self._held -= body.size if not body.gives_way else 0
            self._unfinished.pop(body, None)

    def _check(self, body: _Body) -> None:
        if body.size > self.limits.max_body:
            raise _Refused(self._too_large())
        if self._held > self._memory:
            self._make_room()
        if body.gives_way:
            raise _Refused(CROWDED)

    def _make_room(self) -> None:
        """Forget what the oldest of the large bodies have sent so far; they are told when they send more."""
        for body in self._unfinished:
            if self._held <= self._memory:
                return
            if body.size > SMALL and not body.gives_way:
                self._held -= body.size
                body.parts.clear()
                body.gives_way = True

    @property
    def _memory(self) -> int:
        """Bytes for all unfinished bodies; one whole body always fits."""
        return max(self.limits.body_memory_mb * MEGABYTE, self.limits.max_body)

    def _too_large(self) -> HttpRefusal:
        return HttpRefusal(
            status=413,
            code="too_large",
            message=f"the body of a request may have {self.limits.max_body:,} bytes",
            details=("http.max_body in the config raises that",),
        )


def replayed(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives the body again, and then what comes after it."""
    kept = [body]  # given away once: whoever keeps a request must not keep its body

    async def replay() -> Message:
        if not kept:
            return await receive()
        return {"type": "http.request", "body": kept.pop(), "more_body": False}

    return replay


def has_too_many_values(body: bytes) -> bool:
    """Whether reading this as JSON would make more values than anybody means; signs inside of strings do not count."""
    if _signs(body) <= MOST_VALUES:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if plain.count(b'"') > 2 * MOST_VALUES:  # that many strings; to look between them would take too long
        return True
    return _signs(b"".join(plain.split(b'"')[::2])) > MOST_VALUES


def _signs(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def _is_stream(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether the answer is an event stream that stays open for as long as the client wants."""
    if not is_mcp(scope["path"]):
        return False
    return scope["method"] == "GET" or headers.get(b"mcp-method") == b"subscriptions/listen"
