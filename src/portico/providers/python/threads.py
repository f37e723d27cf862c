"""Worker threads and an event loop for functions, and where their prints go."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TextIO

_is_aside: ContextVar[bool] = ContextVar("portico_prints_aside", default=False)
_lock = Lock()
_users = 0
_diversions = 0
_kept: int | None = None
"""Where file descriptor 1 led before."""


class _Fork:
    """Stands where stdout was; leads to stderr for whoever runs a tool's function, and to stdout for everybody else."""

    def __init__(self, before: TextIO) -> None:
        self.before = before

    def write(self, text: str) -> int:
        """Write to the one or the other."""
        return (sys.stderr if _is_aside.get() else self.before).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _is_aside.get() else self.before, name)


@contextmanager
def prints_aside() -> Iterator[None]:
    """Within the block, and in tasks and threads that inherit its context, prints go to stderr."""
    _enter()
    token = _is_aside.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away ends in another context than it began in
            _is_aside.reset(token)
        _leave()


@contextmanager
def stdout_kept() -> Iterator[None]:
    """Within the block, what anybody writes to file descriptor 1 goes to stderr; at its end stdout is what it was.

    For imports, which happen before anything is served: child processes and C libraries know no other stdout.
    """
    stream = sys.stdout
    with suppress(OSError, ValueError, AttributeError):
        stream.flush()
    _divert()
    try:
        yield
    finally:
        if not isinstance(sys.stdout, _Fork):  # a module may have wrapped or replaced it
            sys.stdout = stream
        _restore()


def _divert() -> None:
    global _diversions, _kept
    with _lock:
        _diversions += 1
        if _diversions == 1:
            with suppress(OSError):  # there may be no stdout, or no stderr
                _kept = os.dup(1)
                os.dup2(2, 1)


def _restore() -> None:
    global _diversions, _kept
    with _lock:
        _diversions -= 1
        if not _diversions and _kept is not None:
            os.dup2(_kept, 1)
            os.close(_kept)
            _kept = None


def _enter() -> None:
    global _users
    with _lock:
        _users += 1
        if not isinstance(sys.stdout, _Fork):  # somebody may have put another stream there meanwhile
            sys.stdout = _Fork(sys.stdout)


def _leave() -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users and isinstance(sys.stdout, _Fork):
            sys.stdout = sys.stdout.before


IDLE_SECONDS = 30.0
"""A thread without work ends after so long."""


class Exhausted(Exception):
    """Nothing is free to run a function, because functions that do not return hold everything; says which."""


@dataclass(slots=True, eq=False)
class Job:
    """One piece of work on its way through a thread."""

    label: str
    work: Callable[[], Any]
    outcome: asyncio.Future[tuple[Any, BaseException | None]]
    context: Context
    is_started: bool = False
    is_done: bool = False
    is_left: bool = False
    """Whether the one who asked has gone."""


