"""Stops what still runs when its time is up, from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer


@contextmanager
def stopped_after(seconds: float, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when the context is still open after so long; never later, which the lock makes sure of."""
    turn, is_over = Lock(), False

    def ring() -> None:
        with turn:
            if not is_over:
                stop()

    timer = Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turn:
            is_over = True
