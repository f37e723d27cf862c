"""The one executor: every call, through whatever door, becomes one invocation here."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field

from portico.domain.call import Call, Invocation, Outcome, Result
from portico.domain.caller import Caller
from portico.domain.edition import Edition
from portico.domain.tool import Tool
from portico.errors import AmbiguousTool, CallError, InvalidArguments, Refused, UnknownTool, UpstreamTimeout
from portico.ports import Journal, Policy, Provider

from .arguments import ArgumentCheck


@dataclass(slots=True, kw_only=True)
class Executor:
    """Resolves, admits, checks, runs and records."""

    provider_of: Callable[[str], Provider]
    policy: Policy
    journal: Journal
    arguments: ArgumentCheck = field(default_factory=ArgumentCheck)

    async def run(self, caller: Caller, call: Call, edition: Edition) -> Result:
        """Run one call and return what the tool returned, unchanged.

        Raises:
            CallError: the call did not reach a result; `sent` says what had happened by then.
        """
        started = time.perf_counter()
        tool: Tool | None = None
        outcome, code = Outcome.FAILED, ""
        try:
            tool = edition.resolver.resolve(call.tool, self.policy.visible(caller, edition))
            result = await self._run(caller, call, tool)
            outcome = Outcome.FAILED if result.is_error else Outcome.DONE
            return result
        except CallError as error:
            outcome, code = _outcome(error), error.code
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            self.journal.record(
                Invocation(
                    tool=tool.id if tool else None,
                    spelled=call.tool[:200],
                    caller=caller.name,
                    surface=caller.surface,
                    outcome=outcome,
                    seconds=time.perf_counter() - started,
                    code=code,
                )
            )

    async def _run(self, caller: Caller, call: Call, tool: Tool) -> Result:
        self.policy.admit(caller, tool, call.arguments)
        checked = self.arguments.check(tool, call.arguments)
        provider = self.provider_of(tool.id.server)
        raw = await provider.call(
            tool.id.name, checked.arguments, meta=call.meta, on_progress=call.on_progress, answers=call.answers
        )
        return Result(raw, checked.notes)


def _outcome(error: CallError) -> Outcome:
    if isinstance(error, InvalidArguments | UnknownTool | AmbiguousTool):
        return Outcome.INVALID
    if isinstance(error, Refused):
        return Outcome.REFUSED
    return Outcome.TIMED_OUT if isinstance(error, UpstreamTimeout) else Outcome.FAILED
