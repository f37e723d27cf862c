"""The provider of a database's tools: loads its registry, and sends one statement for each call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from portico.concurrency import Exhausted, Workers
from portico.domain.call import Caller, OnProgress
from portico.domain.server import DatabaseSpec, Health, Offering, State
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    Refused,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.providers.python.functions import as_result
from portico.providers.python.provider import error_for_caller
from portico.providers.sql import DatabaseSource, OwnQuery, QueryResult
from portico.providers.sql.read_connection import Mode

from .call_statements import BoundStatement, Returns, build_registry_sql
from .registry_rows import Problem, Registration
from .sql_dialects import dialect_named

if TYPE_CHECKING:
    from .load_and_verify import Registered, RegistryLoader


GRACE_SECONDS = 0.4
"""Seconds beyond the database's own limit, after which a statement is stopped from outside."""
LOAD_SECONDS = 60.0
MOST_ROWS, MOST_BYTES = 200_000, 100_000_000
"""The most that is read of each view of a registry."""
CLOSE_SECONDS = 2.0
PAUSE_SECONDS = 5.0
"""For so long after a registry could not be loaded, calls are told so at once."""
THREADS, LOADS = 10, 2
"""Calls that are at work at once, as many as there are connections, and looks at the registry beside them."""

Answer = TypeVar("Answer")


