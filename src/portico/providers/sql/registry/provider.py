"""The provider of a database's tools, kept in step with its registry."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from portico.domain.call import Caller, OnProgress
from portico.domain.server import DatabaseSpec, Health, Offering, State
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.providers.python.threads import Exhausted, Workers
from portico.providers.sql import DatabaseSource
from portico.providers.sql.connection import Mode

from .rows import Problem
from .statements import StatementRun, build_registry_sql, dialect_named

if TYPE_CHECKING:
    from .loading import Registered, RegistryLoader


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two questions to a database that is away; the pause doubles."""
TOLD = 20
"""Rows that do not load and are named in the log, one line each."""
GATHER_SECONDS = 0.05
"""Changes that come within this time are read together."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Following:
    """Follows one registry for ever; a database that is away only makes it wait."""

    provider: RegistryProvider
    refresh: Callable[[], Awaitable[object]]
    """Asks the provider for its offering, and publishes it."""
    is_starting: bool = False
    """Whether somebody else is loading it for the first time."""
    _woken: anyio.Event = field(default_factory=anyio.Event)
    _tries: int = 0
    _told: frozenset[Problem] = frozenset()

    def wake(self) -> None:
        """Look at the registry now."""
        self._woken.set()

    async def run(self) -> None:
        """Follow until this is cancelled."""
        self.provider.on_suspicion = self.wake
        async with anyio.create_task_group() as tasks:
            if self.provider.dialect == "postgresql":
                tasks.start_soon(self._listen)
            await self._follow()

    async def _follow(self) -> None:
        if self.is_starting:
            await self._rest(FIRST_PAUSE)
        while True:
            try:
                await self._look()
            except Exception:  # it runs for as long as the gateway does, and must not end it
                logger.exception("the registry of %r could not be looked at, and is tried again", self.provider.server)
                self._tries += 1
            await self._rest(_pause(self._tries) if self._tries else self.provider.spec.refresh_s)

    async def _look(self) -> None:
        try:
            if await self.provider.has_changed():
                await self.refresh()
        except CallError as error:
            if not self._tries:
                logger.warning("the registry of %r cannot be read, and is tried again: %s", self.provider.server, error)
            self._tries += 1
            return
        if self._tries:
            logger.warning("the registry of %r can be read again", self.provider.server)
        self._tries = 0
        self._tell()

    def _tell(self) -> None:
        """Log the rows that do not load, each once."""
        refused = [problem for problem in self.provider.problems if not problem.loads]
        fresh = [problem for problem in refused if problem not in self._told]
        for problem in fresh[:TOLD]:
            logger.warning("registry of %r: %s", self.provider.server, problem)
        if len(fresh) > TOLD:
            more = len(fresh) - TOLD
            logger.warning(
                "registry of %r: %d more do not load; see: portico registry check", self.provider.server, more
            )
        self._told = frozenset(refused)

    async def _rest(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._woken.wait()
            await anyio.sleep(GATHER_SECONDS)
        self._woken = anyio.Event()

    async def _listen(self) -> None:
        """Hear of changes; while nobody can be heard, the looks at intervals go on."""
        # psycopg comes with it, which only this needs so early.
        from portico.providers.sql.registry.pg_listen import listening

        tries = 0
        while True:
            try:
                async with listening(self.provider.spec.url) as heard:
                    tries = 0
                    self.wake()  # for what was told before
                    async for schema in heard:
                        if schema.casefold() in ("", self.provider.spec.registry.casefold()):
                            self.wake()
            except CallError as error:
                logger.debug("%s", error)
            tries += 1
            await anyio.sleep(_pause(tries))


def _pause(tries: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** (min(tries, 20) - 1), LONGEST_PAUSE)


GRACE_SECONDS = 0.4
"""How much longer than the database's own limit anything is waited for; then it is stopped from outside."""
LOAD_SECONDS = 60.0
MOST_ROWS, MOST_BYTES = 200_000, 100_000_000
"""What is read of each view of a registry."""
CLOSE_SECONDS = 2.0
PAUSE_SECONDS = 5.0
"""For so long after a registry could not be loaded, calls are told so at once."""
THREADS, LOOKS = 10, 2
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
        self._looking = DatabaseSource(
            spec.url, rows=MOST_ROWS, bytes=MOST_BYTES, seconds=LOAD_SECONDS, mode=Mode.STEADY
        )
        self._workers = Workers(limit=THREADS)
        # Slow calls must not keep a revocation from being seen.
        self._lookers = Workers(limit=LOOKS)
        self._turn = anyio.Lock()
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
        async with self._turn:
            return await self._loaded()

    def calls_at_once(self, name: str) -> int:
        """How many calls run at once: as many as there are connections."""
        return THREADS

    async def has_changed(self) -> bool:
        """Whether the registry holds something else than was last offered.

        Raises:
            CallError: the database cannot be asked.
        """
        known = self._registered
        return known is None or await self._looked("look", partial(self._is_other, known))

    async def registered(self) -> Registered:
        """What is loaded; the first who asks loads it, and after a failure nobody asks again for a while.

        Raises:
            CallError: it cannot be loaded.
        """
        if self._registered is None:
            if self._failure is not None and monotonic() < self._failed_at + PAUSE_SECONDS:
                raise UpstreamGone(self.server, details=self._failure.details)
            async with self._turn:
                if self._registered is None:  # nobody else has loaded it meanwhile
                    await self._loaded()
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
            return await self._called(name, run)
        except (InvalidArguments, UpstreamError) as error:
            if error.sent is Sent.ANSWERED:
                self.on_suspicion()
            raise

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A registry has nothing but tools."""
        raise UpstreamError(self.server, rpc_code=-32601, message=f"{method} is not offered", sent=Sent.NOTHING)

    async def aclose(self) -> None:
        """Let go of every connection, after those that are at work have come back."""
        with anyio.move_on_after(CLOSE_SECONDS):
            while self._workers.unfinished or self._lookers.unfinished:  # noqa: ASYNC110  it ends in a thread
                await anyio.sleep(0.01)
        for source in (self._reading, self._looking, self._writing):
            if source is not None:
                await anyio.to_thread.run_sync(source.close, abandon_on_cancel=True)

    async def _loaded(self) -> Offering:
        try:
            registered = await self._looked("load", partial(self._load, self._registered))
        except CallError as error:
            self._failure, self._failed_at = error, monotonic()
            raise
        self._failure = None
        return self._take(registered)

    def _take(self, registered: Registered) -> Offering:
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
        from portico.providers.sql.registry.loading import RegistryLoader, Rules

        rules = Rules(
            dialect=self.dialect,
            schema=self.spec.registry,
            writes=self.spec.writes,
            has_roles=bool(self.spec.roles or self.spec.role),
        )
        return RegistryLoader(self._looking, rules, most=self.spec.rows)

    async def _called(self, name: str, run: StatementRun) -> Mapping[str, Any]:
        """Wait for a call; when nobody waits any more it is stopped."""
        try:
            return await self._in_thread(self._workers, name, run.run, self.spec.seconds, Sent.UNKNOWN)
        finally:
            if not run.is_over:
                Thread(target=run.stop, name="portico stop", daemon=True).start()

    async def _looked(self, label: str, work: Callable[[], Answer]) -> Answer:
        """Wait for a look at the registry."""
        return await self._in_thread(self._lookers, label, work, LOAD_SECONDS, Sent.NOTHING)

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
