"""A connection to PostgreSQL that is given up when the server hangs, which neither it nor the network would tell."""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any

from psycopg import Connection as PsycopgConnection
from psycopg import OperationalError

Waiting = Generator[Any, Any, Any]
"""One exchange with the server, as psycopg takes it step by step."""


class ImpatientConnection(PsycopgConnection[Any]):
    """Waits for each answer for so many seconds, and closes itself when none came; whoever asked is told."""

    patience: float = 15.0

    def wait(self, gen: Waiting, *given: Any, **options: Any) -> Any:
        """Go through one exchange; every statement, commit and rollback comes here."""
        return super().wait(self._watched(gen), *given, **options)

    def _watched(self, exchange: Waiting) -> Waiting:
        """The same exchange; psycopg goes on with it, with nothing at hand, ten times a second at least."""
        end = monotonic() + self.patience
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if not ready and monotonic() >= end:
                    self.close()
                    raise OperationalError(f"it is there, but has not answered for {self.patience:g} s")
                wanted = exchange.send(ready)
        except StopIteration as done:
            return done.value