class RegistryProvider:
    """Offers the tools of one database."""

    source = "database"

    def __init__(self, spec: DatabaseSpec) -> None:
        """Check the URL; nothing is opened.

        Raises:
            ConfigError: the URL cannot be used, its driver is not installed, or it has no registries or roles.
        """
        self.spec = spec
        self._reading = _source(spec, Mode.READ)
        dialect_named(self.dialect)  # other databases have no registries
        self._writing = _source(spec, Mode.WRITE) if spec.writes else None
        self._loading = DatabaseSource(
            spec.url, rows=MOST_ROWS, bytes=MOST_BYTES, seconds=LOAD_SECONDS, mode=Mode.STEADY
        )
        self._workers = Workers(limit=THREADS)
        # Slow calls must not keep a revocation from being seen.
        self._loaders = Workers(limit=LOADS)
        self._lock = anyio.Lock()
        self._registered: Registered | None = None
        self._offering: Offering | None = None
        self._failure: CallError | None = None
        self._failed_at = 0.0
        self.on_suspicion: Callable[[], None] = lambda: None
        """Called when an answer of the database suggests that an object has changed."""

    @property
    def server(self) -> str:
        """The database's name in the config."""
        return self.spec.name

    @property
    def dialect(self) -> str:
        """The kind of database."""
        return self._reading.dialect

    @property
    def fingerprint(self) -> str:
        """Changes with the database, its user, the registry, and what is offered of it."""
        parts = (_without_password(self.spec.url), self.spec.registry, self.spec.writes, self.spec.rows)
        return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The rows that did not load, and what is odd with others."""
        return self._registered.problems if self._registered is not None else ()

    def health(self) -> Health:
        """Whether the registry could be loaded, and how many of its rows were."""
        if self._failure is not None:
            return Health(state=State.FAILED, reason="; ".join(self._failure.details) or str(self._failure))
        if self._registered is None:
            return Health(state=State.UNKNOWN)
        refused = sum(not problem.loads and not problem.is_withheld for problem in self.problems)
        told = f"rows of the registry that do not load: {refused}; see: portico registry check"
        return Health(state=State.RUNNING, reason=told if refused else "")

    async def offer(self) -> Offering:
        """Load the registry; one load at a time, and one that fails leaves what was there."""
        async with self._lock:
            return await self._load_now()

    def calls_at_once(self, name: str) -> int:
        """Calls that run at once: as many as there are connections."""
        return THREADS

    async def has_changed(self) -> bool:
        """Whether the registry holds something else than was last offered.

        Raises:
            CallError: the database cannot be asked.
        """
        known = self._registered
        return known is None or await self._look("look", partial(self._is_other, known))

    async def registered(self) -> Registered:
        """The loaded registry; the first who asks loads it, and after a failure nobody asks again for a while.

        Raises:
            CallError: it cannot be loaded.
        """
        if self._registered is None:
            if self._failure is not None and monotonic() < self._failed_at + PAUSE_SECONDS:
                raise UpstreamGone(self.server, details=self._failure.details)
            async with self._lock:
                if self._registered is None:  # nobody else has loaded it meanwhile
                    await self._load_now()
        assert self._registered is not None, "it was loaded just now"
        return self._registered

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        on_progress: OnProgress | None,
        answers: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> Mapping[str, Any]:
        """Check the arguments once more, send one statement as this caller, and return what it found."""
        one = (await self.registered()).tools.get(name)
        if one is None:
            self.on_suspicion()
            raise UnknownTool(f"{self.server}.{name}")
        source = self._writing if one.writes else self._reading
        assert source is not None, "a tool that writes is offered only where tools may"
        statement = build_registry_sql(one, arguments, self.dialect, most=self.spec.rows)
        run = StatementRun(source=source, registration=one, statement=statement, caller=caller or Caller())
        try:
            return await self._in_thread(self._workers, name, run.run, self.spec.seconds, Sent.UNKNOWN)
        except (InvalidArguments, UpstreamError) as error:
            if error.sent is Sent.ANSWERED:
                self.on_suspicion()
            raise
        finally:
            if not run.is_over:  # nobody waits for it any more
                Thread(target=run.stop, name="portico stop", daemon=True).start()

    async def request(
        self, method: str, params: Mapping[str, Any], *, caller: Caller | None = None
    ) -> Mapping[str, Any]:
        """A registry has nothing but tools."""
        raise UpstreamError(self.server, rpc_code=-32601, message=f"{method} is not offered", sent=Sent.NOTHING)

    async def aclose(self) -> None:
        """Let go of every connection, after those that are at work have come back."""
        with anyio.move_on_after(CLOSE_SECONDS):
            while self._workers.unfinished or self._loaders.unfinished:  # noqa: ASYNC110  it ends in a thread
                await anyio.sleep(0.01)
        for source in (self._reading, self._loading, self._writing):
            if source is not None:
                await anyio.to_thread.run_sync(source.close, abandon_on_cancel=True)

    async def _load_now(self) -> Offering:
        try:
            registered = await self._look("load", partial(self._load, self._registered))
        except CallError as error:
            self._failure, self._failed_at = error, monotonic()
            raise
        self._failure = None
        before, self._registered = self._registered, registered
        if self._offering is None or before is None or before.mark != registered.mark:
            self._offering = Offering(
                server=self.server,
                description=f"Tools that live in the database {self.server}",
                tools=registered.definitions,
                users=registered.users,
            )
        return self._offering

    def _load(self, previous: Registered | None) -> Registered:
        return self._loader().load(previous)

    def _is_other(self, known: Registered) -> bool:
        loader = self._loader()
        return not (loader.is_same(known) if known.glance else loader.load(known) is known)

    def _loader(self) -> RegistryLoader:
        # SQLAlchemy comes with it, which a start with remembered definitions must not pay.
        from portico.providers.sql.registry.load_and_verify import RegistryLoader, Rules

        rules = Rules(
            dialect=self.dialect,
            schema=self.spec.registry,
            writes=self.spec.writes,
            has_roles=bool(self.spec.roles or self.spec.role),
        )
        return RegistryLoader(self._loading, rules, most=self.spec.rows)

    async def _look(self, label: str, work: Callable[[], Answer]) -> Answer:
        """Wait for a look at the registry."""
        return await self._in_thread(self._loaders, label, work, LOAD_SECONDS, Sent.NOTHING)

    async def _in_thread(
        self, workers: Workers, label: str, work: Callable[[], Answer], seconds: float, sent: Sent
    ) -> Answer:
        """Wait for blocking work, but not much longer than it may take."""
        try:
            with anyio.move_on_after(seconds + GRACE_SECONDS):
                found: Answer = await workers.finish(workers.start(label, work))
                return found
        except Exhausted as stuck:
            raise UpstreamGone(self.server, details=(str(stuck),)) from stuck
        except ConfigError as error:  # what nobody could tell before the database is opened
            raise UpstreamGone(self.server, details=(f"{error.problem}. {error.fix}",)) from error
        detail = f"the database has not answered within {seconds + GRACE_SECONDS:g} s"
        raise UpstreamTimeout(self.server, details=(detail,), sent=sent)


def _source(spec: DatabaseSpec, mode: Mode) -> DatabaseSource:
    return DatabaseSource(
        spec.url,
        rows=spec.rows,
        bytes=spec.bytes,
        seconds=spec.seconds,
        role=spec.role,
        roles=spec.roles,
        mode=mode,
        allow_superuser=spec.allow_superuser,
    )


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    login, mark, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{mark}{place}"


TOO_LONG = "it took longer than the database gives it, and was stopped. Ask for less, with a narrower question"


@dataclass(slots=True, kw_only=True)
class StatementRun:
    """The statement of one call, run in a thread; whoever waits for it may stop it."""

    source: DatabaseSource
    registration: Registration
    statement: BoundStatement
    caller: Caller
    is_over: bool = False
    """Whether there is nothing left to stop."""
    _lock: Lock = field(default_factory=Lock)
    _conn: OwnQuery | None = None
    _is_stopped: bool = False

    def run(self) -> Mapping[str, Any]:
        """Send the statement and return the tool's result object; blocks.

        Raises:
            CallError: the database refuses, fails, or is away.
        """
        is_sent, asked, one = False, self.statement, self.registration
        try:
            if asked.returns is Returns.ANYTHING:
                with self.source.reading(self.caller) as conn, self._stoppable(conn):
                    is_sent = True
                    found = conn.performed(asked.sql, asked.values)
            else:
                connect = self.source.reading if one.writes else self.source.asking
                with connect(self.caller) as question, self._stoppable(question):
                    is_sent = True
                    found = question.prepared(asked.sql, asked.values, limit=asked.limit)
            return as_result(tool_answer(one, asked, found))
        except CallError as error:
            raise explain_error(error, one, is_sent=is_sent) from error
        finally:
            self.is_over = True

    def stop(self) -> None:
        """End the statement, or keep it from being sent; blocks a moment."""
        with self._lock:
            self._is_stopped = True
            if self._conn is not None:
                self._conn.stop()

    @contextmanager
    def _stoppable(self, conn: OwnQuery) -> Iterator[None]:
        """While this is open the connection can be stopped; afterwards it may be another caller's."""
        with self._lock:
            if self._is_stopped:
                raise UpstreamGone("the database", details=("the call was given up before it was sent",))
            self._conn = conn
        try:
            yield
        finally:
            with self._lock:
                self._conn = None