@dataclass(slots=True)
class Workers:
    """Runs plain functions in threads."""

    limit: int = 16
    _jobs: SimpleQueue[Job] = field(default_factory=SimpleQueue)
    _lock: Lock = field(default_factory=Lock)
    _threads: int = 0
    _unfinished: int = 0
    _stuck: list[Job] = field(default_factory=list)

    @property
    def stuck(self) -> tuple[str, ...]:
        """What the threads are at work on that were left behind."""
        with self._lock:
            return tuple(job.label for job in self._stuck)

    @property
    def unfinished(self) -> int:
        """How many pieces of work wait or are at work, also those that nobody waits for."""
        with self._lock:
            return self._unfinished

    def start(self, label: str, work: Callable[[], Any]) -> Job:
        """Begin a piece of work, as soon as a thread is free.

        Raises:
            Exhausted: no thread will be free, because all were left behind.
        """
        loop = asyncio.get_running_loop()
        job = Job(label, work, loop.create_future(), copy_context())
        with self._lock:
            if len(self._stuck) >= self.limit:
                names = ", ".join(dict.fromkeys(stuck.label for stuck in self._stuck))
                raise Exhausted(f"all {self.limit} worker threads are held by functions that do not return: {names}")
            self._unfinished += 1
            is_short = self._threads < min(self._unfinished, self.limit)
            self._threads += is_short
        # Handed over when the loop is about to wait: a thread that wakes earlier only waits for the interpreter again.
        loop.call_soon(self._jobs.put, job)
        if is_short:
            Thread(target=self._work, name="portico tool", daemon=True).start()
        return job

    async def finish(self, job: Job) -> Any:
        """Wait for a piece of work and return what it gave, or raise what it raised; a cancelled one is left behind."""
        try:
            value, error = await job.outcome
        except asyncio.CancelledError:
            self._leave(job)
            raise
        if error is not None:
            raise error
        return value

    def _leave(self, job: Job) -> None:
        with self._lock:
            job.is_left = True
            if job.is_started and not job.is_done:
                self._stuck.append(job)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._unfinished < self._threads:  # also counts what is still to be handed over
                        self._threads -= 1
                        return
                continue
            self._do(job)
            del job  # a waiting thread holds on to nothing

    def _do(self, job: Job) -> None:
        with self._lock:
            job.is_started = not job.is_left
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
        deliver(job.outcome, value, error)


def deliver(outcome: asyncio.Future[tuple[Any, BaseException | None]], value: Any, error: BaseException | None) -> None:
    """Give an outcome to whoever waits for it in another thread."""
    try:
        outcome.get_loop().call_soon_threadsafe(_settle, outcome, value, error)
    except RuntimeError:
        return  # the loop is closed, and nobody waits


def _settle(outcome: asyncio.Future[tuple[Any, BaseException | None]], value: Any, error: BaseException | None) -> None:
    if not outcome.done():
        outcome.set_result((value, error))


HELD_SECONDS = 1.0
"""A loop that begins nothing for so long is taken to be held."""
END_SECONDS = 2.0
"""How long functions may take to end when their loop is no longer needed."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Turn:
    """One async call on its way through a loop aside."""

    label: str
    work: Callable[[], Awaitable[Any]]
    outcome: asyncio.Future[tuple[Any, BaseException | None]]
    context: Context
    lane: _Lane | None = None
    task: asyncio.Task[None] | None = None
    is_begun: bool = False
    is_left: bool = False
    """Whether the one who asked has gone."""

    async def run(self, lane: _Lane) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await self.work()
        except asyncio.CancelledError:
            error = RuntimeError("it has cancelled itself")  # or whoever asked has gone, and hears nothing of it
        except BaseException as raised:  # noqa: BLE001  whoever asked shall have it, whatever it is
            error = raised
        lane.finished(self)
        deliver(self.outcome, value, error)  # last, since both threads want the interpreter from here on


@dataclass(slots=True, eq=False)
class _Lane:
    """One loop in a thread of its own."""

    loop: asyncio.AbstractEventLoop
    turns: set[_Turn] = field(default_factory=set)
    is_ending: bool = False

    def start(self) -> None:
        Thread(target=self._run, name="portico async tools", daemon=True).start()

    def tell(self, callback: Callable[..., object], *given: object) -> None:
        """Have something done in the loop's thread; a loop that has ended does nothing."""
        try:
            self.loop.call_soon_threadsafe(callback, *given)
        except RuntimeError:
            return

    def finished(self, turn: _Turn) -> None:
        self.turns.discard(turn)
        if self.is_ending and not self.turns:
            self.loop.stop()

    def retire(self) -> None:
        """End when everything that was begun here has ended."""
        if not self.is_ending and not self.turns:
            self.loop.stop()
        self.is_ending = True

    @property
    def holder(self) -> str:
        """The function that is at work in the loop right now."""
        task = asyncio.current_task(self.loop)
        return task.get_name() if task is not None else "a callback"

    def _run(self) -> None:
        while not self.is_ending or self.turns:  # a function may stop its loop, and SystemExit in a task does
            try:
                self.loop.run_forever()
            except BaseException:
                logger.warning("a task that an async function has left behind failed", exc_info=True)
        self.loop.run_until_complete(_ended(self.loop))
        self.loop.close()


