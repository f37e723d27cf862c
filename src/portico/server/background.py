"""Background jobs of a running gateway: tiers, changes by others, the stored catalog, local tools, the config."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from watchfiles import awatch

from portico.admin import OPERATOR, Admin
from portico.application import Application
from portico.catalog.snapshot import CatalogSnapshot
from portico.config import FILE as TRUST_FILE
from portico.config import NAMES, GatewaySettings, change_between
from portico.domain.journal_entries import FleetEvent
from portico.domain.server import ConfigChange
from portico.errors import ConfigError, StoreError
from portico.storage.change_feed import ChangeFeed
from portico.tiers.tier_requests import TierAnswers
from portico.wiring import retire, retry_all, take_over

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
SETTLED_SECONDS = 0.1  # a config that has not changed for so long is read: editors write in several steps
READS = 20  # how often a config is read anew because it was written meanwhile
LOOK_MS = 2_000  # how often watched files are looked at even where the system tells of no change

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


@dataclass(slots=True, kw_only=True)
class Reloader:
    """Keeps a running gateway in step with its config; a config with anything new wrong in it changes nothing."""

    application: Application
    settings: GatewaySettings
    """Those in force; what needs a restart is still as it was at the start."""
    read: Callable[[], GatewaySettings]
    """Reads the config, as it was read at the start."""
    tasks: TaskGroup
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _known: FileStates = field(default_factory=dict)
    _said: str = ""
    """What was logged last."""
    _refused: str = ""
    """Why the config was refused when it was last read."""

    def __post_init__(self) -> None:
        self._known = _state(self._files)

    async def run(self) -> None:
        """Follow the files that the settings come from, and SIGHUP."""
        self.tasks.start_soon(self._reload_on_hangup)
        self.tasks.start_soon(self._reload_once)
        await watch(self._files, self._folders, self._reload_when_settled, self._known)

    async def reload(self) -> ConfigChange:
        """Read the config again and put it in force; says what is different. One comes after the other.

        Raises:
            ConfigError: it cannot be used, and nothing has changed; notes of it name more that is wrong.
        """
        async with self._turn:
            try:
                after = await self._read_whole()
                self._check(after)
                change = change_between(self.settings, after)
                retired = take_over(self.application, self.settings, after) if change.is_live else ()
            except ConfigError as error:
                said = "; ".join((str(error), *getattr(error, "__notes__", ())))
                self._tell("reload_refused", f"nothing has changed: {said}", is_news=said != self._refused)
                self._refused = said
                self._log(logging.WARNING, f"the config is not taken over, and nothing has changed: {said}")
                raise
            self.settings = self.settings.under(after)
            retry_all(self.application)
            for provider in retired:
                self.tasks.start_soon(retire, provider)
            is_empty, self._refused = not (change.is_live or change.restart), ""
            self._tell("reload", str(change), is_news=not is_empty)
            level = logging.WARNING if change.restart else logging.DEBUG if is_empty else logging.INFO
            self._log(level, f"the config was read again: {change}", is_news=change.is_live)
            return change

    async def _read_whole(self) -> GatewaySettings:
        """Read files that nobody writes meanwhile: half a file may look like a whole one with fewer servers.

        Raises:
            ConfigError: they cannot be used, or are being written all the time.
        """
        file = self.settings.home.file
        for _ in range(READS):
            before = await anyio.to_thread.run_sync(_state, self._files)
            found = await anyio.to_thread.run_sync(self._tried)
            if await anyio.to_thread.run_sync(_state, self._files) == before:
                break
            await anyio.sleep(SETTLED_SECONDS)
        else:
            found = ConfigError("it is being written all the time", file=str(file), fix="Try again in a while.")
        if file is not None and (known := before.get(file)) is not None and not known[1] and self.settings.servers:
            found = ConfigError("the file is empty", file=str(file), fix="Write `servers: {}` to use no server.")
        if isinstance(found, ConfigError):
            raise found
        return found

    def _tried(self) -> GatewaySettings | ConfigError:
        try:
            return self.read()
        except ConfigError as error:
            return error

    def _log(self, level: int, text: str, *, is_news: bool = False) -> None:
        """Log what is not the same as the last time: an editor may save one text several times."""
        if is_news or text != self._said:
            logger.log(level, "%s", text)
        self._said = text

    def _tell(self, kind: str, text: str, *, is_news: bool) -> None:
        """Record what is news: an editor may save one text several times."""
        if is_news:
            self.application.admin.storage.events.record(FleetEvent(kind=kind, text=text))

    def _check(self, after: GatewaySettings) -> None:
        """Do nothing where the config may be put in force.

        Raises:
            ConfigError: it is another file, or has problems that were not there before.
        """
        before, file = self.settings, self.settings.home.file
        if file is not None and after.home.file is None:
            said = "it is not trusted as it is now" if file.exists() else "the file is gone"
            fix = f"Look at it, and run: portico trust {file}" if file.exists() else "Write it again."
            raise ConfigError(said, file=str(file), fix=fix)
        if file is not None and after.home.file != file:
            raise ConfigError(f"{after.home.file} comes before it now", file=str(file), fix="Restart the gateway.")
        known = {(problem.where, problem.problem) for problem in before.problems}
        problems = [problem for problem in after.problems if (problem.where, problem.problem) not in known]
        if problems:
            for other in problems[1:]:
                problems[0].add_note(str(other))
            raise problems[0]

    async def _reload_once(self) -> None:
        """Take over what was written while the gateway started."""
        await anyio.sleep(START_SECONDS)
        await self._try()

    async def _reload_on_hangup(self) -> None:
        """Reload on SIGHUP, unless it says that the terminal is gone: then stop, as programs in a terminal do."""
        if sys.platform == "win32":
            return
        had_terminal = _has_terminal()
        with anyio.open_signal_receiver(signal.SIGHUP) as hangups:
            async for _ in hangups:
                if had_terminal and not _has_terminal():
                    had_terminal = False  # it may be told again, and a second signal to stop would not wait
                    signal.raise_signal(signal.SIGTERM)
                else:
                    await self._try()

    async def _reload_when_settled(self, changed: set[Path]) -> None:
        now = await anyio.to_thread.run_sync(_state, self._files)
        while True:
            before = now
            await anyio.sleep(SETTLED_SECONDS)
            now = await anyio.to_thread.run_sync(_state, self._files)
            if now == before:
                break
        file = self.settings.home.file
        # A file that is being put in the place of another is gone for a moment.
        if file is None or now.get(file) is not None:
            await self._try()

    async def _try(self) -> None:
        """Reload where nobody waits for the answer; what is wrong is in the log."""
        try:
            with suppress(ConfigError):
                await self.reload()
        except Exception:
            logger.exception("the config could not be taken over")

    def _files(self) -> Iterator[Path]:
        """The files whose change may matter: those that are not there too."""
        home = self.settings.home
        yield from (
            (home.file,) if home.file else (folder / name for folder in (Path.cwd(), home.config) for name in NAMES)
        )
        yield from home.included
        yield home.data / TRUST_FILE

    def _folders(self) -> set[Path]:
        """The folders of these files, or the nearest that there are."""
        return {next(folder for folder in file.absolute().parents if folder.is_dir()) for file in self._files()}


def _has_terminal() -> bool:
    """Whether a terminal controls this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


