"""All surfaces over HTTP: `/mcp` and `/mcp/{surface}`, both protocol eras on each path, and REST beside them."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.domain.http import HttpLimits, HttpSettings

from .bodies import BoundedBodies
from .guard import Guard, names_of
from .plain_calls import PlainCalls
from .protocol import bounded
from .server import SurfaceServer
from .sessions import BoundedSessions, SessionRoom

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
    app = Paths({**paths, **{f"{path}/": endpoint for path, endpoint in paths.items()}}, rest)
    return Guard(BoundedBodies(app, found.limits), names_of(found, port))


@dataclass(frozen=True, slots=True)
class Paths:
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
        """Stop on a signal and then let our caller close the house; uvicorn's own would end the process here."""
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
