"""Tools of one's own: Python functions, YAML definitions and the packaged tools, as local servers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.concurrency import FunctionLoop
from portico.errors import ConfigError, Sent, StoreError, UpstreamGone
from portico.providers.database_tools import MODULES
from portico.providers.database_tools.demo_database import demo_url
from portico.providers.python.decorator_and_injection import LOCAL, Connection, RequestContext, Source
from portico.providers.python.functions import LocalTool
from portico.providers.python.loading import LoadedTools, ToolModules

from .python import LocalProvider
from .sql import DatabaseSource, ReadConnection
from .yaml import LoadedYaml, load_yaml


def connections_of(source: DatabaseSource) -> Mapping[type, Source]:
    """A connection to a database for each call, for parameters of its type or with the bare name `conn`."""
    return _for_connections(lambda context: source.reading(context.caller))


def _for_connections(open: Source) -> Mapping[type, Source]:
    return {ReadConnection: open, Connection: open}


class LateDatabase:
    """A database whose URL is looked at when the first function asks for a connection."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._source: DatabaseSource | None = None
        self.sources = _for_connections(self._open)
        """The sources that a provider of local tools injects."""

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        if self._source is not None:
            self._source.close()

    def _open(self, context: RequestContext) -> AbstractContextManager[ReadConnection]:
        try:
            self._source = self._source or DatabaseSource(self._url())
        except (ConfigError, StoreError) as error:
            raise UpstreamGone("the database", details=(str(error),), sent=Sent.NOTHING) from error
        return self._source.reading(context.caller)


def connections_from(connect: Callable[[], Any]) -> Mapping[type, Source]:
    """Connections of a program's own making, closed after each call."""

    def opened(context: RequestContext) -> AbstractContextManager[Any]:
        made = connect()
        # Some connections are context managers that only commit, and stay open.
        if hasattr(made, "close") or not isinstance(made, AbstractContextManager):
            return closing(made)
        return made

    return {Connection: opened}


@dataclass(slots=True, kw_only=True)
class LocalSources:
    """Loads tools from their files, keeps one provider for each server that they name, and loads them again."""

    python: tuple[str, ...] = ()
    yaml: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path.cwd)
    packaged: bool = False
    """Whether the tools that come with Portico are offered too."""
    database: DatabaseSource | None = None
    """The database that functions and definitions with SQL read."""
    taken: Collection[str] = ()
    """Names of servers that are not ours to use."""
    loops: FunctionLoop = field(default_factory=FunctionLoop)
    """Where async functions run, those of every server: what they share among themselves belongs to one loop."""
    providers: dict[str, LocalProvider] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()
    _modules: ToolModules = field(init=False)
    _yaml_files: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        self._modules = ToolModules((*self.python, *(MODULES if self.packaged else ())), self.folder)

    def load(self) -> None:
        """Load everything; what cannot be used is a problem, and the rest is offered."""
        self.offer(*self.read(()))

    def close(self) -> None:
        """Let go of the database, and of async functions that are still at work."""
        self.loops.close()
        if self.database is not None:
            self.database.close()

    def files(self) -> set[Path]:
        """Every file whose change matters."""
        return {*self._modules.files(), *self._yaml_files}

    def folders(self) -> set[Path]:
        """Every folder in which such a file is, or may come to be."""
        return self._modules.folders() | {file.parent for file in self._yaml_files if file.parent.is_dir()}

    def read(self, changed: Collection[Path]) -> tuple[LoadedTools, LoadedYaml]:
        """Import what is new or has one of the changed files, and read every definition; blocks."""
        dialect = self.database.dialect if self.database is not None else ""
        written = load_yaml(self.yaml, self.folder, packaged=self.packaged, dialect=dialect)
        self._yaml_files = written.files
        return self._modules.reload(changed), written

    def offer(self, loaded: LoadedTools, written: LoadedYaml) -> None:
        """Offer what was read in the place of what was offered before."""
        entries = {(tool.server, tool.name) for tool in written.tools}
        # An operator's own entry takes the place of a tool that came with Portico.
        functions = [
            tool
            for tool in loaded.tools
            if (tool.server, tool.name) not in entries or getattr(tool.function, "__module__", "") not in MODULES
        ]
        known = {(tool.server, tool.name) for tool in functions}
        groups: dict[str, list[LocalTool]] = {}
        for tool in (*functions, *written.tools):
            groups.setdefault(tool.server, []).append(tool)
        taken = sorted(groups.keys() & set(self.taken))
        for server in taken:
            del groups[server]
        if written.prompts or written.terms:
            groups.setdefault(LOCAL, [])
        for server in groups.keys() - self.providers.keys():
            inject = connections_of(self.database) if self.database is not None else {}
            self.providers[server] = LocalProvider(server=server, inject=inject, loops=self.loops)
        for server, provider in self.providers.items():
            provider.take(groups.get(server, ()))
        if LOCAL in self.providers:
            written.install(self.providers[LOCAL])
        self.problems = (
            *loaded.problems,
            *written.problems,
            *(_clash(tool) for tool in written.tools if (tool.server, tool.name) in known),
            *(_name_is_taken(server) for server in taken),
            *(problem for provider in self.providers.values() for problem in provider.problems),
        )


def open_local_sources(
    *,
    python: tuple[str, ...],
    yaml: tuple[str, ...],
    folder: Path,
    packaged: bool,
    taken: Collection[str],
    database: str,
    allow_superuser: bool = False,
    data: Path,
) -> LocalSources:
    """Local tools with everything loaded; packaged tools read the demo's data where no database is named."""
    local_sources = LocalSources(python=python, yaml=yaml, folder=folder, packaged=packaged, taken=taken)
    url = database or (demo_url(data) if packaged else "")
    bad: tuple[ConfigError, ...] = ()
    try:
        local_sources.database = DatabaseSource(url, allow_superuser=allow_superuser) if url else None
    except ConfigError as error:
        bad = (error,)
    local_sources.load()
    local_sources.problems = (*bad, *local_sources.problems)
    return local_sources


def _clash(tool: LocalTool) -> ConfigError:
    fix = "Rename one of them; until then the function is offered."
    return ConfigError(
        f"{tool.name!r} is a Python function too", file=tool.file or None, line=tool.line or None, fix=fix
    )


def _name_is_taken(server: str) -> ConfigError:
    return ConfigError(
        f"tools of our own name the server {server!r}, which is another one's name",
        where=f"servers.{server}",
        fix="Give one of the two another name.",
    )
