"""The gateway's side of one run: answers what the worker asks for, keeps the limits, says how it ended."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from secrets import randbits
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from portico.domain.call import Ran, Script, ScriptLimits
from portico.errors import CallError, ScriptError, Sent
from portico.protocols import ScriptApi

from .fork_client import GONE, Worker
from .framing import ALLOWANCE, BadFrame, dumped, loaded

OUT_OF_TIME = {-getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name)}
KILLED = 9
REASON_CHARACTERS = 4_000
MOST_UNAWAITED = 100


def ran(last: Mapping[str, Any], printed: Printed, seconds: float) -> Ran:
    """A script that came to its end, from what its worker said last; what is odd in that is left out."""
    lost = last.get("unawaited")
    return Ran(
        value=last.get("value"),
        has_value="value" in last,
        printed=printed.text,
        printed_cut=_number(last.get("printed_cut")),
        unawaited=tuple(str(line) for line in lost[:MOST_UNAWAITED]) if isinstance(lost, list) else (),
        seconds=seconds,
    )


def failed(last: Mapping[str, Any], printed: Printed, limits: ScriptLimits, sent: Sent) -> ScriptError:
    """A script that failed by itself, from what its worker said last."""
    limit = str(last.get("limit") or "")
    reason = str(last.get("reason") or "an error without a text")[:REASON_CHARACTERS]
    if limit == "memory_mb" and reason == "not enough memory":
        reason = (
            f"its values need more than {limits.memory_mb} MB: keep less of what it reads, or work in smaller parts"
        )
    return ScriptError(reason, line=_number(last.get("line")), limit=limit, details=_details(printed), sent=sent)


def late(printed: Printed, limits: ScriptLimits, sent: Sent) -> ScriptError:
    """A script that took too long."""
    reason = f"it was stopped after {limits.seconds:g} s: let it do less, or give it more time"
    return ScriptError(reason, limit="seconds", details=_details(printed), sent=sent)


def lost(code: int, printed: Printed, limits: ScriptLimits, sent: Sent, *, misbehaved: bool) -> ScriptError:
    """A script whose process ended before it did."""
    if misbehaved:
        reason = "its process was ended because it broke the protocol: nothing that it said is used"
    elif code in OUT_OF_TIME:
        reason = (
            f"it used {limits.cpu_seconds:g} s of CPU time, which is its limit: look for an endless loop, or do less"
        )
        return ScriptError(reason, limit="cpu_seconds", details=_details(printed), sent=sent)
    elif code == GONE:
        reason = "the process that scripts are born from was lost: run the script again"
    elif code == -KILLED:
        reason = "its process was killed from outside: run it again, and let it use less memory if this repeats"
    else:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = f"its process was lost ({how}): run it again"
    return ScriptError(reason, details=_details(printed), sent=sent)


def _details(printed: Printed) -> tuple[str, ...]:
    return (f"it had printed: {printed.tail}",) if printed.tail else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


TAIL = 2_000
"""Characters at the end that an error repeats."""


class Printed:
    """Text as it comes, cut at a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        """Take more text; what does not fit is left out."""
        data = text.encode("utf-8", "replace")[: self._room]
        self._room -= len(data)
        if data:
            self._parts.append(data.decode("utf-8", "ignore"))

    @property
    def text(self) -> str:
        """All that fitted."""
        return "".join(self._parts)

    @property
    def tail(self) -> str:
        """The end of it, which tells best how far a script came."""
        text = self.text.rstrip("\n")
        return text if len(text) <= TAIL else "..." + text[-TAIL:]


MEGABYTE = 1 << 20
ENVELOPE = 65_536
"""Bytes that a frame may have beside the value in it."""
WAITING_BYTES, CONTAINER_COSTS = 4 * MEGABYTE, 20
"""Arguments of calls that have not ended, together, before the worker is not heard any more for a while; every object
and array in them counts as more bytes than it has, because all of them are visited whenever memory is tidied up."""
BYTES_AT_ONCE, FRAME_COSTS = 64_000, 1_000
"""Bytes of one worker's frames after which others of the gateway have their turn, and what each frame counts beside."""
REASON_SHOWN = 20_000
"""Characters of an error that a script is told."""
LOST: Mapping[str, Any] = {"kind": "lost"}
LATE: Mapping[str, Any] = {"kind": "late"}


class ScriptRun:
    """One script in one worker."""

    def __init__(self, worker: Worker, script: Script, reach: ScriptApi) -> None:
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
        self._worker.send(b'{"id":%d,"error":%b}' % (id, dumped(reason[:REASON_SHOWN])))


def argument_bytes(limits: ScriptLimits) -> int:
    """The size of the arguments that one call may have."""
    return limits.memory_mb * MEGABYTE // 32


def answer_bytes(limits: ScriptLimits) -> int:
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


def _too_large(size: int, limits: ScriptLimits) -> str:
    most = answer_bytes(limits)
    return (
        f"its answer takes {size:,} bytes, and a script with {limits.memory_mb} MB takes {most:,} at once: "
        "ask for less, with a filter, a page or fewer fields"
    )
