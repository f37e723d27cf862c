"""Worker threads for functions that may hang, and an event loop in a thread for async ones that may block.

They are ours for two reasons. A worker thread of anyio is no daemon: one that hangs keeps the process alive. A blocking
portal of anyio ends with the first function that stops its loop, and one that is blocked blocks every later call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import Any

WAITING = 1_000  # functions that wait for a background thread at most

logger = logging.getLogger(__name__)


class Exhausted(Exception):
    """Nothing is free to run a function, because functions that do not return hold everything; says which."""


class JobOutcome:
    """A value that another thread waits for in its event loop, or what was raised in its place."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A tuple, since a future cannot raise a StopIteration.
        self._future: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

    async def wait(self) -> Any:
        """Return the value, or raise what was raised."""
        value, error = await self._future
        if error is not None:
            raise error
        return value

    def set(self, value: Any, error: BaseException | None = None) -> None:
        """Hand it over, from any thread."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if not self._future.done():
            self._future.set_result((value, error))


@dataclass(slots=True, eq=False)
class Job:
    """One function on its way through a worker thread."""

    label: str
    work: Callable[[], Any]
    outcome: JobOutcome | None = None
    context: Context = field(default_factory=copy_context)
    is_started: bool = False
    is_done: bool = False
    is_cancelled: bool = False


@dataclass(slots=True)
class Workers:
    """Runs plain functions in at most so many daemon threads, which are started when they are needed."""

    limit: int = 16
    name: str = "portico tool"
    idle_seconds: float = 30.0
    """A thread without work ends after so long."""
    _jobs: SimpleQueue[Job] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _idle: Condition = field(init=False)
    _threads: int = 0
    _unfinished: int = 0
    _stuck: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._idle = Condition(self._lock)

    @property
    def stuck(self) -> tuple[str, ...]:
        """The labels of functions that still run although nobody waits for them."""
        with self._lock:
            return tuple(job.label for job in self._stuck)

    @property
    def unfinished(self) -> int:
        """The number of functions that wait or run, also those that nobody waits for."""
        with self._lock:
            return self._unfinished

    def start(self, label: str, work: Callable[[], Any]) -> Job:
        """Run a function as soon as a thread is free; `finish` waits for it.

        Raises:
            Exhausted: no thread will be free, because all are stuck.
        """
        loop = asyncio.get_running_loop()
        # Handed over when the loop is about to wait: a thread that wakes earlier only waits for the interpreter again.
        return self._put(Job(label, work, JobOutcome()), lambda job: loop.call_soon(self._jobs.put, job))

    async def finish(self, job: Job) -> Any:
        """Wait for a function and return what it returned, or raise what it raised; a cancelled one is left behind."""
        assert job.outcome is not None, "a job that was submitted is not waited for"
        try:
            return await job.outcome.wait()
        except asyncio.CancelledError:
            with self._lock:
                job.is_cancelled = True
                if job.is_started and not job.is_done:
                    self._stuck.append(job)
            raise

    def submit(self, label: str, work: Callable[[], Any]) -> Job:
        """Run a function that nobody waits for, as soon as a thread is free.

        Raises:
            Exhausted: no thread will be free, because all are stuck.
        """
        return self._put(Job(label, work), self._jobs.put)

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until every function has returned, but no longer than that; blocks."""
        with self._idle:
            self._idle.wait_for(lambda: not self._unfinished, seconds)

    def _put(self, job: Job, hand_over: Callable[[Job], object]) -> Job:
        with self._lock:
            if len(self._stuck) >= self.limit:
                names = ", ".join(dict.fromkeys(stuck.label for stuck in self._stuck))
                raise Exhausted(f"all {self.limit} worker threads are held by functions that do not return: {names}")
            self._unfinished += 1
            is_short = self._threads < min(self._unfinished, self.limit)
            self._threads += is_short
        hand_over(job)
        if is_short:
            Thread(target=self._work, name=self.name, daemon=True).start()
        return job

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self.idle_seconds)
            except Empty:
                with self._lock:
                    if self._unfinished < self._threads:  # also counts what is still to be handed over
                        self._threads -= 1
                        return
                continue
            self._run(job)
            del job  # a waiting thread holds on to nothing

    def _run(self, job: Job) -> None:
        with self._lock:
            job.is_started = not job.is_cancelled
        value, error = None, None
        if job.is_started:
            try:
                value = job.context.run(job.work)
            except BaseException as raised:  # noqa: BLE001  SystemExit and the like are the function's own, not ours
                error = raised
        with self._lock:
            job.is_done = True
            self._unfinished -= 1
            if job in self._stuck:
                self._stuck.remove(job)
            if not self._unfinished:
                self._idle.notify_all()
        if job.outcome is not None:
            job.outcome.set(value, error)


