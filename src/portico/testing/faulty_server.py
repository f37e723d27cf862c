"""An MCP server that misbehaves by plan, over stdio and over HTTP; it needs the standard library alone.

`python -m portico.testing.faulty_server --plan PLAN` serves over stdio, with `--port N` over HTTP; PLAN is a file or
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

JsonObject = Mapping[str, Any]
MODERN = "2026-07-28"
LATEST = "2025-11-25"
MOMENTS = {
    "initialize": "handshake",
    "server/discover": "handshake",
    "tools/list": "list",
    "tools/call": "call",
}
"""The moment of each request at which something can go wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One thing that goes wrong, and when; what the kinds are is said in the guide."""

    kind: str
    at: str = "call"
    """`start`, `handshake`, `list` or `call`."""
    tool: str = ""
    """The only tool whose calls it meets."""
    numbers: Sequence[int] = ()
    """The only starts, or requests of one start at this moment, that it meets; the first is 1."""
    chance: float = 1.0
    """The share of them that it meets, by the plan's seed."""
    after: bool = False
    """Whether the tool has run before it goes wrong."""
    seconds: float = 0.0
    count: int = 1
    size: int = 0
    """Bytes."""
    text: str = ""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a kind that there is not.

        Raises:
            ValueError: it names the kinds.
        """
        kinds = STARTS if self.at == "start" else ANSWERS
        if self.at != "start" and self.at not in MOMENTS.values():
            raise ValueError(
                f"there is no moment {self.at!r}: it is start, {', '.join(dict.fromkeys(MOMENTS.values()))}"
            )
        if self.kind not in kinds:
            raise ValueError(f"there is no fault {self.kind!r} at {self.at}: it is one of {', '.join(kinds)}")
        object.__setattr__(self, "numbers", tuple(self.numbers))

    def meets(self, moment: str, tool: str, numbers: Mapping[str, int], chance: random.Random) -> bool:
        """Whether it befalls this start or request; `numbers` counts requests of the tool, and of the moment as ''."""
        if moment != self.at or (self.tool and self.tool != tool):
            return False
        if self.numbers and numbers[self.tool] not in self.numbers:
            return False
        return self.chance >= 1 or chance.random() < self.chance


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What a server offers and what goes wrong with it; of the faults that meet one request, the first one counts."""

    tools: tuple[str | JsonObject, ...] = ("echo",)
    """Names, or whole definitions; every tool returns its arguments as JSON."""
    faults: tuple[PlannedFault, ...] = ()
    seed: int = 0
    era: str = "handshake"
    """`handshake`, `modern` for 2026-07-28 alone, or `both`."""

    @classmethod
    def read(cls, text: str) -> FaultPlan:
        """The plan in a JSON text.

        Raises:
            ValueError: it is none.
        """
        try:
            given = json.loads(text)
            faults = tuple(PlannedFault(**one) for one in given.pop("faults", ()))
            return cls(**{**given, "tools": tuple(given.get("tools", ("echo",)))}, faults=faults)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"this is no plan of faults: {error}") from error

    def json(self) -> str:
        """The plan as `read` takes it, without what is as usual."""
        usual = asdict(PlannedFault(kind="hang"))
        faults = [
            {key: value for key, value in asdict(one).items() if key == "kind" or value != usual[key]}
            for one in self.faults
        ]
        return json.dumps({"tools": self.tools, "faults": faults, "seed": self.seed, "era": self.era})

    def definitions(self) -> list[JsonObject]:
        """The tools as `tools/list` gives them."""
        usual = {"description": "Return the arguments", "inputSchema": {"type": "object"}}
        return [{"name": tool, **usual} if isinstance(tool, str) else tool for tool in self.tools]


