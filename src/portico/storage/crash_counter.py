"""Counts what a killed process takes with it: each writer's counter outlives it, and the next process settles it."""

from __future__ import annotations

import logging
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from portico.domain.journal import Batch
from portico.protocols import Ledger

try:
    import fcntl
except ImportError:  # there is no such thing on Windows, and so nothing that tells whether a writer still lives
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".count"
MARK = b"portico1"
"""Tells a counter from whatever else a file of that name may hold."""

_FORM = struct.Struct("=8sQ")
_TRIES = 10

logger = logging.getLogger(__name__)


class WriterCounter:
    """How many entries a new writer has recorded, in a file that is locked while the writer lives."""

    def __init__(self, folder: Path | None) -> None:
        """Begin at 0; where no file can be had, the number is kept in memory and nothing else changes."""
        self.writer = _name()
        self.numbers: memoryview[int] | list[int] = [0]
        """The number is the first and only one: raising it costs no call, and outlives the process."""
        self._file, self._path = -1, Path()
        if folder is None or fcntl is None:
            return
        try:
            self._open(folder)
        except (OSError, ValueError) as error:
            logger.debug("entries that a killed process loses are not counted: %s", error)

    @property
    def is_kept(self) -> bool:
        """Whether the number outlives the process."""
        return self._file >= 0

    def close(self, *, keep: bool) -> None:
        """End the writer: its file goes when everything is accounted for, and is kept for the next start if not."""
        if not self.is_kept:
            return
        self.numbers = [self.numbers[0]]
        if not keep:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        os.close(self._file)  # which gives up the lock
        self._file = -1

    def _open(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.writer, file = _own_file(folder)
        self._path = _path(folder, self.writer)
        try:
            # Written, not truncated to size: a page that no block stands behind would end us on a full disk.
            os.write(file, _FORM.pack(MARK, 0))
            self.numbers = memoryview(mmap.mmap(file, _FORM.size))[len(MARK) :].cast("Q")
        except BaseException:
            os.close(file)
            self._path.unlink(missing_ok=True)
            raise
        self._file = file


def settle(folder: Path, ledger: Ledger, on_lost: Callable[[int], None]) -> None:
    """Count what writers lost that are no longer there, each exactly once; `on_lost` hears how many entries it were.

    Raises:
        StoreError: the ledger cannot be asked; what is not settled yet stays for the next time.
    """
    if fcntl is None or not folder.is_dir():
        return
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if lost := _settle(path, ledger):
            on_lost(lost)
            logger.warning("a process that ended without notice took %s of the journal with it", counted(lost))


def counted(entries: int) -> str:
    """A number of entries, for people."""
    return "1 entry" if entries == 1 else f"{entries:,} entries"


def _settle(path: Path, ledger: Ledger) -> int:
    with _ended(path) as file:
        if file is None:
            return 0
        recorded = _read(file)
        lost = 0
        if recorded:
            ledger.append(Batch(writer=path.stem))  # waits for what a killed process had under way in the database
            lost = max(0, recorded - ledger.stored(path.stem))
            ledger.count_lost(path.stem, lost)
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return lost


@contextmanager
def _ended(path: Path) -> Iterator[int | None]:
    """The open file of a writer that is gone, ours alone until the end of the block; None if it is not for us."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file if _lock(file) and _is_at(path, file) else None
    finally:
        os.close(file)


def _name() -> str:
    return f"{os.getpid()}-{os.urandom(6).hex()}"


def _path(folder: Path, writer: str) -> Path:
    return folder / f"{writer}{SUFFIX}"


def _own_file(folder: Path) -> tuple[str, int]:
    """A new writer and its file, locked and in its place: in between, others may take it for a dead writer's."""
    for _ in range(_TRIES):
        writer = _name()
        path = _path(folder, writer)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if _lock(file) and _is_at(path, file):
            return writer, file
        os.close(file)
        path.unlink(missing_ok=True)
    raise OSError(f"files in {folder} cannot be locked")


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(path: Path, file: int) -> bool:
    """Whether a path leads to this open file, and not to none or to another."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except OSError:
        return False


def _read(file: int) -> int:
    """The number in a file; 0 when it holds none."""
    try:
        data = os.read(file, _FORM.size + 1)
    except OSError:
        return 0
    if len(data) != _FORM.size:
        return 0
    mark, number = _FORM.unpack(data)
    return int(number) if mark == MARK else 0
