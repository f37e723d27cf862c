"""Operators' own code around searches and calls, checked before anything is served."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import anyio
import anyio.to_thread
import orjson

from portico.concurrency import BackgroundThread, FunctionLoop, Workers
from portico.domain.call import Caller, Result
from portico.domain.search_answers import Findings
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Tool
from portico.errors import ConfigError, InvalidArguments, PorticoError, Refused
from portico.results.preview import is_small

from .arguments import Checked

PARAMETERS = {
    "on_search": ("caller", "query", "findings"),
    "on_call": ("caller", "tool", "arguments"),
    "on_result": ("caller", "tool", "arguments", "result"),
    "on_error": ("caller", "tool", "arguments", "error"),
}
"""The parameters of each hook."""
SECONDS = 5.0  # how long one hook may take
REST_SECONDS = 60.0  # how long a watching hook that hung is left out

logger = logging.getLogger(__name__)

Check = Callable[[Tool, Mapping[str, Any]], Checked]


class _Late(Exception):
    """A hook has not returned in time."""


@dataclass(slots=True, eq=False)
class Hook:
    """One function, and how it has done so far."""

    label: str
    """Its origin, as `module.on_call`."""
    run: Callable[..., Any]
    is_noted: bool = False
    resting_until: float = 0.0

    def note(self, what: str, error: BaseException | None = None) -> None:
        """Log the first thing that goes wrong with it; the rest would say the same at every call."""
        if not self.is_noted:
            self.is_noted = True
            logger.warning("hook %r %s; this is said once", self.label, what, exc_info=error)


@dataclass(slots=True, kw_only=True)
class Hooks:
    """All hooks by event, in their order; false when there are none."""

    threads: Workers
    loops: FunctionLoop | None = None
    """Runs async hooks; without it they run in the event loop of whoever calls."""
    by_event: Mapping[str, tuple[Hook, ...]]
    seconds: float = SECONDS
    _background: BackgroundThread = field(default_factory=BackgroundThread)

    def __bool__(self) -> bool:
        return any(self.by_event.values())

    def after_search(self, caller: Caller, query: str, findings: Findings) -> None:
        """Tell every `on_search` what was searched for and found; a search never waits for this."""
        for hook in self.by_event["on_search"]:
            self._background.put(hook.run, (caller, query, findings), seconds=self.seconds, on_failure=hook.note)

    def wait_until_idle(self) -> None:
        """Wait until every search has been told, as long as one hook may take; blocks."""
        self._background.wait_until_idle(self.seconds)

    def close(self) -> None:
        """Tell what is left to tell, and end what is still at work; blocks."""
        self.wait_until_idle()
        if self.loops is not None:
            self.loops.close()

    async def before_call(self, caller: Caller, tool: Tool, checked: Checked, check: Check) -> Checked:
        """Let every `on_call` see a call before it is sent, and change its arguments, which are then checked again.

        Raises:
            Refused: one of them says no, fails, or does not answer in time.
        """
        for hook in self.by_event["on_call"]:
            try:
                # A copy: what a hook changes without returning it is not checked, and so must not be sent.
                arguments = dict(checked.arguments)
                if is_small(arguments):
                    arguments = deepcopy(arguments)
                else:
                    arguments = await anyio.to_thread.run_sync(deepcopy, arguments)
                answer = await self._run(hook, caller, tool, arguments)
            except (Exception, SystemExit) as error:
                raise self._refusal(hook, tool, error) from error
            if answer is not None:
                checked = _check_again(hook, tool, checked, answer, check)
        return checked

    async def after_call(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any], result: Result) -> Result:
        """Let every `on_result` see a result, and give another one in its place."""
        if result.raw.get("resultType") == "input_required":
            return result  # the tool asks something first: this is not its answer yet
        for hook in self.by_event["on_result"]:
            answer = await self._watch(hook, caller, tool, arguments, result)
            if isinstance(answer, Result) and _is_result(answer.raw):
                result = answer
            elif isinstance(answer, Mapping) and _is_result(answer):
                result = replace(result, raw=answer)
            elif answer is not None:
                hook.note(f"returned {type(answer).__name__}, which is no result: the result stays as it was")
        return result

    async def after_error(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any], error: Exception) -> None:
        """Tell every `on_error` that a call did not reach a result."""
        for hook in self.by_event["on_error"]:
            await self._watch(hook, caller, tool, arguments, error)

    async def _watch(self, hook: Hook, *given: Any) -> Any:
        """Run a hook that only watches: whatever happens to it, nothing happens to the call."""
        if monotonic() < hook.resting_until:
            return None
        try:
            return await self._run(hook, *given)
        except _Late:
            hook.resting_until = monotonic() + REST_SECONDS
            hook.note(f"did not return in {self.seconds:g} s, and is left out for {REST_SECONDS:g} s each time")
        except (Exception, SystemExit) as error:  # noqa: BLE001  it is an operator's code, and may fail in any way
            hook.note(f"raised {type(error).__name__}: {error}", error)
        return None

    async def _run(self, hook: Hook, *given: Any) -> Any:
        """Run a hook in a thread, or in a loop of its own where it is async.

        Raises:
            _Late: it has not returned in time.
        """
        with anyio.move_on_after(self.seconds):
            if inspect.iscoroutinefunction(hook.run):
                return await self._await(hook.label, lambda: hook.run(*given))
            answer = await self.threads.finish(self.threads.start(hook.label, lambda: _call(hook.run, given)))
            return await self._await(hook.label, lambda: answer) if inspect.isawaitable(answer) else answer
        raise _Late

    async def _await(self, label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        return await (_await(work) if self.loops is None else self.loops.finish(label, lambda: _await(work)))

    def _refusal(self, hook: Hook, tool: Tool, error: BaseException) -> Refused:
        if isinstance(error, Refused):
            # Whoever writes Refused("not on Sundays") means a reason, not a subject.
            said = error.details or ((error.subject,) if error.subject != tool.handle else ())
            return Refused(tool.handle, details=said, next_call=error.next_call)
        if isinstance(error, _Late):
            hook.note(f"did not return in {self.seconds:g} s, and its call is refused")
            detail = f"{hook.label} did not answer in {self.seconds:g} s, and without its answer no call goes ahead"
            return Refused(tool.handle, details=(detail,))
        if not isinstance(error, PorticoError):
            hook.note(f"raised {type(error).__name__}, and its call is refused", error)
        reason = " ".join(str(error).split()) or type(error).__name__
        return Refused(tool.handle, details=(f"{hook.label}: {reason}",))


def _check_again(hook: Hook, tool: Tool, checked: Checked, answer: object, check: Check) -> Checked:
    if not isinstance(answer, Mapping) or not _is_json(answer):
        detail = f"{hook.label} returned {type(answer).__name__}; it must return the arguments, as JSON, or nothing"
        raise Refused(tool.handle, details=(detail,))
    try:
        again = check(tool, answer)
    except InvalidArguments as error:
        details = (f"{hook.label} has changed the arguments, and they do not fit any more", *error.details)
        raise Refused(tool.handle, details=details) from error
    return replace(again, notes=(*checked.notes, *again.notes))


def _is_result(answer: Mapping[str, Any]) -> bool:
    """Whether something can be sent as the result of a call."""
    content = answer.get("content")
    return isinstance(content, list) and all(isinstance(block, Mapping) for block in content) and _is_json(answer)


def _is_json(answer: object) -> bool:
    try:
        orjson.dumps(answer)
    except orjson.JSONEncodeError:
        return False
    return True


def _call(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Call a hook in its thread; what would end a thread or a task is an ordinary failure to us."""
    try:
        return run(*given)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from error