class FaultLog:
    """What a server was started for, asked for and has run; in a file it outlives the process."""

    def __init__(self, path: str = "") -> None:
        self._path, self._kept = path, list[dict[str, Any]]()

    def add(self, **entry: Any) -> None:
        """Note one event."""
        if not self._path:
            self._kept.append(entry)
            return
        with open(self._path, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def all(self) -> list[dict[str, Any]]:
        """Every event, the oldest first."""
        if not self._path:
            return list(self._kept)
        if not os.path.exists(self._path):
            return []
        with open(self._path, "rb") as file:
            return [json.loads(line) for line in file]


class FaultyServer:
    """A plan with the log of what came of it."""

    def __init__(self, plan: FaultPlan, log: str | os.PathLike[str] = "") -> None:
        """The log is a file; a server over HTTP in this process can do without."""
        self.plan, self.url = plan, ""
        self._path = os.fspath(log)
        self.log = FaultLog(self._path)

    def stdio(self) -> dict[str, Any]:
        """The config entry that starts it as a process."""
        log = ["--log", os.path.abspath(self._path)] if self._path else []
        return {"command": sys.executable, "args": ["-I", "-S", __file__, "--plan", self.plan.json(), *log]}

    @property
    def executions(self) -> Counter[str]:
        """How often each tool has run."""
        return Counter(entry["ran"] for entry in self._entries() if "ran" in entry)

    @property
    def runs(self) -> list[tuple[str, JsonObject]]:
        """Every run of a tool with its arguments, the oldest first."""
        return [(entry["ran"], entry["arguments"]) for entry in self._entries() if "ran" in entry]

    @property
    def starts(self) -> list[int]:
        """The process id of each start."""
        return [entry["start"] for entry in self._entries() if "start" in entry]

    @property
    def received(self) -> list[dict[str, Any]]:
        """Every message that it was sent, the oldest first."""
        return [entry["got"] for entry in self._entries() if "got" in entry]

    def methods(self) -> list[str]:
        """The methods of the messages that it was sent."""
        return [str(message.get("method", "reply")) for message in self.received]

    def _entries(self) -> list[dict[str, Any]]:
        if not self._path and not self.url:
            raise ValueError("a server that runs as a process needs a `log` to be counted: FaultyServer(plan, log)")
        return self.log.all()


@asynccontextmanager
async def faulty_http(
    plan: FaultPlan, *, port: int = 0, tls: Any = None, log: str | os.PathLike[str] = ""
) -> AsyncIterator[FaultyServer]:
    """Serve a plan over HTTP in this process until the end of the block; `tls` is an `ssl.SSLContext`."""
    server = FaultyServer(plan, log)
    web = _Web(_Misbehaviour(plan, server.log))
    listener = await asyncio.start_server(web.connected, "127.0.0.1", port, ssl=tls, backlog=1024)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    try:
        yield server
    finally:
        listener.close()
        await web.aclose()


class _Way(ABC):
    """The way back to the client for the answer of one request."""

    @abstractmethod
    async def tell(self, message: JsonObject) -> None:
        """Send a message beside the answer."""

    @abstractmethod
    async def write(self, data: bytes, *, pause: float = 0) -> None:
        """Send these bytes in the place of the answer; with a pause, byte by byte."""

    @abstractmethod
    async def cut(self, data: bytes) -> None:
        """Send half of these bytes and break off."""

    @abstractmethod
    async def end(self, code: int) -> None:
        """End the process, or at least the connection."""

    async def respond(self, status: int, text: str, headers: JsonObject) -> None:
        """Send an HTTP response; a pipe has none, and carries the text alone."""
        await self.write(text.encode())


class _Misbehaviour:
    """Answers messages as the plan wants it; the same over both transports."""

    def __init__(self, plan: FaultPlan, log: FaultLog) -> None:
        self.plan, self.log = plan, log
        self.chance = random.Random(plan.seed)  # noqa: S311 - the same every time is what is wanted
        self.sessions: set[str] = set()
        self.cancelled: dict[Any, asyncio.Event] = {}
        self.held: list[asyncio.Event] = []
        """Answers that wait until a later one is out."""
        self._numbers: dict[str, Counter[str]] = {}

    async def take(self, message: JsonObject, way: _Way) -> None:
        """Answer one message, or misbehave."""
        self.log.add(got=message)
        method, id = message.get("method"), message.get("id")
        if method == "notifications/cancelled":
            self.cancelled.setdefault((message.get("params") or {}).get("requestId"), asyncio.Event()).set()
        if id is None or method is None:
            return
        asked = _Asked(self, way, message)
        fault = self._choose(MOMENTS.get(str(method), ""), asked.tool)
        if fault is None:
            await way.write(encode(asked.answer()))
            return
        if fault.after:
            asked.answer()
        await ANSWERS[fault.kind](asked, fault)

    def _choose(self, moment: str, tool: str) -> PlannedFault | None:
        numbers = self._numbers.setdefault(moment, Counter())
        numbers.update({"", tool})
        return next((one for one in self.plan.faults if one.meets(moment, tool, numbers, self.chance)), None)


class _Asked:
    """One request that is being answered; its tool runs at most once."""

    def __init__(self, server: _Misbehaviour, way: _Way, message: JsonObject) -> None:
        self.server, self.way = server, way
        self.id, self.method, self.params = message["id"], message["method"], message.get("params") or {}
        self.tool = str(self.params.get("name", "")) if self.method == "tools/call" else ""
        self._answer: dict[str, Any] | None = None

    def answer(self) -> dict[str, Any]:
        """The right answer."""
        if self._answer is None:
            self._answer = {"jsonrpc": "2.0", "id": self.id, **self._outcome()}
        return self._answer

    def meant(self, result: JsonObject) -> dict[str, Any]:
        """The right answer with some parts of its result replaced."""
        return {**self.answer(), "result": {**self.answer().get("result", {}), **result}}

    def _outcome(self) -> dict[str, Any]:
        plan = self.server.plan
        about: dict[str, Any] = {"capabilities": {"tools": {"listChanged": True}}}
        info = {"name": "faulty", "version": "1.0"}
        if self.method == "initialize":
            if plan.era == "modern":
                return {"error": {"code": -32022, "message": "unsupported", "data": {"supported": [MODERN]}}}
            return {
                "result": {**about, "protocolVersion": self.params.get("protocolVersion", LATEST), "serverInfo": info}
            }
        if self.method == "server/discover" and plan.era != "handshake":
            meta = {"io.modelcontextprotocol/serverInfo": info}
            return {"result": {**about, "resultType": "complete", "supportedVersions": [MODERN], "_meta": meta}}
        if self.method == "tools/list":
            return {"result": {"tools": plan.definitions()}}
        if self.tool in {tool["name"] for tool in plan.definitions()}:
            arguments = self.params.get("arguments") or {}
            self.server.log.add(ran=self.tool, arguments=arguments)
            text = json.dumps(arguments)
            return {"result": {"content": [{"type": "text", "text": text}]}}
        if self.method in ("ping", "logging/setLevel"):
            return {"result": {}}
        return {"error": {"code": -32601, "message": f"there is no {self.tool or self.method}"}}


def encode(message: JsonObject) -> bytes:
    """One message as JSON."""
    return json.dumps(message).encode()


Answering = Callable[[_Asked, PlannedFault], Coroutine[Any, Any, None]]


async def _hang(asked: _Asked, fault: PlannedFault) -> None:
    await asyncio.Event().wait()


async def _answer_late(asked: _Asked, fault: PlannedFault) -> None:
    await asyncio.sleep(fault.seconds)
    await asked.way.write(encode(asked.answer()))


async def _crash(asked: _Asked, fault: PlannedFault) -> None:
    if fault.text:
        os.write(2, fault.text.encode() + b"\n")
    asked.server.sessions.clear()
    await asked.way.end(fault.status or 1)


async def _reset(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.end(1)


async def _leave(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.write(encode(asked.answer()))
    await asked.way.end(fault.status)


async def _answer_twice(asked: _Asked, fault: PlannedFault) -> None:
    for _ in range(fault.count):
        await asked.way.tell(asked.answer())
    await asked.way.write(encode(asked.answer()))


async def _answer_others(asked: _Asked, fault: PlannedFault) -> None:
    wrong = {"content": [{"type": "text", "text": fault.text or "an answer to nobody"}]}
    for odd in (None, "nobody", 10**9, -1, 1.5, [1], {"a": 1}, True) * fault.count:
        await asked.way.tell({"jsonrpc": "2.0", "id": odd, "result": wrong})
    await asked.way.write(encode(asked.answer()))


async def _answer_when_cancelled(asked: _Asked, fault: PlannedFault) -> None:
    asked.answer()
    await asked.server.cancelled.setdefault(asked.id, asyncio.Event()).wait()
    await asked.way.write(encode(asked.answer()))


async def _swap(asked: _Asked, fault: PlannedFault) -> None:
    """Hold an answer until the next one is out, but no longer than 0.2 s where the plan does not say."""
    held = asked.server.held
    if held:
        await asked.way.write(encode(asked.answer()))
        held.pop(0).set()
        return
    held.append(later := asyncio.Event())
    with suppress(TimeoutError):
        await asyncio.wait_for(later.wait(), fault.seconds or 0.2)
    if later in held:
        held.remove(later)
    await asked.way.write(encode(asked.answer()))


SPOILED = {
    "garbage": b'{"jsonrpc":"2.0","id":ID,"result":{oops',
    "not_utf8": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}',
    "nan": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":NaN}}',
    "same_keys": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"result":{"content":[{"type":"text","text":"2"}]}}',
    "huge_number": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":1' + b"0" * 400 + b"}}",
    "no_result": b'{"jsonrpc":"2.0","id":ID}',
}
"""Answers that are hardly JSON, by the kind of fault."""


