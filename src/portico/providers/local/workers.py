"""Threads for functions that are not async: at most so many, and one that hangs holds up nobody but itself.

The threads are daemons: a function that never returns must not keep the process alive, as it would in a common pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

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
