"""The gateway's half of one run: hears what the worker asks for, does it, and keeps the limits.

Nothing that a worker says is believed: it may have been taken over by its script.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from secrets import randbits
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from portico.domain.script import Limits, Script
from portico.errors import CallError, Sent
from portico.ports import Reach

from .frames import BadFrame, dumped, loaded
from .line import Worker
from .pipe import ALLOWANCE
from .printing import Printed

MEGABYTE = 1 << 20
ENVELOPE = 65_536
"""Bytes that a frame may have beside the value in it."""
WAITING_BYTES, CONTAINER_COSTS = 4 * MEGABYTE, 20
"""Arguments of calls that have not ended, together, before the worker is not heard any more for a while; every object
and array in them counts as more bytes than it has, because all of them are visited whenever memory is tidied up."""
BYTES_AT_ONCE, FRAME_COSTS = 64_000, 1_000
"""Bytes of one worker's frames after which others of the gateway have their turn, and what each frame counts beside."""
REASON_CHARACTERS = 20_000
"""Characters of an error that a script is told."""
LOST: Mapping[str, Any] = {"kind": "lost"}
LATE: Mapping[str, Any] = {"kind": "late"}


class Run:
    """One script in one worker."""

    def __init__(self, worker: Worker, script: Script, reach: Reach) -> None:
        self.printed = Printed(script.limits.printed_bytes)
        self._worker, self._script, self._reach = worker, script, reach
        self._turns = anyio.Semaphore(max(1, script.limits.in_flight))
        self._eased = anyio.Event()
        self._made = self._answered = self._waiting = 0

    @property
    def sent(self) -> Sent:
        """What had left the gateway by now."""
        if self._made > self._answered:
            return Sent.UNKNOWN
        return Sent.ANSWERED if self._made else Sent.NOTHING

    async def converse(self, start: bytes, end: Callable[[], object]) -> Mapping[str, Any]:
        """Run to the end, and return the last thing that the worker said; `end` ends the worker, however this ends."""
        last = LATE
        try:
            async with anyio.create_task_group() as calls:
                try:
                    with anyio.move_on_after(self._script.limits.seconds):
                        self._begin(start)
                        last = await self._hear(calls)
                finally:
                    end()
                    calls.cancel_scope.cancel()
        except ExceptionGroup as faults:  # a call that failed as no call should: told as it is, not in a group
            raise faults.exceptions[0] from None
        return last

    def _begin(self, start: bytes) -> None:
        limits = self._script.limits
        self._worker.on_lost = lambda _: self._eased.set()
        self._worker.allow(max(argument_bytes(limits), limits.output_bytes, limits.printed_bytes * 6) + ENVELOPE)
        self._worker.send_raw(ALLOWANCE.pack(limits.cpu_seconds, limits.memory_mb * MEGABYTE))
        self._worker.send(start)

    async def _hear(self, calls: TaskGroup) -> Mapping[str, Any]:
        heard = 0
        while (body := await self._worker.frame()) is not None:
            try:
                if last := self._take(calls, loaded(body), body):
                    return last
            except (BadFrame, KeyError, TypeError, AttributeError):
                self._worker.has_misbehaved = True
                return LOST
            while self._waiting > WAITING_BYTES and not self._worker.is_lost:
                self._eased = anyio.Event()
                await self._eased.wait()
            heard += len(body) + FRAME_COSTS
            if heard > BYTES_AT_ONCE:
                heard = 0
                await checkpoint()
        return LOST

    def _take(self, calls: TaskGroup, said: dict[str, Any], body: bytes) -> dict[str, Any] | None:
        """Do what a frame asks for; it is returned when it is the last one."""
        kind = said["kind"]
        if kind == "done" and len(body) > self._script.limits.output_bytes + ENVELOPE:
            raise BadFrame("a result is too large")
        if kind in ("done", "error"):
            return said
        if kind == "print":
            self.printed.add(said["text"])
        else:
            self._accept(calls, said, _weight(body))
        return None

    def _accept(self, calls: TaskGroup, said: dict[str, Any], weight: int) -> None:
        id, kind = said["id"], said["kind"]
        if type(id) is not int or kind not in ("call", "ask"):
            raise BadFrame("a call has a number and a kind")
        if self._made >= self._script.limits.calls:
            raise BadFrame("a script counts its calls itself, and stops")
        self._made += 1
        self._waiting += weight
        if kind == "call":
            question = partial(self._reach.call, str(said["server"]), str(said["tool"]), said["arguments"])
        else:
            question = partial(self._reach.ask, str(said["question"]), said["arguments"])
        calls.start_soon(self._answer, id, question, weight)

    async def _answer(self, id: int, question: Callable[[], Awaitable[Any]], weight: int) -> None:
        try:
            async with self._turns:
                value = await question()
            self._tell(id, value)
        except CallError as error:
            self._refuse(id, _told(error))
        finally:
            self._waiting -= weight
            self._eased.set()
        self._answered += 1

    def _tell(self, id: int, value: Any) -> None:
        limits = self._script.limits
        try:
            body = dumped(value)
        except ValueError as error:
            self._refuse(id, f"its answer cannot be handed to a script: {error}")
            return
        if len(body) > answer_bytes(limits):
            self._refuse(id, _too_large(len(body), limits))
        elif self._worker.unread > limits.memory_mb * MEGABYTE:
            self._refuse(id, "too many large answers wait: await calls before making more")
        else:
            self._worker.send(b'{"id":%d,"value":%b}' % (id, body))

    def _refuse(self, id: int, reason: str) -> None:
        self._worker.send(b'{"id":%d,"error":%b}' % (id, dumped(reason[:REASON_CHARACTERS])))


def argument_bytes(limits: Limits) -> int:
    """The size of the arguments that one call may have."""
    return limits.memory_mb * MEGABYTE // 32


def answer_bytes(limits: Limits) -> int:
    """The size of the answer that a script can take."""
    return limits.memory_mb * MEGABYTE // 4


def start_frame(script: Script, servers: Any) -> bytes:
    """The frame that makes a worker run a script.

    Raises:
        ValueError: the arguments are no JSON values.
    """
    limits = script.limits
    bounds = {
        "calls": limits.calls,
        "output_bytes": limits.output_bytes,
        "printed_bytes": limits.printed_bytes,
        "argument_bytes": argument_bytes(limits),
    }
    start = {
        "source": script.source,
        "arguments": dict(script.arguments),
        "servers": list(servers),
        "limits": bounds,
        "seed": [randbits(62), randbits(62)],  # forked states would all draw the same numbers
    }
    return dumped(start)


def _weight(body: bytes) -> int:
    return len(body) + CONTAINER_COSTS * (body.count(b"[") + body.count(b"{"))


def _told(error: CallError) -> str:
    """An error without its subject, which the script puts in front."""
    return "\n".join([f"{error.code}; {error.sent}", *error.lines[1:]])


def _too_large(size: int, limits: Limits) -> str:
    most = answer_bytes(limits)
    return (
        f"its answer takes {size:,} bytes, and a script with {limits.memory_mb} MB takes {most:,} at once: "
        "ask for less, with a filter, a page or fewer fields"
    )
