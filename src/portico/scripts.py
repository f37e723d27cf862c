"""Scripts: agents' own programs, run by an engine, with the caller's tools and nothing else."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from os import urandom
from time import perf_counter, time
from typing import Any

from anyio.abc import TaskGroup

from portico.domain.call import Call, Invocation, Outcome, Result
from portico.domain.caller import Caller
from portico.domain.script import Limits, Sandbox, Script
from portico.errand import Errand
from portico.errors import Busy, ScriptError
from portico.execution.fairness import FairLimiter
from portico.execution.gauge import sampled
from portico.execution.values import answer_of
from portico.gateway import Gateway
from portico.ports import ScriptEngine
from portico.scripting.hints import hints

SPELLED = "script"
"""What a run is called in the journal, where a call has its tool's name."""
HINTS = 3
"""Hints that an error gives."""


@dataclass(slots=True, kw_only=True)
class Scripts:
    """Runs scripts for callers; the engine is made when the first one comes."""

    gateway: Gateway
    open_engine: Callable[[], ScriptEngine]
    limits: Limits = field(default_factory=Limits)
    """What a run may use; `seconds` unless the caller asks for other ones."""
    max_seconds: float = 120.0
    """What a caller may ask for at most."""
    turns: FairLimiter = field(default_factory=lambda: FairLimiter(8, queue=32))
    """Whose script runs next."""
    _engine: ScriptEngine | None = None
    _sandbox: Sandbox | None = None
    _tasks: TaskGroup | None = None
    _is_examining: bool = False

    async def run(
        self,
        caller: Caller,
        source: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        whole: bool = False,
    ) -> Result:
        """Run a script to its end, and return its value as a tool result; it fits the caller unless `whole`.

        Raises:
            ScriptError: it did not come to its end; the calls that it had made by then are told.
        """
        at, started = time(), perf_counter()
        await self.gateway.settled()
        errand = self._errand(caller)
        script = Script(source=source, arguments=arguments or {}, limits=self._limits(seconds))
        result: Result | None = None
        outcome, code = Outcome.FAILED, ""
        try:
            async with self.turns.turn(caller.client, "the script", seconds=script.limits.seconds):
                result = answer_of(await self.engine.run(script, errand))
            result = await self.gateway.fitted(caller, Call(tool=SPELLED, arguments={}, whole=whole), result)
            outcome = Outcome.DONE
        except ScriptError as error:
            outcome = Outcome.TIMED_OUT if error.limit == "seconds" else Outcome.FAILED
            code = error.code
            _explain(error, source, errand)
            raise
        except Busy as error:
            outcome, code = Outcome.REFUSED, error.code
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            entry = Invocation(
                tool=None,
                spelled=SPELLED,
                caller=caller.name,
                surface=caller.surface,
                outcome=outcome,
                seconds=perf_counter() - started,
                code=code,
                at=at,
                tokens_in=sampled(source, self.gateway.counter),
                tokens_out=sampled(result.text, self.gateway.counter) if result else 0,
                parent=errand.id,
            )
            self.gateway.executor.record(entry)
            note = await self.gateway.executor.journal.written() if outcome is not Outcome.CANCELLED else ""
        return replace(result, notes=(*result.notes, note)) if note else result

    @property
    def engine(self) -> ScriptEngine:
        """The engine, made now if there was none."""
        if self._engine is None:
            self._engine = self.open_engine()
        return self._engine

    @property
    def state(self) -> str:
        """What holds scripts in, as far as it is known; never waits."""
        return self._sandbox.state if self._sandbox is not None else "not examined yet"

    @property
    def is_degraded(self) -> bool:
        """Whether scripts are known to be held in by less than we want."""
        return self._sandbox is not None and self._sandbox.is_degraded

    async def examine(self) -> Sandbox:
        """Find out what holds scripts in here; starts what is needed to know it."""
        self._sandbox = await self.engine.sandbox()
        return self._sandbox

    def watch(self, tasks: TaskGroup) -> None:
        """Let examinations run in the background of this group."""
        self._tasks = tasks

    def examine_soon(self) -> None:
        """Begin to find out, once; does not wait."""
        if self._tasks is not None and not self._is_examining:
            self._is_examining = True
            self._tasks.start_soon(self.examine)

    async def aclose(self) -> None:
        """Stop all scripts and their processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()

    def _errand(self, caller: Caller) -> Errand:
        edition = self.gateway.edition
        visible = self.gateway.policy.visible(caller, edition)
        chapters = (chapter for chapter in edition.chapters.values() if not visible.isdisjoint(chapter.tools))
        servers = tuple(chapter.server.identifier for chapter in chapters)
        return Errand(gateway=self.gateway, caller=caller, id=f"script-{urandom(8).hex()}", servers=servers)

    def _limits(self, seconds: float | None) -> Limits:
        asked = self.limits.seconds if seconds is None or isnan(seconds) else seconds
        return replace(self.limits, seconds=min(max(asked, 0.0), self.max_seconds))


def _explain(error: ScriptError, source: str, errand: Errand) -> None:
    """Say what had been done by then, and what the author may have meant."""
    error.sent = errand.sent
    for hint in hints(source, error.reason, errand.servers)[:HINTS]:
        error.add(f"hint: {hint}")
    if told := errand.told():
        error.add(told)
