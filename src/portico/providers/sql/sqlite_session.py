"""SQLite: files opened for reading only, by the gateway for itself and by processes of their own for agents' SQL."""

from __future__ import annotations

import math
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkstemp
from threading import Condition
from time import monotonic
from typing import Any, cast

import orjson
from sqlalchemy import Connection, QueuePool, event, inspect
from sqlalchemy.exc import DisconnectionError

from portico.domain.call import Caller
from portico.errors import StoreError, UpstreamGone, UpstreamTimeout

from . import sqlite_worker
from .database_errors import BUSY, DRIVERS, timeout_error
from .database_session import (
    DatabaseEngine,
    checked_statement,
    cut_by_bytes,
    cut_by_rows,
    driver_of,
    make_engine,
    stop_after,
)
from .database_source import CONNECT_SECONDS, Address
from .read_connection import Binds, Mode, OwnConnection, QueryLimits, QueryResult
from .sqlite_worker import STEPS, Guarded, connect, guard, identity, sent_value, wake
from .table_inspection import TableInspection

Rows = Sequence[Sequence[Any]]

MOST_MEMORY = 512_000_000
"""Bytes that SQLite may hold in the gateway's own process, for what we ask ourselves."""
MOST_PROCESSES = 8
"""Statements of one file that run at once."""
KEPT_WARM = 2
"""Processes that stay when nobody uses them."""
GRACE = 0.2
"""Seconds that a process has to stop by itself, before it is killed."""
_PASSED_ON = ("TMPDIR", "SQLITE_TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables of the environment that a process needs; the rest may hold secrets."""


def make_sqlite(file: Path, schema: str, tables: Mapping[str, Rows]) -> None:
    """Write a new file with these tables; one that is there stays as it is.

    Raises:
        StoreError: the folder cannot be written.
    """
    if file.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        number, name = mkstemp(prefix=f"{file.stem}-", suffix=".new", dir=file.parent)
        os.close(number)
        draft = Path(name)
        try:
            with closing(sqlite3.connect(draft)) as connection, connection:
                connection.executescript(schema)
                for table, rows in tables.items():
                    marks = ", ".join("?" for _ in rows[0])
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our words
            draft.replace(file)  # two processes that start together make the same file
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        reason = f"{file} cannot be made: {error}. Make its folder writable, or set DATABASE_URI"
        raise StoreError(reason) from error


class SqliteEngine(DatabaseEngine):
    """Two engines on one file for what we ask ourselves, with and without the guard, and processes for agents."""

    explain_with = "EXPLAIN QUERY PLAN"  # the bytecode tells an agent nothing

    def __init__(self, address: Address, limits: QueryLimits, mode: Mode = Mode.READ) -> None:
        assert address.file is not None
        self._file = address.file
        self._known_file: tuple[int, int] | None = None
        self.processes = SqliteProcesses(self._file)
        secrets = {str(self._file), str(self._file.resolve())}
        options = {"poolclass": QueuePool, "isolation_level": "AUTOCOMMIT"}
        super().__init__(
            address, limits, mode, secrets=secrets, creator=lambda: guard(self._connect(), STEPS), **options
        )
        self.name = self._file.stem
        self._unguarded = make_engine(address.url, creator=self._connect, pool_timeout=limits.seconds, **options)
        for engine in (self.engine, self._unguarded):
            event.listen(engine, "connect", lambda driver, record: record.info.update(file=self._identity()))
            event.listen(engine, "checkout", self._check)

    @contextmanager
    def reading(self, caller: Caller) -> Iterator[OwnConnection]:
        """A session for one caller, of whom a file knows nothing; agents' SQL runs in another process.

        Raises:
            UpstreamGone: there is no such file, or it is no database.
        """
        if self.mode is not Mode.READ:
            with super().reading(caller) as session:
                yield session
            return
        try:
            self._meet()
        except DRIVERS as error:
            raise self.errors.unreached(error) from error
        with closing(SqliteSession(self)) as own:
            yield own

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """A file knows no callers; it only has its time, and one moment that all statements see where that is asked."""
        guarded = cast(Guarded, driver_of(connection))
        wake(guarded)
        guarded.until = monotonic() + self.limits.seconds
        try:
            # The clock is looked at between steps, of which some take long; an interruption is seen after each.
            with stop_after(self.limits.seconds, guarded.interrupt):
                if self.mode is Mode.STEADY:
                    _execute_own(guarded, "BEGIN")
                try:
                    yield
                finally:
                    # An interruption may have ended it.
                    if self.mode is Mode.STEADY and guarded.in_transaction:
                        _execute_own(guarded, "ROLLBACK")
        finally:
            guarded.until, guarded.is_ours = math.inf, False

    @contextmanager
    def open_inspector(self, connection: Connection | None) -> Iterator[Any]:
        """Of a connection whose statements are all ours.

        One that sees a single moment inspects itself: another one would wait for a writer that waits for the first.
        """
        if self.mode is Mode.STEADY and connection is not None:
            cast(Guarded, driver_of(connection)).is_ours = True
            yield inspect(connection)
            return
        with self._unguarded.connect() as unguarded:
            yield inspect(unguarded)

    def stop(self, connection: Connection) -> None:
        """Interrupt the statement that runs."""
        cast(Guarded, driver_of(connection)).interrupt()

    def close(self) -> None:
        """Let go of the file."""
        self.processes.close()
        self.engine.dispose()
        self._unguarded.dispose()

    def _meet(self) -> None:
        """Make sure that there is a file which is a database; once for each file that stands there.

        Only SQLite may open it in this process: whoever closes a file takes away all locks that the process has on it.
        """
        found = self._identity()
        if found is None or found != self._known_file:
            with self._unguarded.connect():
                self._known_file = found

    def _identity(self) -> tuple[int, int] | None:
        return identity(str(self._file))

    def _check(self, driver: Any, record: Any, proxy: Any) -> None:
        """A file that was put in the place of another is opened anew, and one that is gone is not read on."""
        if record.info.get("file") != self._identity():
            raise DisconnectionError

    def _connect(self) -> Guarded:
        return connect(f"{self._file.resolve().as_uri()}?mode=ro", MOST_MEMORY, CONNECT_SECONDS)


def _execute_own(connection: Guarded, sql: str) -> None:
    connection.is_ours = True
    try:
        connection.execute(sql)
    finally:
        connection.is_ours = False


class SqliteSession(TableInspection):
    """The `conn` of a tool; it takes a process when it first asks something."""

    database: SqliteEngine

    def __init__(self, database: SqliteEngine) -> None:
        super().__init__(database)
        self._until = monotonic() + database.limits.seconds
        self._process: SqliteProcess | None = None
        self._is_stopped = False

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> QueryResult:
        """Run one statement that reads."""
        statement, values = checked_statement(sql, binds, "sqlite")
        return self.prepared(statement.plain, values, limit=limit)

    def explain(self, sql: str, binds: Binds | None = None) -> QueryResult:
        """Ask for the plan."""
        statement, values = checked_statement(sql, binds, "sqlite")
        return self.prepared(f"{self.database.explain_with} {statement.plain}", values)

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query whose words were checked before."""
        try:
            values = {name: sent_value(value) for name, value in binds.items()}
        except TypeError as error:
            raise self.database.errors.mistake(str(error)) from error
        limits = self.database.limits
        request = {"sql": sql, "binds": values, "rows": limits.rows_for(limit), "bytes": limits.bytes}
        try:
            found = self._take_process().ask(request, self._seconds_left())
        except SqliteFault as fault:
            errors = self.database.errors
            raise (errors.unreached if fault.is_open else errors.translate)(fault.orig) from fault
        columns, rows = tuple(found["columns"]), tuple(map(tuple, found["rows"]))
        if found["cut"] == "rows":
            return cut_by_rows(columns, rows)
        return cut_by_bytes(columns, rows) if found["cut"] else QueryResult(columns=columns, rows=rows)

    def performed(self, sql: str, binds: Binds) -> QueryResult:
        """Run a query, since a file has nothing that could be done without one."""
        return self.prepared(sql, binds)

    def stop(self) -> None:
        """Kill the process that works for this session, from another thread; it asks nothing afterwards."""
        self._is_stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Give the process back."""
        super().close()
        self._give_back()

    def _take_process(self) -> SqliteProcess:
        """The process of this session, or another when it has ended."""
        if self._process is None or not self._process.is_usable:
            self._give_back()
            self._process = self.database.processes.take(self._seconds_left())
        return self._process

    def _seconds_left(self) -> float:
        """Asked again when a process was taken, which whoever stops the session may have missed."""
        left = self._until - monotonic()
        if left <= 0 or self._is_stopped:
            raise timeout_error()
        return left

    def _give_back(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.database.processes.give_back(process)


class SqliteFault(Exception):
    """An error of SQLite in another process, as the driver would have raised it here."""

    def __init__(self, orig: Exception, *, is_open: bool) -> None:
        self.orig, self.is_open = orig, is_open
        super().__init__(str(orig))


class SqliteProcess:
    """One process; used by one reading at a time, and killed by whoever wants to."""

    def __init__(self, file: Path) -> None:
        ours, theirs = socket.socketpair()
        address = f"{file.resolve().as_uri()}?mode=ro"
        # Isolated, so that neither the environment nor the current folder decides what it imports.
        command = [sys.executable, "-I", "-S", sqlite_worker.__file__, str(file.absolute()), address]
        environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environ,
                    start_new_session=True,  # what interrupts the gateway at a terminal is not meant for it
                )
            except OSError:
                ours.close()
                raise
        self._socket = ours
        self.is_usable = True

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send one request and wait for its answer; the process is killed when it takes longer.

        Raises:
            SqliteFault: SQLite refuses.
            UpstreamTimeout: the time is up, or somebody else has killed it.
            UpstreamGone: the process ended by itself.
        """
        until = monotonic() + seconds + GRACE
        body = orjson.dumps({**request, "seconds": seconds})
        try:
            self._socket.settimeout(max(0.01, until - monotonic()))
            self._socket.sendall(len(body).to_bytes(sqlite_worker.HEADER, "big") + body)
            size = int.from_bytes(self._receive(sqlite_worker.HEADER, until), "big")
            answer: dict[str, Any] = orjson.loads(self._receive(size, until))
        except TimeoutError as error:
            self.kill()
            raise timeout_error() from error
        except (OSError, EOFError, orjson.JSONDecodeError) as error:
            raise self._end_error() from error
        if "fault" in answer:
            raise _fault(answer["fault"])
        return answer

    def kill(self) -> None:
        """End the process at once, from any thread."""
        self.is_usable = False
        self._process.kill()

    def close(self) -> None:
        """End it and let go of everything."""
        self.kill()
        self._process.wait()
        self._socket.close()

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self.is_usable and self._process.poll() is None

    def _receive(self, size: int, until: float) -> bytes:
        parts = []
        while size:
            self._socket.settimeout(max(0.001, until - monotonic()))
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _end_error(self) -> Exception:
        is_killed = not self.is_usable
        self.kill()
        if is_killed:
            return timeout_error()
        detail = "the process that reads it has ended in the middle of a statement. Ask for less, or try again"
        return UpstreamGone("the database", details=(detail,))


class SqliteProcesses:
    """The processes of one file."""

    def __init__(self, file: Path, *, most: int = MOST_PROCESSES) -> None:
        self._file, self._most, self._is_closed = file, most, False
        self._free = Condition()
        self._idle: list[SqliteProcess] = []
        self._busy: set[SqliteProcess] = set()

    def take(self, seconds: float) -> SqliteProcess:
        """A process of one's own, as soon as there is one.

        Raises:
            UpstreamTimeout: all were busy for so long.
            UpstreamGone: none can be started.
        """
        with self._free:
            if not self._free.wait_for(lambda: len(self._busy) < self._most, timeout=max(0.0, seconds)):
                raise UpstreamTimeout("the database", details=(BUSY,))
            found = self._warm_or_new()
            self._busy.add(found)
            return found

    def give_back(self, process: SqliteProcess) -> None:
        """Let others have it; one that was killed is replaced by the next who needs one."""
        with self._free:
            self._busy.discard(process)
            is_kept = not self._is_closed and process.is_alive() and len(self._idle) < KEPT_WARM
            if is_kept:
                self._idle.append(process)
            self._free.notify()
        if not is_kept:
            process.close()

    def close(self) -> None:
        """End them all, also those that are at work."""
        with self._free:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()
        for process in idle:
            process.close()

    def pids(self) -> tuple[int, ...]:
        """The numbers of the processes that there are."""
        with self._free:
            return tuple(process.pid for process in (*self._idle, *self._busy))

    def _warm_or_new(self) -> SqliteProcess:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive():
                return process
            process.close()
        try:
            return SqliteProcess(self._file)
        except OSError as error:
            detail = f"the process that reads it cannot be started: {error.strerror}. Tell the operator"
            raise UpstreamGone("the database", details=(detail,)) from error


def _fault(told: Mapping[str, str]) -> SqliteFault:
    """An error of the other process, as the exception that it was."""
    text, kind = str(told.get("text", "")), told.get("kind")
    error: Exception
    if kind == "memory":
        error = MemoryError(text)
    elif kind == "value":
        error = OverflowError(text)
    else:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorname = str(told.get("name", ""))
        error.is_running = told.get("stage") == "run" and bool(told.get("name"))  # type: ignore[attr-defined]
    return SqliteFault(error, is_open=told.get("stage") == "open")
