"""JMESPath over a kept result, with bounds: an expression of a few letters could ask for work without end.

`[@,@]|[@,@]|...` doubles what it is given at each step, and so do `join` and flattening. So every step is counted, and
whatever is put together is measured before anything else reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from time import monotonic
from typing import Any

from jmespath import compile as compile_path
from jmespath.functions import Functions
from jmespath.visitor import TreeInterpreter, _Expression

PATH_LENGTH = 500
SECONDS = 5.0  # how long one expression may take
STEPS = 20_000_000
LETTERS_PER_STEP = 32
_CLOCK_STEPS = 4_096  # steps between two looks at the clock
_TAKES_EXPRESSION = frozenset({"sort_by", "min_by", "max_by", "map"})


class PathError(Exception):
    """Why an expression has no answer, in one line."""


def select(value: Any, path: str, *, clock: Callable[[], float] = monotonic, steps: int = STEPS) -> Any:
    """Evaluate a JMESPath expression; blocks, for some seconds at most.

    Raises:
        PathError: it cannot be read, does not fit the value, or takes too much.
    """
    if len(path) > PATH_LENGTH:
        raise PathError(f"path: longer than {PATH_LENGTH} letters")
    try:
        return _data(_BoundedInterpreter(clock, steps).visit(compile_path(path).parsed, value))
    except RecursionError:
        raise PathError("path: nested too deeply") from None
    # Errors of JMESPath are ValueErrors; the others come from its functions, which check types loosely.
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PathError(f"path: {' '.join(str(error).split())[:200]}") from None


class _BoundedInterpreter(TreeInterpreter):
    """An interpreter that counts what it does."""

    def __init__(self, clock: Callable[[], float], steps: int) -> None:
        super().__init__()
        self._calls = Functions()
        self._clock, self._left = clock, steps
        self._until, self._unchecked = clock() + SECONDS, 0

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._take(1)
        return super().visit(node, *args, **kwargs)

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        return self._measure(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        return self._measure(super().visit_multi_select_dict(node, value))

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        lists = [item if isinstance(item, list) else [item] for item in base]
        self._take(sum(map(len, lists)))
        return [*chain.from_iterable(lists)]

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        given = [self.visit(child, value) for child in node["children"]]
        for argument in given:
            if node["value"] not in _TAKES_EXPRESSION:
                _data(argument)
            self._take(len(argument) // LETTERS_PER_STEP if isinstance(argument, str | list | dict) else 1)
        if node["value"] == "join" and len(given) == 2 and isinstance(given[1], list):
            each = len(given[0]) if isinstance(given[0], str) else 0
            whole = sum(each + (len(text) if isinstance(text, str) else 0) for text in given[1])
            self._take(whole // LETTERS_PER_STEP)
        elif node["value"] == "to_string":
            self._measure(given)
        return self._calls.call_function(node["value"], given)

    def _measure(self, value: Any) -> Any:
        """Visit a value as whoever compares or writes it will; what is in it twice is visited twice."""
        waiting = [value]
        while waiting:
            current = _data(waiting.pop())
            if isinstance(current, str):
                self._take(1 + len(current) // LETTERS_PER_STEP)
            elif isinstance(current, dict | list):
                self._take(1 + len(current))
                waiting.extend(current.values() if isinstance(current, dict) else current)
        return value

    def _take(self, steps: int) -> None:
        self._left -= steps
        self._unchecked += steps
        if self._left < 0:
            raise PathError("path: it puts together too much; select less")
        if self._unchecked >= _CLOCK_STEPS:
            self._unchecked = 0
            if self._clock() > self._until:
                raise PathError(f"path: it takes longer than {SECONDS:g} seconds; select less")


def _data(value: Any) -> Any:
    """A value that is data; an expression by itself is none, though the language lets one through."""
    if isinstance(value, _Expression):
        raise PathError("path: & stands only before an argument of sort_by, min_by, max_by or map")
    return value
