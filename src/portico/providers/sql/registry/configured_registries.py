"""The registries of all configured databases: one provider for each, kept in step with what the database says."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from portico.catalog.publisher import Refresher
from portico.catalog.sections import ServerSection
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.server import DatabaseSpec, pause_after
from portico.errors import CallError, ConfigError, InvalidDefinition, UpstreamGone
from portico.providers.sql.database_source import CONNECT_SECONDS, read_address

from .call_statements import is_written_out, literal_example, statement_template
from .provider import RegistryProvider
from .registry_rows import Problem, Registration

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two questions to a database that is away; the pause doubles."""
MOST_LOGGED = 20
"""Rows that do not load and are named in the log, one line each."""
GATHER_SECONDS = 0.05
"""Changes that come within this time are read together."""

CHANNEL = "portico_registry"
"""Where the registry's triggers tell of changes; what they say is the schema."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Following:
    """Follows one registry for ever; a database that is away only makes it wait."""

    provider: RegistryProvider
    refresh: Callable[[], Awaitable[object]]
    """Asks the provider for its offering, and publishes it."""
    is_starting: bool = False
    """Whether somebody else is loading it for the first time."""
    _section: ServerSection | None = None
    _woken: anyio.Event = field(default_factory=anyio.Event)
    _tries: int = 0
    _logged: frozenset[Problem] = frozenset()

    def wake(self) -> None:
        """Look at the registry now."""
        self._woken.set()

    def note_snapshot(self, server: str, snapshot: CatalogSnapshot) -> None:
        """Look when another process has published something of it: the process that runs the tools must know it too."""
        section = snapshot.sections.get(server)
        if section is not self._section:
            self._section = section
            self.wake()

    async def run(self) -> None:
        """Follow until this is cancelled."""
        self.provider.on_suspicion = self.wake
        async with anyio.create_task_group() as tasks:
            if self.provider.dialect == "postgresql":
                tasks.start_soon(self._listen)
            await self._follow()

    async def _follow(self) -> None:
        if self.is_starting:
            await self._sleep(FIRST_PAUSE)
        while True:
            try:
                await self._look()
            except Exception:  # it runs for as long as the gateway does, and must not end it
                logger.exception("the registry of %r could not be looked at, and is tried again", self.provider.server)
                self._tries += 1
            await self._sleep(
                pause_after(self._tries, FIRST_PAUSE, LONGEST_PAUSE) if self._tries else self.provider.spec.refresh_s
            )

    async def _look(self) -> None:
        try:
            if await self.provider.has_changed():
                await self.refresh()
        except CallError as error:
            if not self._tries:
                logger.warning("the registry of %r cannot be read, and is tried again: %s", self.provider.server, error)
            self._tries += 1
            return
        if self._tries:
            logger.warning("the registry of %r can be read again", self.provider.server)
        self._tries = 0
        self._log_problems()

    def _log_problems(self) -> None:
        """Log the rows that do not load, each once."""
        refused = [problem for problem in self.provider.problems if not problem.loads]
        fresh = [problem for problem in refused if problem not in self._logged]
        server, more = self.provider.server, len(fresh) - MOST_LOGGED
        for problem in fresh[:MOST_LOGGED]:
            logger.warning("registry of %r: %s", server, problem)
        if more > 0:
            logger.warning("registry of %r: %d more do not load; see: portico registry check", server, more)
        self._logged = frozenset(refused)

    async def _sleep(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._woken.wait()
            await anyio.sleep(GATHER_SECONDS)
        self._woken = anyio.Event()

    async def _listen(self) -> None:
        """Hear of changes; while nobody can be heard, the looks at intervals go on."""
        tries = 0
        while True:
            try:
                async with listen_for_changes(self.provider.spec.url) as heard:
                    tries = 0
                    self.wake()  # for what was told before
                    async for schema in heard:
                        if schema.casefold() in ("", self.provider.spec.registry.casefold()):
                            self.wake()
            except CallError as error:
                logger.debug("%s", error)
            tries += 1
            await anyio.sleep(pause_after(tries, FIRST_PAUSE, LONGEST_PAUSE))


@asynccontextmanager
async def listen_for_changes(url: str) -> AsyncIterator[AsyncIterator[str]]:
    """What PostgreSQL tells of a registry as soon as a change is committed, as long as the context is open.

    Raises:
        UpstreamGone: the database cannot be reached, or hangs up.
    """
    # Only this needs them so early.
    import psycopg
    from sqlalchemy.exc import ArgumentError

    try:
        connection = await psycopg.AsyncConnection.connect(**_options(url), autocommit=True)
    except (psycopg.Error, ArgumentError, OSError) as error:
        raise UpstreamGone("the registry", details=("the database cannot be reached",)) from error
    async with connection:
        try:
            await connection.execute(f"LISTEN {CHANNEL}".encode())
            yield (notification.payload async for notification in connection.notifies())
        except psycopg.Error as error:
            # A server that follows another one, and some poolers, take no listeners.
            raise UpstreamGone("the registry", details=("the database takes no listeners, or has hung up",)) from error


def _options(url: str) -> dict[str, Any]:
    """Options as SQLAlchemy would connect, so that one URL means one thing."""
    from sqlalchemy import make_url

    address = make_url(read_address(url).url)
    dialect: Any = address.get_dialect()()
    _, options = dialect.create_connect_args(address)
    return {"connect_timeout": CONNECT_SECONDS, "application_name": "portico:registry", **options}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStatement:
    """The statement of a tool with every parameter given, and what stands for each value."""

    sql: str
    binds: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCheck:
    """The statements and problems that the rows of one registry came to."""

    database: str
    registry: str
    statements: Mapping[str, ShownStatement]
    problems: tuple[Problem, ...]

    @property
    def refused(self) -> int:
        """Rows that do not load, although the config would let them."""
        return sum(not problem.loads and not problem.is_withheld for problem in self.problems)

    @property
    def withheld(self) -> int:
        """Rows that the config keeps back."""
        return sum(problem.is_withheld for problem in self.problems)

    def as_data(self) -> dict[str, Any]:
        """The check as JSON."""
        return asdict(self)


@dataclass(slots=True, kw_only=True)
class Registries:
    """The registries of one application."""

    providers: dict[str, RegistryProvider] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()

    @property
    def overriding(self) -> set[str]:
        """The databases whose tools take the place of code tools."""
        return {name for name, one in self.providers.items() if one.spec.registry_override}

    @property
    def targets(self) -> dict[str, str]:
        """Each database in words."""
        return {name: f"{one.dialect} registry {one.spec.registry}" for name, one in self.providers.items()}

    async def check(self, name: str, dialect: str = "") -> RegistryCheck:
        """Load one registry now, and show what came of its rows.

        Raises:
            CallError: it cannot be loaded.
        """
        provider = self.providers[name]
        await provider.offer()
        registered = await provider.registered()
        spoken = dialect or provider.dialect
        return RegistryCheck(
            database=name,
            registry=provider.spec.registry,
            statements={tool: _show_statement(one, spoken) for tool, one in registered.tools.items()},
            problems=registered.problems,
        )

    async def tell(self, name: str) -> None:
        """Let other gateways that listen to a database look at its registry.

        Raises:
            ConfigError: the database cannot be reached.
        """
        spec = self.providers[name].spec
        # Only who tells needs it, and SQLAlchemy comes with it.
        from .registry_admin import RegistryOperator

        operator = RegistryOperator(spec.url, spec.registry)
        await to_thread.run_sync(operator.tell, abandon_on_cancel=True)

    def watch(self, tasks: TaskGroup, refresher: Refresher, unknown: Collection[str]) -> None:
        """Follow every registry in these tasks; `unknown` are being loaded already."""
        for name, provider in self.providers.items():
            following = Following(
                provider=provider, refresh=partial(refresher.refresh, name), is_starting=name in unknown
            )
            refresher.publisher.subscribe(partial(following.note_snapshot, name))
            tasks.start_soon(following.run)


def _show_statement(one: Registration, dialect: str) -> ShownStatement:
    """The statement that would be sent; a database that cannot run it says so instead."""
    try:
        sql = statement_template(one, dialect)
    except InvalidDefinition as error:
        return ShownStatement(sql=f"(cannot run on {dialect}: {error})", binds={})
    marks = dict.fromkeys(re.findall(r":p[0-9]+", sql))
    names = [f"{p.name} ({p.type.name}{', required' if p.required else ''})" for p in one.parameters]
    if one.kind.has_columns:
        return ShownStatement(sql=sql, binds=dict.fromkeys(marks, "limit"))
    if not is_written_out(one, dialect):
        return ShownStatement(sql=sql, binds=dict(zip(marks, names, strict=False)))
    examples = [literal_example(parameter, dialect) for parameter in one.parameters]
    told = [f"{name}, written out as {example}" for name, example in zip(names, examples, strict=True)]
    return ShownStatement(sql=sql, binds={str(number): text for number, text in enumerate(told, 1)})


def open_registries(specs: Iterable[DatabaseSpec], taken: Collection[str]) -> Registries:
    """A provider for each database that can be used; nothing is connected yet."""
    registries = Registries()
    for spec in specs:
        try:
            if spec.name in taken:
                fix = "Give one of the two another name."
                raise ConfigError("a server has the same name", where=f"databases.{spec.name}", fix=fix)
            registries.providers[spec.name] = RegistryProvider(spec)
        except ConfigError as error:
            if spec.file:  # the place of the database in the config, where it stands in one
                field = error.where if error.where in ("role", "rows, bytes, seconds") else "url"
                is_placed = (error.where or "").startswith("databases.")
                where = error.where if is_placed else f"databases.{spec.name}.{field}"
                error = ConfigError(error.problem, file=spec.file, line=spec.line, where=where, fix=error.fix)
            registries.problems = (*registries.problems, error)
    return registries
