"""Servers as processes: started on a free port, watched for their CPU time, stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_START_S = 30
_STOP_S = 10


class NotStarted(Exception):
    """A server did not start; the message has its last words."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def listening(command: Sequence[str], port: int, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """The process id of a server, once it listens; it is stopped at the end.

    Raises:
        NotStarted: it ended, or does not listen after half a minute.
    """
    with TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        try:
            _wait(process, port, Path(folder) / "log")
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, its own threads only."""
    # The name in field 2 may hold blanks and brackets, so fields are counted from behind it; 11 and 12 are user and
    # system time in clock ticks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    words = log.read_text().strip().splitlines() or ["it said nothing"]
    raise NotStarted(words[-1])
