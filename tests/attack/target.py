"""A gateway under attack: a real process of its own, watched from outside and from inside its event loop."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.attack.talk import Talk

HERE = Path(__file__).parent
CHILD = HERE / "child.py"
START_SECONDS = 60.0
TOO_MUCH = 2_500 * 1024 * 1024
"""Bytes of growth at which a gateway is killed, so that the machine goes on."""
PROBE_SECONDS = 0.1
COUNTED = "('victim', 'hostile', 'web', 'calculator')"
"""The servers whose executions are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """What an attack cost the gateway."""

    stall_ms: float
    """The largest gap of the event loop that the process itself spent working, in CPU time."""
    wall_ms: float
    """The largest gap on the wall clock; other processes of the machine are in it."""
    livez_ms: float
    growth_mb: float
    where: str = ""
    """Where the event loop was during the largest gap."""


@dataclass
class Target:
    """One gateway, its home, and what is known of its process."""

    home: Path
    talk: Talk
    process: subprocess.Popen[str]
    said: list[str]
    slowest: float = 0.0
    probes: int = 0
    failed_probes: int = 0
    highest: int = 0
    was_killed: bool = False
    _base: int = 0
    _cpu: float = 0.0
    _stuck_since_cpu: float = 0.0
    """CPU time since the beginning, where the event loop did not come back at all."""
    _offset: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def samples(self) -> Path:
        """The file of gaps of the event loop."""
        return self.home / "samples"

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def begin(self) -> None:
        """Measure from here on."""
        self._base, self._offset = resident(self.process.pid), self.samples.stat().st_size
        self.highest, self._cpu = self._base, cpu_seconds(self.process.pid)
        with suppress(OSError):  # resets the high-water mark of the process where that is allowed
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        threading.Thread(target=self._watch, daemon=True).start()
        threading.Thread(target=self._probe, daemon=True).start()

    def strain(self) -> Strain:
        """What was measured since the beginning; the measuring ends. A loop that stands still gets a last chance."""
        if self.is_alive and not self.talk.send("GET", "/livez").status:
            self._stuck_since_cpu = cpu_seconds(self.process.pid) - self._cpu
        self._over.set()
        gaps = self._gaps()
        largest = max(gaps, key=lambda gap: gap[0], default=(0.0, 0.0, ""))
        self.highest = max(self.highest, resident(self.process.pid, "VmHWM"))
        return Strain(
            stall_ms=1_000 * max(self._stuck_since_cpu, largest[0]),
            wall_ms=1_000 * max((gap[1] for gap in gaps), default=0.0),
            where=largest[2],
            livez_ms=1_000 * self.slowest,
            growth_mb=max(0, self.highest - self._base) / 1e6,
        )

    def _gaps(self) -> list[tuple[float, float, str]]:
        """Every gap: what the process worked in it, how long it took, and where the loop was."""
        with self.samples.open() as file:
            file.seek(self._offset)
            lines = [line.split(" ", 3) for line in file.read().splitlines() if line[:1].isdigit()]
        return [(min(float(one[0]), float(one[2])), float(one[0]), one[3]) for one in lines if len(one) == 4]

    def _watch(self) -> None:
        while not self._over.wait(0.02) and self.is_alive:
            self.highest = max(self.highest, resident(self.process.pid))
            if self.highest - self._base > TOO_MUCH:
                self.was_killed = True
                self.process.kill()

    def _probe(self) -> None:
        """Ask for the simplest thing again and again, as everybody else does during an attack."""
        own = Talk(self.talk.port)
        while not self._over.wait(PROBE_SECONDS) and self.is_alive:
            began = time.perf_counter()
            reply = own.send("GET", "/livez")
            if self._over.is_set():
                return
            self.slowest = max(self.slowest, time.perf_counter() - began)
            self.probes += 1
            self.failed_probes += reply.status != 200

    def executed(self) -> int:
        """How often the counted servers have run a tool."""
        file = self.home / "executions"
        return file.stat().st_size if file.exists() else 0

    def journalled(self) -> int:
        """How many calls of the counted servers are in the journal; the gateway has stopped by then."""
        files = list(self.home.rglob("portico.db"))
        if not files:
            return 0
        query = f"SELECT count(*) FROM invocations WHERE server IN {COUNTED} AND outcome NOT IN ('refused', 'invalid')"
        with closing(sqlite3.connect(files[0])) as store:
            return int(store.execute(query).fetchone()[0])

    def stored_bytes(self) -> bytes:
        """Everything that the gateway has written down."""
        files = [path for path in self.home.rglob("*") if ".db" in path.name and path.is_file()]
        return b"".join(path.read_bytes() for path in files)


@contextmanager
def attacked(home: Path, config: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Target]:
    """Serve a config on a free port; at the end the gateway is stopped like any other."""
    file = home / "portico.yaml"
    file.write_text(json.dumps(config))
    command = [sys.executable, str(CHILD), str(home / "samples"), "serve", "--port", "0", "--config", str(file)]
    own = {"PORTICO_HOME": str(home), "PYTHONPATH": str(HERE.parents[1]), **environ}
    process = subprocess.Popen(command, env={**os.environ, **own}, cwd=home, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    ready = threading.Event()
    threading.Thread(target=_listen, args=(process, said, ready), daemon=True).start()
    try:
        ready.wait(START_SECONDS)
        urls = [line.split()[-1] for line in said if line.startswith("portico: serving ")]
        if not urls:
            raise RuntimeError("the gateway did not start: " + "".join(said[-20:]))
        target = Target(home, Talk(int(urls[0].rsplit(":", 1)[1].split("/")[0])), process, said)
        _await_sampler(target)
        yield target
    finally:
        _stop(process)


def _listen(process: subprocess.Popen[str], said: list[str], ready: threading.Event) -> None:
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            said.append(line[:2_000])
            if line.startswith("portico: serving "):
                ready.set()
    ready.set()


def _await_sampler(target: Target) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if target.samples.exists() and target.talk.send("GET", "/readyz").status == 200:
            return
        time.sleep(0.05)
    raise RuntimeError("the gateway is not ready, or its event loop is not sampled")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def resident(pid: int, field: str = "VmRSS") -> int:
    """Bytes that a process holds in memory, or held at most (`VmHWM`)."""
    with suppress(OSError, IndexError, ValueError):
        text = Path(f"/proc/{pid}/status").read_text()
        return 1024 * int(text.split(f"{field}:", 1)[1].split()[0])
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    with suppress(OSError, IndexError, ValueError):
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def descendants(pid: int) -> dict[int, str]:
    """Every process below one, and when each began."""
    found: dict[int, str] = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found[child] = began(child)
                found |= descendants(child)
    return found


def began(pid: int) -> str:
    """When a process began; empty when there is none, or only its remains."""
    with suppress(OSError, IndexError):
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if parts[0] == "Z" else parts[19]
    return ""