async def _await(work: Callable[[], Awaitable[Any]]) -> Any:
    """The same for what is awaited; that the call itself is cancelled is no failure of the hook."""
    try:
        return await work()
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        is_ours = isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling())
        if is_ours or isinstance(error, GeneratorExit):
            raise
        raise RuntimeError(f"it raised {type(error).__name__}") from error


def hooks_of(
    sources: Iterable[object],
    threads: Workers,
    *,
    loops: FunctionLoop | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    seconds: float = SECONDS,
) -> Hooks:
    """The hooks that modules, or any other objects, have as attributes; `around` is entered whenever one runs.

    Raises:
        ConfigError: one of them has no hook, or one that cannot be called.
    """
    by_event: dict[str, tuple[Hook, ...]] = dict.fromkeys(PARAMETERS, ())
    for source in sources:
        own = getattr(source, "__name__", None)
        name = own if isinstance(own, str) else type(source).__name__
        check_hooks(source, name)
        for event in PARAMETERS:
            if callable(run := getattr(source, event, None)):
                by_event[event] = (*by_event[event], Hook(f"{name}.{event}", _within(around, run)))
    return Hooks(threads=threads, loops=loops, seconds=seconds, by_event=by_event)


def _within(around: Callable[[], AbstractContextManager[object]], run: Callable[..., Any]) -> Callable[..., Any]:
    async def run_async(*given: Any) -> Any:
        with around():
            return await run(*given)

    def run_plainly(*given: Any) -> Any:
        with around():
            return run(*given)

    return run_async if inspect.iscoroutinefunction(run) else run_plainly


def check_hooks(source: object, name: str) -> None:
    """Do nothing for an object with hooks that can be called.

    Raises:
        ConfigError: it has none, one is not a function, takes other arguments, or has a name that nobody calls.
    """

    def refusal(problem: str, fix: str) -> ConfigError:
        return ConfigError(problem, where="hooks", fix=fix)

    hooks = {event: hook for event in PARAMETERS if (hook := getattr(source, event, None)) is not None}
    for event, hook in hooks.items():
        given = PARAMETERS[event]
        shape = f"Write it as def {event}({', '.join(given)})."
        if not callable(hook):
            raise refusal(f"{event!r} of {name!r} is {type(hook).__name__}, not a function", shape)
        if not _takes(hook, len(given)):
            raise refusal(f"{event!r} of {name!r} does not take what it is called with", shape)
    for attribute in _misspelt(source):
        near = nearest_names(attribute, PARAMETERS, limit=1, cutoff=0.0)[0]
        fix = f"Did you mean {near!r}? Let no other function begin with on_."
        raise refusal(f"{name!r} has a function {attribute!r}, which is no hook and would never run", fix)
    if not hooks:
        fix = f"Name its functions {', '.join(PARAMETERS)}, or delete the entry."
        raise refusal(f"{name!r} has no hook in it", fix)


def _misspelt(source: object) -> Iterator[str]:
    """Functions that were probably meant to be hooks: in a module all that begin so, else those that are near."""
    for attribute, value in vars(source).items() if inspect.ismodule(source) else inspect.getmembers(source):
        if attribute in PARAMETERS or not attribute.startswith("on") or not callable(value):
            continue
        is_own = inspect.ismodule(source) and getattr(value, "__module__", "") == source.__name__
        if (is_own and attribute.startswith("on_")) or nearest_names(attribute, PARAMETERS, limit=1, cutoff=73.0):
            yield attribute


def _takes(hook: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; one that does not tell is taken at its word."""
    try:
        inspect.signature(hook).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True
