"""Serves an open application over HTTP or stdio; the only place that loads the MCP SDK."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import anyio
import orjson

from portico.application import Application
from portico.catalog.snapshot import CatalogSnapshot
from portico.config import GatewaySettings
from portico.domain import VERSION
from portico.domain.call import Caller
from portico.errors import ConfigError
from portico.gateway import Gateway
from portico.scripting.script_session import ScriptRunner
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.discover import Discover
from portico.surfaces.lua_gateway.surface import GatewaySurface
from portico.surfaces.mcp.http import build_app, end_by, serve
from portico.surfaces.mcp.http_checks import OpenRequests
from portico.surfaces.mcp.server import OpenAnswers, SurfaceServer, serve_stdio
from portico.surfaces.mcp.stdio_opening import EarlyPipe
from portico.surfaces.mcp.surface import Surface
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.wiring import offer_local_tools, open_app, watch

from .background import BackgroundJobs, Reloader, reload_on_change
from .early_answers import STABLE, remember


def surface_tokens(gateway: Gateway, surface: str = "discover", scripts: ScriptRunner | None = None) -> int:
    """Tokens of the listed tools and of the instructions, as they go over the wire."""
    plain: dict[str, Callable[[Gateway], Surface]] = {"static": Static, "search": Search, "capabilities": Capabilities}
    scripted = GatewaySurface if surface == "gateway" else Discover
    made: Surface = plain[surface](gateway) if surface in plain else scripted(gateway, scripts)
    caller = Caller(surface=surface)
    told = (orjson.dumps(made.listed(caller)).decode(), made.instructions(caller))
    return sum(map(gateway.counter.count, told))


SURFACES: Mapping[str, Callable[[Application, GatewaySettings], Surface]] = {
    "discover": lambda application, settings: Discover(application.gateway, application.scripts),
    "static": lambda application, settings: Static(application.gateway),
    "search": lambda application, settings: Search(application.gateway, settings.search.order),
    "capabilities": lambda application, settings: Capabilities(application.gateway, **asdict(settings.capabilities)),
    "gateway": lambda application, settings: GatewaySurface(application.gateway, application.scripts),
}
USAGE_SECONDS = 5.0  # how long a start waits for what the database knows of usage
ReadSettings = Callable[[], GatewaySettings]
STOPPING = (signal.SIGINT, signal.SIGTERM)
LOOPBACK = ("127.0.0.1", "::1", "localhost")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """A gateway that can be reached, and the way to stop it."""

    url: str
    application: Application
    stop: Callable[[], None]


async def serve_over_http(
    settings: GatewaySettings,
    *,
    surface: str,
    host: str,
    port: int,
    on_ready: Callable[[Serving], None],
    on_open: Callable[[Application], None] | None = None,
    read: ReadSettings | None = None,
) -> None:
    """Serve every surface until a signal comes; `surface` is the one at `/mcp`.

    `on_open` may put more into the application before it is served; `read` reads the settings again when they change.

    Raises:
        ConfigError: the address cannot or must not be used.
    """
    _check_surface(surface)
    listener = _listen(host, port)
    actual = listener.getsockname()[1]
    async with open_app(settings) as application, anyio.create_task_group() as tasks:
        if on_open is not None:
            on_open(application)
        await _read_usage(application)
        servers = {name: _surface_server(application, settings, name) for name in SURFACES}
        follow_changes(application, tasks, servers)
        reloader = _follow_config(application, tasks, settings, read)
        # What REST is made of takes a sixth of a second to load, which a client over stdio must not pay.
        from portico.surfaces.rest.app import build_api

        api = build_api(application, reload=reloader.reload if reloader is not None else None)
        requests = OpenRequests()
        app = build_app(servers, default=surface, port=actual, api=api, settings=settings.http, requests=requests)
        _freeze_memory()
        url = f"http://{f'[{host}]' if ':' in host else host}:{actual}/mcp"

        def say_ready(stop: Callable[[], None]) -> None:
            on_ready(Serving(url, application, stop))

        await serve(app, listener, on_ready=say_ready, limits=settings.http.limits, requests=requests)
        if read is not None:
            _end_at_once_on_signals()
        tasks.cancel_scope.cancel()


async def serve_over_stdio(
    settings: GatewaySettings, *, surface: str, pipe: EarlyPipe | None = None, read: ReadSettings | None = None
) -> None:
    """Serve one client over stdin and stdout until it goes away; a `pipe` may have answered it already.

    Raises:
        ConfigError: there is no such surface.
    """
    _check_surface(surface)
    async with open_app(settings) as application, anyio.create_task_group() as tasks:
        await _read_usage(application)
        server = _surface_server(application, settings, surface)
        follow_changes(application, tasks, {surface: server})
        reloader = _follow_config(application, tasks, settings, read)
        _remember_answers(application, tasks, lambda: reloader.settings if reloader else settings, server)
        _freeze_memory()
        await serve_stdio(server, pipe, partial(_wait_for_end, drain_s=settings.http.limits.drain_s))
        _end_at_once_on_signals()
        tasks.cancel_scope.cancel()


async def _wait_for_end(answers: OpenAnswers, *, drain_s: float) -> None:
    """Wait for a signal to stop, and then for the answers that a client still waits for; a second one ends at once."""
    with anyio.open_signal_receiver(*STOPPING) as signals:
        await anext(aiter(signals))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_at_once, signals)
            with anyio.move_on_after(drain_s):
                await answers.drain()
            tasks.cancel_scope.cancel()


async def _end_at_once(signals: AsyncIterator[signal.Signals]) -> None:
    async for number in signals:
        end_by(number)


def _end_at_once_on_signals() -> None:
    """From now on a signal, the second as a rule, ends this process without waiting for anybody."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)


