"""The one executor: every call becomes one invocation here, and each client gets a fair share."""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError, Future, get_running_loop
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import anyio

from portico.domain.call import START_WAIT, Call, Caller, Invocation, Outcome, Result
from portico.domain.journal import Entry, Look
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Effect, Tool, ToolId
from portico.domain.usage import counts
from portico.errors import (
    AmbiguousTool,
    Busy,
    CallError,
    InternalError,
    InvalidArguments,
    NextCall,
    Refused,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamTimeout,
)
from portico.protocols import Journal, Policy, Provider
from portico.results.preview import is_small
from portico.results.truncate import Truncator

from .arguments import NEXT_SIZE, ArgumentCheck, Checked
from .hooks import Hooks
from .learning import Shapes, TokenSampler, text_of_arguments, text_of_result

QUEUE = 1_000
WAIT_SECONDS = 60.0


@dataclass(slots=True)
class FairLimiter:
    """Lets so many run at once; while several clients wait, each gets every n-th place that becomes free.

    One client alone gets three quarters of the places and of the queue, so that the next one finds room. Whoever has no
    name shares everything with all others that have none, and may use it whole: a program that embeds the gateway.
    """

    at_once: int
    queue: int = QUEUE
    """How many may wait, over all clients."""
    _running: dict[str, int] = field(default_factory=dict)
    _lines: OrderedDict[str, deque[Future[None]]] = field(default_factory=OrderedDict)
    """Those who wait, by client; the first client is the next to get a place."""
    _busy: int = 0
    _waiting: int = 0

    @property
    def running(self) -> int:
        """How many have a place."""
        return self._busy

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._waiting

    @asynccontextmanager
    async def turn(self, client: str, subject: str, *, seconds: float = WAIT_SECONDS) -> AsyncIterator[None]:
        """Hold a place while the block runs; waits for one.

        Raises:
            Busy: too many wait already, or none became free in time.
        """
        if self._busy < self.at_once and self._may_run(client):
            self._take(client)
        else:
            await self._wait(client, subject, seconds)
        try:
            yield
        finally:
            self._give_back(client)

    async def _wait(self, client: str, subject: str, seconds: float) -> None:
        line = self._lines.setdefault(client, deque())
        if self._waiting >= self.queue or len(line) >= self._share(client, self.queue):
            self._drop_empty(client)
            raise Busy(subject, details=(f"{self._busy} are at work and {self._waiting} wait; try again in a while",))
        place = get_running_loop().create_future()
        line.append(place)
        self._waiting += 1
        try:
            with anyio.fail_after(seconds):
                await place
        except TimeoutError as error:
            self._leave(client, place)
            raise Busy(subject, details=(f"no place became free for {seconds:g} s; try again in a while",)) from error
        except BaseException:
            self._leave(client, place)
            raise

    def _leave(self, client: str, place: Future[None]) -> None:
        """Wait no longer; a place that was given in the same moment goes to the next."""
        if place.done() and not place.cancelled():
            self._give_back(client)
            return
        line = self._lines.get(client)
        if line is not None and place in line:
            line.remove(place)
            self._waiting -= 1
            self._drop_empty(client)

    def _give_back(self, client: str) -> None:
        self._busy -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._admit()

    def _admit(self) -> None:
        """Give free places to those who wait, one client after the other."""
        for client in list(self._lines):
            if self._busy >= self.at_once:
                return
            line = self._lines[client]
            if not self._may_run(client):
                continue
            place = line.popleft()
            self._waiting -= 1
            self._lines.move_to_end(client)
            self._drop_empty(client)
            if not place.done():
                self._take(client)
                place.set_result(None)
        if self._busy < self.at_once and any(self._may_run(client) for client in self._lines):
            self._admit()

    def _take(self, client: str) -> None:
        self._busy += 1
        self._running[client] = self._running.get(client, 0) + 1

    def _may_run(self, client: str) -> bool:
        return self._running.get(client, 0) < self._share(client, self.at_once)

    def _share(self, client: str, whole: int) -> int:
        return max(1, whole * 3 // 4) if client else whole

    def _drop_empty(self, client: str) -> None:
        if not self._lines.get(client):
            self._lines.pop(client, None)


@dataclass(slots=True)
class Turns:
    """The limiters of servers whose calls hold something that there is little of: a thread, a connection."""

    _limiters: dict[tuple[str, int], FairLimiter] = field(default_factory=dict)

    def of(self, server: str, at_once: int) -> FairLimiter:
        """The limiter of a server for so many at once."""
        found = self._limiters.get((server, at_once))
        if found is None:
            found = self._limiters[server, at_once] = FairLimiter(at_once)
        return found


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which a call falls into each bucket of a histogram; slower ones fall into one more."""
NO_SERVER = ""
"""Stands for the server of a call whose tool is not known: what callers spell must not make new names here."""


def _no_calls() -> list[int]:
    return [0] * (len(BOUNDS) + 1)


@dataclass(slots=True)
class Counts:
    """Counts calls and lookups; told of each once, by whoever writes it to the journal.

    Nothing here is ever taken back, not even when a server goes: a reader of counters takes a fall for a restart.
    """

    calls: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """By server and outcome."""
    latencies: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(_no_calls))
    """By server: how many calls fell into each bucket, of those that say something about the server."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By server: how long those calls took together."""
    lookups: Counter[Look] = field(default_factory=Counter)
    lookup_tokens: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def observe(self, entry: Entry) -> None:
        """Count one entry."""
        if not isinstance(entry, Invocation):
            self.lookups[entry.look] += 1
            self.lookup_tokens += entry.tokens
            return
        server = entry.tool.server if entry.tool else NO_SERVER
        self.calls[server, entry.outcome] += 1
        self.tokens_in += entry.tokens_in
        self.tokens_out += entry.tokens_out
        if counts(entry.outcome):
            self.latencies[server][bisect_left(BOUNDS, entry.seconds)] += 1
            self.seconds[server] += entry.seconds


CALLERS_KEPT = 1_000
TOOLS_KEPT = 500
"""Tools that are remembered of one caller."""
SECONDS_KEPT = 1_800.0


@dataclass(slots=True)
class SearchRank:
    """Remembers the places at which searches have shown tools, until the tool is called."""

    clock: Callable[[], float] = monotonic
    _shown: dict[str, dict[ToolId, tuple[int, float]]] = field(default_factory=dict)
    """By caller; whoever searched last comes last."""

    def showed(self, caller: Caller, tools: Sequence[ToolId], start: int = 1) -> None:
        """A search has shown these tools to a caller, the first of them at place `start`."""
        own = self._shown.pop(caller.name, {})
        self._shown[caller.name] = own
        now = self.clock()
        for place, tool in enumerate(tools, start):
            own.pop(tool, None)
            own[tool] = (place, now)
        while len(own) > TOOLS_KEPT:
            del own[next(iter(own))]
        if len(self._shown) > CALLERS_KEPT:
            del self._shown[next(iter(self._shown))]

    def rank(self, caller: Caller, tool: ToolId) -> int:
        """The place at which the caller's last search has shown a tool, once; 0 when none has."""
        own = self._shown.get(caller.name)
        place, at = own.pop(tool, (0, 0.0)) if own else (0, 0.0)
        return place if place and self.clock() - at <= SECONDS_KEPT else 0


logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Executor:
    """Resolves, admits, checks, runs, shapes the result and records."""

    provider_of: Callable[[str], Provider]
    policy: Policy
    journal: Journal
    gauge: TokenSampler | None = None
    """What counts the tokens of calls; without one they are not counted."""
    arguments: ArgumentCheck = field(default_factory=ArgumentCheck)
    hooks: Hooks | None = None
    """Operators' own code around calls; None costs nothing."""
    truncator: Truncator | None = None
    """What makes results fit; without it they are passed on whole."""
    shapes: Shapes = field(default_factory=Shapes)
    search_rank: SearchRank = field(default_factory=SearchRank)
    counts: Counts = field(default_factory=Counts)
    turns: Turns = field(default_factory=Turns)
    """Who may call next where calls hold threads or connections."""
    running: Counter[str] = field(default_factory=Counter)
    """How many calls each server is at work on."""

    async def run(self, caller: Caller, call: Call, snapshot: CatalogSnapshot) -> Result:
        """Run one call and return what the tool returned: unchanged when it fits, else shortened.

        Raises:
            CallError: the call did not reach a result; `sent` says what had happened by then.
        """
        at, started = time.time(), time.perf_counter()
        tool: Tool | None = None
        result: Result | None = None
        outcome, code, ended = Outcome.FAILED, "", 0.0
        START_WAIT.set(0.0)
        try:
            tool = snapshot.resolver.resolve(call.tool, self.policy.visible(caller, snapshot))
            result = await self._run(caller, call, tool)
            outcome, ended = Outcome.FAILED if result.is_error else Outcome.DONE, time.perf_counter()
            result = await self._shaped(caller, call, tool, result)
        except CallError as error:
            outcome, code = _outcome(error), error.code
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        except Exception as error:
            outcome, code = Outcome.FAILED, InternalError.code
            raise _internal(error, tool, call, result) from error
        finally:
            # What was carried out is recorded, so that nothing here may raise.
            invocation = Invocation(
                tool=tool.id if tool else None,
                spelled=call.tool[:200],
                caller=caller.name,
                surface=caller.surface,
                outcome=outcome,
                # Neither the start of the server nor making the result fit is work of the tool.
                seconds=max(0.0, (ended or time.perf_counter()) - started - START_WAIT.get()),
                code=code,
                at=at,
                tokens_in=self._tokens_in(tool, call),
                tokens_out=self._tokens_out(tool, result),
                parent=call.parent,
                rank=self._rank(caller, tool, outcome),
            )
            self.record(invocation)
            note = await self._written() if outcome is not Outcome.CANCELLED else ""
        return replace(result, notes=(*result.notes, note)) if note else result

    async def _shaped(self, caller: Caller, call: Call, tool: Tool, result: Result) -> Result:
        """The result as its caller gets it; what it looks like is learned from the whole of it."""
        if not result.is_error:
            try:
                self.shapes.learn(tool, result)
            except Exception as error:  # noqa: BLE001  a result that cannot be learned from is a result all the same
                _say("learning the shape of a result", error)
        return await self.truncator.shaped(caller, call, tool, result) if self.truncator is not None else result

    def record(self, entry: Entry) -> None:
        """Write an entry to the journal, and count it; never raises."""
        try:
            self.counts.observe(entry)
        except Exception as error:  # noqa: BLE001  counting must not keep an entry out of the journal
            _say("counting a call", error)
        try:
            self.journal.record(entry)
        except Exception as error:  # noqa: BLE001  a call that was carried out has its result
            _say("writing a call to the journal", error)

    async def _written(self) -> str:
        """What the journal has to say of an entry: nothing, or why it is not in the store yet."""
        try:
            return await self.journal.written()
        except Exception as error:  # noqa: BLE001  as above
            _say("waiting for the journal", error)
            return f"not in the journal: {type(error).__name__}"

    def _rank(self, caller: Caller, tool: Tool | None, outcome: Outcome) -> int:
        try:
            return self.search_rank.rank(caller, tool.id) if tool and counts(outcome) else 0
        except Exception as error:  # noqa: BLE001  as above
            _say("looking up where a search had shown a tool", error)
            return 0

    def _tokens_in(self, tool: Tool | None, call: Call) -> int:
        if tool is None or self.gauge is None:
            return 0
        try:
            return self.gauge.tokens((tool.id, "in"), text_of_arguments(call.arguments))
        except Exception as error:  # noqa: BLE001  as above
            _say("counting the tokens of arguments", error)
            return 0

    def _tokens_out(self, tool: Tool | None, result: Result | None) -> int:
        if tool is None or result is None or self.gauge is None:
            return 0
        try:
            return self.gauge.tokens((tool.id, "out"), text_of_result(result))
        except Exception as error:  # noqa: BLE001  as above
            _say("counting the tokens of a result", error)
            return 0

    async def _run(self, caller: Caller, call: Call, tool: Tool) -> Result:
        if self.hooks is None:
            return await self._send(caller, call, tool, self._check(caller, call, tool))
        arguments = call.arguments
        try:
            before = self._check(caller, call, tool)
            checked = await self.hooks.called(caller, tool, before, self.arguments.check)
            if checked is not before:
                self.policy.admit(caller, tool, checked.arguments)
            arguments = checked.arguments
            result = await self._send(caller, call, tool, checked)
        except Exception as error:
            await self._tell_of(error, caller, tool, arguments)
            raise
        try:
            return await self.hooks.answered(caller, tool, arguments, result)
        except Exception as error:  # noqa: BLE001  whatever happens to a hook, nothing happens to the call
            _say("telling the hooks of a result", error)
            return result

    async def _tell_of(self, failure: Exception, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        try:
            if self.hooks is not None:
                await self.hooks.failed(caller, tool, arguments, failure)
        except Exception as error:  # noqa: BLE001  as above
            _say("telling the hooks of a failure", error)

    def _check(self, caller: Caller, call: Call, tool: Tool) -> Checked:
        self.policy.admit(caller, tool, call.arguments)
        return self.arguments.check(tool, call.arguments)

    async def _send(self, caller: Caller, call: Call, tool: Tool, checked: Checked) -> Result:
        provider = self.provider_of(tool.id.server)
        bound = getattr(provider, "calls_at_once", None)
        if bound is None or not (at_once := bound(tool.id.name)):
            return await self._called(provider, caller, call, tool, checked)
        async with self.turns.of(tool.id.server, at_once).turn(caller.client, tool.handle):
            return await self._called(provider, caller, call, tool, checked)

    async def _called(self, provider: Provider, caller: Caller, call: Call, tool: Tool, checked: Checked) -> Result:
        self.running[tool.id.server] += 1
        try:
            raw = await provider.call(
                tool.id.name,
                checked.arguments,
                meta=call.meta,
                on_progress=call.on_progress,
                answers=call.answers,
                caller=caller,
            )
        except CallError as error:
            _advise(error, tool, checked.arguments)
            raise
        finally:
            self.running[tool.id.server] -= 1
        return Result(raw, checked.notes)


def _advise(error: CallError, tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Name the tool as the caller does; where nothing can have happened twice, the next call is the same once more."""
    error.about(tool.handle)
    is_safe = error.sent is Sent.NOTHING or tool.effect is Effect.READ
    is_own = isinstance(error, UpstreamError | InvalidArguments | Refused)
    if error.next_call is None and is_safe and not is_own and is_small(arguments, NEXT_SIZE):
        error.next_call = NextCall("call", {"name": tool.handle, "arguments": dict(arguments)})


def _internal(error: Exception, tool: Tool | None, call: Call, result: Result | None) -> InternalError:
    """An exception that nobody expected, as an error that a caller can read."""
    logger.error("a call of %r failed inside the gateway", call.tool[:200], exc_info=error)
    what = "the tool answered, and its answer could not be passed on" if result else "the call could not be carried out"
    return InternalError(
        tool.handle if tool else call.tool[:200],
        details=(f"{what}: {type(error).__name__}; this is a fault of the gateway or of the tool's code, see its log",),
        sent=Sent.ANSWERED if result else Sent.UNKNOWN if tool else Sent.NOTHING,
    )


def _say(step: str, error: Exception) -> None:
    """Log what went wrong around a call that is not to suffer from it."""
    logger.warning("%s failed: %s", step, type(error).__name__, exc_info=error)


def _outcome(error: CallError) -> Outcome:
    if isinstance(error, InvalidArguments | UnknownTool | AmbiguousTool):
        return Outcome.INVALID
    if isinstance(error, Refused | Busy):
        return Outcome.REFUSED
    return Outcome.TIMED_OUT if isinstance(error, UpstreamTimeout) else Outcome.FAILED
