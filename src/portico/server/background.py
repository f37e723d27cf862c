"""Background jobs of a running gateway: tiers, changes by others, the stored catalog, files of local tools."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
from watchfiles import awatch

from portico.admin import OPERATOR, Admin
from portico.catalog.snapshot import CatalogSnapshot
from portico.errors import StoreError
from portico.storage.change_feed import ChangeFeed
from portico.tiers.tier_requests import TierAnswers

if TYPE_CHECKING:
    from portico.providers.local_sources import LocalSources

START_SECONDS = 2.0  # for so long a gateway that has just started belongs to its first callers alone
DAILY_SECONDS = 3_600.0  # how often it is asked whether the daily work is due
WAIT_SECONDS = 2.0  # how long one wait for other processes takes
TROUBLE_SECONDS = 5.0
SWEEP_SECONDS = 60.0
RETRY_SECONDS = 1.0
HANG_UP_SECONDS = 2.0  # how long the end waits for them
QUIET_SECONDS = 1.0  # a catalog that changes again within this time is written down once

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BackgroundJobs:
    """Runs in the background until it is cancelled; a store that is away only makes it wait."""

    admin: Admin
    tier_answers: TierAnswers
    _published: anyio.Event = field(default_factory=anyio.Event)
    _seen: dict[str, int] = field(default_factory=dict)
    _listening: int = 0  # threads that are asking the database

    async def run(self) -> None:
        """Do all of it."""
        self.admin.refresher.publisher.subscribe(self._note)
        await self._prepare()
        await anyio.sleep(START_SECONDS)
        self._published.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._repeat, self._daily)
            tasks.start_soon(self._repeat, self._write_down)
            tasks.start_soon(self._repeat, self._sweep)
            if self.admin.storage.changes is not None:
                tasks.start_soon(self._repeat, self._follow)
                tasks.start_soon(self._hang_up, self.admin.storage.changes)

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
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
        signals = self.admin.storage.changes
        assert signals is not None, "else there is nobody to follow"
        try:
            numbers = await self._ask_in_thread(signals.numbers)
            await self.admin.catch_up()
        except StoreError as error:
            self.admin.note_trouble(str(error))
            raise
        self.admin.note_trouble("")
        changed = {topic for topic, number in numbers.items() if self._seen.get(topic, 0) != number}
        if changed:
            await self.admin.reload(changed)
        self._seen = numbers
        await self._ask_in_thread(lambda: signals.wait(WAIT_SECONDS))

    async def _ask_in_thread(self, ask: Callable[[], Answer]) -> Answer:
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


async def reload_on_change(sources: LocalSources, on_change: Callable[[str], None]) -> None:
    """Load local tools again whenever a file changes, for ever; tells the servers that may offer something else now."""

    async def reload(changed: Collection[Path]) -> None:
        before = {str(problem) for problem in sources.problems}
        # Whoever edits a module may have it do anything at import: the gateway goes on meanwhile.
        sources.offer(*await anyio.to_thread.run_sync(sources.read, changed, abandon_on_cancel=True))
        for problem in sources.problems:
            if str(problem) not in before:
                logger.warning("%s", problem)
        for server in sorted(sources.providers):
            on_change(server)

    await watch(sources.files, sources.folders, reload)


async def watch(
    files: Callable[[], Iterable[Path]],
    folders: Callable[[], set[Path]],
    on_change: Callable[[set[Path]], Awaitable[None]],
) -> None:
    """Tell which of the files in these folders have changed, come or gone; runs until it is cancelled."""
    known = await anyio.to_thread.run_sync(_state, files)
    is_polling: bool | None = None  # as watchfiles itself decides
    while True:
        watched = await anyio.to_thread.run_sync(folders)
        try:
            events = awatch(*watched, watch_filter=None, recursive=False, force_polling=is_polling)
            async with aclosing(events):
                async for _ in events:
                    now = await anyio.to_thread.run_sync(_state, files)
                    # The system tells of other files too, and of symbolic links by other names.
                    changed = {path for path in known.keys() | now.keys() if known.get(path) != now.get(path)}
                    known = now
                    if changed:
                        await on_change(changed)
                    if await anyio.to_thread.run_sync(folders) != watched:
                        break
        except OSError as error:  # the system has no watches left, or a folder has gone meanwhile
            logger.info("files of local tools are looked at again and again: %s", error)
            is_polling = True
            await anyio.sleep(RETRY_SECONDS)


def _state(files: Callable[[], Iterable[Path]]) -> dict[Path, tuple[int, int] | None]:
    """When each file was changed, and its size; None when it is not there."""

    def state_of(path: Path) -> tuple[int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size)

    return {path: state_of(path) for path in files()}
