"""All surfaces over HTTP: Host and Origin are checked, and a path leads to its surface."""

from __future__ import annotations

import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.domain.server import HttpLimits, HttpSettings

from .fast_path import BoundedSessions, PlainCalls, SessionRoom
from .http_limits import BoundedBodies, HttpRefusal, bounded
from .server import SurfaceServer

METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
EXPOSED = b"Mcp-Session-Id, Retry-After"
ASKS = b"access-control-request-method"


def permission(headers: Mapping[bytes, bytes], origin: bytes) -> Response:
    """The answer to a browser that asks whether a page may send a request."""
    wanted = headers.get(b"access-control-request-headers", b"").decode("latin-1")
    allowed = {
        "access-control-allow-origin": origin.decode("latin-1"),
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": wanted or "Content-Type",
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    return Response(status_code=204, headers=allowed)


def readable_by(origin: bytes, send: Send) -> Send:
    """A sender whose answers the page of this origin may read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            told = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", EXPOSED),
                (b"vary", b"Origin"),
            ]
            message["headers"] = [*message.get("headers", ()), *told]
        await send(message)

    return sending


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
REMEMBERED, SHORT = 256, 500
"""Decisions that are remembered, and the bytes that one may be made from."""
_CHECKED = frozenset({b"host", b"origin", b"sec-fetch-site", b"x-forwarded-host", b"forwarded"})
_FORWARDED_HOST = re.compile(rb'(?:^|[;,\s])host\s*=\s*"?([^";,\s]*)', re.IGNORECASE)
_OWN_SITES = frozenset({b"same-origin", b"none"})
Headers = Iterable[tuple[bytes, bytes]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Names:
    """The names that requests may use for this endpoint, and the pages that may send them."""

    hosts: frozenset[bytes]
    named: frozenset[bytes]
    """Hosts that the config names; a proxy in front of them may speak https."""
    any_port: frozenset[bytes]
    origins: frozenset[bytes]
    pages: frozenset[bytes]
    """Pages that the config names; they may be of another site."""

    def is_host(self, value: bytes) -> bool:
        """Whether this is one of our own names."""
        name = value.lower()
        return name in self.hosts or _without_port(name) in self.any_port

    def is_origin(self, value: bytes, host: bytes) -> bool:
        """Whether a page with this origin may ask: one of this endpoint, or one that was named."""
        origin, name = value.lower(), host.lower()
        if origin in self.origins:
            return True
        is_named = name in self.named or _without_port(name) in self.any_port
        return is_named and origin in (b"http://" + name, b"https://" + name)


def names_of(settings: HttpSettings, port: int) -> Names:
    """The loopback names with our port, and those of the config."""
    ports = [f":{port}", ""] if port == HTTP_PORT else [f":{port}"]
    own = [f"{host}{suffix}" for host in LOOPBACK for suffix in ports]
    named = [host.lower() for host in settings.allowed_hosts]
    pages = frozenset(origin.lower().encode() for origin in settings.allowed_origins)
    return Names(
        hosts=frozenset(host.encode() for host in (*own, *named)),
        named=frozenset(host.encode() for host in named),
        any_port=frozenset(host.encode() for host in named if _without_port(host.encode()) == host.encode()),
        origins=frozenset(f"http://{host}".encode() for host in own) | pages,
        pages=pages,
    )


@dataclass(slots=True)
class HostCheck:
    """Answers only requests that name this very endpoint and come from no other web page.

    It looks at the head alone, before the body is read and before a path is looked up. What passes once passes again,
    so the decision is remembered by the headers that it was made from.
    """

    app: ASGIApp
    names: Names
    _passed: set[tuple[tuple[bytes, bytes], ...]] = field(default_factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        # White space around a header's value is no part of it, but our HTTP parser leaves it at the end.
        scope["headers"] = headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        checked = tuple([header for header in headers if header[0] in _CHECKED])
        refusal = None if checked in self._passed else self._look(checked)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no websockets here"})
        elif refusal is not None:
            logger.debug("refused %.200r: %s", scope["path"], refusal.message)
            await refusal.response(scope["path"])(scope, receive, send)
        elif self.names.pages:
            await self._answer_page(dict(headers), scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer_page(self, headers: dict[bytes, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may come from a page of another site, so that its browser lets the page read it."""
        origin = headers.get(b"origin", b"")
        if origin.lower() not in self.names.pages:
            await self.app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and ASKS in headers:
            await permission(headers, origin)(scope, receive, send)
        else:
            await self.app(scope, receive, readable_by(origin, send))

    def _look(self, headers: tuple[tuple[bytes, bytes], ...]) -> HttpRefusal | None:
        refusal = refused(self.names, headers)
        is_short = sum(len(value) for _, value in headers) < SHORT
        if refusal is None and is_short and len(self._passed) < REMEMBERED:
            self._passed.add(headers)
        return refusal


def refused(names: Names, headers: Headers) -> HttpRefusal | None:
    """Why a request with these headers is not answered, if it is not."""
    given: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        given.setdefault(name, []).append(value)
    return _host_refused(names, given) or _page_refused(names, given)


def _host_refused(names: Names, given: dict[bytes, list[bytes]]) -> HttpRefusal | None:
    hosts = given.get(b"host", [])
    if len(hosts) != 1:
        said = "a request must have one Host header" if not hosts else "a request must have only one Host header"
        return HttpRefusal(status=421, code="refused", message=f"Invalid Host header: {said}", details=[_called(names)])
    for value in (*hosts, *_forwarded(given)):
        if not names.is_host(value):
            fix = f"add {_shown(value)!r} to http.allowed_hosts in the config if a proxy calls this endpoint so"
            return HttpRefusal(
                status=421,
                code="refused",
                message=f"Invalid Host header: {_shown(value)!r} is no name of this endpoint",
                details=[_called(names), fix],
            )
    return None


def _forwarded(given: dict[bytes, list[bytes]]) -> Iterable[bytes]:
    """The names by which clients called the proxies before us."""
    for value in given.get(b"x-forwarded-host", ()):
        yield from (part.strip() for part in value.split(b","))
    for value in given.get(b"forwarded", ()):
        yield from _FORWARDED_HOST.findall(value)


def _page_refused(names: Names, given: dict[bytes, list[bytes]]) -> HttpRefusal | None:
    host, origins = given[b"host"][0], given.get(b"origin", [])
    for origin in origins:
        if not names.is_origin(origin, host):
            fix = f"add {_shown(origin)!r} to http.allowed_origins in the config if that page may use this endpoint"
            message = f"Invalid Origin header: web pages of {_shown(origin)!r} may not send requests here"
            return HttpRefusal(status=403, code="refused", message=message, details=[fix])
    is_named = bool(origins) and all(origin.lower() in names.origins for origin in origins)
    sites = given.get(b"sec-fetch-site", ())
    if not is_named and any(site.lower() not in _OWN_SITES for site in sites):
        message = "web pages of other sites may not send requests here (Sec-Fetch-Site)"
        fix = "open the address itself, or add the page's origin to http.allowed_origins in the config"
        return HttpRefusal(status=403, code="refused", message=message, details=[fix])
    return None


def _called(names: Names) -> str:
    return f"this endpoint is called: {', '.join(sorted(host.decode() for host in names.hosts))}"


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host


def _shown(value: bytes) -> str:
    return value[:100].decode("latin-1")


DRAIN_SECONDS = 8


def build_app(
    servers: Mapping[str, SurfaceServer],
    *,
    default: str,
    port: int,
    api: ASGIApp,
    settings: HttpSettings | None = None,
) -> ASGIApp:
    """The web application: one endpoint per surface, the default one at `/mcp`, and everything else from `api`.

    Names are checked first, then the body is read within bounds, then a path is looked up. The MCP paths come first and
    pass nothing of REST: a call must not pay for it.
    """
    found = settings or HttpSettings()
    room = SessionRoom(found.limits.sessions)
    managers = {name: BoundedSessions(server, room, found.limits) for name, server in servers.items()}
    endpoints = {name: PlainCalls(manager, servers[name], room) for name, manager in managers.items()}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    paths = {"/mcp": endpoints[default], **{f"/mcp/{name}": endpoint for name, endpoint in endpoints.items()}}
    rest = Starlette(lifespan=lifespan)
    # A mount at `/` would not match a path with a line break in it, and answer in another shape than the rest.
    rest.router.default = api
    app = PathDispatcher({**paths, **{f"{path}/": endpoint for path, endpoint in paths.items()}}, rest)
    return HostCheck(BoundedBodies(app, found.limits), names_of(found, port))


@dataclass(frozen=True, slots=True)
class PathDispatcher:
    """Leads each request to the endpoint of its path; a router with its middleware would cost a call 5 % more."""

    endpoints: Mapping[str, ASGIApp]
    rest: ASGIApp
    """What answers every other path, and is told of start and end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self.endpoints.get(scope.get("path", ""), self.rest)(scope, receive, send)


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_ready: Callable[[Callable[[], None]], None],
    limits: HttpLimits | None = None,
) -> None:
    """Serve until a signal comes; open calls get some seconds to finish. `on_ready` is given the way to stop."""
    bounds = limits or HttpLimits()
    config = uvicorn.Config(
        app,
        http=bounded(bounds),
        ws="none",
        lifespan="on",
        log_config=None,  # the program that serves says how records are written
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # anybody could say that a request comes from somewhere else
        timeout_keep_alive=max(1, round(bounds.keep_alive_s)),
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
    )
    await _Announcing(config, on_ready).serve(sockets=[listener])


class _Announcing(uvicorn.Server):
    """A server that says when it can be reached."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal and then let our caller close the application; uvicorn's own would end the process here."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(self._stop)

    def _stop(self) -> None:
        self.should_exit = True
