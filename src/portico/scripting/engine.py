"""Runs Lua scripts, each in a worker process of its own: answers its calls, keeps its limits, says how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from secrets import randbits
from time import perf_counter
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from portico.domain.call import Ran, Sandbox, Script, ScriptLimits
from portico.errors import CallError, ScriptError, Sent

from .protocol import ALLOWANCE, BadFrame, dump_json, load_object
from .worker_pool import GONE, Worker, WorkerPool

MEGABYTE = 1 << 20
ENVELOPE = 65_536  # bytes that a frame may have beside the value in it
WAITING_BYTES, CONTAINER_COSTS = 4 * MEGABYTE, 20
"""Arguments of calls that have not ended, together, before the worker is not heard any more for a while; every object
and array in them counts as more bytes than it has, because all of them are visited whenever memory is tidied up."""
BYTES_AT_ONCE, FRAME_COSTS = 64_000, 1_000
"""Bytes of one worker's frames after which others of the gateway have their turn, and what each frame counts beside."""
EXIT_SECONDS = 2.0  # to hear how a worker ended
REASON_CHARACTERS = 4_000
ERROR_CHARACTERS = 20_000  # of a call's error, as a script sees it
PRINTED_TAIL = 2_000  # characters at the end of what was printed that an error repeats
MOST_UNAWAITED = 100
OUT_OF_TIME = {-getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name)}
LOST: Mapping[str, Any] = {"kind": "lost"}
LATE: Mapping[str, Any] = {"kind": "late"}


class ScriptApi(Protocol):
    """The calls and questions that a script may send, on behalf of one caller.

    Values are those of JSON. Both methods raise CallError, which the script can catch.
    """

    @property
    def servers(self) -> Sequence[str]:
        """The identifiers of the servers, which are the script's globals."""
        ...

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Call a tool by its identifiers and return what the script sees of its result."""
        ...

    async def ask(self, question: str, arguments: Any) -> Any:
        """Answer a question of the script's global `_gateway`: search, describe, read_result and so on."""
        ...


class LuaEngine:
    """Runs Lua 5.4 scripts in workers from a pool; how many run at once is up to the caller."""

    def __init__(self, pool_size: int = 4, require_hardening: bool = False) -> None:
        self.pool = WorkerPool(pool_size)
        self._require_hardening = require_hardening
        self._running = 0

    async def run(self, script: Script, api: ScriptApi) -> Ran:
        """Run a script to its end; when this is cancelled, the script and its calls are gone at once.

        Raises:
            ScriptError: it did not come to its end, with the line and the reason.
        """
        start = start_frame(script, api.servers)
        self._running += 1
        try:
            return await self._run(script, api, start)
        finally:
            self._running -= 1

    async def sandbox(self) -> Sandbox:
        """The protections that this machine gives; starts the fork server if there is none."""
        pool = self.pool
        try:
            await self.wake()
        except ScriptError as error:
            return Sandbox(size=pool.size, problem=pool.problem or error.reason)
        return Sandbox(ready=pool.ready, size=pool.size, running=self._running, missing=pool.missing)

    async def wake(self) -> None:
        """Have workers made before the first script comes.

        Raises:
            ScriptError: scripts cannot be run here.
        """
        await self.pool.start()
        self.pool.fill()

    async def aclose(self) -> None:
        """Stop all scripts and processes."""
        await self.pool.aclose()

    async def _run(self, script: Script, api: ScriptApi, start: bytes) -> Ran:
        await self.pool.start()
        if self._require_hardening and self.pool.missing:
            raise ScriptError(f"scripts are not run here: this machine lacks {'; '.join(self.pool.missing)}")
        worker, fork_server = await self.pool.take()
        run, started = ScriptRun(worker, script, api), perf_counter()
        ends: list[asyncio.Future[int]] = []
        last = await run.converse(start, lambda: ends.append(fork_server.end(worker)))
        if last is LOST:
            code = GONE
            with anyio.move_on_after(EXIT_SECONDS):
                code = await asyncio.shield(ends[0])
            raise run.lost(code)
        if last is LATE:
            reason = f"it was stopped after {script.limits.seconds:g} s: let it do less, or give it more time"
            raise run.error(reason, limit="seconds")
        if last["kind"] == "error":
            raise run.failure(last)
        unawaited = last.get("unawaited")
        return Ran(
            value=last.get("value"),
            has_value="value" in last,
            printed=run.printed,
            printed_cut=_number(last.get("printed_cut")),
            unawaited=tuple(map(str, unawaited[:MOST_UNAWAITED])) if isinstance(unawaited, list) else (),
            seconds=perf_counter() - started,
        )