FileStates = dict[Path, tuple[int, int, int] | None]
"""When each file was changed, its size and number; None where it is not there."""


async def watch(
    files: Callable[[], Iterable[Path]],
    folders: Callable[[], set[Path]],
    on_change: Callable[[set[Path]], Awaitable[None]],
    known: FileStates | None = None,
) -> None:
    """Tell which of the files in these folders have changed, come or gone; runs until it is cancelled.

    `known` is how they were when somebody last looked.
    """
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_at_end, stop)
        await _watch(files, folders, on_change, known, stop)


async def _set_at_end(stop: anyio.Event) -> None:
    """Wake the thread that waits for the system, which cannot be cancelled: an end would wait for it."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()


async def _watch(
    files: Callable[[], Iterable[Path]],
    folders: Callable[[], set[Path]],
    on_change: Callable[[set[Path]], Awaitable[None]],
    known: FileStates | None,
    stop: anyio.Event,
) -> None:
    known = await anyio.to_thread.run_sync(_state, files) if known is None else known
    is_polling: bool | None = None  # as watchfiles itself decides
    while True:
        watched = await anyio.to_thread.run_sync(folders)
        try:
            events = awatch(
                *watched,
                watch_filter=None,
                recursive=False,
                force_polling=is_polling,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                stop_event=stop,
            )
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


def _state(files: Callable[[], Iterable[Path]]) -> FileStates:
    """How the files are now."""

    def state_of(path: Path) -> tuple[int, int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    return {path: state_of(path) for path in files()}
