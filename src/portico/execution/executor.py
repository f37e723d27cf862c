"""The one executor: every call, through whatever door, becomes one invocation here."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.domain.call import Call, Invocation, Outcome, Result
from portico.domain.caller import Caller
from portico.domain.edition import Edition
from portico.domain.journal import Entry
from portico.domain.tool import Effect, Tool
from portico.domain.usage import counts
from portico.errors import (
    AmbiguousTool,
    Busy,
    CallError,
    InvalidArguments,
    NextCall,
    Refused,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamTimeout,
)
from portico.ports import Journal, Policy, Provider

from .arguments import ArgumentCheck, Checked
from .counts import Counts
from .fairness import Turns
from .gauge import TokenGauge, text_of_arguments, text_of_result
from .hooks import Hooks
from .learning import Shapes
from .shaping import Shaper
from .trail import Trail


@dataclass(slots=True, kw_only=True)
class Executor:
    """Resolves, admits, checks, runs, shapes the result and records."""

    provider_of: Callable[[str], Provider]
    policy: Policy
    journal: Journal
    gauge: TokenGauge | None = None
    """What counts the tokens of calls; without one they are not counted."""
    arguments: ArgumentCheck = field(default_factory=ArgumentCheck)
    hooks: Hooks | None = None
    """Operators' own code around calls; None costs nothing."""
    shaper: Shaper | None = None
    """What makes results fit; without it they are passed on whole."""
    shapes: Shapes = field(default_factory=Shapes)
    trail: Trail = field(default_factory=Trail)
    counts: Counts = field(default_factory=Counts)
    turns: Turns = field(default_factory=Turns)
    """Who may call next where calls hold threads or connections."""
    running: Counter[str] = field(default_factory=Counter)
    """How many calls each server is at work on."""

    async def run(self, caller: Caller, call: Call, edition: Edition) -> Result:
        """Run one call and return what the tool returned: unchanged when it fits, else shortened.

        Raises:
            CallError: the call did not reach a result; `sent` says what had happened by then.
        """
        at, started = time.time(), time.perf_counter()
        tool: Tool | None = None
        result: Result | None = None
        outcome, code, ended = Outcome.FAILED, "", 0.0
        try:
            tool = edition.resolver.resolve(call.tool, self.policy.visible(caller, edition))
            result = await self._run(caller, call, tool)
            outcome, ended = Outcome.FAILED if result.is_error else Outcome.DONE, time.perf_counter()
            result = await self._shaped(caller, call, tool, result)
        except CallError as error:
            outcome, code = _outcome(error), error.code
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            invocation = Invocation(
                tool=tool.id if tool else None,
                spelled=call.tool[:200],
                caller=caller.name,
                surface=caller.surface,
                outcome=outcome,
                seconds=(ended or time.perf_counter()) - started,  # making it fit is no work of the tool
                code=code,
                at=at,
                tokens_in=self._tokens_in(tool, call),
                tokens_out=self._tokens_out(tool, result),
                parent=call.parent,
                rank=self.trail.rank(caller, tool.id) if tool and counts(outcome) else 0,
            )
            self.record(invocation)
            note = await self.journal.written() if outcome is not Outcome.CANCELLED else ""
        return replace(result, notes=(*result.notes, note)) if note else result

    async def _shaped(self, caller: Caller, call: Call, tool: Tool, result: Result) -> Result:
        """The result as its caller gets it; what it looks like is learned from the whole of it."""
        if not result.is_error:
            self.shapes.learn(tool, result)
        return await self.shaper.shaped(caller, call, tool, result) if self.shaper is not None else result

    def record(self, entry: Entry) -> None:
        """Write an entry to the journal, and count it."""
        self.counts.observe(entry)
        self.journal.record(entry)

    def _tokens_in(self, tool: Tool | None, call: Call) -> int:
        if tool is None or self.gauge is None:
            return 0
        return self.gauge.tokens((tool.id, "in"), text_of_arguments(call.arguments))

    def _tokens_out(self, tool: Tool | None, result: Result | None) -> int:
        if tool is None or result is None or self.gauge is None:
            return 0
        return self.gauge.tokens((tool.id, "out"), text_of_result(result))

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
            await self.hooks.failed(caller, tool, arguments, error)
            raise
        return await self.hooks.answered(caller, tool, arguments, result)

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
    if error.next_call is None and is_safe and not isinstance(error, UpstreamError | InvalidArguments | Refused):
        error.next_call = NextCall("call", {"name": tool.handle, "arguments": dict(arguments)})


def _outcome(error: CallError) -> Outcome:
    if isinstance(error, InvalidArguments | UnknownTool | AmbiguousTool):
        return Outcome.INVALID
    if isinstance(error, Refused | Busy):
        return Outcome.REFUSED
    return Outcome.TIMED_OUT if isinstance(error, UpstreamTimeout) else Outcome.FAILED
