"""A server whose tools are functions of this process, and how one of them is run."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from threading import get_ident
from typing import Any

import anyio
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream

from portico.concurrency import Exhausted, FunctionLoop, Job, Workers
from portico.domain.call import Caller, OnProgress
from portico.domain.server import Health, Offering, State
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    InvalidDefinition,
    NextCall,
    RefusedValue,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)

from .decorator_and_injection import LOCAL, Connection, InjectedParameter, ProgressReport, RequestContext, Source
from .functions import LocalTool, Output, as_error, prints_to_stderr

FAILED = -32_603  # the code of a failure inside of a server, in the protocol that agents speak
SQL = "sql"  # what connections call their subject, and tools the parameter in which a caller writes SQL


def error_for_caller(error: InvalidArguments, subject: str, *, has_values: bool) -> CallError:
    """The error of a statement that the caller did not write: of its parts, only values can be the caller's mistake."""
    if error.sent is not Sent.ANSWERED or (isinstance(error, RefusedValue) and has_values):
        return InvalidArguments(subject, details=error.details, sent=error.sent)
    told = error.details[-1] if error.details else str(error)
    return UpstreamError(subject, rpc_code=FAILED, message=told, details=error.details)


WAITING = 1_000  # reports that may wait for a slow client; more are dropped

Told = tuple[float, float | None, str | None]


class CallTimeouts:
    """The time limits of a call: without a report of progress, and in all."""

    def __init__(self, seconds: float, total: float) -> None:
        now = anyio.current_time()
        self._seconds, self._total, self._end = seconds, max(seconds, total), now + max(seconds, total)
        self._is_renewed = False
        self.scope = anyio.CancelScope(deadline=now + seconds)

    def renew(self) -> None:
        """Begin to wait anew; runs in the loop that waits."""
        self._is_renewed = True
        self.scope.deadline = min(anyio.current_time() + self._seconds, self._end)

    @property
    def ended(self) -> str:
        """Why the call was given up, in words."""
        if self.scope.deadline >= self._end:
            return f"no result after {self._total:g} s"
        return f"no result{', and no report' if self._is_renewed else ''} after {self._seconds:g} s"


@asynccontextmanager
async def reporting(on_progress: OnProgress | None, on_report: Callable[[], None]) -> AsyncIterator[ProgressReport]:
    """Within the block, pass on what is reported; at its end everything has been told.

    Every report is also a sign of life, whether a client wants it or not.
    """
    if on_progress is None:
        yield _reporter(lambda told: on_report())
        return
    send, receive = anyio.create_memory_object_stream[Told](WAITING)

    def put(told: Told) -> None:
        on_report()
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            send.send_nowait(told)

    report = _reporter(put)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, receive, on_progress)
        with send:
            try:
                yield report
            except Exception as error:  # noqa: BLE001  the task group would pack it into a group, which nobody expects
                failure = error
    if failure is not None:
        raise failure


def _reporter(put: Callable[[Told], None]) -> ProgressReport:
    """Make a reporter that calls `put` in this loop, from whatever thread it is used."""
    loop, thread = asyncio.get_running_loop(), get_ident()

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        told = (progress, total, message)
        if get_ident() == thread:
            put(told)
            return
        with suppress(RuntimeError):  # the loop is gone, and the client too
            loop.call_soon_threadsafe(put, told)

    return report


async def _tell(receive: MemoryObjectReceiveStream[Told], on_progress: OnProgress) -> None:
    with receive, suppress(Exception):  # a client that no longer listens must not cost the call its result
        async for told in receive:
            await on_progress(*told)