OnFailure = Callable[[str, BaseException | None], None]
"""Told in words what went wrong, and by what."""


@dataclass(slots=True)
class BackgroundThread:
    """Runs functions one after the other, for callers that never wait for them."""

    _workers: Workers = field(default_factory=lambda: Workers(limit=1, name="portico background"))

    def put(self, run: Callable[..., Any], given: tuple[Any, ...], *, seconds: float, on_failure: OnFailure) -> None:
        """Run a function later; an async one gets an event loop of its own, and so many seconds."""
        if self._workers.unfinished >= WAITING:
            on_failure(f"is so slow that {WAITING} of its events wait, and is not told of more", None)
            return
        self._workers.submit("background", partial(_run_and_report, run, given, seconds, on_failure))

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until everything has run, but no longer than that; blocks."""
        self._workers.wait_until_idle(seconds)


def _run_and_report(run: Callable[..., Any], given: tuple[Any, ...], seconds: float, on_failure: OnFailure) -> None:
    async def wait_for(answer: Any) -> None:
        await asyncio.wait_for(answer, seconds)

    try:
        answer = run(*given)
        if inspect.isawaitable(answer):
            asyncio.run(wait_for(answer))
    except TimeoutError:
        on_failure(f"did not return in {seconds:g} s", None)
    except BaseException as error:  # noqa: BLE001  it is an operator's code, and must not end the thread
        on_failure(f"raised {type(error).__name__}: {error}", error)


HELD_SECONDS = 1.0  # a loop that begins nothing for so long is taken to be blocked
END_SECONDS = 2.0  # how long functions may take to end when their loop is no longer needed


@dataclass(slots=True, eq=False)
class _AsyncJob:
    """One async function on its way through a loop in another thread."""

    label: str
    work: Callable[[], Awaitable[Any]]
    outcome: JobOutcome = field(default_factory=JobOutcome)
    context: Context = field(default_factory=copy_context)
    thread: _LoopThread | None = None
    task: asyncio.Task[None] | None = None
    is_begun: bool = False
    is_cancelled: bool = False

    async def run(self, thread: _LoopThread) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await self.work()
        except asyncio.CancelledError:
            error = RuntimeError("it has cancelled itself")  # or whoever asked has gone, and hears nothing of it
        except BaseException as raised:  # noqa: BLE001  whoever asked shall have it, whatever it is
            error = raised
        thread.finish(self)
        self.outcome.set(value, error)  # last, since both threads want the interpreter from here on

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


@dataclass(slots=True, eq=False)
class _LoopThread:
    """An event loop in a daemon thread of its own."""

    loop: asyncio.AbstractEventLoop
    jobs: set[_AsyncJob] = field(default_factory=set)
    is_ending: bool = False

    def call(self, callback: Callable[..., object], *given: object) -> None:
        """Have something done in the loop's thread; a loop that has ended does nothing."""
        try:
            self.loop.call_soon_threadsafe(callback, *given)
        except RuntimeError:
            return

    def begin(self, job: _AsyncJob) -> None:
        self.jobs.add(job)
        job.task = self.loop.create_task(job.run(self), name=job.label, context=job.context)

    def finish(self, job: _AsyncJob) -> None:
        self.jobs.discard(job)
        if self.is_ending and not self.jobs:
            self.loop.stop()

    def retire(self) -> None:
        """End when everything that was begun here has ended."""
        if not self.is_ending and not self.jobs:
            self.loop.stop()
        self.is_ending = True

    @property
    def running(self) -> str:
        """The function that holds the loop right now."""
        task = asyncio.current_task(self.loop)
        return task.get_name() if task is not None else "a callback"

    def run(self) -> None:
        while not self.is_ending or self.jobs:  # a function may stop its loop, and SystemExit in a task does
            try:
                self.loop.run_forever()
            except BaseException:
                logger.warning("a task that an async function has left behind failed", exc_info=True)
        self.loop.run_until_complete(_cancel_rest(self.loop))
        self.loop.close()


