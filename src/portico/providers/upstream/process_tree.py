"""A child process with everything it started, so that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Entry:
    pid: int
    parent: int
    group: int
    start: str
    is_zombie: bool


class ProcessTree:
    """The process group of a child, and descendants that have left the group (seen on Linux only)."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._strays: dict[int, str] = {}

    def remember(self) -> None:
        """Note the descendants of now: when their parent dies they can no longer be found."""
        entries = _processes()
        family = {self._leader}
        grew = True
        while grew:
            found = {entry.pid for entry in entries if entry.parent in family} - family
            family |= found
            grew = bool(found)
        self._strays |= {e.pid: e.start for e in entries if e.pid in family and e.group != self._leader}

    def is_alive(self) -> bool:
        """Whether any of it still runs; zombies do not count."""
        if not self._strays and not self._group_answers():
            return False
        entries = _processes()
        if not entries:
            return self._group_answers()
        return any(not entry.is_zombie and self._has(entry) for entry in entries)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._leader, number)
            else:
                os.kill(self._leader, number)
        for entry in _processes() if self._strays else ():
            # The start time tells a process from a later one with the same number.
            if self._strays.get(entry.pid) == entry.start:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(entry.pid, number)

    def _has(self, entry: _Entry) -> bool:
        return entry.group == self._leader or self._strays.get(entry.pid) == entry.start

    def _group_answers(self) -> bool:
        if not hasattr(os, "killpg"):
            return False
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


def _processes() -> list[_Entry]:
    """All processes, where the system shows them under /proc."""
    found = []
    with contextlib.suppress(OSError):
        for folder in _PROC.iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    found.append(_entry(int(folder.name), (folder / "stat").read_text(errors="replace")))
    return found


def _entry(pid: int, stat: str) -> _Entry:
    # The command name, in brackets, may hold anything: fields are counted from behind it.
    fields = stat.rpartition(")")[2].split()
    return _Entry(pid, int(fields[1]), int(fields[2]), fields[19], fields[0] in "ZX")
