"""Processes that run agents' SQL on one SQLite file: started when needed, kept warm, killed when their time is up."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import Any

import orjson

from portico.errors import UpstreamGone, UpstreamTimeout

from . import sqlite_worker
from .faults import BUSY, late

MOST_PROCESSES = 8
"""Statements of one file that run at once."""
KEPT_WARM = 2
"""Processes that stay when nobody uses them."""
GRACE = 0.2
"""Seconds that a process has to stop by itself, before it is killed."""
_PASSED_ON = ("TMPDIR", "SQLITE_TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""What a process needs of the environment; the rest may hold secrets."""


class SqliteFault(Exception):
    """What SQLite said in another process, as the driver would have raised it here."""

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
            size = int.from_bytes(self._received(sqlite_worker.HEADER, until), "big")
            answer: dict[str, Any] = orjson.loads(self._received(size, until))
        except TimeoutError as error:
            self.kill()
            raise late() from error
        except (OSError, EOFError, orjson.JSONDecodeError) as error:
            raise self._ended() from error
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

    def _received(self, size: int, until: float) -> bytes:
        parts = []
        while size:
            self._socket.settimeout(max(0.001, until - monotonic()))
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> Exception:
        is_killed = not self.is_usable
        self.kill()
        if is_killed:
            return late()
        detail = "the process that reads it has ended in the middle of a statement. Ask for less, or try again"
        return UpstreamGone("the database", details=(detail,))


class SqliteProcesses:
    """The processes of one file."""

    def __init__(self, file: Path, *, most: int = MOST_PROCESSES) -> None:
        self._file, self._most = file, most
        self._free = Condition()
        self._idle: list[SqliteProcess] = []
        self._busy: set[SqliteProcess] = set()
        self._is_closed = False

    def take(self, seconds: float) -> SqliteProcess:
        """A process of one's own, as soon as there is one.

        Raises:
            UpstreamTimeout: all were busy for so long.
            UpstreamGone: none can be started.
        """
        with self._free:
            if not self._free.wait_for(lambda: len(self._busy) < self._most, timeout=max(0.0, seconds)):
                raise UpstreamTimeout("the database", details=(BUSY,))
            found = self._warm() or self._started()
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

    def _warm(self) -> SqliteProcess | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive():
                return process
            process.close()
        return None

    def _started(self) -> SqliteProcess:
        try:
            return SqliteProcess(self._file)
        except OSError as error:
            detail = f"the process that reads it cannot be started: {error.strerror}. Tell the operator"
            raise UpstreamGone("the database", details=(detail,)) from error


def _fault(told: Mapping[str, str]) -> SqliteFault:
    """What the other process caught, as the exception that it was."""
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