async def _spoil(asked: _Asked, fault: PlannedFault) -> None:
    given = SPOILED.get(fault.kind, fault.text.encode())
    await asked.way.write(given.replace(b"ID", json.dumps(asked.id).encode()))


async def _mutate(asked: _Asked, fault: PlannedFault) -> None:
    data, chance = bytearray(encode(asked.answer())), asked.server.chance
    for _ in range(fault.count):
        at = chance.randrange(len(data))
        piece = chance.choice((chance.randbytes(1), chance.choice(b'{}[]",:\\0e-').to_bytes(), b"", data[at : at + 9]))
        data[at : at + chance.randrange(3)] = piece
    await asked.way.write(bytes(data).replace(b"\n", b" "))


async def _cut(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.cut(encode(asked.answer()))


async def _drip(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.write(encode(asked.answer()), pause=fault.seconds or 0.05)


async def _progress(asked: _Asked, fault: PlannedFault) -> None:
    token = (asked.params.get("_meta") or {}).get("progressToken")
    for step in range(fault.count):
        params = {"progressToken": token, "progress": step + 1, "total": fault.count}
        if token is not None:
            await asked.way.tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        if fault.seconds:
            await asyncio.sleep(fault.seconds)
    await asked.way.write(encode(asked.answer()))


async def _notify(asked: _Asked, fault: PlannedFault) -> None:
    method = fault.text or "notifications/tools/list_changed"
    for _ in range(fault.count):
        await asked.way.tell({"jsonrpc": "2.0", "method": method})
    await asked.way.write(encode(asked.answer()))


async def _ask(asked: _Asked, fault: PlannedFault) -> None:
    methods = fault.text.split() or ["sampling/createMessage", "elicitation/create", "roots/list"]
    for number in range(fault.count):
        for method in methods:
            params = {"messages": [], "maxTokens": 1} if method.startswith("sampling") else {"message": "Password?"}
            await asked.way.tell({"jsonrpc": "2.0", "id": f"{method} {number}", "method": method, "params": params})
    await asked.way.write(encode(asked.answer()))


async def _respond(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.respond(fault.status or 200, fault.text, fault.headers)


async def _lose_session(asked: _Asked, fault: PlannedFault) -> None:
    asked.server.sessions.clear()
    await asked.way.respond(404, "session not found", {"Content-Type": "text/plain"})


async def _refuse(asked: _Asked, fault: PlannedFault) -> None:
    error = {"code": fault.status or -32603, "message": fault.text or "it failed"}
    await asked.way.write(encode({"jsonrpc": "2.0", "id": asked.id, "error": error}))


async def _fail(asked: _Asked, fault: PlannedFault) -> None:
    content = [{"type": "text", "text": fault.text or "it failed"}]
    await asked.way.write(encode(asked.meant({"isError": True, "content": content})))


async def _speak_another(asked: _Asked, fault: PlannedFault) -> None:
    await asked.way.write(encode(asked.meant({"protocolVersion": fault.text or "1999-01-01"})))


async def _swell(asked: _Asked, fault: PlannedFault) -> None:
    content = [{"type": "text", "text": "x" * fault.size}]
    await asked.way.write(encode(asked.meant({"content": content})))


ANSWERS: dict[str, Answering] = {
    "hang": _hang,
    "delay": _answer_late,
    "crash": _crash,
    "reset": _reset,
    "leave": _leave,
    "twice": _answer_twice,
    "unknown_ids": _answer_others,
    "late": _answer_when_cancelled,
    "swap": _swap,
    "raw": _spoil,
    **dict.fromkeys(SPOILED, _spoil),
    "mutate": _mutate,
    "cut": _cut,
    "drip": _drip,
    "progress": _progress,
    "notify": _notify,
    "ask": _ask,
    "respond": _respond,
    "lose_session": _lose_session,
    "error": _refuse,
    "failed": _fail,
    "version": _speak_another,
    "large": _swell,
}
"""The faults of a request, by their kind."""


def _hang_at_start(fault: PlannedFault) -> None:
    time.sleep(1e8)


def _start_late(fault: PlannedFault) -> None:
    time.sleep(fault.seconds)


def _exit(fault: PlannedFault) -> None:
    if fault.text:
        os.write(2, fault.text.encode() + b"\n")
    os._exit(fault.status or 1)


def _write_at_start(fault: PlannedFault) -> None:
    sys.stdout.buffer.write(fault.text.encode() * fault.count)
    sys.stdout.buffer.flush()


def _write_errors(fault: PlannedFault) -> None:
    for _ in range(fault.size >> 16):
        os.write(2, b"e" * (1 << 16))
    os.write(2, fault.text.encode() + b"\n")


def _write_endlessly(fault: PlannedFault) -> None:
    for _ in range(fault.size >> 16):
        sys.stdout.buffer.write(b"x" * (1 << 16))
    sys.stdout.buffer.flush()


def _stay(fault: PlannedFault) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


STARTS: dict[str, Callable[[PlannedFault], None]] = {
    "hang": _hang_at_start,
    "delay": _start_late,
    "exit": _exit,
    "write": _write_at_start,
    "stderr": _write_errors,
    "long_line": _write_endlessly,
    "stay": _stay,
}
"""The faults of a start, by their kind; each that meets it happens, in order."""


class _Pipe(_Way):
    """The way back over stdout."""

    async def tell(self, message: JsonObject) -> None:
        await self.write(encode(message))

    async def write(self, data: bytes, *, pause: float = 0) -> None:
        for piece in _pieces(data + b"\n", pause):
            self._put(piece)
            await asyncio.sleep(pause)

    async def cut(self, data: bytes) -> None:
        self._put(data[: len(data) // 2])
        os._exit(1)

    async def end(self, code: int) -> None:
        os._exit(code)

    def _put(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _pieces(data: bytes, pause: float) -> Iterable[bytes]:
    return (bytes((byte,)) for byte in data) if pause else (data,)


async def _serve_stdio(server: _Misbehaviour, stays: bool) -> None:
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    # A thread, because not every input can be waited for by a loop.
    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        tasks.add(task := loop.create_task(server.take(json.loads(line), _Pipe())))
        task.add_done_callback(tasks.discard)
    if stays:
        await asyncio.Event().wait()


class _Response(_Way):
    """The way back over one HTTP connection."""

    def __init__(self, writer: asyncio.StreamWriter, session: str) -> None:
        self._writer, self._session = writer, session
        self._is_stream = False
        self.is_over = False
        """Whether the connection must end."""

    async def tell(self, message: JsonObject) -> None:
        if not self._is_stream:
            self._is_stream = True
            await self._put(self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}))
        await self._put_event(encode(message))

    async def write(self, data: bytes, *, pause: float = 0) -> None:
        if self._is_stream:
            await self._put_event(data)
            await self._put(b"0\r\n\r\n")
            return
        await self._put(self._head(200, {"Content-Type": "application/json", "Content-Length": len(data)}))
        for piece in _pieces(data, pause):
            await self._put(piece)
            if pause:
                await asyncio.sleep(pause)

    async def cut(self, data: bytes) -> None:
        if not self._is_stream:
            await self._put(self._head(200, {"Content-Type": "application/json", "Content-Length": len(data)}))
        await self._put(data[: len(data) // 2])
        await self.end(1)

    async def end(self, code: int) -> None:
        """Reset the connection: what was written may not arrive either."""
        self.is_over = True
        if not code:
            return
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def respond(self, status: int, text: str, headers: JsonObject) -> None:
        usual = {"Content-Type": "application/json", "Content-Length": len(text.encode())}
        await self._put(self._head(status, {**usual, **headers}) + text.encode())

    def _head(self, status: int, headers: JsonObject) -> bytes:
        session = {"Mcp-Session-Id": self._session} if self._session else {}
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in {**session, **headers}.items())]
        return "\r\n".join([*lines, "", ""]).encode()

    async def _put_event(self, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        await self._put(b"%x\r\n%s\r\n" % (len(event), event))

    async def _put(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class _Web:
    """A plan behind an HTTP listener."""

    def __init__(self, server: _Misbehaviour) -> None:
        self._server = server
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._begun = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while request := await _read_request(reader):
                if not await self._answer(*request, writer):
                    break
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the block has ended
        finally:
            del self._open[task]
            writer.close()

    async def aclose(self) -> None:
        """End every connection."""
        for task, writer in [*self._open.items()]:
            writer.transport.abort()
            task.cancel()
        while self._open:
            await asyncio.wait([*self._open])

    async def _answer(self, line: str, headers: JsonObject, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; false when the connection must end."""
        verb, path = line.split()[:2]
        way = _Response(writer, "")
        if verb == "GET" and path == "/executions":
            ran = Counter(entry["ran"] for entry in self._server.log.all() if "ran" in entry)
            await way.respond(200, json.dumps(ran), {})
        elif verb != "POST":
            await way.respond(200 if verb == "DELETE" else 405, "", {})
        else:
            way = await self._post(json.loads(body), headers, writer)
        return not way.is_over

    async def _post(self, message: JsonObject, headers: JsonObject, writer: asyncio.StreamWriter) -> _Response:
        sessions, session = self._server.sessions, ""
        if message.get("method") == "initialize":
            self._begun += 1
            sessions.add(session := f"s-{self._begun}")
        way = _Response(writer, session)
        given = headers.get("mcp-session-id")
        if given is not None and given not in sessions and message.get("id") is not None:
            await way.respond(404, "session not found", {"Content-Type": "text/plain"})
        elif message.get("id") is None or "method" not in message:
            await self._server.take(message, way)
            await way.respond(202, "", {})
        else:
            await self._server.take(message, way)
        return way


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    """The first line, the headers and the body of a request; None at the end of the connection."""
    line = (await reader.readline()).decode("latin-1").strip()
    if not line:
        return None
    headers: dict[str, str] = {}
    while header := (await reader.readline()).decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return line, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def _serve_http(server: _Misbehaviour, port: int) -> None:
    listener = await asyncio.start_server(_Web(server).connected, "127.0.0.1", port, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


def main() -> None:
    """Serve a plan until the end of the input, or over HTTP until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", required=True, help="a file, or JSON")
    parser.add_argument("--log", default="", help="a file to which every start, message and execution is written")
    parser.add_argument("--port", type=int, help="serve over HTTP on this port; 0 takes a free one and prints it")
    options = parser.parse_args()
    text = options.plan
    if not text.lstrip().startswith("{"):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    try:
        plan = FaultPlan.read(text)
    except ValueError as error:
        parser.error(str(error))
    log = FaultLog(options.log)
    number = 1 + sum("start" in entry for entry in log.all())
    log.add(start=os.getpid())
    server = _Misbehaviour(plan, log)
    faults = [one for one in plan.faults if one.meets("start", "", {"": number}, server.chance)]
    for fault in faults:
        STARTS[fault.kind](fault)
    stays = any(fault.kind == "stay" for fault in faults)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve_stdio(server, stays) if options.port is None else _serve_http(server, options.port))
    os._exit(0)


if __name__ == "__main__":
    main()
