"""How long a call waited for its server to start, which is no work of the tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter


class StartWait:
    """Seconds that one call has waited for a start."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


START_WAIT: ContextVar[StartWait | None] = ContextVar("START_WAIT", default=None)
"""Of the call that is being made in this context."""


@contextmanager
def waiting_for_start() -> Iterator[None]:
    """Count the time inside as a wait for the start of a server."""
    began = perf_counter()
    try:
        yield
    finally:
        wait = START_WAIT.get()
        if wait is not None:
            wait.seconds += perf_counter() - began
