"""Operators' own code around searches and calls, checked before anything is served."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol

import anyio
import anyio.to_thread
import orjson

from portico.domain.call import Caller, Result
from portico.domain.disclosure import Findings
from portico.domain.tool import Tool
from portico.errors import ConfigError, InvalidArguments, PorticoError, Refused
from portico.results.preview import is_small

from .arguments import Checked
from .learning import Aside

EVENTS = ("on_search", "on_call", "on_result", "on_error")
SECONDS = 5.0
"""How long one hook may take."""
REST_SECONDS = 60.0
"""How long a watching hook that hung is left out."""

logger = logging.getLogger(__name__)


class _Late(Exception):
    """A hook has not returned in time."""


class Threads(Protocol):
    """Runs plain functions beside the event loop; one that hangs holds up nobody but itself."""

    def start(self, label: str, work: Callable[[], Any]) -> Any:
        """Begin a piece of work, and return what `finish` takes."""
        ...

    async def finish(self, job: Any) -> Any:
        """Wait for it; return what it gave, or raise what it raised."""
        ...


class HookLoop(Protocol):
    """Runs async functions beside the event loop; one that blocks holds up nobody but itself."""

    async def finish(self, label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run it; return what it gave, or raise what it raised."""
        ...

    def close(self) -> None:
        """End what is still at work."""
        ...


@dataclass(slots=True, eq=False)
class Hook:
    """One function, and how it has done so far."""

    label: str
    """Where it comes from, as `module.on_call`."""
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
    """All hooks in their order; false when there are none."""

    threads: Threads
    loops: HookLoop | None = None
    """Where async hooks run; without, in the event loop of whoever calls."""
    on_search: tuple[Hook, ...] = ()
    on_call: tuple[Hook, ...] = ()
    on_result: tuple[Hook, ...] = ()
    on_error: tuple[Hook, ...] = ()
    seconds: float = SECONDS
    _aside: Aside = field(default_factory=Aside)

    def __bool__(self) -> bool:
        return any((self.on_search, self.on_call, self.on_result, self.on_error))

    def searched(self, caller: Caller, query: str, findings: Findings) -> None:
        """Tell what was searched for and what was found; a search never waits for this."""
        for hook in self.on_search:
            self._aside.put(hook.run, (caller, query, findings), seconds=self.seconds, on_failure=hook.note)

    def settle(self) -> None:
        """Wait until every search has been told, as long as one hook may take; blocks."""
        self._aside.settle(self.seconds)

    def close(self) -> None:
        """Tell what is left to tell, and end what is still at work; blocks."""
        self.settle()
        if self.loops is not None:
            self.loops.close()

    async def called(
        self, caller: Caller, tool: Tool, checked: Checked, check: Callable[[Tool, Mapping[str, Any]], Checked]
    ) -> Checked:
        """Let every `on_call` see a call before it is sent, and change its arguments, which are then checked again.

        Raises:
            Refused: one of them says no, fails, or does not answer in time.
        """
        for hook in self.on_call:
            try:
                # A copy: what a hook changes without returning it is not checked, and so must not be sent.
                arguments = await _copied(checked.arguments)
                answer = await self._run(hook, caller, tool, arguments)
            except (Exception, SystemExit) as error:
                raise self._refusal(hook, tool, error) from error
            if answer is not None:
                checked = _rechecked(hook, tool, checked, answer, check)
        return checked

    async def answered(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any], result: Result) -> Result:
        """Let every `on_result` see a result, and give another one in its place."""
        if result.raw.get("resultType") == "input_required":
            return result  # the tool asks something first: this is not its answer yet
        for hook in self.on_result:
            answer = await self._watch(hook, caller, tool, arguments, result)
            if isinstance(answer, Result) and _is_result(answer.raw):
                result = answer
            elif isinstance(answer, Mapping) and _is_result(answer):
                result = replace(result, raw=answer)
            elif answer is not None:
                hook.note(f"returned {type(answer).__name__}, which is no result: the result stays as it was")
        return result

    async def failed(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any], error: Exception) -> None:
        """Tell every `on_error` that a call did not reach a result."""
        for hook in self.on_error:
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
        """What a hook returns.

        Raises:
            _Late: it has not returned in time.
        """
        with anyio.move_on_after(self.seconds):
            if inspect.iscoroutinefunction(hook.run):
                return await self._await(hook.label, lambda: hook.run(*given))
            answer = await self.threads.finish(self.threads.start(hook.label, lambda: _plainly(hook.run, given)))
            return await self._await(hook.label, lambda: answer) if inspect.isawaitable(answer) else answer
        raise _Late

    async def _await(self, label: str, work: Callable[[], Awaitable[Any]]) -> Any:
        if self.loops is None:
            return await _awaited(work)
        return await self.loops.finish(label, lambda: _awaited(work))

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
        return Refused(tool.handle, details=(f"{hook.label}: {_said(error)}",))


