"""Bodies of requests, read within bounds before anything looks into them; how many requests are worked on at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.domain.http import MEGABYTE, HttpLimits

from .refusals import Refusal, is_mcp

SMALL = 64 * 1024
"""Bytes of a body that cost nothing to speak of: they are not counted."""
MOST_VALUES = 200_000
"""Values in one JSON body, and strings; each takes about a hundred bytes of memory once it is read."""
ALWAYS = frozenset({"/livez", "/readyz"})
"""Paths that are answered however much there is to do."""
BUSY = Refusal(
    status=503,
    code="busy",
    message="the gateway is at work on as many requests as it may; try again in a moment",
    details=("http.requests and http.streams in the config say how many there may be",),
    retry_s=1,
)
CROWDED = Refusal(
    status=503,
    code="busy",
    message="this body stood unfinished the longest while others needed the memory; send it again",
    details=("http.body_memory_mb in the config says how much there is",),
    retry_s=1,
)
ENCODED = Refusal(
    status=400,
    code="encoded_body",
    message="this endpoint reads bodies as they are; send it without Content-Encoding",
)
FULL_OF_VALUES = Refusal(
    status=413,
    code="too_many_values",
    message=f"a JSON body may hold {MOST_VALUES:,} values; send less at once",
)


class _Gone(Exception):
    """The client went away while it sent its body."""


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
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

    def _too_large(self) -> Refusal:
        return Refusal(
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
