"""Portico inside a program: `create_mcp_app(Settings(...))` gives an MCP server of one surface."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from portico import config
from portico.application import Application
from portico.config.load import read_settings, with_database
from portico.config.profiles import with_profile
from portico.documents.document import parse_document
from portico.domain.server import ServerSpec
from portico.domain.tool import ToolId
from portico.domain.version import VERSION
from portico.errors import ConfigError
from portico.library import Catalog
from portico.packaged.demo import demo_url
from portico.providers.local_sources import LateDatabase
from portico.providers.python import LocalProvider
from portico.providers.python.decorator import Source
from portico.surfaces.mcp.server import SurfaceServer, serve_stdio
from portico.wiring import Parts, assemble, load_hooks, open_app

from .run import SURFACES, keep_in_step, serve_over_http

OURS = Path("Settings")
"""Stands where the name of a file would, in what is said of a program's own settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a program wants of Portico; with a config file, on top of what the file says."""

    progressive_disclosure: bool = False
    """False lists every tool (the surface `static`), True a few that find the others (`search`)."""
    surface: str | None = None
    """Another surface; it counts more than `progressive_disclosure`."""
    config: str | os.PathLike[str] | None = None
    """A config file; without one no file is read."""
    profile: str | None = None
    """The name of a profile; None leaves it to the environment."""
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Servers by name, as `servers` in a config file."""
    python: Sequence[str | os.PathLike[str]] = ()
    yaml: Sequence[str | os.PathLike[str]] = ()
    hooks: Sequence[str | os.PathLike[str]] = ()
    pins: Sequence[str] = ()
    categories: Mapping[str, str] = field(default_factory=dict)
    database_uri: str | None = field(default=None, repr=False)
    """The database of packaged tools; None leaves it to the environment."""
    allow_superuser: bool | None = None
    """Whether that database may be asked with the login of a superuser; None leaves it to the config."""
    store: str | None = field(default=None, repr=False)
    """Where things are remembered: that of the config file unless told, in memory without one."""


def create_mcp_app(settings: Settings | None = None, *, catalog: Catalog | None = None) -> tuple[App, logging.Logger]:
    """An MCP server over these settings, and the logger that it speaks through; nothing is started yet.

    The tools of a catalog are offered beside those of the settings, also those that join it later.

    Raises:
        ConfigError: a file, surface, profile, store or hook cannot be used.
    """
    logger = logging.getLogger("portico")
    found = settings_of(settings or Settings())
    load_hooks(found)  # what cannot be loaded is told here, and not when the first client comes
    for problem in found.problems:
        logger.warning("config: %s", problem)
    return App(found, catalog), logger


class App(SurfaceServer):
    """The SDK server of one surface; its application is opened with the first client and closed after the last."""

    def __init__(self, settings: config.GatewaySettings, catalog: Catalog | None = None) -> None:
        self.settings = settings
        self._database = LateDatabase(partial(_database_url, settings))
        self.catalog = catalog if catalog is not None else Catalog(inject=_sources(settings, self._database))
        """What the program itself adds."""
        self._houses: dict[int, Application] = {}
        for server in self.catalog.providers:
            self._check(server)
        self.catalog.subscribe(self._follow)
        self._door = anyio.Lock()
        self._guests, self._is_empty = 0, anyio.Event()
        self._move_into(assemble(Parts(pins=settings.pins)))

    def register_tool(
        self,
        function: Callable[..., Any],
        category: str = "",
        *,
        server: str = "",
        name: str = "",
        replace: bool = False,
    ) -> str:
        """Add a function, as `Catalog.register_tool` does; clients that are connected are told. Returns its handle.

        Raises:
            InvalidDefinition: no tool can be made of it, or another tool has its name.
            ConfigError: the server is one of the settings.
        """
        self._check(server)
        return self.catalog.register_tool(function, category, server=server, name=name, replace=replace)

    add_tool = register_tool

    async def run_stdio(self) -> None:
        """Serve one client over stdin and stdout until it goes away."""
        await serve_stdio(self)

    async def run_http(self, host: str | None = None, port: int | None = None) -> None:
        """Serve over HTTP as `portico serve` does, until a signal comes; what is None comes from the config.

        Raises:
            ConfigError: the address cannot or must not be used.
        """
        opened: list[Application] = []

        def make_test_app(application: Application) -> None:
            self._furnish(application)
            opened.append(application)

        try:
            await serve_over_http(
                self.settings,
                surface=self.settings.surface,
                host=host or self.settings.host,
                port=self.settings.port if port is None else port,
                on_ready=lambda serving: logging.getLogger("portico").info("serving %s", serving.url),
                on_open=make_test_app,
            )
        finally:
            for application in opened:
                del self._houses[id(application)]

    def _move_into(self, application: Application) -> None:
        """Answer from this application from now on."""
        manager = getattr(self, "_session_manager", None)
        surface = SURFACES[self.settings.surface](application, self.settings)
        super().__init__(application.gateway, surface, VERSION, application.tier_answers)
        self._session_manager = manager
        self.lifespan = self._live

    @asynccontextmanager
    async def _live(self, server: object) -> AsyncIterator[dict[str, Any]]:
        """One stay in the application; whoever came first opens it, and closes it when everybody has left."""
        async with AsyncExitStack() as stack:
            async with self._door:
                is_host = self._guests == 0
                if is_host:
                    await self._open(stack)
                self._guests += 1
            try:
                yield {}
            finally:
                self._guests -= 1
                if self._guests == 0:
                    self._is_empty.set()
                if is_host:
                    with anyio.CancelScope(shield=True):
                        await self._is_empty.wait()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._is_empty = anyio.Event()
        application = await stack.enter_async_context(open_app(self.settings))
        self._furnish(application)
        stack.callback(self._houses.pop, id(application))
        stack.callback(self._database.close)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        self._move_into(application)
        keep_in_step(application, tasks, {self.settings.surface: self})

    def _furnish(self, application: Application) -> None:
        """Offer what the catalog has, now and from now on."""
        for provider in self.catalog.providers.values():
            _offer(application, provider)
        self._houses[id(application)] = application

    def _follow(self, provider: LocalProvider) -> None:
        for application in self._houses.values():
            _offer(application, provider)

    def _check(self, server: str) -> None:
        """Refuse the name of a server of the settings.

        Raises:
            ConfigError: it is one.
        """
        if server in {spec.name for spec in self.settings.servers} | {spec.name for spec in self.settings.databases}:
            raise _strange(server)


def _database_url(settings: config.GatewaySettings) -> str:
    """The database that the packaged tools read, which is the demo's where none is named."""
    return settings.database_uri or demo_url(settings.home.data)


