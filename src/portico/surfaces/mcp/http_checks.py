"""Checks of an HTTP request before an endpoint sees it: Host and Origin, size and time of heads and bodies, numbers."""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import mcp_types as types
import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from portico.domain.server import MEGABYTE, HttpLimits, HttpSettings

logger = logging.getLogger(__name__)

ROOT = "/mcp"


def is_mcp(path: str) -> bool:
    """Whether a path is one that MCP is spoken on."""
    return path == ROOT or path.startswith(f"{ROOT}/")


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
        """The headers beside the body."""
        again = {"retry-after": str(self.retry_s)} if self.retry_s else {}
        return {"x-content-type-options": "nosniff", **again}


METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
EXPOSED = b"Mcp-Session-Id, Retry-After"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
REMEMBERED, SHORT = 256, 500
"""Decisions that are remembered, and the bytes that one may be made from."""
_CHECKED = frozenset({b"host", b"origin", b"sec-fetch-site", b"x-forwarded-host", b"forwarded"})
_FORWARDED_HOST = re.compile(rb'(?:^|[;,\s])host\s*=\s*"?([^";,\s]*)', re.IGNORECASE)
_OWN_SITES = frozenset({b"same-origin", b"none"})


class HostCheck:
    """Answers only requests that name this very endpoint and come from no other web page.

    It looks at the head alone, before the body is read and before a path is looked up. What passes once passes again,
    so the decision is remembered by the headers that it was made from.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings, port: int) -> None:
        """Know this endpoint by the loopback names with its port, and by the names of the config."""
        suffixes = [f":{port}", ""] if port == HTTP_PORT else [f":{port}"]
        own = [f"{host}{suffix}" for host in LOOPBACK for suffix in suffixes]
        self._app = app
        self._named = frozenset(host.lower().encode() for host in settings.allowed_hosts)
        """Hosts that the config names; a proxy in front of them may speak https."""
        self._hosts = frozenset(host.encode() for host in own) | self._named
        self._known = f"this endpoint is called: {', '.join(sorted(host.decode() for host in self._hosts))}"
        self._any_port = frozenset(host for host in self._named if _without_port(host) == host)
        self._pages = frozenset(origin.lower().encode() for origin in settings.allowed_origins)
        """Pages that the config names; they may be of another site."""
        self._origins = frozenset(f"http://{host}".encode() for host in own) | self._pages
        self._passed: set[tuple[tuple[bytes, bytes], ...]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # White space around a header's value is no part of it, but our HTTP parser leaves it at the end.
        scope["headers"] = headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        checked = tuple([header for header in headers if header[0] in _CHECKED])
        refusal = None if checked in self._passed else self._check(checked)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no websockets here"})
        elif refusal is not None:
            logger.debug("refused %.200r: %s", scope["path"], refusal.message)
            await refusal.response(scope["path"])(scope, receive, send)
        elif self._pages:
            await self._answer_page(dict(headers), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer_page(self, headers: dict[bytes, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may come from a page of another site, so that its browser lets the page read it."""
        origin = headers.get(b"origin", b"")
        if origin.lower() not in self._pages:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            wanted = headers.get(b"access-control-request-headers", b"").decode("latin-1")
            permission = {
                "access-control-allow-origin": origin.decode("latin-1"),
                "access-control-allow-methods": METHODS,
                "access-control-allow-headers": wanted or "Content-Type",
                "access-control-max-age": "600",
                "vary": "Origin",
            }
            await Response(status_code=204, headers=permission)(scope, receive, send)
        else:
            readable = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED)]

            async def send_readable(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message.get("headers", ()), *readable, (b"vary", b"Origin")]
                await send(message)

            await self._app(scope, receive, send_readable)

    def _check(self, headers: tuple[tuple[bytes, bytes], ...]) -> HttpRefusal | None:
        given: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            given.setdefault(name, []).append(value)
        refusal = self._refuse_host(given) or self._refuse_page(given)
        is_short = sum(len(value) for _, value in headers) < SHORT
        if refusal is None and is_short and len(self._passed) < REMEMBERED:
            self._passed.add(headers)
        return refusal

    def _refuse_host(self, given: dict[bytes, list[bytes]]) -> HttpRefusal | None:
        hosts = given.get(b"host", [])
        if len(hosts) != 1:
            said = "a request must have one Host header" if not hosts else "a request must have only one Host header"
            return HttpRefusal(
                status=421, code="refused", message=f"Invalid Host header: {said}", details=[self._known]
            )
        for value in (*hosts, *_forwarded_hosts(given)):
            if value.lower() not in self._hosts and not self._is_named(value.lower()):
                shown = _shown(value)
                fix = f"add {shown!r} to http.allowed_hosts in the config if a proxy calls this endpoint so"
                said = f"Invalid Host header: {shown!r} is no name of this endpoint"
                return HttpRefusal(status=421, code="refused", message=said, details=[self._known, fix])
        return None

    def _refuse_page(self, given: dict[bytes, list[bytes]]) -> HttpRefusal | None:
        host, origins = given[b"host"][0].lower(), [origin.lower() for origin in given.get(b"origin", [])]
        for origin in origins:
            is_of_host = self._is_named(host) and origin in (b"http://" + host, b"https://" + host)
            if origin not in self._origins and not is_of_host:
                shown = _shown(given[b"origin"][origins.index(origin)])
                fix = f"add {shown!r} to http.allowed_origins in the config if that page may use this endpoint"
                message = f"Invalid Origin header: web pages of {shown!r} may not send requests here"
                return HttpRefusal(status=403, code="refused", message=message, details=[fix])
        is_known = bool(origins) and all(origin in self._origins for origin in origins)
        if not is_known and any(site.lower() not in _OWN_SITES for site in given.get(b"sec-fetch-site", ())):
            message = "web pages of other sites may not send requests here (Sec-Fetch-Site)"
            fix = "open the address itself, or add the page's origin to http.allowed_origins in the config"
            return HttpRefusal(status=403, code="refused", message=message, details=[fix])
        return None

    def _is_named(self, host: bytes) -> bool:
        return host in self._named or _without_port(host) in self._any_port


