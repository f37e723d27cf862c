"""SQLite: a file that is opened for reading only, and asks a guard before every step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, cast

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, inspect, text
from sqlalchemy.exc import DisconnectionError

from portico.domain.caller import Caller

from .doors import CONNECT_SECONDS, POOLED, driver_of
from .limits import Limits
from .modes import Mode
from .sqlite_processes import SqliteProcesses
from .sqlite_worker import STEPS, Guarded, connect, guard, identity, wake
from .statements import Statement
from .stopping import stopped_after

MOST_MEMORY = 512_000_000
"""Bytes that SQLite may hold in the gateway's own process, for what we ask ourselves."""


class SqliteDoor:
    """Two engines on one file for what we ask ourselves, with and without the guard, and processes for agents."""

    def __init__(self, file: Path, limits: Limits, *, mode: Mode = Mode.READ) -> None:
        self._file, self._seconds, self.mode = file, limits.seconds, mode
        self.processes = SqliteProcesses(file)
        self._met: tuple[int, int] | None = None
        self.engine = _engine(lambda: guard(self._connect(), STEPS), limits)
        self._looking = _engine(self._connect, limits)
        for engine in (self.engine, self._looking):
            event.listen(engine, "connect", self._mark)
            event.listen(engine, "checkout", self._check)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """A file knows no callers; it only has its time."""
        guarded = cast(Guarded, driver_of(connection))
        wake(guarded)
        guarded.until = monotonic() + self._seconds
        try:
            # The clock is looked at between steps, of which some take long; an interruption is seen after each.
            with stopped_after(self._seconds, guarded.interrupt), _steady(guarded, self.mode):
                yield
        finally:
            guarded.until = math.inf

    def admit(self, connection: Connection, statement: Statement) -> None:
        """The guard asks at every step."""

    def sized(self, sql: str) -> str | None:
        """Values are limited by SQLite itself, and rows are taken one by one."""
        return None

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The query plan; the bytecode tells an agent nothing."""
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"), binds)
        return list(plan.keys()), [tuple(row) for row in plan]

    @contextmanager
    def inspecting(self, connection: Connection | None) -> Iterator[Any]:
        """Of a connection whose statements are all ours."""
        with self._looking.connect() as looking:
            yield inspect(looking)

    def meet(self) -> None:
        """Make sure that there is a file which is a database; once for each file that stands there.

        Only SQLite may open it in this process: whoever closes a file takes away all locks that the process has on it.

        Raises:
            SQLAlchemyError: there is none.
        """
        found = identity(str(self._file))
        if found is None or found != self._met:
            with self._looking.connect():
                self._met = found

    def stop(self, connection: Connection) -> None:
        """Interrupt the statement that runs."""
        cast(Guarded, driver_of(connection)).interrupt()

    def close(self) -> None:
        """Let go of the file."""
        self.processes.close()
        self.engine.dispose()
        self._looking.dispose()

    def _mark(self, driver: Any, record: Any) -> None:
        record.info["file"] = identity(str(self._file))

    def _check(self, driver: Any, record: Any, proxy: Any) -> None:
        """A file that was put in the place of another is opened anew, and one that is gone is not read on."""
        if record.info.get("file") != identity(str(self._file)):
            raise DisconnectionError

    def _connect(self) -> Guarded:
        return connect(f"{self._file.resolve().as_uri()}?mode=ro", MOST_MEMORY, CONNECT_SECONDS)


def _engine(creator: Any, limits: Limits) -> Engine:
    return create_engine(
        "sqlite://",
        creator=creator,
        poolclass=QueuePool,
        pool_size=POOLED,
        max_overflow=POOLED,
        pool_timeout=limits.seconds,
        isolation_level="AUTOCOMMIT",
    )


@contextmanager
def _steady(connection: Guarded, mode: Mode) -> Iterator[None]:
    """Let all statements see the file as it is at the first of them, where that is asked for."""
    if mode is not Mode.STEADY:
        yield
        return
    _own(connection, "BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # an interruption may have ended it
            _own(connection, "ROLLBACK")


def _own(connection: Guarded, sql: str) -> None:
    connection.is_ours = True
    try:
        connection.execute(sql)
    finally:
        connection.is_ours = False
