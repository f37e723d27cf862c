"""The catalog as a library: search, describe and call tools without MCP or a web server."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

import anyio

from portico.catalog.naming import PlainHandles
from portico.catalog.normalise import normalise
from portico.catalog.publisher import IndexBuilder
from portico.concurrency import Workers
from portico.domain.call import Call, Caller, Result
from portico.domain.search_answers import Disclosure, Hit, Query
from portico.domain.tool import Rejected, ToolId
from portico.errors import InvalidDefinition, UnknownTool
from portico.execution.hooks import hooks_of
from portico.gateway import Gateway
from portico.providers.local_sources import LateDatabase, connections_from
from portico.providers.python import LocalProvider
from portico.providers.python.decorator_and_injection import LOCAL, Source
from portico.providers.python.functions import LocalTool, make_tool, prints_to_stderr
from portico.providers.python.provider import Runner
from portico.providers.sql import DatabaseSource
from portico.search.embeddings.cache import Meanings
from portico.storage.memory import MemoryDefinitions
from portico.wiring import Parts, assemble

from .protocols import Embedder


class Hits(list[Hit]):
    """The tools that a search found, best first."""

    def __init__(
        self,
        hits: Iterable[Hit],
        *,
        fits: bool,
        weak: bool = False,
        unmatched: tuple[str, ...] = (),
        subject: str = "",
    ) -> None:
        super().__init__(hits)
        self.fits = fits
        """Whether they answer the query, or are only what comes nearest to it."""
        self.weak = weak
        """Whether that is in doubt."""
        self.unmatched = unmatched
        """Words of a query in doubt that no tool has."""
        self.subject = subject
        """The server that the query is about, where it names a subject and nothing that is to be done."""


class Catalog:
    """Tools in one place: added at any time, found by what they do, called by name."""

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        index: IndexBuilder | None = None,
        hooks: Iterable[object] = (),
        database: str = "",
        connect: Callable[[], Any] | None = None,
        inject: Mapping[type, Source] | None = None,
    ) -> None:
        """Nothing is started; an embedder is asked in the background, and its vectors are kept in memory.

        An index of your own is built for each snapshot, and finds tools in the place of ours.
        Hooks are modules, or other objects, with any of `on_search`, `on_call`, `on_result` and `on_error`.
        Functions that ask for a connection (`conn`) get one that reads `database`, a URL, or else that of DATABASE_URI;
        or what `connect()` makes, which is closed after the call. `inject` opens what they ask for by other types.

        Raises:
            ConfigError: the URL of the database cannot be used.
        """
        self._providers: dict[str, LocalProvider] = {}
        self._handles = PlainHandles()
        self._announced: dict[str, LocalProvider] = {}
        self._lock = RLock()  # a program may add tools in one thread and search in another
        url = database or os.environ.get("DATABASE_URI", "").strip()
        if database:
            DatabaseSource(database)  # so that whoever wrote it hears of a mistake at once
        self._database = LateDatabase(lambda: url) if url else None
        own = connections_from(connect) if connect is not None else {}
        self._inject = {**(self._database.sources if self._database else {}), **own, **(inject or {})}
        self._listeners: list[Callable[[LocalProvider], None]] = []
        self._meanings = Meanings(embedder, MemoryDefinitions()) if embedder is not None else None
        parts = Parts(meanings=self._meanings, index=index, hooks=hooks_of(hooks, Workers(), around=prints_to_stderr))
        self._registered = parts.providers
        self._application = assemble(parts)
        self._caller = Caller(surface="library")
        self._entered = 0

    def add_tools(
        self, server: str, definitions: Iterable[Mapping[str, Any]], call: Runner, *, replace: bool = False
    ) -> None:
        """Add definitions in MCP's shape; `call(name, arguments)` runs them, and may be async.

        A definition takes the place of an earlier one of its name, but of a function only with `replace`. One that
        cannot be used is left out and listed in `rejected`.

        Raises:
            InvalidDefinition: a function has the name of one of them already; nothing is added.
        """
        provider, added = self._provider(server), [_copied(one) for one in definitions]
        for definition in added:
            name = definition.get("name") if isinstance(definition, Mapping) else None
            if not replace and isinstance(name, str) and (known := provider.find(name)):
                raise _name_is_taken(name, known)
        for definition in added:
            provider.add(definition, call)
            if isinstance(definition, Mapping) and isinstance(name := definition.get("name"), str):
                self._handles.add(ToolId(server, name))
        self._announce(provider)

    def register_tool(
        self,
        function: Callable[..., Any],
        category: str = "",
        *,
        server: str = "",
        name: str = "",
        replace: bool = False,
    ) -> str:
        """Add a plain function, its schema taken from the signature; returns the handle.

        The name is the function's own, of a partial that of its function, unless another is given.

        Raises:
            InvalidDefinition: no tool can be made of its signature, or another tool has that name and is not to be
                replaced.
        """
        made = make_tool(function, name)
        tool = dataclasses.replace(made, category=category or made.category)
        normalise(dict(tool.definition))
        provider = self._provider(server or tool.server)
        known = provider.find(tool.name)
        if not replace and tool.name in provider and (known is None or known.function is not function):
            raise _name_is_taken(tool.name, known)
        provider.add_tool(tool)
        id = ToolId(provider.server, tool.name)
        self._handles.add(id)
        if tool.category:
            self._application.gateway.publisher.shelve(id, tool.category)
        self._announce(provider)
        return self._handles.find(id) or self.gateway.snapshot.tools[id].handle

    def unregister(self, name: str) -> bool:
        """Remove one tool by any of its spellings; says whether there was one.

        Raises:
            AmbiguousTool: several tools have that name; none is removed.
        """
        snapshot = self.gateway.snapshot
        try:
            tool = snapshot.resolver.resolve(name, snapshot.tools.keys())
        except UnknownTool:
            return False
        provider = self._providers[tool.id.server]
        provider.remove(tool.id.name)
        self._announce(provider)
        return True

    def prepare(self, seconds: float = 30.0) -> str:
        """Ask the embedder, wait so long at most until it has read every tool, and say how it is doing; blocks.

        Searches need not wait for this: until then they go on without it.
        """
        return self._meanings.check(seconds) if self._meanings is not None else "no embedder"

    @property
    def providers(self) -> Mapping[str, LocalProvider]:
        """The providers of the tools, by server."""
        return self._providers

    def subscribe(self, listener: Callable[[LocalProvider], None]) -> None:
        """Call a listener with each provider whose tools have changed."""
        self._listeners.append(listener)

    @property
    def gateway(self) -> Gateway:
        """The gateway behind it, for what takes one, such as a registry of tools; it knows all that was added."""
        if self._announced:
            self._publish()
        return self._application.gateway

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Definitions that were refused, and why."""
        return self.gateway.snapshot.rejected

    def __len__(self) -> int:
        return len(self.gateway.snapshot.tools)

    def search(
        self,
        query: str,
        limit: int = 5,
        *,
        server: str = "",
        category: str = "",
        tag: str = "",
        source: str = "",
        read_only: bool = False,
        max_latency_ms: float = 0.0,
        min_success: float = 0.0,
    ) -> Hits:
        """The best tools for a query, each with its handle, score and the parts of the score.

        `hits.fits` tells whether they answer it; when it is false, they are only the nearest. With an embedder it may
        wait for a moment.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source; the nearest are named.
        """
        question = Query(
            text=query,
            server=server,
            category=category,
            tag=tag,
            source=source,
            read_only=read_only,
            max_latency_ms=max_latency_ms,
            min_success=min_success,
            limit=max(limit, 0),
        )
        if self._meanings is not None:
            self._meanings.ask(query)
        found = self.gateway.search_hits(self._caller, question)
        hits = found.hits[: max(limit, 0)]
        return Hits(hits, fits=found.fits, weak=found.weak, unmatched=found.unmatched, subject=found.subject)

    def describe(self, names: Sequence[str]) -> Disclosure:
        """Full cards; `.text` is what an agent reads.

        Raises:
            CallError: none of the names is known.
        """
        return self.gateway.describe(self._caller, names)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, whole: bool = False) -> Result:
        """Run a tool by any of its spellings; a result that an agent could not afford is shortened unless `whole`.

        Raises:
            CallError: unknown tool, wrong arguments, time out; the message says what to do.
        """
        call = Call(tool=name, arguments=arguments or {}, whole=whole)
        return await self.gateway.call(self._caller, call)

    async def read_result(self, id: str, *, cursor: str = "", grep: str = "", path: str = "") -> Disclosure:
        """The next part of a result that was shortened; what has a word or pattern in it; or what a JMESPath selects.

        Raises:
            UnknownResult: nothing is kept under this handle, or no longer.
            InvalidArguments: the cursor, the pattern or the path cannot be used.
        """
        return await self.gateway.read_result(self._caller, id, cursor, grep, path)

    async def run_script(
        self, script: str, arguments: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> Result:
        """Run a Lua script that calls these tools; its value is the result, whole, and `arguments` its global `args`.

        What runs scripts is stopped after each of them, or at the end of `async with catalog:` around many.

        Raises:
            ScriptError: it did not come to its end; the calls that it had made by then are told.
        """
        self._publish()
        scripts = self._application.scripts
        assert scripts is not None, "only a config switches them off"
        async with self:
            return await scripts.run(self._caller, script, arguments, seconds=seconds, whole=True)

    def close(self) -> None:
        """Let go of the connections to the database; the next call opens it again."""
        if self._database is not None:
            self._database.close()

    async def __aenter__(self) -> Catalog:
        self._entered += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._entered -= 1
        if self._entered > 0:
            return
        with anyio.CancelScope(shield=True):
            if self._application.script_runner is not None:
                await self._application.script_runner.aclose()
            await anyio.to_thread.run_sync(self.close)

    def _provider(self, server: str) -> LocalProvider:
        if server not in self._providers:
            source = "local" if server == LOCAL else "library"
            self._providers[server] = self._registered[server] = LocalProvider(
                server=server, source=source, inject=self._inject, is_patient=True
            )
        return self._providers[server]

    def _publish(self) -> None:
        """Make one snapshot with all that was announced."""
        with self._lock:
            announced, self._announced = self._announced, {}
            self._application.gateway.publisher.accept([(own.offering(), own.source) for own in announced.values()])

    def _announce(self, provider: LocalProvider) -> None:
        """Let the next look at the catalog see what a provider has by then: adding costs what is added."""
        with self._lock:
            self._announced[provider.server] = provider
        if self._meanings is not None:
            self._publish()  # so that the embedder begins to read
        for listener in self._listeners:
            listener(provider)


def _copied(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition as it is now: it is read later, and a program may go on to change its own."""
    return dict(definition) if isinstance(definition, Mapping) else definition


def _name_is_taken(name: str, known: LocalTool | None) -> InvalidDefinition:
    where = f", from {known.file}:{known.line}" if known and known.file else ""
    what = f"a tool is called {name!r} already{where}"
    return InvalidDefinition(f"{what}. Give this one another name (name=...), or replace it (replace=True).")
