"""The vectors of questions: each is asked once, waited for a moment, and kept for when it is asked again."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic

import anyio

from .pause import Pause
from .vectors import Vector

KEPT = 1_000
AT_ONCE = 8
"""Questions under way; a further one goes without an answer, because it would only wait."""

Answer = Callable[[str], Vector | None]


class Questions:
    """Never waits longer than its timeout and never raises; an answer that comes late serves the next who asks."""

    def __init__(self, answer: Answer, *, timeout: float, slow: Pause, may_begin: Callable[[], bool]) -> None:
        self.slow = slow
        """Lasts while answers take longer than the timeout: no search waits in vain twice in a row."""
        self._answer, self._timeout, self._may_begin = answer, timeout, may_begin
        self._is_forgiven = False
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Vector] = OrderedDict()
        self._open: dict[str, Future[Vector | None]] = {}

    def ask(self, text: str) -> Vector | None:
        """The vector of a question, for those who may block."""
        future = self.begin(text)
        if future is None:
            return None
        try:
            return future.result(self._timeout)
        except TimeoutError:
            self._late()
            return None

    async def warm(self, text: str) -> Vector | None:
        """The same without blocking the event loop."""
        future = self.begin(text)
        if future is None:
            return None
        answered = asyncio.Event()
        future.add_done_callback(partial(_tell, asyncio.get_running_loop(), answered))
        with anyio.move_on_after(self._timeout):
            await answered.wait()
            return future.result()
        self._late()
        return None

    def recall(self, text: str) -> Vector | None:
        """The vector of a question that was answered before; neither asks nor waits."""
        with self._lock:
            return self._kept.get(text)

    def forget(self) -> None:
        """Drop every answer."""
        with self._lock:
            self._kept.clear()

    def begin(self, text: str) -> Future[Vector | None] | None:
        """Ask without waiting; None when there is no use in asking now."""
        with self._lock:
            if (known := self._kept.get(text)) is not None:
                self._kept.move_to_end(text)
                return _done(known)
            if self.slow.left > 0:
                return None
            if text in self._open:
                return self._open[text]
            if len(self._open) >= AT_ONCE or not self._may_begin():
                return None
            future = self._open[text] = Future()
        threading.Thread(target=self._work, args=(text, future), name="portico-question", daemon=True).start()
        return future

    def _work(self, text: str, future: Future[Vector | None]) -> None:
        found, asked_at = None, monotonic()
        try:
            found = self._answer(text)
        finally:
            with self._lock:
                del self._open[text]
                if found is not None:
                    self._kept[text] = found
                    if len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
            if found is not None:
                self._judge(in_time=monotonic() - asked_at < self._timeout)
            future.set_result(found)

    def _judge(self, *, in_time: bool) -> None:
        """An answer ends the pause; a late one once only, since a model that had to be loaded will be quicker now."""
        if in_time or not self._is_forgiven:
            self.slow.reset()
        self._is_forgiven = not in_time

    def _late(self) -> None:
        self.slow.fail(f"no answer within {self._timeout:g} s")


def _done(vector: Vector) -> Future[Vector | None]:
    future: Future[Vector | None] = Future()
    future.set_result(vector)
    return future


def _tell(loop: asyncio.AbstractEventLoop, answered: asyncio.Event, _: object) -> None:
    with suppress(RuntimeError):  # the loop of whoever gave up may be closed by now
        loop.call_soon_threadsafe(answered.set)