CLOSE_SECONDS = 5.0  # what was opened for an async function gets so long to close when the call is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRun:
    """One call that is about to happen; its outcome is always a result object."""

    label: str
    function: Callable[[dict[str, Any]], Any]
    arguments: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Arguments -> what the function expects; may run a user's own checks, so never in the gateway's loop."""
    is_async: bool = False
    given: Mapping[str, Source | None] = field(default_factory=dict)
    """The sources that are opened for the function, by parameter; None stands for the request itself."""
    context: RequestContext | None = None
    output: Output = field(default_factory=Output)

    async def finish(self, workers: Workers, loops: FunctionLoop | None, begun: list[Job]) -> Mapping[str, Any]:
        """Run it; a job that is begun in a thread is put on the list. Without loops, what is async runs in this one."""
        if self.is_async:
            return await self._awaited(loops, lambda: self._called(workers))
        job = workers.start(self.label, self._in_thread)
        begun.append(job)
        value = await workers.finish(job)
        if inspect.isawaitable(value):
            return await self._awaited(loops, lambda: value)
        return value  # type: ignore[no-any-return]

    async def _awaited(self, loops: FunctionLoop | None, work: Callable[[], Awaitable[Any]]) -> Mapping[str, Any]:
        if loops is None:
            return await _answer(work, self.output)
        found: Mapping[str, Any] = await loops.finish(self.label, lambda: _answer(work, self.output, is_aside=True))
        return found

    def _in_thread(self) -> Any:
        """The result, or what still has to be awaited in the loop."""
        try:
            with prints_to_stderr(), ExitStack() as stack:
                values = self.read(self.arguments)
                for parameter, source in self.given.items():
                    values[parameter] = stack.enter_context(self._opened_plainly(source)) if source else self.context
                value = self.function(values)
                return value if inspect.isawaitable(value) else self.output.result(value)
        except CallError:  # our own words for what went wrong, with what to do
            raise
        except BaseException as error:  # noqa: BLE001  a user's function may raise anything, and it is the tool's answer
            return as_error(error)

    def _opened_plainly(self, source: Source) -> AbstractContextManager[Any]:
        opened = self._opened(source)
        if isinstance(opened, AbstractContextManager):
            return opened
        raise TypeError("what it is given can be opened by async functions only: write `async def`")

    def _opened(self, source: Source) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        assert self.context is not None, "what is opened is opened for a request"
        return source(self.context)

    def _called(self, workers: Workers) -> Awaitable[Any]:
        values = self.read(self.arguments)
        return self._with_given(values, workers) if self.given else self.function(values)

    async def _with_given(self, values: dict[str, Any], workers: Workers) -> Any:
        async with AsyncExitStack() as stack:
            for parameter, source in self.given.items():
                if source is None:
                    values[parameter] = self.context
                    continue
                opened = self._opened(source)
                if not isinstance(opened, AbstractAsyncContextManager):
                    opened = _entered_in_thread(opened, workers)
                values[parameter] = await stack.enter_async_context(opened)
            return await self.function(values)


async def _answer(work: Callable[[], Awaitable[Any]], output: Output, *, is_aside: bool = False) -> Mapping[str, Any]:
    """Turn what an async function returns or raises into a result; that the call itself is cancelled is not its answer.

    Aside, a task of its own runs the function: whoever asked has gone when it is cancelled, or it has cancelled itself.
    """
    try:
        with prints_to_stderr():
            return output.result(await work())
    except CallError:
        raise
    except BaseException as error:  # a user's function may raise anything, and it is the tool's answer
        task = asyncio.current_task()
        is_cancelled = isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling())
        if (is_cancelled or isinstance(error, GeneratorExit)) and not is_aside:
            raise
        return as_error(error)


@asynccontextmanager
async def _entered_in_thread(inner: AbstractContextManager[Any], workers: Workers) -> AsyncIterator[Any]:
    """A context manager that blocks, entered and left in a worker thread so that the loop goes on."""
    value = await workers.finish(workers.start("open", inner.__enter__))
    try:
        yield value
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await workers.finish(workers.start("close", partial(inner.__exit__, *sys.exc_info())))


Runner = Callable[[str, Mapping[str, Any]], Any | Awaitable[Any]]
"""Tool name and arguments -> a value or a whole result object; may be async."""

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Answers one method (`prompts/get`, `resources/read`, `completion/complete`) from its parameters; may be async."""