async def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=END_SECONDS)


@dataclass(slots=True)
class FunctionLoop:
    """Runs async functions in an event loop of another thread, and watches that it is not blocked."""

    limit: int = 16
    """Loops that may be blocked; then no function is begun."""
    held_seconds: float = HELD_SECONDS
    _lock: Lock = field(default_factory=Lock)
    _thread: _LoopThread | None = None
    _blocked: list[_LoopThread] = field(default_factory=list)

    @property
    def held(self) -> tuple[str, ...]:
        """The functions that block a loop."""
        with self._lock:
            return self._holders()

    async def finish(self, label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a function and return what it returned, or raise what it raised; cancelled with whoever asks.

        Raises:
            Exhausted: every loop is held by a function that blocks.
        """
        here = asyncio.get_running_loop()
        job = _AsyncJob(label, work)
        self._send(job, here)
        watch = here.call_later(self.held_seconds, self._move_if_waiting, job, here)
        try:
            return await job.outcome.wait()
        except asyncio.CancelledError:
            with self._lock:
                job.is_cancelled = True
                thread = job.thread
            if thread is not None:
                thread.call(job.cancel)
            raise
        finally:
            watch.cancel()

    def close(self) -> None:
        """Cancel what runs, and end the loop; a blocked one ends with its function, or with the process."""
        with self._lock:
            threads, self._thread = [*self._blocked, *([self._thread] if self._thread else ())], None
        for thread in threads:
            for job in list(thread.jobs):
                thread.call(job.cancel)
            thread.call(thread.retire)

    def _send(self, job: _AsyncJob, here: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._thread is None:
                holders = self._holders()
                if len(holders) >= self.limit:
                    names = ", ".join(dict.fromkeys(holders))
                    raise Exhausted(f"all {self.limit} event loops are held by async functions that block: {names}")
                # The same kind of loop as the gateway's own, which is the quicker one where there is a choice.
                self._thread = _LoopThread(type(here)())
                Thread(target=self._thread.run, name="portico async tools", daemon=True).start()
            job.thread = thread = self._thread
        thread.call(self._begin, job, thread)

    def _begin(self, job: _AsyncJob, thread: _LoopThread) -> None:
        with self._lock:
            if job.is_cancelled or job.thread is not thread:
                return
            job.is_begun = True
        thread.begin(job)

    def _move_if_waiting(self, job: _AsyncJob, here: asyncio.AbstractEventLoop) -> None:
        """Move a function that was not begun in time to a loop that is free."""
        with self._lock:
            thread = job.thread
            if job.is_begun or job.is_cancelled or thread is None:
                return
            is_current = thread is self._thread
            if is_current:
                self._thread = None
                self._blocked.append(thread)
            job.thread = None
        if is_current:
            said = "the async tool %r blocks its event loop; others go on in a fresh one. Leave out `async`, or await"
            logger.warning(said, thread.running)
            thread.call(thread.retire)
        try:
            self._send(job, here)
        except Exhausted as error:
            job.outcome.set(None, error)
        else:
            here.call_later(self.held_seconds, self._move_if_waiting, job, here)

    def _holders(self) -> tuple[str, ...]:
        self._blocked = [thread for thread in self._blocked if not thread.is_ending]
        return tuple(thread.running for thread in self._blocked)
