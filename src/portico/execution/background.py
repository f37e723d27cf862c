"""One thread for work that nobody waits for; too much of it is dropped."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Any

WAITING = 1_000
"""Pieces of work that wait at most."""
IDLE_SECONDS = 10.0
"""The thread ends when it has had nothing to do for so long."""

OnFailure = Callable[[str, BaseException | None], None]
"""Told in words what went wrong, and by what."""


@dataclass(frozen=True, slots=True)
class _Work:
    run: Callable[..., Any]
    given: tuple[Any, ...]
    seconds: float
    on_failure: OnFailure

    def do(self) -> None:
        try:
            answer = self.run(*self.given)
            if inspect.isawaitable(answer):
                asyncio.run(self._awaited(answer))
        except TimeoutError:
            self.on_failure(f"did not return in {self.seconds:g} s", None)
        except BaseException as error:  # noqa: BLE001  it is an operator's code, and must not end the thread
            self.on_failure(f"raised {type(error).__name__}: {error}", error)

    async def _awaited(self, answer: Any) -> None:
        await asyncio.wait_for(answer, self.seconds)


@dataclass(slots=True)
class Aside:
    """Does work one piece after the other in a daemon thread, which is started when there is some."""

    _queue: Queue[_Work] = field(default_factory=lambda: Queue(WAITING))
    _lock: Lock = field(default_factory=Lock)
    _is_running: bool = False

    def put(self, run: Callable[..., Any], given: tuple[Any, ...], *, seconds: float, on_failure: OnFailure) -> None:
        """Hand a function and its arguments over; never waits. An async one gets an event loop of its own."""
        with self._lock:
            try:
                self._queue.put_nowait(_Work(run, given, seconds, on_failure))
            except Full:
                on_failure(f"is so slow that {WAITING} of its events wait, and is not told of more", None)
                return
            is_needed, self._is_running = not self._is_running, True
        if is_needed:
            Thread(target=self._work, name="portico hooks", daemon=True).start()

    def settle(self, seconds: float) -> None:
        """Wait until everything is done that was handed over, but no longer than that."""
        waiting = self._queue.all_tasks_done
        with waiting:
            waiting.wait_for(lambda: not self._queue.unfinished_tasks, seconds)

    def _work(self) -> None:
        while True:
            try:
                work = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._is_running = False
                        return
                continue
            work.do()
            self._queue.task_done()
            del work  # a waiting thread holds on to nothing
