"""The one executor: every call becomes one invocation here, with its outcome in the journal and in the counters."""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError, Future, get_running_loop
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import anyio
import orjson

from portico.catalog.view import CatalogView, Policy
from portico.domain.call import START_WAIT, Call, Caller, Invocation, Outcome, Result, SearchedWord
from portico.domain.journal_entries import Entry, Look
from portico.domain.tool import Effect, Tool, ToolId
from portico.domain.usage_and_tiers import counts
from portico.errors import (
    AmbiguousTool,
    Busy,
    CallError,
    InternalError,
    InvalidArguments,
    NextCall,
    Refused,
    ScriptError,
    Sent,
    UnknownServer,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.protocols import Journal, Provider, TokenCounter
from portico.rendering.budget import tokens_per_letter
from portico.results.preview import is_small
from portico.results.truncate import PLACES, SAMPLED_LETTERS, Truncator
from portico.search.learned_words import words_searched

from .arguments import NEXT_SIZE, ArgumentCheck, Checked
from .hooks import Hooks
from .learned_schemas import SchemaLearner

logger = logging.getLogger(__name__)

GONE = "the config was changed meanwhile: it has this server no more, or in another way"


@dataclass(slots=True, kw_only=True)
class Executor:
    """Resolves, admits, checks, sends, truncates the result and records; what was sent is recorded exactly once."""

    providers: Mapping[str, Provider]
    policy: Policy
    journal: Journal
    token_sampler: TokenSampler | None = None
    """Counts the tokens of calls; without one they are not counted."""
    arguments: ArgumentCheck = field(default_factory=ArgumentCheck)
    hooks: Hooks | None = None
    """Operators' own code around calls; None costs nothing."""
    truncator: Truncator | None = None
    """Makes results fit; without it they are passed on whole."""
    learned_schemas: SchemaLearner = field(default_factory=SchemaLearner)
    search_rank: SearchRank = field(default_factory=lambda: SearchRank())
    counts: Counts = field(default_factory=lambda: Counts())
    limiters: dict[tuple[str, int], FairLimiter] = field(default_factory=dict)
    """By server and limit: who may call next where calls hold a thread or a connection."""
    running: Counter[str] = field(default_factory=Counter)
    """Calls under way, by server."""

    def provider_of(self, server: str) -> Provider:
        """The provider of a server.

        Raises:
            UnknownServer: no server is called so.
        """
        try:
            return self.providers[server]
        except KeyError:
            raise UnknownServer(f"no server is called {server!r}") from None

    async def run(self, view: CatalogView, call: Call) -> Result:
        """Run one call and return what the tool returned: unchanged when it fits, else shortened.

        Raises:
            CallError: the call did not reach a result; `sent` says what had happened by then.
        """
        caller, at, started = view.caller, time.time(), time.perf_counter()
        tool: Tool | None = None
        result: Result | None = None
        outcome, code, ended = Outcome.FAILED, "", 0.0
        START_WAIT.set(0.0)
        try:
            tool = view.tool(call.tool)
            result = await self._carry_out(caller, call, tool)
            outcome, ended = Outcome.FAILED if result.is_error else Outcome.DONE, time.perf_counter()
            if not result.is_error:
                with _Tolerate("learning the schema of a result"):
                    self.learned_schemas.learn(tool, result)
            if self.truncator is not None:
                result = await self.truncator.truncate(caller, call, tool, result)
        except CallError as error:
            outcome, code = outcome_of(error), error.code
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        except Exception as error:
            outcome, code = Outcome.FAILED, InternalError.code
            raise _internal_error(error, tool, call, result) from error
        finally:
            # What was carried out is recorded, so that nothing here may raise.
            tokens_in, tokens_out = self._count_tokens(tool, call, result)
            rank, words = self._found_by_search(caller, tool, outcome)
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
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                parent=call.parent,
                rank=rank,
                words=words,
            )
            note = await self.record_call(invocation)
        return replace(result, notes=(*result.notes, note)) if note else result

    async def _carry_out(self, caller: Caller, call: Call, tool: Tool) -> Result:
        """Admit, check and send a call, with operators' hooks around it."""
        hooks, arguments = self.hooks, call.arguments
        try:
            self.policy.admit(caller, tool, arguments)
            checked = before = self.arguments.check(tool, arguments)
            if hooks is not None:
                checked = await hooks.before_call(caller, tool, before, self.arguments.check)
                if checked is not before:
                    self.policy.admit(caller, tool, checked.arguments)
                arguments = checked.arguments
            result = await self._send(caller, call, tool, checked)
        except Exception as error:
            if hooks is not None:
                with _Tolerate("telling the hooks of a failure"):
                    await hooks.after_error(caller, tool, arguments, error)
            raise
        if hooks is not None:
            with _Tolerate("telling the hooks of a result"):
                result = await hooks.after_call(caller, tool, arguments, result)
        return result

    async def _send(self, caller: Caller, call: Call, tool: Tool, checked: Checked) -> Result:
        """Send a call to its provider; what a provider that is no longer there did not send, the next one gets."""
        server = tool.id.server
        while (provider := self.providers.get(server)) is not None:
            try:
                return await self._send_to(provider, caller, call, tool, checked)
            except CallError as error:
                if self.providers.get(server) is provider:
                    raise
                if error.sent is not Sent.NOTHING:
                    error.add(GONE)
                    raise
        raise UpstreamGone(tool.handle, details=(GONE,))

    async def _send_to(self, provider: Provider, caller: Caller, call: Call, tool: Tool, checked: Checked) -> Result:
        """Send a call to a provider, in turn where it runs few at once."""
        server = tool.id.server
        bound = getattr(provider, "calls_at_once", None)
        if bound is None or not (at_once := bound(tool.id.name)):
            return await self._send_now(provider, caller, call, tool, checked)
        async with self.limiter(server, at_once).turn(caller.client, tool.handle):
            return await self._send_now(provider, caller, call, tool, checked)

    def limiter(self, server: str, at_once: int) -> FairLimiter:
        """The limiter of a server for so many calls at once."""
        found = self.limiters.get((server, at_once))
        if found is None:
            found = self.limiters[server, at_once] = FairLimiter(at_once)
        return found

    async def _send_now(self, provider: Provider, caller: Caller, call: Call, tool: Tool, checked: Checked) -> Result:
        self.running[tool.id.server] += 1
        try:
            raw = await provider.call(
                tool.id.name,
                tool.complete(checked.arguments),
                meta=call.meta,
                on_progress=call.on_progress,
                answers=call.answers,
                caller=caller,
            )
        except CallError as error:
            # Name the tool as the caller does; where nothing can have happened twice, the next call is the same again.
            error.about(tool.handle)
            is_safe = error.sent is Sent.NOTHING or tool.effect is Effect.READ
            is_answer = isinstance(error, UpstreamError | InvalidArguments | Refused)
            if error.next_call is None and is_safe and not is_answer and is_small(checked.arguments, NEXT_SIZE):
                error.next_call = NextCall("call", {"name": tool.handle, "arguments": dict(checked.arguments)})
            raise
        finally:
            self.running[tool.id.server] -= 1
        return Result(raw, checked.notes)

    def record(self, entry: Entry) -> None:
        """Write an entry to the journal, and count it; never raises."""
        with _Tolerate("counting a call"):
            self.counts.observe(entry)
        with _Tolerate("writing a call to the journal"):
            self.journal.record(entry)

    async def record_call(self, call: Invocation) -> str:
        """Record a call or script that was run; returns why it is not in the store yet, or nothing. Never raises."""
        self.record(call)
        if call.outcome is Outcome.CANCELLED:
            return ""  # nobody waits for it any more
        try:
            return await self.journal.written()
        except Exception as error:  # noqa: BLE001  a call that was carried out has its result
            _log_failure("waiting for the journal", error)
            return f"not in the journal: {type(error).__name__}"

    def _found_by_search(
        self, caller: Caller, tool: Tool | None, outcome: Outcome
    ) -> tuple[int, tuple[SearchedWord, ...]]:
        """Where a search had shown a tool, and what its words teach: nothing unless the call ended well."""
        with _Tolerate("looking up where a search had shown a tool"):
            if tool and counts(outcome):
                found = self.search_rank.take(caller, tool.id)
                teaches = outcome is Outcome.DONE and found.query
                return found.place, words_searched(found.query, found.need) if teaches else ()
        return 0, ()

    def _count_tokens(self, tool: Tool | None, call: Call, result: Result | None) -> tuple[int, int]:
        tokens_in = tokens_out = 0
        if tool is not None and self.token_sampler is not None:
            with _Tolerate("counting the tokens of arguments"):
                tokens_in = self.token_sampler.tokens((tool.id, "in"), text_of_arguments(call.arguments))
            if result is not None:
                with _Tolerate("counting the tokens of a result"):
                    tokens_out = self.token_sampler.tokens((tool.id, "out"), text_of_result(result))
        return tokens_in, tokens_out