def _sources(settings: config.GatewaySettings, database: LateDatabase) -> Mapping[type, Source]:
    has_database = bool(settings.database_uri) or settings.selected.wants_packaged
    return database.sources if has_database else {}


def _offer(application: Application, provider: LocalProvider) -> None:
    """Publish what a provider of the program has, in one server with the settings' own functions of that server.

    Raises:
        ConfigError: the settings have another server of that name.
    """
    providers, server = application.admin.providers, provider.server
    shared = application.local_sources.providers.get(server) if application.local_sources is not None else None
    if shared is not None:
        for name in shared.borrow(provider):
            logging.getLogger("portico").warning("the program's %r takes the place of the settings' function", name)
    elif providers.get(server, provider) is not provider:
        raise _strange(server)
    assert isinstance(providers, dict), "so the wiring makes them"
    shown = providers[server] = shared or provider
    for name, category in shown.categories.items():
        application.gateway.publisher.shelve(ToolId(server, name), category)
    application.gateway.publisher.accept([(shown.offering(), shown.source)])


def _strange(server: str) -> ConfigError:
    return ConfigError(
        f"the program's own tools name the server {server!r}, which the settings have too",
        file=str(OURS),
        where=f"servers.{server}",
        fix="Give one of the two another name.",
    )


def settings_of(asked: Settings) -> config.GatewaySettings:
    """What a program asks for, in the words of a config file and read by the same rules.

    Raises:
        ConfigError: a file, surface, profile or store cannot be used.
    """
    file = os.fspath(asked.config) if asked.config is not None else None
    given = _given(asked)
    found = config.load_settings(file, os.environ, Path.cwd(), profile=asked.profile) if file else _bare(asked.profile)
    return replace(
        found,
        surface=_surface(asked, found),
        servers=_servers(given, found),
        python=(*found.python, *given.python),
        yaml=(*found.yaml, *given.yaml),
        hooks=(*found.hooks, *given.hooks),
        pins=given.pins or found.pins,
        categories={**found.categories, **given.categories},
        database_uri=found.database_uri if asked.database_uri is None else asked.database_uri,
        allow_superuser=found.allow_superuser if asked.allow_superuser is None else asked.allow_superuser,
        store=given.store if asked.store or not file else found.store,
        problems=(*found.problems, *given.problems),
    )