def tool_answer(registration: Registration, statement: BoundStatement, found: QueryResult) -> dict[str, Any]:
    """The answer of a tool: one value as such, otherwise rows, and what to do when there are more."""
    is_value = statement.returns is Returns.VALUE and len(found.columns) == 1 and len(found.rows) == 1
    if is_value and not found.truncated:
        return {"result": found.rows[0][0]}
    if statement.returns is Returns.ANYTHING and not found.columns:
        return {"done": True}
    shown = found.shown()
    if not found.truncated:
        return shown
    cut, count = found.note.partition(".")[0], len(found.rows)
    if not registration.kind.has_columns:
        return {**shown, "next": f"{cut}. Narrow it with the tool's parameters"}
    if statement.limit == count:
        advice = "Raise limit, or narrow with filters and aggregates"
        return {**shown, "next": f"there are more than these {count} rows. {advice}"}
    return {**shown, "next": f"{cut}. Choose fewer columns, or a smaller limit"}


def explain_error(error: CallError, registration: Registration, *, is_sent: bool) -> CallError:
    """A database's refusal for somebody who wrote no SQL; what a writing tool did before is not known."""
    if isinstance(error, Refused) and error.sent is Sent.ANSWERED:
        said = [line for line in error.details if line.startswith("the database says")]
        owner = "it is registered as reading and would do more; its owner can register it with Writes = 'Y'"
        return Refused(registration.name, details=(owner, *said), sent=Sent.ANSWERED)
    if isinstance(error, InvalidArguments):
        return error_for_caller(error, registration.name, has_values=bool(registration.parameters))
    if isinstance(error, UpstreamError):
        error.about(registration.name)
        return error
    if isinstance(error, UpstreamTimeout) and error.sent is Sent.ANSWERED:
        return UpstreamTimeout(registration.name, details=(TOO_LONG,), sent=error.sent)
    is_open = is_sent and isinstance(error, UpstreamGone | UpstreamTimeout)
    if is_open and error.sent is Sent.NOTHING:
        return type(error)(error.subject, details=error.details, sent=Sent.UNKNOWN)
    return error
