"""Portico inside a program: `create_mcp_app(Settings(...))` gives an MCP server of one surface."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from portico import config
from portico.application import Application
from portico.config.load import read_settings, with_database
from portico.config.profiles import with_profile
from portico.documents.document import parse_document
from portico.domain import VERSION
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.errors import ConfigError
from portico.library import Catalog
from portico.providers.database_tools.demo_database import demo_url
from portico.providers.local_sources import LateDatabase
from portico.providers.python import LocalProvider
from portico.providers.python.decorator_and_injection import Source
from portico.surfaces.mcp.server import SurfaceServer, serve_stdio
from portico.wiring import Parts, assemble, load_hooks, open_app

from .run import SURFACES, follow_changes, serve_over_http

OURS = Path("Settings")  # stands where the name of a file would, in what is said of a program's own settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that a program gives Portico; with a config file, on top of what the file says."""

    progressive_disclosure: bool = False
    """False lists every tool (the surface `static`), True a few that find the others (`search`)."""
    surface: str | None = None  # another surface; it counts more than `progressive_disclosure`
    config: str | os.PathLike[str] | None = None  # a config file; without one no file is read
    profile: str | None = None  # the name of a profile; None leaves it to the environment
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
        # The packaged tools read the demo's database where none is named.
        self._database = LateDatabase(lambda: settings.local.database_uri or demo_url(settings.home.data))
        has_database = bool(settings.local.database_uri) or settings.profile.wants_packaged
        inject: Mapping[type, Source] = self._database.sources if has_database else {}
        self.catalog = catalog if catalog is not None else Catalog(inject=inject)  # what the program itself adds
        self._applications: dict[int, Application] = {}
        for server in self.catalog.providers:
            self._check(server)
        self.catalog.subscribe(self._follow)
        self._lock = anyio.Lock()
        self._clients, self._all_closed = 0, anyio.Event()
        bare = config.GatewaySettings(home=settings.home, catalog=settings.catalog)
        self._answer_from(assemble(Parts(settings=bare)))

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

        def offer(application: Application) -> None:
            self._offer_catalog(application)
            opened.append(application)

        try:
            await serve_over_http(
                self.settings,
                surface=self.settings.surface,
                host=host or self.settings.http.host,
                port=self.settings.http.port if port is None else port,
                on_ready=lambda serving: logging.getLogger("portico").info("serving %s", serving.url),
                on_open=offer,
            )
        finally:
            for application in opened:
                del self._applications[id(application)]

    def _answer_from(self, application: Application) -> None:
        manager = getattr(self, "_session_manager", None)
        surface = SURFACES[self.settings.surface](application, self.settings)
        super().__init__(application.gateway, surface, VERSION, application.tier_answers)
        self._session_manager = manager
        self.lifespan = self._live

    @asynccontextmanager
    async def _live(self, server: object) -> AsyncIterator[dict[str, Any]]:
        """Reference-counted lifespan: the first connection opens the application, and closes it after the last."""
        async with AsyncExitStack() as stack:
            async with self._lock:
                is_first = self._clients == 0
                if is_first:
                    await self._open(stack)
                self._clients += 1
            try:
                yield {}
            finally:
                self._clients -= 1
                if self._clients == 0:
                    self._all_closed.set()
                if is_first:
                    with anyio.CancelScope(shield=True):
                        await self._all_closed.wait()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._all_closed = anyio.Event()
        application = await stack.enter_async_context(open_app(self.settings))
        self._offer_catalog(application)
        stack.callback(self._applications.pop, id(application))
        stack.callback(self._database.close)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        self._answer_from(application)
        follow_changes(application, tasks, {self.settings.surface: self})

    def _offer_catalog(self, application: Application) -> None:
        providers = self.catalog.providers.values()
        application.gateway.publisher.accept([_offered(application, provider) for provider in providers])
        self._applications[id(application)] = application

    def _follow(self, provider: LocalProvider) -> None:
        for application in self._applications.values():
            application.gateway.publisher.accept([_offered(application, provider)])

    def _check(self, server: str) -> None:
        """Refuse the name of a server of the settings.

        Raises:
            ConfigError: it is one.
        """
        if server in {spec.name for spec in self.settings.servers} | {spec.name for spec in self.settings.databases}:
            raise _strange(server)


