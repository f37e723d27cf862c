"""The real thing, started: `portico serve` as a process, and real MCP clients of both eras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.processes import inherited

START_SECONDS = 30
QUIET = Path(os.devnull).open("w")  # noqa: SIM115  as long as the tests run
ERAS = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
"""Protocol revision -> the SDK client's mode."""


@dataclass
class Gateway:
    """A gateway over HTTP."""

    url: str
    process: subprocess.Popen[str]
    home: Path
    said: list[str] = field(default_factory=list)

    def path(self, surface: str) -> str:
        """The address of one surface."""
        return f"{self.url}/{surface}"

    def children(self) -> list[int]:
        """The processes that the gateway has started, by itself or through its supervisor, and that still run."""
        found: list[int] = []
        for pid in _children(self.process.pid):
            found += _children(pid) if is_supervisor(pid) else [pid]
        return found


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_supervisor(pid: int) -> bool:
    """Whether a process only starts and ends others for a gateway."""
    return b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


def environment(home: Path) -> dict[str, str]:
    """A home of its own, so that nobody's servers are touched."""
    return {**os.environ, "PORTICO_HOME": str(home)}


def portico(home: Path, *args: str, timeout: float = 120, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command."""
    command = [sys.executable, "-m", "portico", *args]
    return subprocess.run(
        command,
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        input=stdin,
        check=False,
    )


def write_config(home: Path, servers: dict[str, Any], **rest: Any) -> Path:
    """A config file in a home."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "portico.yaml"
    file.write_text(json.dumps({"servers": servers, **rest}))
    return file


@contextmanager
def gateway(home: Path, *args: str, cwd: Path | None = None) -> Iterator[Gateway]:
    """Serve what a home's config says, on a free port."""
    command = [sys.executable, "-m", "portico", "serve", "--port", "0", *args]
    process = subprocess.Popen(command, env=environment(home), cwd=cwd or home, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    ready = threading.Event()
    url: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("portico: serving ") or '"message": "serving http' in line:
                url.append(line.split()[-1].strip('"}'))
                ready.set()
        ready.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        assert ready.wait(START_SECONDS), "the gateway did not start in time"
        assert url, "".join(said)
        yield Gateway(url[0], process, home, said)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.join(5)
        if process.stderr:
            process.stderr.close()


@asynccontextmanager
async def client(
    transport: str, era: str, *, surface: str, running: Gateway | None = None, home: Path | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A real client over HTTP to a running gateway, or over stdio to one of its own."""
    if transport == "http":
        assert running is not None
        async with Client(running.path(surface), mode=ERAS[era], **options) as connected:
            yield connected
        return
    assert home is not None
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "portico", "serve", "--stdio", "--surface", surface],
        env={**inherited(), "PORTICO_HOME": str(home)},
        cwd=home,
    )
    async with Client(stdio_client(parameters, errlog=QUIET), mode=ERAS[era], **options) as connected:
        yield connected


def text_of(result: Any) -> str:
    """All text blocks of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