class ScriptRun:
    """One script in one worker: what the worker says is taken with care, since a script may have broken it."""

    def __init__(self, worker: Worker, script: Script, api: ScriptApi) -> None:
        self._worker, self._limits, self._api = worker, script.limits, api
        self._concurrent_calls = anyio.Semaphore(max(1, script.limits.in_flight))
        self._eased = anyio.Event()
        self._made = self._answered = self._waiting_bytes = 0
        self._printed: list[str] = []
        self._print_room = script.limits.printed_bytes

    @property
    def printed(self) -> str:
        """The text that it has printed, up to its limit."""
        return "".join(self._printed)

    async def converse(self, start: bytes, end: Callable[[], object]) -> Mapping[str, Any]:
        """Run to the end, and return the last thing that the worker said; `end` ends the worker, however this ends."""
        last = LATE
        try:
            async with anyio.create_task_group() as calls:
                try:
                    with anyio.move_on_after(self._limits.seconds):
                        self._begin(start)
                        last = await self._hear(calls)
                finally:
                    end()
                    calls.cancel_scope.cancel()
        except ExceptionGroup as faults:  # a call that failed as no call should: told as it is, not in a group
            raise faults.exceptions[0] from None
        return last

    def error(self, reason: str, *, line: int = 0, limit: str = "") -> ScriptError:
        """The error of this script, with what it had printed and what had left the gateway by now."""
        text = self.printed.rstrip("\n")
        tail = text if len(text) <= PRINTED_TAIL else "..." + text[-PRINTED_TAIL:]
        sent = Sent.UNKNOWN if self._made > self._answered else Sent.ANSWERED if self._made else Sent.NOTHING
        details = (f"it had printed: {tail}",) if tail else ()
        return ScriptError(reason, line=line, limit=limit, details=details, sent=sent)

    def failure(self, last: Mapping[str, Any]) -> ScriptError:
        """The error of a script that failed by itself, from what its worker said last."""
        limit = str(last.get("limit") or "")
        reason = str(last.get("reason") or "an error without a text")[:REASON_CHARACTERS]
        if limit == "memory_mb" and reason == "not enough memory":
            most = self._limits.memory_mb
            reason = f"its values need more than {most} MB: keep less of what it reads, or work in smaller parts"
        return self.error(reason, line=_number(last.get("line")), limit=limit)

    def lost(self, code: int) -> ScriptError:
        """The error of a script whose process ended before it did."""
        if self._worker.has_misbehaved:
            return self.error("its process was ended because it broke the protocol: nothing that it said is used")
        if code in OUT_OF_TIME:
            used = f"it used {self._limits.cpu_seconds:g} s of CPU time, which is its limit"
            return self.error(f"{used}: look for an endless loop, or do less", limit="cpu_seconds")
        if code == GONE:
            return self.error("the process that scripts are born from was lost: run the script again")
        if code == -signal.SIGKILL:
            advice = "run it again, and let it use less memory if this repeats"
            return self.error(f"its process was killed from outside: {advice}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return self.error(f"its process was lost ({how}): run it again")

    def _begin(self, start: bytes) -> None:
        limits = self._limits
        self._worker.on_lost = lambda _: self._eased.set()
        self._worker.allow(max(argument_bytes(limits), limits.output_bytes, limits.printed_bytes * 6) + ENVELOPE)
        self._worker.send_raw(ALLOWANCE.pack(limits.cpu_seconds, limits.memory_mb * MEGABYTE))
        self._worker.send(start)

    async def _hear(self, calls: TaskGroup) -> Mapping[str, Any]:
        heard = 0
        while (body := await self._worker.frame()) is not None:
            try:
                if last := self._take(calls, load_object(body), body):
                    return last
            except (BadFrame, KeyError, TypeError, AttributeError):
                self._worker.has_misbehaved = True
                return LOST
            while self._waiting_bytes > WAITING_BYTES and not self._worker.is_lost:
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
        if kind == "done" and len(body) > self._limits.output_bytes + ENVELOPE:
            raise BadFrame("a result is too large")
        if kind in ("done", "error"):
            return said
        if kind == "print":
            data = said["text"].encode("utf-8", "replace")[: self._print_room]
            self._print_room -= len(data)
            if data:
                self._printed.append(data.decode("utf-8", "ignore"))
        else:
            weight = len(body) + CONTAINER_COSTS * (body.count(b"[") + body.count(b"{"))
            self._accept(calls, said, weight)
        return None

    def _accept(self, calls: TaskGroup, said: dict[str, Any], weight: int) -> None:
        id, kind = said["id"], said["kind"]
        if type(id) is not int or kind not in ("call", "ask"):
            raise BadFrame("a call has a number and a kind")
        if self._made >= self._limits.calls:
            raise BadFrame("a script counts its calls itself, and stops")
        if kind == "call":
            question = partial(self._api.call, str(said["server"]), str(said["tool"]), said["arguments"])
        else:
            question = partial(self._api.ask, str(said["question"]), said["arguments"])
        self._made += 1
        self._waiting_bytes += weight
        calls.start_soon(self._answer, id, question, weight)

    async def _answer(self, id: int, question: Callable[[], Awaitable[Any]], weight: int) -> None:
        try:
            async with self._concurrent_calls:
                value = await question()
            self._send_value(id, value)
        except CallError as error:
            # Without its subject, which the script puts in front.
            self._send_error(id, "\n".join([f"{error.code}; {error.sent}", *error.lines[1:]]))
        finally:
            self._waiting_bytes -= weight
            self._eased.set()
        self._answered += 1

    def _send_value(self, id: int, value: Any) -> None:
        memory = self._limits.memory_mb
        most = memory * MEGABYTE // 4
        try:
            body = dump_json(value)
        except ValueError as error:
            self._send_error(id, f"its answer cannot be handed to a script: {error}")
            return
        if len(body) > most:
            reason = f"its answer takes {len(body):,} bytes, and a script with {memory} MB takes {most:,} at once: "
            self._send_error(id, reason + "ask for less, with a filter, a page or fewer fields")
        elif self._worker.unread > memory * MEGABYTE:
            self._send_error(id, "too many large answers wait: await calls before making more")
        else:
            self._worker.send(b'{"id":%d,"value":%b}' % (id, body))

    def _send_error(self, id: int, reason: str) -> None:
        self._worker.send(b'{"id":%d,"error":%b}' % (id, dump_json(reason[:ERROR_CHARACTERS])))


def argument_bytes(limits: ScriptLimits) -> int:
    """The size of the arguments that one call may have."""
    return limits.memory_mb * MEGABYTE // 32


def start_frame(script: Script, servers: Sequence[str]) -> bytes:
    """The frame that makes a worker run a script.

    Raises:
        ScriptError: its source or its arguments are too large, or the arguments are no JSON values.
    """
    limits, size = script.limits, len(script.source.encode("utf-8", "replace"))
    if size > limits.source_bytes:
        reason = f"its source has {size:,} bytes, and {limits.source_bytes:,} are allowed: pass data as arguments"
        raise ScriptError(reason, limit="source_bytes")
    start = {
        "source": script.source,
        "arguments": dict(script.arguments),
        "servers": list(servers),
        "limits": {
            "calls": limits.calls,
            "output_bytes": limits.output_bytes,
            "printed_bytes": limits.printed_bytes,
            "argument_bytes": argument_bytes(limits),
        },
        "seed": [randbits(62), randbits(62)],  # forked states would all draw the same numbers
    }
    try:
        frame = dump_json(start)
    except ValueError as error:
        raise ScriptError(f"its arguments are not JSON: {error}") from error
    most = limits.memory_mb * MEGABYTE // 2  # arguments are there twice while they are read
    if len(frame) > most:
        has = f"its source and arguments take {len(frame):,} bytes, and a script with {limits.memory_mb} MB takes"
        raise ScriptError(f"{has} {most:,}: pass less, and let it read the rest with calls", limit="memory_mb")
    return frame


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
