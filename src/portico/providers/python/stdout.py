"""Prints of tools go to stderr, because stdout may carry the protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any, TextIO

_goes_to_stderr: ContextVar[bool] = ContextVar("portico_prints_go_to_stderr", default=False)
_lock = Lock()
_users = 0
_diversions = 0
_kept: int | None = None
"""A copy of file descriptor 1, as it was before."""


class _StdoutSwitch:
    """Replaces stdout; leads to stderr for whoever runs a tool's function, and to stdout for everybody else."""

    def __init__(self, before: TextIO) -> None:
        self.before = before

    def write(self, text: str) -> int:
        """Write to the one or the other."""
        return (sys.stderr if _goes_to_stderr.get() else self.before).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _goes_to_stderr.get() else self.before, name)


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Within the block, and in tasks and threads that inherit its context, prints go to stderr."""
    global _users
    with _lock:
        _users += 1
        if not isinstance(sys.stdout, _StdoutSwitch):  # somebody may have put another stream there meanwhile
            sys.stdout = _StdoutSwitch(sys.stdout)
    token = _goes_to_stderr.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away ends in another context than it began in
            _goes_to_stderr.reset(token)
        with _lock:
            _users -= 1
            if not _users and isinstance(sys.stdout, _StdoutSwitch):
                sys.stdout = sys.stdout.before


@contextmanager
def stdout_diverted() -> Iterator[None]:
    """Within the block, what anybody writes to file descriptor 1 goes to stderr; at its end stdout is what it was.

    For imports, which happen before anything is served: child processes and C libraries know no other stdout.
    """
    global _diversions, _kept
    stream = sys.stdout
    with suppress(OSError, ValueError, AttributeError):
        stream.flush()
    with _lock:
        _diversions += 1
        if _diversions == 1:
            with suppress(OSError):  # there may be no stdout, or no stderr
                _kept = os.dup(1)
                os.dup2(2, 1)
    try:
        yield
    finally:
        if not isinstance(sys.stdout, _StdoutSwitch):  # a module may have wrapped or replaced it
            sys.stdout = stream
        with _lock:
            _diversions -= 1
            if not _diversions and _kept is not None:
                os.dup2(_kept, 1)
                os.close(_kept)
                _kept = None