def _remember_answers(
    application: Application,
    tasks: anyio.abc.TaskGroup,
    settings: Callable[[], GatewaySettings],
    server: SurfaceServer,
) -> None:
    """Remember what a client is told first, so that the next start can say it at once."""
    turn = anyio.Lock()

    async def keep() -> None:
        async with turn:
            text, tools = server.surface.instructions(server.caller), []
            if server.surface.name in STABLE:
                tools = await server.surface.tools(server.caller)
            await anyio.to_thread.run_sync(remember, settings(), server.surface.name, text, tools)

    def published(snapshot: CatalogSnapshot) -> None:
        tasks.start_soon(keep)

    application.gateway.publisher.subscribe(published)
    if not application.unknown:
        tasks.start_soon(keep)


def _follow_config(
    application: Application, tasks: anyio.abc.TaskGroup, settings: GatewaySettings, read: ReadSettings | None
) -> Reloader | None:
    """Follow the config that the settings come from; settings of a program's own are followed by nobody."""
    if read is None:
        return None
    reloader = Reloader(application=application, settings=settings, read=read, tasks=tasks)
    tasks.start_soon(reloader.run)
    return reloader


async def _read_usage(application: Application) -> None:
    """Begin with the journal: count what others lost, and read usage, neither on the event loop nor in a request."""
    application.admin.storage.start()
    with anyio.move_on_after(USAGE_SECONDS):
        await anyio.to_thread.run_sync(application.gateway.executor.journal.usage, abandon_on_cancel=True)


def _surface_server(application: Application, settings: GatewaySettings, surface: str) -> SurfaceServer:
    return SurfaceServer(
        application.gateway, SURFACES[surface](application, settings), VERSION, application.tier_answers
    )


def follow_changes(application: Application, tasks: anyio.abc.TaskGroup, servers: Mapping[str, SurfaceServer]) -> None:
    """Tell clients what changes, say what is wrong with tools of our own, and start what is not known yet."""
    for problem in application.local_sources.problems if application.local_sources is not None else ():
        logger.warning("%s", problem)
    last = [application.gateway.snapshot]
    for server in servers.values():
        server.begin()

    def announce(snapshot: CatalogSnapshot) -> None:
        before, last[0] = last[0], snapshot
        logger.info("snapshot %d: %d tools of %d servers", snapshot.number, len(snapshot.tools), len(snapshot.servers))
        for server in servers.values():
            # At once and in order, or a list that changes and changes back between two looks would look the same.
            tasks.start_soon(server.tell, server.publish(before, snapshot))

    def forward_notice(name: str, method: str, params: Mapping[str, Any], client: str | None = None) -> None:
        for server in servers.values():
            tasks.start_soon(server.pass_notice, name, method, params, client)

    def announce_tiers() -> None:
        for server in servers.values():
            tasks.start_soon(server.announce_tiers)

    application.gateway.publisher.subscribe(announce)
    application.gateway.standings.subscribe(announce_tiers)
    application.listeners.append(forward_notice)
    application.askers.extend(server.ask_client for server in servers.values())
    watch(application, tasks)
    if application.local_sources is not None and application.is_reloading:
        tasks.start_soon(reload_on_change, application.local_sources, partial(offer_local_tools, application))
    tasks.start_soon(BackgroundJobs(application.admin, application.tier_answers).run)


def _check_surface(surface: str) -> None:
    if surface not in SURFACES:
        raise ConfigError(
            f"there is no surface {surface!r}", where="surface", fix=f"Choose one of: {', '.join(SURFACES)}."
        )


def _listen(host: str, port: int) -> socket.socket:
    if host not in LOOPBACK:
        raise ConfigError(
            f"{host!r} can be reached by others, and this version cannot ask them who they are",
            where="host",
            fix="Use 127.0.0.1, and a tunnel or a proxy with authentication in front of it.",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used: {error}", where="port", fix="Stop what uses it, or give --port."
        ) from error
    return listener


def _freeze_memory() -> None:
    """Tell the garbage collector not to look again at what was loaded at start: it lives until the end."""
    gc.collect()
    gc.freeze()


def run_server(
    settings: GatewaySettings,
    *,
    stdio: bool,
    surface: str | None,
    host: str | None,
    port: int | None,
    say_ready: Callable[[str], None] | None = None,
    pipe: EarlyPipe | None = None,
    read: ReadSettings | None = None,
) -> None:
    """Run the server in an event loop of its own; what is None comes from the settings.

    `read` reads the settings again when the config changes; without it they stay as they are.
    """
    chosen = surface or settings.surface
    for problem in settings.problems:
        logger.warning("config: %s", problem)
    if stdio:
        serve_pipe = partial(serve_over_stdio, settings, surface=chosen, pipe=pipe, read=read)
        anyio.run(serve_pipe, backend_options={"use_uvloop": True})
        return
    serve_http = partial(
        serve_over_http,
        settings,
        surface=chosen,
        host=host or settings.http.host,
        port=settings.http.port if port is None else port,
        on_ready=lambda serving: (say_ready or _say_ready)(serving.url),
        read=read,
    )
    anyio.run(serve_http, backend_options={"use_uvloop": True})


def _say_ready(url: str) -> None:
    sys.stderr.write(f"portico: serving {url}\n")
    sys.stderr.flush()
