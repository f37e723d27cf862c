"""Says why a value cannot become what an annotation asks for, and where in it the trouble is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Unfit(ValueError):
    """A value that does not fit; the message speaks of the value, `path` leads to it."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        self.reason, self.path = reason, path
        super().__init__(reason)

    def __str__(self) -> str:
        where = ".".join(str(step) for step in self.path)
        return f"{where}: {self.reason}" if where else self.reason


def at(step: str | int, read: Callable[[Any], Any], value: Any) -> Any:
    """Read one part of a value.

    Raises:
        Unfit: with the way to the part.
    """
    try:
        return read(value)
    except Unfit as error:
        raise Unfit(error.reason, (step, *error.path)) from error
