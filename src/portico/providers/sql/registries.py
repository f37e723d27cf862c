"""Databases with tools in them: one provider for each, and what keeps the catalog in step with them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from anyio import to_thread
from anyio.abc import TaskGroup

from portico.catalog.refresher import Refresher
from portico.domain.server import DatabaseSpec
from portico.domain.snapshot import CatalogSnapshot, ServerSection
from portico.errors import ConfigError, InvalidDefinition
from portico.providers.sql.registry.provider import Following, RegistryProvider
from portico.providers.sql.registry.rows import Problem, Registration
from portico.providers.sql.registry.statements import is_written_out, literal_example, statement_template


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStatement:
    """The statement of a tool with every parameter given, and what stands for each value."""

    sql: str
    binds: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCheck:
    """What became of the rows of one registry."""

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
        """The same for programs."""
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
        """What each database is, for people."""
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
            statements={tool: _shown(one, spoken) for tool, one in registered.tools.items()},
            problems=registered.problems,
        )

    async def tell(self, name: str) -> None:
        """Let other gateways that listen to a database look at its registry.

        Raises:
            ConfigError: the database cannot be reached.
        """
        spec = self.providers[name].spec
        # Only who tells needs it, and SQLAlchemy comes with it.
        from portico.providers.sql.registry.operations import RegistryOperator

        operator = RegistryOperator(spec.url, spec.registry)
        await to_thread.run_sync(operator.tell, abandon_on_cancel=True)

    def watch(self, tasks: TaskGroup, refresher: Refresher, unknown: Collection[str]) -> None:
        """Follow every registry in these tasks; `unknown` are being loaded already."""
        for name, provider in self.providers.items():
            following = Following(
                provider=provider, refresh=partial(refresher.refresh, name), is_starting=name in unknown
            )
            refresher.publisher.subscribe(_Noting(following, name))
            tasks.start_soon(following.run)


class _Noting:
    """Looks at a registry when another process has published something of it: what runs the tools must know it too."""

    def __init__(self, following: Following, server: str) -> None:
        self._following, self._server = following, server
        self._chapter: ServerSection | None = None

    def __call__(self, snapshot: CatalogSnapshot) -> None:
        section = snapshot.sections.get(self._server)
        if section is not self._chapter:
            self._chapter = section
            self._following.wake()


def _shown(one: Registration, dialect: str) -> ShownStatement:
    """What would be sent; a database that cannot run it says so instead."""
    try:
        sql = statement_template(one, dialect)
    except InvalidDefinition as error:
        return ShownStatement(sql=f"(cannot run on {dialect}: {error})", binds={})
    marks = dict.fromkeys(re.findall(r":p[0-9]+", sql))
    names = [f"{p.name} ({p.type.name}{', required' if p.required else ''})" for p in one.parameters]
    if is_written_out(one, dialect):
        examples = (literal_example(parameter, dialect) for parameter in one.parameters)
        told = zip(names, examples, strict=True)
        return ShownStatement(
            sql=sql, binds={str(n): f"{name}, written out as {e}" for n, (name, e) in enumerate(told, 1)}
        )
    if one.kind.has_columns:
        return ShownStatement(sql=sql, binds=dict.fromkeys(marks, "limit"))
    return ShownStatement(sql=sql, binds=dict(zip(marks, names, strict=False)))


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
            registries.problems = (*registries.problems, _placed(error, spec))
    return registries


def _placed(error: ConfigError, spec: DatabaseSpec) -> ConfigError:
    """The error with the place of the database in the config, where it stands in one."""
    if not spec.file:
        return error
    field = error.where if error.where in ("role", "rows, bytes, seconds") else "url"
    where = error.where if (error.where or "").startswith("databases.") else f"databases.{spec.name}.{field}"
    return ConfigError(error.problem, file=spec.file, line=spec.line, where=where, fix=error.fix)
