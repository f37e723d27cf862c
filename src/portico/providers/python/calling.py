"""Runs one function with everything it asks for, and passes its progress on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Literal

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from portico.domain.call import OnProgress
from portico.errors import CallError, InvalidArguments, RefusedValue, Sent, UpstreamError

from .decorator import Report, RequestContext, Source
from .functions import LocalTool, Output, as_error
from .stdout import prints_aside
from .threads import Job, Loops, Workers

FAILED = -32_603
"""The code of a failure inside of a server, in the protocol that agents speak."""
SQL = "sql"
"""What connections call their subject, and tools the parameter in which a caller writes SQL."""


def blamed(error: InvalidArguments, subject: str, *, has_values: bool) -> CallError:
    """The error of a statement that the caller did not write: of its parts, only values can be the caller's mistake."""
    if error.sent is not Sent.ANSWERED or (isinstance(error, RefusedValue) and has_values):
        return InvalidArguments(subject, details=error.details, sent=error.sent)
    told = error.details[-1] if error.details else str(error)
    return UpstreamError(subject, rpc_code=FAILED, message=told, details=error.details)


WAITING = 1_000
"""Reports that may wait for a slow client; more are dropped."""

Told = tuple[float, float | None, str | None]


class Patience:
    """How long a call may go on: so long without a report, and so long in all."""

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
async def reporting(on_progress: OnProgress | None, on_report: Callable[[], None]) -> AsyncIterator[Report]:
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


def _reporter(put: Callable[[Told], None]) -> Report:
    """What a function is given: from whatever thread it is used, `put` is called in this loop."""
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


CLOSE_SECONDS = 5.0
"""What was opened for an async function gets so long to close when the call is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call that is about to happen; its outcome is always a result object."""

    label: str
    function: Callable[[dict[str, Any]], Any]
    arguments: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Arguments -> what the function expects; may run a user's own checks, so never in the gateway's loop."""
    is_async: bool = False
    given: Mapping[str, Source | None] = field(default_factory=dict)
    """What is opened for the function, by parameter; None stands for the request itself."""
    context: RequestContext | None = None
    output: Output = field(default_factory=Output)

    async def finish(self, workers: Workers, loops: Loops | None, begun: list[Job]) -> Mapping[str, Any]:
        """Run it; a job that is begun in a thread is put on the list. Without loops, what is async runs in this one."""
        if self.is_async:
            return await self._awaited(loops, lambda: self._called(workers))
        job = workers.start(self.label, self._in_thread)
        begun.append(job)
        value = await workers.finish(job)
        if inspect.isawaitable(value):
            return await self._awaited(loops, lambda: value)
        return value  # type: ignore[no-any-return]

    async def _awaited(self, loops: Loops | None, work: Callable[[], Awaitable[Any]]) -> Mapping[str, Any]:
        if loops is None:
            return await _answer(work, self.output)
        found: Mapping[str, Any] = await loops.finish(self.label, lambda: _answer(work, self.output, is_aside=True))
        return found

    def _in_thread(self) -> Any:
        """The result, or what still has to be awaited in the loop."""
        try:
            with prints_aside(), ExitStack() as stack:
                values = self.read(self.arguments)
                for parameter, source in self.given.items():
                    values[parameter] = stack.enter_context(_plain(self._opened(source))) if source else self.context
                value = self.function(values)
                return value if inspect.isawaitable(value) else self.output.result(value)
        except CallError:  # our own words for what went wrong, with what to do
            raise
        except BaseException as error:  # noqa: BLE001  a user's function may raise anything, and it is the tool's answer
            return as_error(error)

    def _called(self, workers: Workers) -> Awaitable[Any]:
        values = self.read(self.arguments)
        return self._with_given(values, workers) if self.given else self.function(values)

    async def _with_given(self, values: dict[str, Any], workers: Workers) -> Any:
        async with AsyncExitStack() as stack:
            for parameter, source in self.given.items():
                values[parameter] = (
                    await stack.enter_async_context(_InThread.around(self._opened(source), workers))
                    if source
                    else self.context
                )
            return await self.function(values)

    def _opened(self, source: Source) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        assert self.context is not None, "what is opened is opened for a request"
        return source(self.context)


def run_of(
    tool: LocalTool,
    arguments: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], dict[str, Any]],
    sources: Mapping[type, Source],
    context: RequestContext | None = None,
) -> Run:
    """A call of a function with everything that it needs."""
    given = {need.parameter: need.source(sources) for need in tool.needs if need.is_given_by(sources)}
    return Run(
        label=tool.name,
        function=tool.invoke,
        arguments=arguments,
        read=read,
        is_async=tool.is_async,
        given=given,
        context=context,
        output=tool.output,
    )


async def _answer(work: Callable[[], Awaitable[Any]], output: Output, *, is_aside: bool = False) -> Mapping[str, Any]:
    """What an async function gives or raises, as a result; that the call itself is cancelled is not its answer.

    Aside, a task of its own runs the function: whoever asked has gone when it is cancelled, or it has cancelled itself.
    """
    try:
        with prints_aside():
            return output.result(await work())
    except CallError:
        raise
    except BaseException as error:  # a user's function may raise anything, and it is the tool's answer
        is_end = isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and _is_cancelled())
        if is_end and not is_aside:
            raise
        return as_error(error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())


def _plain(opened: AbstractContextManager[Any] | AbstractAsyncContextManager[Any]) -> AbstractContextManager[Any]:
    if isinstance(opened, AbstractContextManager):
        return opened
    raise TypeError("what it is given can be opened by async functions only: write `async def`")


class _InThread:
    """A context manager that blocks, entered and left in a worker thread so that the loop goes on."""

    def __init__(self, inner: AbstractContextManager[Any], workers: Workers) -> None:
        self._inner, self._workers = inner, workers

    @classmethod
    def around(
        cls, opened: AbstractContextManager[Any] | AbstractAsyncContextManager[Any], workers: Workers
    ) -> AbstractAsyncContextManager[Any]:
        """One that is async already is taken as it is."""
        return opened if isinstance(opened, AbstractAsyncContextManager) else cls(opened, workers)

    async def __aenter__(self) -> Any:
        return await self._workers.finish(self._workers.start("open", self._inner.__enter__))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            close = partial(self._inner.__exit__, kind, error, trace)
            await self._workers.finish(self._workers.start("close", close))
        return False