async def _ended(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what functions have left behind, and give it a moment."""
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=END_SECONDS)


@dataclass(slots=True)
class FunctionLoop:
    """Runs async functions beside the event loop of whoever asks."""

    limit: int = 16
    """Loops that may be held; then no call is begun."""
    held_seconds: float = HELD_SECONDS
    _lock: Lock = field(default_factory=Lock)
    _lane: _Lane | None = None
    _held: list[_Lane] = field(default_factory=list)

    @property
    def held(self) -> tuple[str, ...]:
        """The functions that block a loop."""
        with self._lock:
            return tuple(lane.holder for lane in self._blocked())

    async def finish(self, label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run it in the loop aside and return what it gave, or raise what it raised; cancelled with whoever asks.

        Raises:
            Exhausted: every loop is held by a function that blocks.
        """
        here = asyncio.get_running_loop()
        turn = _Turn(label, work, here.create_future(), copy_context())
        self._send(turn, here)
        watch = here.call_later(self.held_seconds, self._look_after, turn, here)
        try:
            value, error = await turn.outcome
        except asyncio.CancelledError:
            self._leave(turn)
            raise
        finally:
            watch.cancel()
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Cancel what is at work, and end the loop; one that is held ends with its function, or with the process."""
        with self._lock:
            lanes, self._lane = [*self._held, *([self._lane] if self._lane else ())], None
        for lane in lanes:
            for turn in list(lane.turns):
                lane.tell(_cancel, turn)
            lane.tell(lane.retire)

    def _send(self, turn: _Turn, here: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._lane is None:
                blocked = self._blocked()
                if len(blocked) >= self.limit:
                    names = ", ".join(dict.fromkeys(lane.holder for lane in blocked))
                    raise Exhausted(f"all {self.limit} event loops are held by async functions that block: {names}")
                # The same kind of loop as the gateway's own, which is the quicker one where there is a choice.
                self._lane = _Lane(type(here)())
                self._lane.start()
            turn.lane = lane = self._lane
        lane.tell(self._begin, turn, lane)

    def _begin(self, turn: _Turn, lane: _Lane) -> None:
        with self._lock:
            if turn.is_left or turn.lane is not lane:
                return
            turn.is_begun = True
        lane.turns.add(turn)
        turn.task = lane.loop.create_task(turn.run(lane), name=turn.label, context=turn.context)

    def _look_after(self, turn: _Turn, here: asyncio.AbstractEventLoop) -> None:
        """Take a turn that was not begun in time to a loop that is free."""
        with self._lock:
            lane = turn.lane
            if turn.is_begun or turn.is_left or lane is None:
                return
            is_new = lane is self._lane
            if is_new:
                self._lane = None
                self._held.append(lane)
            turn.lane = None
        if is_new:
            said = "the async tool %r blocks its event loop; others go on in a fresh one. Leave out `async`, or await"
            logger.warning(said, lane.holder)
            lane.tell(lane.retire)
        try:
            self._send(turn, here)
        except Exhausted as error:
            deliver(turn.outcome, None, error)
        else:
            here.call_later(self.held_seconds, self._look_after, turn, here)

    def _leave(self, turn: _Turn) -> None:
        with self._lock:
            turn.is_left = True
            lane = turn.lane
        if lane is not None:
            lane.tell(_cancel, turn)

    def _blocked(self) -> list[_Lane]:
        self._held = [lane for lane in self._held if not lane.is_ending]
        return self._held


def _cancel(turn: _Turn) -> None:
    if turn.task is not None:
        turn.task.cancel()
