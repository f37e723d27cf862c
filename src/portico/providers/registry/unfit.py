"""Says why a value cannot be what a registration asks for, and where in the arguments it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Unfit(ValueError):
    """A value that does not fit; the reason speaks of the value, `path` leads to it."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        self.reason, self.path = reason, path
        super().__init__(f"{'.'.join(path)!r} {reason}" if path else reason)


def at(step: str | int, read: Callable[..., T], *values: object) -> T:
    """Read one part of the arguments.

    Raises:
        Unfit: with the way to the part.
    """
    try:
        return read(*values)
    except Unfit as error:
        raise Unfit(error.reason, (str(step), *error.path)) from error
