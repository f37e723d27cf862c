"""Whether an object can be used as hooks, told before anything is served: a hook may be a guard."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from portico.errors import ConfigError

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
