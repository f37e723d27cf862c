"""Keeps what is offered in step with the registry: at intervals, when the database tells, when somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module

import anyio

from portico.errors import CallError

from .provider import RegistryProvider
from .rows import Problem

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
        listening = import_module("portico.providers.registry.listening").listening
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