def _given(asked: Settings) -> config.GatewaySettings:
    """The program's own part, as if it stood in a file."""
    try:
        document = parse_document(json.dumps(_table(asked), default=os.fspath), OURS)
    except (TypeError, ValueError, AttributeError) as error:
        fix = "Use texts, numbers, lists and tables."
        raise ConfigError(f"this cannot stand in a config: {error}", file=str(OURS), fix=fix) from error
    home = config.find_paths(os.environ, Path.cwd())
    found = read_settings(document, home, os.environ, Path.cwd())
    # What was written has no lines.
    problems = (ConfigError(p.problem, file=p.file, where=p.where, fix=p.fix) for p in found.problems)
    return replace(found, problems=tuple(problems))


def _table(asked: Settings) -> dict[str, Any]:
    return {
        "servers": {name: dict(entry) for name, entry in asked.servers.items()},
        "categories": dict(asked.categories),
        "python": [*map(_located, _many(asked.python))],
        "yaml": [*map(_located, _many(asked.yaml))],
        "hooks": [*map(_located, _many(asked.hooks))],
        "pins": _many(asked.pins),
        "store": asked.store or "memory",
    }


def _many(given: Any) -> list[Any]:
    """A list; one text or path alone is a list of one, and not of its letters."""
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def _bare(profile: str | None) -> config.GatewaySettings:
    """The settings of no file at all."""
    cwd = Path.cwd()
    found = with_database(config.GatewaySettings(home=config.find_paths(os.environ, cwd)), os.environ)
    return with_profile(found, None, profile, os.environ, cwd)


def _servers(given: config.GatewaySettings, found: config.GatewaySettings) -> tuple[ServerSpec, ...]:
    """The program's servers in the place of those of the same name, as far as the profile uses them."""
    own = {spec.name: spec for spec in given.servers if found.selected.permits_server(spec.name)}
    return tuple({**{spec.name: spec for spec in found.servers}, **own}.values())


def _surface(asked: Settings, found: config.GatewaySettings) -> str:
    if not isinstance(asked.progressive_disclosure, bool | None):
        fix = "Write True or False."
        problem = f"this must be a truth value, not {asked.progressive_disclosure!r}"
        raise ConfigError(problem, file=str(OURS), where="progressive_disclosure", fix=fix)
    chosen = asked.surface or ("search" if asked.progressive_disclosure else found.selected.surface or "static")
    if chosen not in SURFACES:
        fix = f"Choose one of: {', '.join(SURFACES)}."
        raise ConfigError(f"there is no surface {chosen!r}", file=str(OURS), where="surface", fix=fix)
    return chosen


def _located(source: str | os.PathLike[str]) -> str:
    """A path as seen from here, since a config file may be elsewhere; a module as it is."""
    text = os.fspath(source)
    is_path = not isinstance(source, str) or any(sign in text for sign in "/\\*?[") or text.endswith(_SUFFIXES)
    return str(Path.cwd() / Path(text).expanduser()) if is_path else text


_SUFFIXES = (".py", ".yml", ".yaml")
