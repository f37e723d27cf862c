"""Keeps the catalog in step with its providers: from the store at start, from the source when needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from portico.domain.server import Offering
from portico.domain.snapshot import CatalogSnapshot
from portico.errors import CallError, StoreError, UnknownServer
from portico.protocols import Provider, Store

from .publisher import Publisher

PARALLEL_OFFERS = 8
"""Servers asked at the same time: a cold start of a hundred must not start a hundred processes at once."""

FAILURE_SECONDS = 600.0
"""For so long a failure is remembered, so that a broken server does not hold up every command."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
"""Seconds between two questions to a server that could not be asked; the pause doubles."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Refresher:
    """Asks providers for their offerings, remembers them and publishes snapshots.

    It owns one task group, given by whoever runs it; without one, everything happens when it is asked for.
    """

    providers: Mapping[str, Provider]
    publisher: Publisher
    store: Store
    failures: dict[str, str] = field(default_factory=dict)
    """Why each server's last offering could not be had; gone when one succeeds."""
    _tasks: TaskGroup | None = None
    _pending: dict[str, anyio.Event] = field(default_factory=dict)
    _again: set[str] = field(default_factory=set)
    _tries: dict[str, int] = field(default_factory=dict)
    _answers: dict[str, int] = field(default_factory=dict)
    """How often each server has been asked with success."""
    _unsaved: dict[str, Offering] = field(default_factory=dict)
    """Answers that the store does not have yet: what it has of these servers is older."""
    _slots: anyio.CapacityLimiter | None = None

    def load(self) -> set[str]:
        """Publish what the store remembers and return the servers that it does not know; starts nothing."""
        marks = {name: provider.fingerprint for name, provider in self.providers.items()}
        try:
            known, failed = self._remembered(marks)
            self.failures.update(failed)
        except StoreError as error:
            logger.warning("nothing is remembered, definitions are fetched again: %s", error)
            known = {}
        self.publisher.accept((offering, self.providers[name].source) for name, offering in known.items())
        return self.providers.keys() - known.keys()

    async def reload(self) -> CatalogSnapshot:
        """Publish what other processes have fetched since: what the store remembers under today's fingerprints.

        No server is started. An answer that was given here, and that the store did not have yet, is newer and stays.

        Raises:
            StoreError: the store cannot be read.
        """
        marks = {name: provider.fingerprint for name, provider in self.providers.items()}
        answers, unsaved = dict(self._answers), {*self._unsaved}
        known, failed = await anyio.to_thread.run_sync(self._remembered, marks)
        own = unsaved | self._unsaved.keys() | {name for name in known if self._answers.get(name) != answers.get(name)}
        older = {name: offering for name, offering in known.items() if name not in own}
        for name in older.keys() - failed.keys():
            self.failures.pop(name, None)
        return self.publisher.accept((offering, self.providers[name].source) for name, offering in older.items())

    def watch(self, tasks: TaskGroup) -> None:
        """From now on refresh in this task group whenever a provider says that something changed."""
        self._tasks = tasks

    def changed(self, server: str) -> None:
        """A provider's definitions have changed: ask it again, in the background."""
        if self._tasks is not None and server in self.providers:
            if server in self._pending:
                self._again.add(server)  # what is being fetched may be the list from before the change
            else:
                self.begin(server)

    def begin(self, server: str) -> None:
        """Start asking a server in the background; a server that is being asked already is not asked twice."""
        if self._tasks is None:
            raise RuntimeError("watch() comes first")
        if server not in self._pending:
            self._pending[server] = anyio.Event()
            self._tasks.start_soon(self._ask_in_background, server)

    @property
    def answers(self) -> int:
        """How often servers have been asked here with success; what was taken from the store is not counted."""
        return sum(self._answers.values())

    @property
    def is_starting(self) -> bool:
        """Whether some server is being asked for the first time."""
        return any(self._is_awaited(name) for name in self._pending)

    async def wait_until_ready(self, seconds: float) -> set[str]:
        """Wait until no server is being asked for the first time, at most so long; returns those that still are."""
        with anyio.move_on_after(seconds):
            while waiting := [event for name, event in self._pending.items() if self._is_awaited(name)]:
                await waiting[0].wait()
        return self.starting()

    def starting(self) -> set[str]:
        """The servers that are being asked for the first time."""
        return {name for name in self._pending if self._is_awaited(name)}

    async def refresh(self, server: str) -> CatalogSnapshot:
        """Ask one server now and publish what it says.

        Raises:
            UnknownServer: no such server is configured.
            CallError: the server could not be asked; what was known of it stays.
        """
        if server not in self.providers:
            known = ", ".join(sorted(self.providers)) or "none"
            raise UnknownServer(f"no server is called {server!r}; configured: {known}")
        offering = await self._ask(server)
        snapshot = self.publisher.accept([(offering, self.providers[server].source)])
        await self._in_background(self._save, server)
        return snapshot

    async def refresh_all(
        self, servers: set[str], on_done: Callable[[str, CallError | None], None] | None = None
    ) -> None:
        """Ask many servers, a few at a time; each failure is kept and told, and stops nobody else."""
        async with anyio.create_task_group() as tasks:
            for server in sorted(servers):
                tasks.start_soon(self._refresh_and_tell, server, on_done)

    async def _refresh_and_tell(self, server: str, on_done: Callable[[str, CallError | None], None] | None) -> None:
        failure: CallError | None = None
        try:
            await self.refresh(server)
        except CallError as error:
            failure = error
        if on_done is not None:
            on_done(server, failure)

    async def _ask_in_background(self, server: str) -> None:
        try:
            await self.refresh(server)
            self._tries.pop(server, None)
        except CallError as error:
            logger.warning("%s", error)
        finally:
            self._pending.pop(server).set()
        if server in self._again:
            self._again.discard(server)
            self.begin(server)
        elif not self._is_known(server):
            await self._ask_later(server)

    async def _ask_later(self, server: str) -> None:
        """Ask a server that nothing is known of once more, after a pause that grows; it may have come back by then."""
        tries = self._tries[server] = self._tries.get(server, 0) + 1
        await anyio.sleep(min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE))
        if not self._is_known(server):
            self.begin(server)

    async def _ask(self, server: str) -> Offering:
        if self._slots is None:
            self._slots = anyio.CapacityLimiter(PARALLEL_OFFERS)
        provider = self.providers[server]
        async with self._slots:
            try:
                offering = await provider.offer()
            except CallError as error:
                self.failures[server] = "; ".join(error.public_details) or str(error)
                await self._in_background(self._save_failure, server)
                raise
        self.failures.pop(server, None)
        self._answers[server] = self._answers.get(server, 0) + 1
        self._unsaved[server] = offering
        return offering

    async def save_rest(self) -> None:
        """Let the store have what it could not be given when it came.

        Raises:
            StoreError: it still cannot.
        """
        for server, offering in list(self._unsaved.items()):
            await self._keep(server, offering)

    async def _in_background(self, work: Callable[[str], Coroutine[Any, Any, None]], server: str) -> None:
        """Nobody waits for the store where somebody runs our tasks; a command waits, because it ends afterwards."""
        if self._tasks is not None:
            self._tasks.start_soon(work, server)
        else:
            await work(server)

    async def _save(self, server: str) -> None:
        offering = self._unsaved.get(server)
        try:
            if offering is not None:
                await self._keep(server, offering)
        except StoreError as error:
            logger.warning("definitions of %r are not remembered: %s", server, error)

    async def _keep(self, server: str, offering: Offering) -> None:
        """In a thread: another process may hold the store for seconds."""
        mark = self.providers[server].fingerprint
        await anyio.to_thread.run_sync(self.store.save, offering, mark, abandon_on_cancel=True)
        if self._unsaved.get(server) is offering:
            del self._unsaved[server]

    async def _save_failure(self, server: str) -> None:
        mark, reason = self.providers[server].fingerprint, self.failures.get(server, "")
        with suppress(StoreError):  # what cannot be remembered is only asked once more
            await anyio.to_thread.run_sync(self.store.save_failure, server, mark, reason, abandon_on_cancel=True)

    def _remembered(self, marks: Mapping[str, str]) -> tuple[dict[str, Offering], dict[str, str]]:
        return self.store.load(marks), self.store.failures(marks, within=FAILURE_SECONDS)

    def _is_awaited(self, server: str) -> bool:
        """Whether nothing is known of a server yet, not even that it fails."""
        return not self._is_known(server) and server not in self.failures

    def _is_known(self, server: str) -> bool:
        return server in self.publisher.current.snapshot.servers
