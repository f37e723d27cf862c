"""A server whose tools are functions of this process."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from portico.domain.call import Caller, OnProgress
from portico.domain.server import Health, Offering, State
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    InvalidDefinition,
    NextCall,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)

from .calling import SQL, Patience, Run, blamed, reporting, run_of
from .decorator import LOCAL, Connection, Need, RequestContext, Source
from .functions import LocalTool
from .threads import Exhausted, Job, Loops, Workers

Runner = Callable[[str, Mapping[str, Any]], Any | Awaitable[Any]]
"""Tool name and arguments -> a value or a whole result object; may be async."""

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Answers one method (`prompts/get`, `resources/read`, `completion/complete`) from its parameters; may be async."""


CONNECTIONS = 10
"""Calls at once of tools that are given a connection: as many as a database has."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """A definition of somebody else's making, run through one function."""

    definition: Mapping[str, Any]
    run: Runner


@dataclass(frozen=True, slots=True)
class _Borrowed:
    """A tool that another provider offers, and runs."""

    definition: Mapping[str, Any]
    provider: LocalProvider
    category: str


@dataclass(slots=True, kw_only=True)
class LocalProvider:
    """Offers definitions and runs them through one function each."""

    server: str = LOCAL
    source: str = "local"
    timeout: float = 60.0
    """Seconds of one call without a report of progress."""
    total: float = 600.0
    """Seconds of one call, reports or not."""
    inject: Mapping[type, Source] = field(default_factory=dict)
    """What functions may ask for beside their arguments: each is opened before a call and closed after it."""
    is_patient: bool = False
    """Whether a function that needs a connection is offered although nobody provides one yet; its calls say so."""
    workers: Workers = field(default_factory=Workers)
    loops: Loops | None = None
    """Where async functions run; without, in the event loop of whoever calls."""
    problems: list[ConfigError] = field(default_factory=list)
    """What is not offered, or not as its author meant it, and what to do."""
    prompts: list[Mapping[str, Any]] = field(default_factory=list)
    resources: list[Mapping[str, Any]] = field(default_factory=list)
    templates: list[Mapping[str, Any]] = field(default_factory=list)
    handlers: dict[str, Handler] = field(default_factory=dict)
    """What answers requests beside calls, by method."""
    _tools: dict[str, _Plain | LocalTool | _Borrowed] = field(default_factory=dict)
    _loaded: dict[str, LocalTool] = field(default_factory=dict)
    """Those of the tools that came from modules, and leave with them."""

    def add(self, definition: Mapping[str, Any], run: Runner) -> None:
        """Offer one more tool, or another one under the same name."""
        name = definition.get("name") if isinstance(definition, Mapping) else None
        key = name if isinstance(name, str) and name else f"(no name {len(self._tools)})"
        self._tools[key] = _Plain(definition, run)

    def add_tool(self, tool: LocalTool) -> None:
        """Offer a function, or another one under the same name.

        Raises:
            InvalidDefinition: it needs something that nobody provides.
        """
        unmet = self._unmet(tool)
        if unmet is not None and not (self.is_patient and unmet.is_connection):
            raise InvalidDefinition(f"{tool.name!r} cannot be called: {unmet.reason}")
        self._tools[tool.name] = tool

    def borrow(self, other: LocalProvider) -> list[str]:
        """Offer what another provider offers now, in the place of what was borrowed from it before.

        The names of tools that gave way to it.
        """
        self._tools = {name: tool for name, tool in self._tools.items() if not _is_from(tool, other)}
        gave_way = [name for name in other._tools if name in self._tools]
        for name, tool in other._tools.items():
            category = "" if isinstance(tool, _Plain) else tool.category
            self._tools[name] = _Borrowed(tool.definition, other, category)
        return gave_way

    def find(self, name: str) -> LocalTool | None:
        """The function that is offered under a name, if it is one."""
        tool = self._tools.get(name)
        return tool if isinstance(tool, LocalTool) else None

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def take(self, tools: Iterable[LocalTool]) -> None:
        """Offer these functions in the place of those that were taken before; one that cannot be called is a problem.

        What was added otherwise stays, and wins.
        """
        for name, tool in self._loaded.items():
            if self._tools.get(name) is tool:
                del self._tools[name]
        self._loaded, self.problems = {}, []
        for tool in tools:
            if tool.name in self._tools:
                continue
            try:
                self.add_tool(tool)
                self._loaded[tool.name] = tool
            except InvalidDefinition as error:
                self.problems.append(ConfigError(str(error), file=tool.file or None, line=tool.line or None))

    def remove(self, name: str) -> bool:
        """Offer a tool no longer; says whether there was one."""
        return self._tools.pop(name, None) is not None

    @property
    def categories(self) -> dict[str, str]:
        """The shelf of each tool whose author has chosen one."""
        return {n: t.category for n, t in self._tools.items() if not isinstance(t, _Plain) and t.category}

    @property
    def fingerprint(self) -> str:
        """A mark of everything that is offered."""
        offered = self.offering()
        parts = (offered.tools, offered.prompts, offered.resources, offered.templates)
        try:
            written = orjson.dumps(parts, default=repr, option=orjson.OPT_NON_STR_KEYS)
        except orjson.JSONEncodeError:  # a definition that intake refuses, among others that it does not
            written = repr(parts).encode("utf-8", "replace")
        return sha256(written).hexdigest()[:16]

    def offering(self) -> Offering:
        """All definitions; nothing has to be asked."""
        return Offering(
            server=self.server,
            tools=tuple(tool.definition for tool in self._tools.values()),
            prompts=tuple(self.prompts),
            resources=tuple(self.resources),
            templates=tuple(self.templates),
        )

    def health(self) -> Health:
        """Functions of this process are always there, unless none of them could be used."""
        reasons = [str(problem) for problem in self.problems]
        if stuck := self.workers.stuck:
            names = ", ".join(dict.fromkeys(stuck))
            reasons.append(f"{len(stuck)} of {self.workers.limit} worker threads did not come back from: {names}")
        if self.loops is not None and (held := self.loops.held):
            reasons.append(f"async functions that block their event loop: {', '.join(dict.fromkeys(held))}")
        is_empty = not (self._tools or self.prompts or self.resources or self.templates)
        state = State.FAILED if is_empty and self.problems else State.RUNNING
        return Health(state=state, reason="; ".join(reasons))

    async def offer(self) -> Offering:
        """All definitions."""
        return self.offering()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        on_progress: OnProgress | None,
        answers: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> Mapping[str, Any]:
        """Run the function; what it raises is the tool's own error."""
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownTool(f"{self.server}.{name}")
        if isinstance(tool, _Plain):
            return await self._finish(_plain_run(tool.run, name, arguments))
        if isinstance(tool, _Borrowed):
            return await tool.provider.call(name, arguments, meta=meta, on_progress=on_progress, caller=caller)
        read = partial(self._values, tool)
        if not tool.needs:
            return await self._finish(run_of(tool, arguments, read, self.inject))
        if self.is_patient and (unmet := self._unmet(tool)) is not None:
            raise UpstreamGone(f"{self.server}.{name}", details=(unmet.reason,), sent=Sent.NOTHING)
        patience = Patience(self.timeout, self.total)
        async with reporting(on_progress, patience.renew) as report:
            context = RequestContext(caller=caller or Caller(), meta=meta, report=report)
            try:
                return await self._finish(run_of(tool, arguments, read, self.inject, context), patience)
            except InvalidArguments as error:
                told = _blamed(error, tool, arguments)
                if told is error:
                    raise
                raise told from error

    def calls_at_once(self, name: str) -> int:
        """How many calls of a tool's kind run at once: each holds a thread or a connection; 0 for any number."""
        tool = self._tools.get(name)
        if isinstance(tool, _Borrowed):
            return tool.provider.calls_at_once(name)
        if isinstance(tool, LocalTool):
            if any(Connection in need.kinds for need in tool.needs):
                return CONNECTIONS
            return 0 if tool.is_async else self.workers.limit
        return 0 if tool is None or inspect.iscoroutinefunction(tool.run) else self.workers.limit

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request that is not a call, if something was put there to answer it."""
        handler = self.handlers.get(method)
        if handler is None:
            raise UpstreamError(self.server, rpc_code=-32601, message=f"{method} is not offered")
        answer = handler(params)
        return await answer if inspect.isawaitable(answer) else answer

    async def aclose(self) -> None:
        """Nothing was started that does not end by itself."""

    def _unmet(self, tool: LocalTool) -> Need | None:
        return next((need for need in tool.needs if not need.met_by(self.inject)), None)

    def _values(self, tool: LocalTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values, wrong = tool.read(arguments)
        if wrong:
            spelled = f"{self.server}.{tool.name}"
            raise InvalidArguments(spelled, details=wrong, next_call=NextCall("describe", {"names": [spelled]}))
        return values

    async def _finish(self, run: Run, patience: Patience | None = None) -> Mapping[str, Any]:
        """Wait for one call, but not for ever; waiting for a thread counts."""
        begun: list[Job] = []
        patience = patience or Patience(self.timeout, self.total)
        try:
            with patience.scope:
                return await run.finish(self.workers, self.loops, begun)
        except Exhausted as stuck:
            detail = f"{stuck}. Restart Portico, and give those functions time limits of their own"
            raise UpstreamGone(f"{self.server}.{run.label}", details=(detail,)) from stuck
        if begun and not begun[0].is_started:
            detail, sent = (
                f"no worker thread was free for {self.timeout:g} s; all {self.workers.limit} are busy",
                Sent.NOTHING,
            )
        else:
            detail, sent = patience.ended, Sent.UNKNOWN
        raise UpstreamTimeout(f"{self.server}.{run.label}", details=(detail,), sent=sent)


def _is_from(tool: object, other: LocalProvider) -> bool:
    return isinstance(tool, _Borrowed) and tool.provider is other


def _blamed(error: InvalidArguments, tool: LocalTool, arguments: Mapping[str, Any]) -> CallError:
    """What a connection says of SQL is about the caller's own only where a tool takes some."""
    properties = tool.definition.get("inputSchema", {}).get("properties", {})
    if error.subject != SQL or SQL in properties:
        return error
    return blamed(error, tool.name, has_values=bool(arguments))


def _plain_run(run: Runner, name: str, arguments: Mapping[str, Any]) -> Run:
    return Run(
        label=name,
        function=lambda values: run(name, values),
        arguments=arguments,
        is_async=inspect.iscoroutinefunction(run),
    )


def providers_of(
    tools: Iterable[LocalTool], *, inject: Mapping[type, Source] | None = None, timeout: float = 60.0
) -> dict[str, LocalProvider]:
    """One provider for each server that the functions name."""
    groups: dict[str, list[LocalTool]] = {}
    for tool in tools:
        groups.setdefault(tool.server, []).append(tool)
    found = {server: LocalProvider(server=server, inject=inject or {}, timeout=timeout) for server in groups}
    for server, group in groups.items():
        found[server].take(group)
    return found
