"""Tools of one's own: Python functions, YAML definitions and the packaged tools, as local servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from portico.errors import ConfigError, Sent, StoreError, UpstreamGone
from portico.packaged import MODULES
from portico.packaged.demo import demo_url
from portico.providers.python.decorator import Connection as Marker
from portico.providers.python.decorator import RequestContext, Source
from portico.providers.python.functions import LocalTool
from portico.providers.python.loading import LoadedTools, ToolModules, watch
from portico.providers.python.threads import FunctionLoop

from .python import LocalProvider
from .sql import DatabaseSource, ReadConnection
from .yaml import LoadedYaml, load_yaml


def injected(source: DatabaseSource) -> Mapping[type, Source]:
    """What a provider of local tools injects: a reading per call, by this room's type or by the bare name `conn`."""

    def opened(context: RequestContext) -> AbstractContextManager[ReadConnection]:
        return source.reading(context.caller)

    return {ReadConnection: opened, Marker: opened}


class LateDatabase:
    """A database whose URL is looked at when the first function asks for a connection."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._source: DatabaseSource | None = None

    @property
    def sources(self) -> Mapping[type, Source]:
        """What a provider of local tools injects."""
        return {ReadConnection: self._opened, Marker: self._opened}

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        if self._source is not None:
            self._source.close()

    def _opened(self, context: RequestContext) -> AbstractContextManager[ReadConnection]:
        try:
            self._source = self._source or DatabaseSource(self._url())
        except (ConfigError, StoreError) as error:
            raise UpstreamGone("the database", details=(str(error),), sent=Sent.NOTHING) from error
        return self._source.reading(context.caller)


def injected_from(connect: Callable[[], Any]) -> Mapping[type, Source]:
    """Connections of a program's own making, closed after each call."""

    def opened(context: RequestContext) -> AbstractContextManager[Any]:
        made = connect()
        # Some connections are context managers that only commit, and stay open.
        if hasattr(made, "close") or not isinstance(made, AbstractContextManager):
            return closing(made)
        return made

    return {Marker: opened}


LOCAL = "local"

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LocalSources:
    """Loads tools from their files, keeps one provider for each server that they name, and loads them again."""

    python: tuple[str, ...] = ()
    yaml: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path.cwd)
    packaged: bool = False
    """Whether the tools that come with Portico are offered too."""
    database: DatabaseSource | None = None
    """What functions and definitions with SQL read."""
    taken: Collection[str] = ()
    """Names of servers that are not ours to use."""
    loops: FunctionLoop = field(default_factory=FunctionLoop)
    """Where async functions run, those of every server: what they share among themselves belongs to one loop."""
    providers: dict[str, LocalProvider] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()
    _modules: ToolModules | None = None
    _files: tuple[Path, ...] = ()

    def load(self) -> None:
        """Load everything; what cannot be used is a problem, and the rest is offered."""
        sources = (*self.python, *(MODULES if self.packaged else ()))
        self._modules = ToolModules(sources, self.folder)
        self._offer(*self._read(()))

    async def follow(self, on_change: Callable[[str], None], every: float = 1.0) -> None:
        """Load again whatever changes, for ever; tells the servers that may offer something else now."""

        async def reload(changed: set[Path]) -> None:
            before = {str(problem) for problem in self.problems}
            # Whoever edits a module may have it do anything at import: the gateway goes on meanwhile.
            self._offer(*await anyio.to_thread.run_sync(self._read, changed, abandon_on_cancel=True))
            for problem in self.problems:
                if str(problem) not in before:
                    logger.warning("%s", problem)
            for server in sorted(self.providers):
                on_change(server)

        await watch(self._watched, reload, every)

    def close(self) -> None:
        """Let go of the database, and of async functions that are still at work."""
        self.loops.close()
        if self.database is not None:
            self.database.close()

    def _watched(self) -> set[Path]:
        return {*(self._modules.files() if self._modules else ()), *self._files}

    def _read(self, changed: Collection[Path]) -> tuple[LoadedTools, LoadedYaml]:
        assert self._modules is not None, "load() comes first"
        return self._modules.reload(changed), self._read_yaml()

    def _offer(self, loaded: LoadedTools, written: LoadedYaml) -> None:
        entries = {(tool.server, tool.name) for tool in written.tools}
        functions = [tool for tool in loaded.tools if not (_is_packaged(tool) and (tool.server, tool.name) in entries)]
        known = {(tool.server, tool.name) for tool in functions}
        clashes = [tool for tool in written.tools if (tool.server, tool.name) in known]
        usable = [tool for tool in (*functions, *written.tools) if tool.server not in self.taken]
        strangers = {tool.server for tool in (*functions, *written.tools) if tool.server in self.taken}
        groups = _grouped(usable)
        if written.prompts or written.terms:
            groups.setdefault(LOCAL, [])
        for server in {*groups, *self.providers}:
            self._provider(server).take(groups.get(server, ()))
        if LOCAL in self.providers:
            written.make_test_app(self.providers[LOCAL])
        self.problems = (
            *loaded.problems,
            *written.problems,
            *(_clash(tool) for tool in clashes),
            *(_strange(server) for server in sorted(strangers)),
            *(problem for provider in self.providers.values() for problem in provider.problems),
        )

    def _read_yaml(self) -> LoadedYaml:
        dialect = self.database.dialect if self.database is not None else ""
        written = load_yaml(self.yaml, self.folder, packaged=self.packaged, dialect=dialect)
        self._files = written.files
        return written

    def _provider(self, server: str) -> LocalProvider:
        if server not in self.providers:
            self.providers[server] = LocalProvider(server=server, inject=self._injected(), loops=self.loops)
        return self.providers[server]

    def _injected(self) -> Mapping[type, Source]:
        return injected(self.database) if self.database is not None else {}


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
    """A workshop with everything loaded; packaged tools read the demo's data where no database is named."""
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


def _grouped(tools: Iterable[LocalTool]) -> dict[str, list[LocalTool]]:
    groups: dict[str, list[LocalTool]] = {}
    for tool in tools:
        groups.setdefault(tool.server, []).append(tool)
    return groups


def _is_packaged(tool: LocalTool) -> bool:
    """Whether a function came with Portico: an operator's own entry of that name takes its place."""
    return getattr(tool.function, "__module__", "") in MODULES


def _clash(tool: LocalTool) -> ConfigError:
    fix = "Rename one of them; until then the function is offered."
    return ConfigError(
        f"{tool.name!r} is a Python function too", file=tool.file or None, line=tool.line or None, fix=fix
    )


def _strange(server: str) -> ConfigError:
    return ConfigError(
        f"tools of our own name the server {server!r}, which is another one's name",
        where=f"servers.{server}",
        fix="Give one of the two another name.",
    )