def outcome_of(error: CallError) -> Outcome:
    """The outcome of a call or script that ended with this error."""
    if isinstance(error, InvalidArguments | UnknownTool | AmbiguousTool):
        return Outcome.INVALID
    if isinstance(error, Refused | Busy):
        return Outcome.REFUSED
    is_late = isinstance(error, UpstreamTimeout) or (isinstance(error, ScriptError) and error.limit == "seconds")
    return Outcome.TIMED_OUT if is_late else Outcome.FAILED


def _internal_error(error: Exception, tool: Tool | None, call: Call, result: Result | None) -> InternalError:
    """An exception that nobody expected, as an error that a caller can read."""
    logger.error("a call of %r failed inside the gateway", call.tool[:200], exc_info=error)
    what = "the tool answered, and its answer could not be passed on" if result else "the call could not be carried out"
    return InternalError(
        tool.handle if tool else call.tool[:200],
        details=(f"{what}: {type(error).__name__}; this is a fault of the gateway or of the tool's code, see its log",),
        sent=Sent.ANSWERED if result else Sent.UNKNOWN if tool else Sent.NOTHING,
    )


class _Tolerate:
    """Logs an exception of a step around a call, which is not to suffer from it. No generator: this is a hot path."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            _log_failure(self._step, error)
            return True
        return False


def _log_failure(step: str, error: Exception) -> None:
    logger.warning("%s failed: %s", step, type(error).__name__, exc_info=error)


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
    """The most that may wait, over all clients."""
    running: int = 0
    """Holders of a place."""
    waiting: int = 0
    """Clients' calls that wait for one."""
    _running_by_client: Counter[str] = field(default_factory=Counter)
    _lines: OrderedDict[str, deque[Future[None]]] = field(default_factory=OrderedDict)
    """Those who wait, by client; the first client is the next to get a place."""

    @asynccontextmanager
    async def turn(self, client: str, subject: str, *, seconds: float = WAIT_SECONDS) -> AsyncIterator[None]:
        """Hold a place while the block runs; waits for one.

        Raises:
            Busy: too many wait already, or none became free in time.
        """
        if self.running < self.at_once and self._may_run(client):
            self._take(client)
        else:
            await self._wait(client, subject, seconds)
        try:
            yield
        finally:
            self._give_back(client)

    async def _wait(self, client: str, subject: str, seconds: float) -> None:
        line = self._lines.setdefault(client, deque())
        if self.waiting >= self.queue or len(line) >= _share(client, self.queue):
            self._drop_empty(client)
            raise Busy(subject, details=(f"{self.running} are at work and {self.waiting} wait; try again in a while",))
        place = get_running_loop().create_future()
        line.append(place)
        self.waiting += 1
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
            self.waiting -= 1
            self._drop_empty(client)

    def _give_back(self, client: str) -> None:
        self.running -= 1
        self._running_by_client[client] -= 1
        if not self._running_by_client[client]:
            del self._running_by_client[client]
        # Free places go to those who wait, one client after the other.
        while self.running < self.at_once and (following := next(filter(self._may_run, self._lines), None)) is not None:
            place = self._lines[following].popleft()
            self.waiting -= 1
            self._lines.move_to_end(following)
            self._drop_empty(following)
            if not place.done():
                self._take(following)
                place.set_result(None)

    def _take(self, client: str) -> None:
        self.running += 1
        self._running_by_client[client] += 1

    def _may_run(self, client: str) -> bool:
        return self._running_by_client[client] < _share(client, self.at_once)

    def _drop_empty(self, client: str) -> None:
        if not self._lines.get(client):
            self._lines.pop(client, None)


