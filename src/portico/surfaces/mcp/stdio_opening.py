"""The first answers over stdio, written by hand because loading the SDK takes longer than some clients wait."""

from __future__ import annotations

import io
import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TextIO

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first."""
MODERN_VERSIONS = ("2026-07-28",)
"""Revisions whose requests each say who asks."""
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
LIST_TTL_MS = 30_000
NAME, TITLE = "portico", "Portico"

_CAPABILITIES = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}


LONGEST = 65_536
"""Bytes of a message that is looked at; opening messages have some hundred."""
_LARGEST_ID = 2**53


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first things that a client is told."""

    instructions: str
    version: str
    tools: list[Any] | None = None
    """The listed tools, where they are known before the catalog is loaded."""


@dataclass(slots=True)
class EarlyAnswers:
    """Knows the answers to opening messages, and which were given."""

    greeting: Greeting
    given: dict[int | str, dict[str, Any]] = field(default_factory=dict)
    """Results by the id of their request."""
    is_over: bool = False
    """Whether nothing more is answered here: the first request had to wait, or something came that is no message."""
    _greeted: bool = False

    def answer(self, line: bytes) -> bytes | None:
        """The line to send back at once, if there is one."""
        message = _parse(line)
        result = None if self.is_over or message is None else self._result(message)
        if message is None or result is None:
            # The SDK decides by the first request how the connection goes on; later ones may wait for each other.
            needs_answer = message is None or "id" in message or message.get("method") != "notifications/initialized"
            self.is_over = self.is_over or message is None or (needs_answer and not self.given)
            return None
        self.given[message["id"]] = result
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _result(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if not _is_request(message) or message["id"] in self.given:
            return None
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            return self._initialize(params)
        meta = params.get("_meta", {})
        modern = _is_envelope(meta)
        if method == "server/discover" and modern and not self._greeted:
            said = {"capabilities": _CAPABILITIES, "instructions": self.greeting.instructions, "ttlMs": 0}
            return self._modern({"supportedVersions": list(MODERN_VERSIONS), **said})
        if method == "ping" and self._greeted and not params:
            return {}
        lists_all = params.keys() <= {"_meta"} and (modern or (_is_meta(meta) and VERSION_KEY not in meta))
        tools = self.greeting.tools
        if method != "tools/list" or not lists_all or self._greeted == modern or tools is None:
            return None
        return self._modern({"tools": tools, "ttlMs": LIST_TTL_MS}) if modern else {"tools": tools}

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a first, well formed `initialize`: the requested revision if it is known, else the newest."""
        requested = params.get("protocolVersion")
        is_whole = isinstance(requested, str) and _is_meta(params.get("_meta", {}))
        if self.given or not is_whole or not _is_client(params.get("capabilities"), params.get("clientInfo")):
            return None
        self._greeted = True
        return {
            "protocolVersion": requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": _CAPABILITIES,
            "serverInfo": self._server_info,
            "instructions": self.greeting.instructions,
        }

    def _modern(self, said: dict[str, Any]) -> dict[str, Any]:
        own = {"cacheScope": "private", "resultType": "complete", "_meta": {SERVER_KEY: self._server_info}}
        return {**said, **own}

    @property
    def _server_info(self) -> dict[str, str]:
        return {"name": NAME, "title": TITLE, "version": self.greeting.version}


def _parse(line: bytes) -> dict[str, Any] | None:
    """One message; None for what the SDK may read differently, or not at all."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    if len(line) > LONGEST or b"\\ud" in line.lower():
        return None
    try:
        message = json.loads(line.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else None


def _is_request(message: dict[str, Any]) -> bool:
    id = message.get("id")
    is_id = isinstance(id, str) or (type(id) is int and abs(id) < _LARGEST_ID)
    has_other = message.keys() - {"jsonrpc", "id", "method", "params"}
    return is_id and not has_other and isinstance(message.get("params", {}), dict) and "method" in message


def _is_envelope(meta: object) -> bool:
    """Whether a request says who asks, as revisions without a handshake want it."""
    if not isinstance(meta, dict) or not _is_meta(meta) or meta.get(VERSION_KEY) not in MODERN_VERSIONS:
        return False
    return _is_client(meta.get(CAPABILITIES_KEY), meta.get(CLIENT_KEY))


def _is_meta(meta: object) -> bool:
    return isinstance(meta, dict) and type(meta.get("progressToken", 0)) in (int, str)


_CLIENT_CAPABILITIES: dict[str, Callable[[Any], bool]] = {
    "experimental": lambda value: _has_tables(value, value),
    "extensions": lambda value: _has_tables(value, value),
    "sampling": lambda value: _has_tables(value, ("context", "tools")),
    "elicitation": lambda value: _has_tables(value, ("form", "url")),
    "roots": lambda value: isinstance(value, dict) and type(value.get("listChanged", True)) is bool,
}
"""Capabilities of clients, and the shape of each."""


def _is_client(capabilities: object, client: object) -> bool:
    """Whether a client says what it can do and what it is called, and nothing that is checked by the SDK alone."""
    if not isinstance(capabilities, dict) or "tasks" in capabilities:
        return False
    if not all(fits(capabilities[key]) for key, fits in _CLIENT_CAPABILITIES.items() if key in capabilities):
        return False
    if not isinstance(client, dict) or "icons" in client:
        return False
    texts = [client.get("name"), client.get("version")]
    texts += [client.get(key, "") for key in ("title", "description", "websiteUrl")]
    return all(isinstance(text, str) for text in texts)


def _has_tables(value: object, keys: Iterable[str]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key, {}), dict) for key in keys)


