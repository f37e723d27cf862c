"""An event loop aside for async functions: one that blocks it holds up neither the gateway nor, for long, the others.

All of them share one loop, because what they share among themselves (clients, locks) belongs to one. A loop that begins
nothing for a second is held by a function that blocks: it is left to that function, and a fresh one takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from .workers import Exhausted, deliver

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
class Loops:
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