def _forwarded_hosts(given: dict[bytes, list[bytes]]) -> Iterable[bytes]:
    """The names by which clients called the proxies before us."""
    for value in given.get(b"x-forwarded-host", ()):
        yield from (part.strip() for part in value.split(b","))
    for value in given.get(b"forwarded", ()):
        yield from _FORWARDED_HOST.findall(value)


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _shown(value: bytes) -> str:
    return value[:100].decode("latin-1")


MOST_HEADERS = 200
DISCARDED = 128 * 1024 * 1024
"""Bytes of a body that are read and thrown away after its request was refused, so that the client sees the answer."""
UNREAD = 256 * MEGABYTE
"""Bytes of answers that clients may leave unread, all together; one larger answer is let through."""
UNREAD_S = 5.0
"""Seconds in which an answer may be unread, however many there are."""
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
"""The phase of a connection: between two requests, in a head that has begun, in a body that has begun."""


def connection_class(limits: HttpLimits) -> type[asyncio.Protocol]:
    """The protocol of connections with these limits; connections leave some file descriptors to others."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(limits.connections, max(16, files - SPARE_FILES)) if files > 0 else limits.connections
    return type("LimitedConnection", (_BoundedConnection,), {"limits": limits, "most": most})


class _BoundedConnection(HttpToolsProtocol):
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
        self._unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most and not self._make_room():
            self._refuse(FULL)
        else:
            self._arm(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Take note that the client reads more slowly than we answer, and see to it that not too much is unread."""
        super().pause_writing()
        self._unread_since = self.loop.time()
        paused = (other for other in self.connections if isinstance(other, _BoundedConnection))
        slow = sorted((other for other in paused if other.flow.write_paused), key=lambda other: other._unread_since)
        unread = sum(other.transport.get_write_buffer_size() for other in slow)
        for other in slow:
            if unread <= UNREAD or other is self or self._unread_since - other._unread_since < UNREAD_S:
                return
            logger.warning("closed a connection: its client has not read its answer, and others need the memory")
            unread -= other.transport.get_write_buffer_size()
            other.transport.abort()

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
        if self._phase == IDLE:
            return
        if self._unparsed > self.limits.max_head:
            self._refuse(self._head_too_large())
            return
        self._heard = self.loop.time()
        if self._timer is None:
            self._began, limits = self._heard, self.limits
            self._arm(limits.head_s if self._phase == HEAD else min(limits.body_idle_s, limits.body_s))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase, self._head = HEAD, 0

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > self._most_head:
            raise _TooLarge
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4
        if self._head > self._most_head:
            raise _TooLarge
        if self._phase == HEAD:  # trailers after a body are read and not kept
            # What the server's own method does, without a call more for each header of each request.
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
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

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(max(seconds, 0.01), self._check_time)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_time(self) -> None:
        """See whether what is awaited has come or still has time; time that we let pass ourselves does not count."""
        self._timer = None
        if self.transport.is_closing() or self._phase == IDLE:
            return
        now, limits = self.loop.time(), self.limits
        if self.flow.read_paused or (self._phase == HEAD and self._is_at_work()):
            self._began = self._heard = now
        head_end = self._began + limits.head_s
        end = head_end if self._phase == HEAD else min(self._began + limits.body_s, self._heard + limits.body_idle_s)
        if end > now:
            self._arm(end - now)
        elif self._phase == HEAD and not self._unparsed:
            self.transport.close()  # nobody has asked anything
        else:
            part, setting = (
                ("head", "http.head_s") if self._phase == HEAD else ("body", "http.body_s and http.body_idle_s")
            )
            message, details = f"the {part} of the request did not come in time", (f"{setting} in the config say when",)
            self._refuse(HttpRefusal(status=408, code="too_slow", message=message, details=details))

    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its client; False when all others are at work."""
        others = (other for other in self.connections if isinstance(other, _BoundedConnection) and other is not self)
        waiting = (other for other in others if other._phase == BODY or not other._is_at_work())
        oldest = min(waiting, key=lambda other: other._heard, default=None)
        if oldest is not None:
            oldest._refuse(FULL)
            self.connections.discard(oldest)
        return oldest is not None

    def _head_too_large(self) -> HttpRefusal:
        message = f"the first line and the headers may have {self.limits.max_head:,} bytes and {MOST_HEADERS} headers"
        details = ("http.max_head in the config raises that",)
        return HttpRefusal(status=431, code="too_large", message=message, details=details)

    def _refuse(self, refusal: HttpRefusal) -> None:
        """Say why, unless an answer to somebody else's request would stand in its place, and close."""
        self._disarm()
        if self.transport.is_closing():
            return
        if self._phase == BODY:
            may_answer = self._is_at_work() and not self.cycle.response_started and not self.pipeline
        else:
            may_answer = self._phase == HEAD and not self._is_at_work()
        if may_answer:
            body = refusal.body((getattr(self, "url", b"") or b"").partition(b"?")[0].decode("latin-1"))
            headers = {**refusal.headers, "content-type": "application/json", "content-length": str(len(body))}
            lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items())
            self.transport.write(STATUS_LINE[refusal.status] + lines.encode() + b"\r\n" + body)
        self.transport.close()


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
ENDING = HttpRefusal(
    status=503,
    code="stopping",
    message="the gateway is stopping and takes no more requests; connect again when it runs",
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
    """The parts of one body that have come."""

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


@dataclass(slots=True)
class OpenRequests:
    """What is worked on, and whether anything more is taken: it is not while the gateway stops."""

    at_once: list[int] = field(default_factory=lambda: [0, 0])
    """Requests that are worked on, and event streams that are open."""
    is_ending: bool = False


@dataclass(slots=True)
class BoundedBodies:
    """Gives an application whole bodies of bounded size, and as many requests at once as it may have."""

    app: ASGIApp
    limits: HttpLimits
    requests: OpenRequests = field(default_factory=OpenRequests)
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
                receive = replay(await self._read(headers, receive), receive)
            except _Gone:
                return
            except _Refused as found:
                await found.refusal.response(scope["path"])(scope, receive, send)
                return
        # Who has not sent everything yet is not worked on, and takes no place from others.
        is_stream = is_mcp(scope["path"]) and (
            scope["method"] == "GET" or headers.get(b"mcp-method") == b"subscriptions/listen"
        )
        at_once, most = self.requests.at_once, self.limits.streams if is_stream else self.limits.requests
        if self.requests.is_ending or at_once[is_stream] >= most:
            refusal = ENDING if self.requests.is_ending else BUSY
            await refusal.response(scope["path"])(scope, receive, send)
            return
        at_once[is_stream] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            at_once[is_stream] -= 1

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"0")
        self._check_size(int(length) if length.isdigit() else self.limits.max_body + 1)
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise _Refused(ENCODED)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")  # at once, as nearly all come
        else:
            received = _Body()
            received.take(message)
            # Nothing but the list may hold what has come while more is awaited: it must be possible to let it go.
            del message
            body = await self._read_on(received, receive)
        self._check_size(len(body))
        if len(body) > SMALL and has_too_many_values(body):
            raise _Refused(FULL_OF_VALUES)
        return body

    async def _read_on(self, body: _Body, receive: Receive) -> bytes:
        """The whole of a body that comes in parts; too many unfinished ones make the oldest of them give way."""
        self._unfinished[body] = None
        self._held += body.size
        try:
            has_more = True
            while has_more:
                before = body.size
                has_more = body.take(await receive())
                self._held += body.size - before if not body.gives_way else 0
                self._check_size(body.size)
                self._make_room()
                if body.gives_way:
                    raise _Refused(CROWDED)
            return b"".join(body.parts)
        finally:
            self._held -= body.size if not body.gives_way else 0
            self._unfinished.pop(body, None)

    def _make_room(self) -> None:
        """Forget what the oldest of the large bodies have sent so far; they are told when they send more."""
        most = max(self.limits.body_memory_mb * MEGABYTE, self.limits.max_body)  # one whole body always fits
        if self._held <= most:
            return
        for body in self._unfinished:
            if self._held <= most:
                return
            if body.size > SMALL and not body.gives_way:
                self._held -= body.size
                body.parts.clear()
                body.gives_way = True

    def _check_size(self, size: int) -> None:
        if size > self.limits.max_body:
            message = f"the body of a request may have {self.limits.max_body:,} bytes"
            details = ("http.max_body in the config raises that",)
            raise _Refused(HttpRefusal(status=413, code="too_large", message=message, details=details))


def replay(body: bytes, receive: Receive) -> Receive:
    """A receiver that gives the body again, and then what comes after it."""
    kept = [body]  # given away once: whoever keeps a request must not keep its body

    async def receive_again() -> Message:
        if not kept:
            return await receive()
        return {"type": "http.request", "body": kept.pop(), "more_body": False}

    return receive_again


def has_too_many_values(body: bytes) -> bool:
    """Whether reading this as JSON would make more values than anybody means; signs inside of strings do not count."""
    if _count_signs(body) <= MOST_VALUES:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if plain.count(b'"') > 2 * MOST_VALUES:  # that many strings; to look between them would take too long
        return True
    return _count_signs(b"".join(plain.split(b'"')[::2])) > MOST_VALUES


def _count_signs(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")