if sys.platform != "win32":
    import fcntl


MOST_KEPT = 4 * 1024 * 1024
"""Bytes that are read before the SDK is there to take them; a client that sends more waits."""
_CHUNK = 65_536


class EarlyPipe:
    """One client's stdin and stdout, until the SDK takes them over."""

    def __init__(self, answers: EarlyAnswers, *, stdin: int = 0, stdout: int = 1) -> None:
        self.answers = answers
        self._in, self._out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (stdin, stdout))
        # Whatever else is written to stdout must not reach the client.
        try:
            stderr = os.dup(2)
        except OSError:
            stderr = os.open(os.devnull, os.O_WRONLY)
        for fd, other in ((stdin, os.open(os.devnull, os.O_RDONLY)), (stdout, stderr)):
            os.dup2(other, fd)
            os.close(other)
        self._kept = bytearray()
        self._looked_at = 0
        self._stopping, self._stop = os.pipe()
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="portico-opening", daemon=True)

    def start(self) -> None:
        """Answer what is there already, and what comes from now on."""
        self._read_ready(timeout_ms=0)
        self._thread.start()

    def hand_over(self) -> tuple[TextIO, TextIO]:
        """Stop answering; the streams to go on with. The first begins with everything that was read so far."""
        os.write(self._stop, b".")
        self._thread.join()
        os.close(self._stop)
        os.close(self._stopping)
        source = io.BufferedReader(_Again(bytes(self._kept), self._in, self._ended))
        self._kept.clear()
        # The descriptors stay open: a thread may still wait for the client when the server has ended.
        target = os.fdopen(self._out, "wb", closefd=False)
        source_text, target_text = (
            io.TextIOWrapper(stream, encoding="utf-8", errors="replace") for stream in (source, target)
        )
        return source_text, target_text

    def end_input(self) -> None:
        """Let the streams that were handed over end as if the client had gone, although a thread waits for it."""
        os.write(self._end, b".")

    def _serve(self) -> None:
        while self._read_ready(timeout_ms=None) and len(self._kept) < MOST_KEPT:
            pass

    def _read_ready(self, *, timeout_ms: int | None) -> bool:
        """Take what the client has sent; False when it has gone, or when this is to stop."""
        poll = select.poll()
        poll.register(self._in, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        ready = {number for number, _ in poll.poll(timeout_ms)}
        if not ready or self._stopping in ready:
            return False
        chunk = os.read(self._in, _CHUNK)
        self._take(chunk)
        return bool(chunk)

    def _take(self, chunk: bytes) -> None:
        self._kept += chunk
        while not self.answers.is_over and (end := self._kept.find(b"\n", self._looked_at)) >= 0:
            answer = self.answers.answer(bytes(self._kept[self._looked_at : end]))
            self._looked_at = end + 1
            left = memoryview(answer or b"")
            try:
                while left:
                    left = left[os.write(self._out, left) :]
            except OSError:  # the client has gone, which the SDK will find out too
                self.answers.is_over = True
        if len(self._kept) - self._looked_at > LONGEST:
            self.answers.is_over = True


class _Again(io.RawIOBase):
    """The bytes that were read already, and then the rest, until there is something to read in `ended`."""

    def __init__(self, kept: bytes, fd: int, ended: int) -> None:
        self._kept, self._fd, self._ended = memoryview(kept), fd, ended
        self._poll = select.poll()
        for number in (fd, ended):
            self._poll.register(number, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        if not self._kept and self._ended in {number for number, _ in self._poll.poll()}:
            return 0
        chunk = self._kept[: len(room)] if self._kept else os.read(self._fd, len(room))
        self._kept = self._kept[len(chunk) :]
        room[: len(chunk)] = chunk
        return len(chunk)