def _share(client: str, whole: int) -> int:
    return max(1, whole * 3 // 4) if client else whole


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which a call falls into each bucket of a histogram; slower ones fall into one more."""
NO_SERVER = ""
"""Stands for the server of a call whose tool is not known: what callers spell must not make new names here."""


@dataclass(slots=True)
class Counts:
    """Counters of calls and lookups, each of which is observed once, by whoever writes it to the journal.

    Nothing here is ever taken back, not even when a server goes: a reader of counters takes a fall for a restart.
    """

    calls: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """By server and outcome."""
    latencies: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * (len(BOUNDS) + 1)))
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
TOOLS_KEPT = 500  # tools that are remembered of one caller
SECONDS_KEPT = 1_800.0


class ShownBefore(NamedTuple):
    """Where a search had shown a tool to the one who calls it, and what it was asked."""

    place: int = 0
    query: str = ""
    need: str = ""
    """The part of the query that the tool answers, where that asks for several things."""
    at: float = 0.0


_NOT_SHOWN = ShownBefore()


@dataclass(slots=True)
class SearchRank:
    """Remembers the places at which searches have shown tools, and their queries, until the tool is called."""

    clock: Callable[[], float] = monotonic
    _shown: dict[str, dict[ToolId, ShownBefore]] = field(default_factory=dict)
    """By caller; whoever searched last comes last."""

    def remember(
        self,
        caller: Caller,
        tools: Sequence[ToolId],
        start: int = 1,
        query: str = "",
        needs: Mapping[ToolId, str] = MappingProxyType({}),
    ) -> None:
        """Remember that a search has shown these tools to a caller, the first of them at place `start`.

        The query is given where it may be learned from, with the parts of it that tools answer, if it has parts.
        """
        own = self._shown.pop(caller.name, {})
        self._shown[caller.name] = own
        now = self.clock()
        for place, tool in enumerate(tools, start):
            own.pop(tool, None)
            own[tool] = ShownBefore(place, query, needs.get(tool, ""), now)
        while len(own) > TOOLS_KEPT:
            del own[next(iter(own))]
        if len(self._shown) > CALLERS_KEPT:
            del self._shown[next(iter(self._shown))]

    def take(self, caller: Caller, tool: ToolId) -> ShownBefore:
        """What the caller's last search that has shown a tool was, once; the place is 0 when none has."""
        own = self._shown.get(caller.name)
        found = own.pop(tool, _NOT_SHOWN) if own else _NOT_SHOWN
        return found if found.place and self.clock() - found.at <= SECONDS_KEPT else _NOT_SHOWN


EVERY = 32  # how many texts of one kind are taken by their length before one is counted again
KINDS_KEPT = 5_000
LEAVES = 2_000  # values that are counted where there is no JSON to count


@dataclass(slots=True)
class TokenSampler:
    """Counts the first text of each kind and every thirty-second after it; the others go by their length."""

    counter: TokenCounter
    _known: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    """By kind: tokens per character, and how many texts may still go by it."""

    def tokens(self, kind: Hashable, text: str) -> int:
        """Tokens of a text of one kind, about."""
        if not text:
            return 0
        share, left = self._known.get(kind, (0.0, 0))
        if not left:
            share = tokens_per_letter(text, self.counter.count, letters=SAMPLED_LETTERS, places=PLACES)
            left = EVERY
            if len(self._known) >= KINDS_KEPT:
                self._known.clear()
        self._known[kind] = (share, left - 1)
        return max(1, round(share * len(text)))


def text_of_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call as JSON."""
    return _text_of(arguments) if arguments else ""


def text_of_result(result: Result) -> str:
    """The part of a result that a model reads: its text, or else its structured content."""
    text = result.text
    return text if text or result.structured is None else _text_of(result.structured)


def _text_of(value: Any) -> str:
    """A value as JSON; of what cannot be written so (integers beyond 64 bits, foreign objects), the values in it."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        if is_small(value):
            with suppress(Exception):
                return str(value)
    found, waiting = list[str](), [value]
    while waiting and len(found) < LEAVES:
        inner = waiting.pop()
        if isinstance(inner, dict | list | tuple) and len(found) + len(waiting) + len(inner) > LEAVES:
            inner = [*islice(inner.items() if isinstance(inner, dict) else inner, LEAVES)]
        if isinstance(inner, dict):
            found.extend(str(name)[:SAMPLED_LETTERS] for name in inner)
            waiting.extend(inner.values())
        elif isinstance(inner, list | tuple):
            waiting.extend(inner)
        else:
            text = inner if isinstance(inner, str) else ""
            with suppress(Exception):  # a library user's own object may raise anything
                text = text or str(inner)[:SAMPLED_LETTERS]
            found.append(text)
    return " ".join(found)