def hooks_of(
    sources: Iterable[object],
    threads: Threads,
    *,
    loops: HookLoop | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    seconds: float = SECONDS,
) -> Hooks:
    """The hooks that modules, or any other objects, have as attributes; `around` is entered whenever one runs.

    Raises:
        ConfigError: one of them has no hook, or one that cannot be called.
    """
    named = list(sources)
    for source in named:
        refuse_unfit(source, _name_of(source))

    def of(event: str) -> tuple[Hook, ...]:
        found = ((source, getattr(source, event, None)) for source in named)
        return tuple(
            Hook(f"{_name_of(source)}.{event}", _within(around, run)) for source, run in found if callable(run)
        )

    on_search, on_call, on_result, on_error = map(of, EVENTS)
    return Hooks(
        threads=threads,
        loops=loops,
        seconds=seconds,
        on_search=on_search,
        on_call=on_call,
        on_result=on_result,
        on_error=on_error,
    )


async def _copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of arguments; large ones are copied beside the event loop."""
    if is_small(arguments):
        return deepcopy(dict(arguments))
    return await anyio.to_thread.run_sync(deepcopy, dict(arguments))


def _rechecked(
    hook: Hook, tool: Tool, checked: Checked, answer: object, check: Callable[[Tool, Mapping[str, Any]], Checked]
) -> Checked:
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


def _within(around: Callable[[], AbstractContextManager[object]], run: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*given: Any) -> Any:
        with around():
            return await run(*given)

    def called(*given: Any) -> Any:
        with around():
            return run(*given)

    return awaited if inspect.iscoroutinefunction(run) else called


def _plainly(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Run a function in its thread; what would end a thread or a task is an ordinary failure to us."""
    try:
        return run(*given)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from error


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
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


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _name_of(source: object) -> str:
    name = getattr(source, "__name__", None)
    return name if isinstance(name, str) else type(source).__name__


GIVEN = {
    "on_search": ("caller", "query", "findings"),
    "on_call": ("caller", "tool", "arguments"),
    "on_result": ("caller", "tool", "arguments", "result"),
    "on_error": ("caller", "tool", "arguments", "error"),
}
"""What each hook is called with."""


def refuse_unfit(source: object, name: str) -> None:
    """Do nothing for an object with hooks that can be called.

    Raises:
        ConfigError: it has none, one is not a function, takes other arguments, or has a name that nobody calls.
    """
    for event, given in GIVEN.items():
        hook = getattr(source, event, None)
        if hook is not None:
            _refuse_hook(hook, name, event, given)
    for attribute in _misspelt(source):
        near = difflib.get_close_matches(attribute, GIVEN, n=1, cutoff=0.0)[0]
        fix = f"Did you mean {near!r}? Let no other function begin with on_."
        raise _unfit(f"{name!r} has a function {attribute!r}, which is no hook and would never run", fix)
    if all(getattr(source, event, None) is None for event in GIVEN):
        raise _unfit(f"{name!r} has no hook in it", f"Name its functions {', '.join(GIVEN)}, or delete the entry.")


def _misspelt(source: object) -> Iterator[str]:
    """Functions that were probably meant to be hooks: in a module all that begin so, else those that are near."""
    for attribute, value in vars(source).items() if inspect.ismodule(source) else inspect.getmembers(source):
        if attribute in GIVEN or not attribute.startswith("on") or not callable(value):
            continue
        is_own = inspect.ismodule(source) and getattr(value, "__module__", "") == source.__name__
        if (is_own and attribute.startswith("on_")) or difflib.get_close_matches(attribute, GIVEN, n=1, cutoff=0.73):
            yield attribute


def _refuse_hook(hook: object, name: str, event: str, given: tuple[str, ...]) -> None:
    shape = f"{event}({', '.join(given)})"
    if not callable(hook):
        raise _unfit(f"{event!r} of {name!r} is {type(hook).__name__}, not a function", f"Write it as def {shape}.")
    if not _takes(hook, len(given)):
        raise _unfit(f"{event!r} of {name!r} does not take what it is called with", f"Write it as def {shape}.")


def _takes(hook: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; one that does not tell is taken at its word."""
    try:
        inspect.signature(hook).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _unfit(problem: str, fix: str) -> ConfigError:
    return ConfigError(problem, where="hooks", fix=fix)
