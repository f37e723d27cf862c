"""What a running gateway does beside answering: keeps tiers current, follows others, writes the catalog down."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import time
from typing import TypeVar

import anyio

from portico.admin import OPERATOR, Admin
from portico.domain.snapshot import CatalogSnapshot
from portico.errors import StoreError
from portico.protocols import ChangeFeed
from portico.tiers.tiers import TierAnswers

START_SECONDS = 2.0
"""For so long a gateway that has just started belongs to its first callers alone."""
DAILY_SECONDS = 3_600.0
"""How often it is asked whether the daily work is due."""
WAIT_SECONDS = 2.0
"""How long one wait for other processes takes."""
TROUBLE_SECONDS = 5.0
SWEEP_SECONDS = 60.0
HANG_UP_SECONDS = 2.0
"""How long the end waits for them."""
QUIET_SECONDS = 1.0
"""A catalog that changes again within this time is written down once."""

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Upkeep:
    """Runs in the background until it is cancelled; a store that is away only makes it wait."""

    admin: Admin
    tier_answers: TierAnswers
    _published: anyio.Event = field(default_factory=anyio.Event)
    _seen: dict[str, int] = field(default_factory=dict)
    _listening: int = 0
    """Threads that are asking the database."""

    async def run(self) -> None:
        """Do all of it."""
        self.admin.refresher.publisher.subscribe(self._note)
        await self._prepare()
        await anyio.sleep(START_SECONDS)
        self._published.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._again_and_again, self._daily)
            tasks.start_soon(self._again_and_again, self._write_down)
            tasks.start_soon(self._again_and_again, self._sweep)
            if self.admin.signals is not None:
                tasks.start_soon(self._again_and_again, self._follow)
                tasks.start_soon(self._hang_up, self.admin.signals)

    async def _again_and_again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work for ever; trouble is told once, and the work taken up again later. It must never end the gateway."""
        is_troubled = False
        while True:
            try:
                await work()
                is_troubled = False
                continue
            except StoreError as error:
                if not is_troubled:
                    logger.warning("%s", error)
            except Exception:
                logger.exception("upkeep failed, and is tried again")
            is_troubled = True
            await anyio.sleep(TROUBLE_SECONDS)

    async def _daily(self) -> None:
        await self.admin.daily(time())
        await anyio.sleep(DAILY_SECONDS)

    async def _sweep(self) -> None:
        """Let go of results that nobody may read any more."""
        results = self.tier_answers.gateway.reader.truncator.results
        await anyio.sleep(SWEEP_SECONDS)
        results.sweep()
        await anyio.to_thread.run_sync(results.sweep_store, abandon_on_cancel=True)

    async def _write_down(self) -> None:
        """Once the catalog has stopped changing, write it down, and tell the others what was fetched here."""
        await self._published.wait()
        await anyio.sleep(QUIET_SECONDS)
        self._published = anyio.Event()
        await self._prepare()
        try:
            await self.admin.write_catalog()
        except StoreError:
            self._published.set()
            raise

    async def _prepare(self) -> None:
        """Make the first answers before somebody asks; whoever asks meanwhile waits for the same ones."""
        try:
            await self.tier_answers.prepare(OPERATOR)
        except Exception:
            logger.exception("the first answers could not be prepared")

    async def _follow(self) -> None:
        """Take over what another process has changed; the first time also what it may have changed since our start."""
        signals = self.admin.signals
        assert signals is not None, "else there is nobody to follow"
        try:
            numbers = await self._listened(signals.numbers)
            await self.admin.catch_up()
        except StoreError as error:
            self.admin.trouble = str(error)
            raise
        self.admin.trouble = ""
        changed = {topic for topic, number in numbers.items() if self._seen.get(topic, 0) != number}
        if changed:
            await self.admin.reload(changed)
        self._seen = numbers
        await self._listened(lambda: signals.wait(WAIT_SECONDS))

    async def _listened(self, ask: Callable[[], Answer]) -> Answer:
        """Ask in a thread, which is left behind when we are stopped: a database may hang."""

        def asked() -> Answer:
            try:
                return ask()
            finally:
                self._listening -= 1

        self._listening += 1
        return await anyio.to_thread.run_sync(asked, abandon_on_cancel=True)

    async def _hang_up(self, signals: ChangeFeed) -> None:
        """At the end wake the thread that waits for others, and wait for it a while: the database is closed next."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(HANG_UP_SECONDS, shield=True):
                await anyio.to_thread.run_sync(signals.close, abandon_on_cancel=True)
                while self._listening:  # noqa: ASYNC110  it ends in a thread
                    await anyio.sleep(0.01)

    def _note(self, snapshot: CatalogSnapshot) -> None:
        self._published.set()
