"""How long a call waited for its server to start, which is no work of the tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

START_WAIT: ContextVar[float] = ContextVar("START_WAIT", default=0.0)
"""Seconds that the call which is being made in this context has waited; whoever makes a call sets it to 0."""


@contextmanager
def waiting_for_start() -> Iterator[None]:
    """Count the time inside as a wait for the start of a server."""
    began = perf_counter()
    try:
        yield
    finally:
        START_WAIT.set(START_WAIT.get() + perf_counter() - began)