CONNECTIONS = 10  # calls at once of tools that are given a connection: as many as a database has


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
    """Sources of values beside the arguments: each is opened before a call and closed after it."""
    is_patient: bool = False
    """Whether a function that needs a connection is offered although nobody provides one yet; its calls say so."""
    workers: Workers = field(default_factory=Workers)
    loops: FunctionLoop | None = None
    """Where async functions run; without, in the event loop of whoever calls."""
    problems: list[ConfigError] = field(default_factory=list)
    """Tools that are not offered, or not as their author meant, and what to do."""
    prompts: list[Mapping[str, Any]] = field(default_factory=list)
    resources: list[Mapping[str, Any]] = field(default_factory=list)
    templates: list[Mapping[str, Any]] = field(default_factory=list)
    handlers: dict[str, Handler] = field(default_factory=dict)
    """Answer requests beside calls, by method."""
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
        for name, tool in list(self._tools.items()):
            if isinstance(tool, _Borrowed) and tool.provider is other:
                del self._tools[name]
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
        except orjson.JSONEncodeError:  # a definition that the catalog refuses, among others that it does not
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
            is_async = inspect.iscoroutinefunction(tool.run)
            function = partial(tool.run, name)
            return await self._finish(
                FunctionRun(label=name, function=function, arguments=arguments, is_async=is_async)
            )
        if isinstance(tool, _Borrowed):
            return await tool.provider.call(name, arguments, meta=meta, on_progress=on_progress, caller=caller)
        run = FunctionRun(
            label=tool.name,
            function=tool.invoke,
            arguments=arguments,
            read=partial(self._values, tool),
            is_async=tool.is_async,
            given={need.parameter: need.source(self.inject) for need in tool.needs if need.is_given_by(self.inject)},
            output=tool.output,
        )
        if not tool.needs:
            return await self._finish(run)
        if self.is_patient and (unmet := self._unmet(tool)) is not None:
            raise UpstreamGone(f"{self.server}.{name}", details=(unmet.reason,), sent=Sent.NOTHING)
        timeouts = CallTimeouts(self.timeout, self.total)
        async with reporting(on_progress, timeouts.renew) as report:
            context = RequestContext(caller=caller or Caller(), meta=meta, report=report)
            try:
                return await self._finish(replace(run, context=context), timeouts)
            except InvalidArguments as error:
                # What a connection says of SQL is about the caller's own only where a tool takes some.
                if error.subject != SQL or SQL in tool.definition.get("inputSchema", {}).get("properties", {}):
                    raise
                raise error_for_caller(error, tool.name, has_values=bool(arguments)) from error

    def calls_at_once(self, name: str) -> int:
        """The most calls of a tool's kind that run at once: each holds a thread or a connection; 0 for any number."""
        tool = self._tools.get(name)
        if isinstance(tool, _Borrowed):
            return tool.provider.calls_at_once(name)
        if isinstance(tool, LocalTool):
            if any(Connection in need.kinds for need in tool.needs):
                return CONNECTIONS
            return 0 if tool.is_async else self.workers.limit
        return 0 if tool is None or inspect.iscoroutinefunction(tool.run) else self.workers.limit

    async def request(
        self, method: str, params: Mapping[str, Any], *, caller: Caller | None = None
    ) -> Mapping[str, Any]:
        """Answer a request that is not a call, if something was put there to answer it."""
        handler = self.handlers.get(method)
        if handler is None:
            raise UpstreamError(self.server, rpc_code=-32601, message=f"{method} is not offered")
        answer = handler(params)
        return await answer if inspect.isawaitable(answer) else answer

    async def aclose(self) -> None:
        """Nothing was started that does not end by itself."""

    def _unmet(self, tool: LocalTool) -> InjectedParameter | None:
        return next((need for need in tool.needs if need.is_required and not need.is_given_by(self.inject)), None)

    def _values(self, tool: LocalTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values, wrong = tool.read(arguments)
        if wrong:
            spelled = f"{self.server}.{tool.name}"
            raise InvalidArguments(spelled, details=wrong, next_call=NextCall("describe", {"names": [spelled]}))
        return values

    async def _finish(self, run: FunctionRun, timeouts: CallTimeouts | None = None) -> Mapping[str, Any]:
        """Wait for one call, but not for ever; waiting for a thread counts."""
        begun: list[Job] = []
        timeouts = timeouts or CallTimeouts(self.timeout, self.total)
        try:
            with timeouts.scope:
                return await run.finish(self.workers, self.loops, begun)
        except Exhausted as stuck:
            detail = f"{stuck}. Restart Portico, and give those functions time limits of their own"
            raise UpstreamGone(f"{self.server}.{run.label}", details=(detail,)) from stuck
        if begun and not begun[0].is_started:
            detail = f"no worker thread was free for {self.timeout:g} s; all {self.workers.limit} are busy"
            raise UpstreamTimeout(f"{self.server}.{run.label}", details=(detail,), sent=Sent.NOTHING)
        raise UpstreamTimeout(f"{self.server}.{run.label}", details=(timeouts.ended,), sent=Sent.UNKNOWN)
