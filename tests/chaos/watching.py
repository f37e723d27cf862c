"""A gateway in a process of its own, watched from outside and asked what it holds, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.attack.target import cpu_seconds, descendants

HERE = Path(__file__).parent
CHILD = HERE / "watched_gateway.py"
START_SECONDS = 60.0
PATIENCE = 30.0
SPARE = 4
"""Tasks, descriptors and threads that may be more than before: what a gateway starts in its first seconds."""
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a gateway holds at one moment, after its garbage was collected."""

    tasks: int
    fds: int
    threads: int
    sessions: int
    rss: int
    traced: int
    objects: int
    kinds: Mapping[str, int]


@dataclass(slots=True)
class Watched:
    """A running gateway."""

    home: Path
    process: subprocess.Popen[str]
    said: list[str]
    port: int = 0
    _asked: int = 0

    def holdings(self) -> Holdings:
        """What it holds now.

        Raises:
            TimeoutError: its event loop does not answer.
        """
        file = self.home / "holdings"
        self.process.send_signal(signal.SIGUSR2)
        self._asked += 1
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            lines = file.read_text().splitlines(keepends=True) if file.exists() else []
            if len(lines) >= self._asked and lines[-1].endswith("\n"):
                return Holdings(**json.loads(lines[-1]))
            time.sleep(0.02)
        raise TimeoutError("the gateway does not tell what it holds")

    def settled(self, before: Holdings, seconds: float) -> Holdings:
        """What it holds once that is as little as before, without a session, or when the time is over."""
        until = time.monotonic() + seconds
        while True:
            now = self.holdings()
            is_more = now.sessions > 0 or now.tasks > before.tasks + SPARE or now.fds > before.fds + SPARE
            if not is_more or time.monotonic() > until:
                return now
            time.sleep(0.2)

    def cpu_share(self, seconds: float) -> float:
        """The part of a processor that it uses over so many seconds."""
        before = cpu_seconds(self.process.pid)
        time.sleep(seconds)
        return (cpu_seconds(self.process.pid) - before) / seconds

    def started(self) -> dict[int, str]:
        """Every process that it has started, and when that began."""
        return descendants(self.process.pid)


@contextmanager
def watched(home: Path, config: Mapping[str, Any], **environ: str) -> Iterator[Watched]:
    """Serve a config on a free port; at the end the gateway is stopped like any other."""
    (home / "portico.yaml").write_text(json.dumps(config))
    command = [sys.executable, str(CHILD), str(home / "holdings"), "serve", "--port", "0"]
    own = {"PORTICO_HOME": str(home), "PYTHONPATH": str(HERE.parents[1]), **environ}
    process = subprocess.Popen(command, env={**os.environ, **own}, cwd=home, stderr=subprocess.PIPE, text=True)
    found = Watched(home, process, [])
    ready = threading.Event()
    threading.Thread(target=_listen, args=(found, ready), daemon=True).start()
    try:
        if not ready.wait(START_SECONDS) or not found.port:
            raise RuntimeError("the gateway did not start: " + "".join(found.said[-20:]))
        yield found
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listen(found: Watched, ready: threading.Event) -> None:
    assert found.process.stderr is not None
    with found.process.stderr as lines:
        for line in lines:
            found.said.append(line[:2_000])
            if line.startswith("portico: serving "):
                found.port = int(line.rsplit(":", 1)[1].split("/")[0])
                ready.set()
    ready.set()


@dataclass(slots=True)
class Reply:
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in it, whether it came alone or as an event."""
        for line in self.body.splitlines():
            text = line.removeprefix(b"data:").strip()
            if text.startswith(b"{"):
                found: dict[str, Any] = json.loads(text)
                return found
        return {}

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        blocks = self.message.get("result", {}).get("content", [])
        return "\n".join(block.get("text", "") for block in blocks)


@dataclass(slots=True)
class RawClient:
    """One client, of the handshake era unless it is modern, on one connection that it opens again when it is closed."""

    port: int
    name: str = "chaos"
    path: str = "/mcp"
    session: str = ""
    is_modern: bool = False
    """Whether it speaks 2026-07-28, which has no sessions."""
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)

    async def open(self) -> RawClient:
        """Open a session that is ready for calls."""
        if self.is_modern:
            return self
        info = {"name": self.name, "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        reply = await self.ask("initialize", hello, id=0)
        self.session = reply.headers.get("mcp-session-id", "")
        if reply.status == 200:
            await self.ask("notifications/initialized", None, id=None)
            await self.ask("ping", None, id="ready")  # is answered after the notification was taken up
        return self

    async def call(self, tool: str, arguments: Mapping[str, Any], id: object = 1) -> Reply:
        """Call a tool."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments}, id=id)

    async def ask(self, method: str, params: Mapping[str, Any] | None, *, id: object) -> Reply:
        """Send one message and read the whole answer; without an id it is a notification.

        Raises:
            OSError: the connection broke in the middle; whether anything was done is not known.
        """
        reader, _ = await self.send(method, params, id=id)
        try:
            return await asyncio.wait_for(read_reply(reader), PATIENCE)
        except BaseException:
            self.drop()
            raise

    async def send(
        self, method: str, params: Mapping[str, Any] | None, *, id: object
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send one message; who calls reads the answer."""
        message = {"jsonrpc": "2.0", "method": method, **({"id": id} if id is not None else {})}
        named = {}
        if self.is_modern and params is not None:
            params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
            named = {"Mcp-Method": method, "Mcp-Name": str(params.get("name", ""))}
        body = json.dumps(message if params is None else {**message, "params": params}).encode()
        reader, writer = await self._connection()
        writer.write(self.head("POST", len(body), named) + body)
        await writer.drain()
        return reader, writer

    async def begin(self, method: str, length: int = 0, part: bytes = b"") -> None:
        """Send the head of a request and a part of its body."""
        _, writer = await self._connection()
        writer.write(self.head(method, length) + part)
        await writer.drain()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[1].is_closing() or self._streams[0].at_eof():
            self.drop()
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self._streams

    def head(self, method: str, length: int = 0, more: Mapping[str, str] = MappingProxyType({})) -> bytes:
        """The head of a request."""
        lines = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN if self.is_modern else "2025-11-25",
            "Content-Length": str(length),
            **({"Mcp-Session-Id": self.session} if self.session else {}),
            **more,
        }
        written = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if length or name != "Content-Length")
        return f"{method} {self.path} HTTP/1.1\r\n{written}\r\n".encode()

    def drop(self) -> None:
        """Break the connection off, whatever is under way on it."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """One whole answer.

    Raises:
        ConnectionError: it broke off.
    """
    try:
        status, headers = await read_head(reader)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, IndexError, ValueError) as error:
        raise ConnectionResetError("the answer broke off") from error
    return Reply(status, headers, body)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


def percentile(found: Sequence[float], part: float) -> float:
    """The value that this part of all values does not exceed; 0 without any."""
    ordered = sorted(found)
    return ordered[int(part * (len(ordered) - 1))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the table of promises."""

    promise: str
    found: str
    holds: bool
    is_noisy: bool = False
    """Whether what else the machine does has a say in it."""


def show(verdicts: Sequence[Verdict]) -> int:
    """Print the table; 1 when a promise is broken."""
    print("| promise | found | holds |\n|---|---|---|")
    for one in verdicts:
        print(f"| {one.promise} | {one.found} | {'yes' if one.holds else 'NO'} |", flush=True)
    return 0 if all(one.holds for one in verdicts) else 1