def _offered(application: Application, provider: LocalProvider) -> tuple[Offering, str]:
    """What a provider of the program has, in one server with the settings' own functions of that server.

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
    shown = providers[server] = shared or provider
    for name, category in shown.categories.items():
        application.gateway.publisher.shelve(ToolId(server, name), category)
    return shown.offering(), shown.source


def _strange(server: str) -> ConfigError:
    return ConfigError(
        f"the program's own tools name the server {server!r}, which the settings have too",
        file=str(OURS),
        where=f"servers.{server}",
        fix="Give one of the two another name.",
    )


def settings_of(asked: Settings) -> config.GatewaySettings:
    """The settings of a program, in the words of a config file and read by the same rules.

    Raises:
        ConfigError: a file, surface, profile or store cannot be used.
    """
    file = os.fspath(asked.config) if asked.config is not None else None
    given, cwd = _given(asked), Path.cwd()
    if file:
        found = config.load_settings(file, os.environ, cwd, profile=asked.profile)
    else:
        bare = with_database(config.GatewaySettings(home=config.find_paths(os.environ, cwd)), os.environ)
        found = with_profile(bare, None, asked.profile, os.environ, cwd)
    # The program's servers take the place of those of the same name, as far as the profile uses them.
    servers = {spec.name: spec for spec in found.servers}
    servers |= {spec.name: spec for spec in given.servers if found.profile.permits_server(spec.name)}
    local: dict[str, Any] = {
        name: (*getattr(found.local, name), *getattr(given.local, name)) for name in ("python", "yaml", "hooks")
    }
    for name in ("database_uri", "allow_superuser"):
        local |= {name: getattr(asked, name)} if getattr(asked, name) is not None else {}
    return replace(
        found,
        surface=_surface(asked, found),
        servers=tuple(servers.values()),
        local=replace(found.local, **local),
        catalog=replace(
            found.catalog,
            pins=given.catalog.pins or found.catalog.pins,
            categories={**found.catalog.categories, **given.catalog.categories},
        ),
        storage=replace(found.storage, store=(given if asked.store or not file else found).storage.store),
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
        **{name: [*map(_locate, _as_list(getattr(asked, name)))] for name in ("python", "yaml", "hooks")},
        "pins": _as_list(asked.pins),
        "store": asked.store or "memory",
    }


def _as_list(given: Any) -> list[Any]:
    """A list; one text or path alone is a list of one, and not of its letters."""
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def _surface(asked: Settings, found: config.GatewaySettings) -> str:
    if not isinstance(asked.progressive_disclosure, bool | None):
        fix = "Write True or False."
        problem = f"this must be a truth value, not {asked.progressive_disclosure!r}"
        raise ConfigError(problem, file=str(OURS), where="progressive_disclosure", fix=fix)
    chosen = asked.surface or ("search" if asked.progressive_disclosure else found.profile.surface or "static")
    if chosen not in SURFACES:
        fix = f"Choose one of: {', '.join(SURFACES)}."
        raise ConfigError(f"there is no surface {chosen!r}", file=str(OURS), where="surface", fix=fix)
    return chosen


def _locate(source: str | os.PathLike[str]) -> str:
    """A path as seen from here, since a config file may be elsewhere; a module as it is."""
    text = os.fspath(source)
    is_path = not isinstance(source, str) or any(sign in text for sign in "/\\*?[") or text.endswith(_SUFFIXES)
    return str(Path.cwd() / Path(text).expanduser()) if is_path else text


_SUFFIXES = (".py", ".yml", ".yaml")
