"""An open connection to a server whichever transport carries it, its limits, and what can go wrong."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

from portico.domain.call import OnProgress
from portico.domain.foreign_text import Redactor
from portico.errors import CallError, Sent, UpstreamError, UpstreamGone, UpstreamTimeout

MODERN = "2026-07-28"
"""The revision without sessions: every request carries an envelope in its `_meta`."""

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`, oldest first."""

KNOWN = (*HANDSHAKE, MODERN)

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{_PREFIX}protocolVersion"
CLIENT_KEY = f"{_PREFIX}clientInfo"
CAPABILITIES_KEY = f"{_PREFIX}clientCapabilities"
LOG_LEVEL_KEY = f"{_PREFIX}logLevel"
SERVER_KEY = f"{_PREFIX}serverInfo"

MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of one message from a server; a longer one fails it."""

VALUES_LIMIT = 500_000
"""Values in one message: objects, arrays, and their items. A server's `answer_values` counts instead."""

UNCANCELLABLE = frozenset({"initialize", "server/discover"})
"""Negotiation must not be cancelled, says the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDialect:
    """How requests are spelled once a revision is agreed: its name, and the envelope where it wants one."""

    version: str = ""
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """Whether there is no session and every request stands alone."""
        return self.version == MODERN


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeResult:
    """What a server says of itself when a connection opens."""

    version: str
    info: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""

    def notifies_changes_of(self, kind: str) -> bool:
        """Whether the server tells when its `tools`, `prompts` or `resources` change."""
        declared = self.capabilities.get(kind)
        return isinstance(declared, dict) and declared.get("listChanged") is True


def client_info(version: str) -> dict[str, str]:
    """How we introduce ourselves."""
    return {"name": "portico", "title": "Portico", "version": version}


def modern_dialect(info: Mapping[str, Any]) -> RequestDialect:
    """The spelling of 2026-07-28; what the client of a call can be asked goes along with that call."""
    return RequestDialect(version=MODERN, envelope={VERSION_KEY: MODERN, CLIENT_KEY: info, CAPABILITIES_KEY: {}})


def stamped(params: Mapping[str, Any], envelope: Mapping[str, Any], token: int | None) -> Mapping[str, Any]:
    """The parameters with the envelope and our own progress token in their `_meta`.

    What the caller put under an envelope's key (its own capabilities, say) wins; a server without envelopes is not
    shown any of it.
    """
    own = params.get("_meta", {})
    if not envelope and token is None and not own:
        return params
    meta = {**envelope, **own} if envelope else {k: v for k, v in own.items() if not k.startswith(_PREFIX)}
    if token is not None:
        meta["progressToken"] = token
    return {**params, "_meta": meta}


class ExchangeFault(Exception):
    """An exchange that failed, in sentences for whoever can fix it."""

    def __init__(self, *details: str, sent: Sent = Sent.NOTHING) -> None:
        super().__init__("; ".join(details))
        self.details, self.sent = details, sent

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        return UpstreamGone(subject, details=redactor.texts(self.details), sent=self.sent)


class Expired(ExchangeFault):
    """No answer in time."""

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        return UpstreamTimeout(subject, details=redactor.texts(self.details), sent=self.sent)


class RpcError(ExchangeFault):
    """A JSON-RPC error, kept whole."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"the server said: {message} (code {code})", sent=Sent.ANSWERED)
        self.code, self.message, self.data = code, message, data

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        message, data = redactor.text(self.message), redactor.data(self.data)
        return UpstreamError(subject, rpc_code=self.code, message=message, data=data, sent=self.sent)


class BadStatus(ExchangeFault):
    """An HTTP status that is no answer."""

    def __init__(self, status: int, *details: str, sent: Sent = Sent.ANSWERED) -> None:
        super().__init__(*details, sent=sent)
        self.status = status


class Lost(ExchangeFault):
    """The connection is of no more use; the next call makes a new one."""


class Unauthorized(Lost):
    """Our credentials are not accepted; only a person can change that."""


def rpc_error(error: Any) -> RpcError:
    """The fault that a JSON-RPC `error` member means, whatever shape it has."""
    if not isinstance(error, Mapping):
        return RpcError(-32603, str(error)[:500])
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else -32603, str(error.get("message", "no message"))[:4000], error.get("data")
    )


def unwrapped(message: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an answer.

    Raises:
        Fault: the answer is an error, or has no result object.
    """
    result = message.get("result")
    if isinstance(result, dict):
        return result
    if "error" in message:
        raise rpc_error(message["error"])
    raise ExchangeFault("the server's answer has no result object: it does not keep to MCP", sent=Sent.ANSWERED)


def public_url(url: str) -> str:
    """A URL as it may be shown: without user, query and fragment, which can hold secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


PROGRESS_BACKLOG = 64
"""Progress that a slow listener may be behind; of a flood only the newest is passed on."""

Progress = tuple[float, float | None, str | None]


class Waiting:
    """Ends with an answer, a fault, or by itself when its patience is at an end."""

    __slots__ = ("_deadline", "_ends", "_future", "_loop", "_patience", "_progress", "_timer", "_wake")

    def __init__(self, patience: ExchangeTimeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Mapping[str, Any] | ExchangeFault] = self._loop.create_future()
        self._patience = patience
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_BACKLOG)
        self._wake: asyncio.Future[None] | None = None
        now = self._loop.time()
        self._ends, self._deadline = now + patience.total, now + patience.first
        self._timer = self._loop.call_at(self._deadline, self._tick) if isfinite(self._deadline) else None

    @property
    def bounds(self) -> Bounds:
        """How large its answer may be."""
        return Bounds(self._patience.size, self._patience.values)

    def finish(self, outcome: Mapping[str, Any] | ExchangeFault) -> None:
        """Take the answer, or the fault that replaces it; only the first counts."""
        if not self._future.done():
            self._future.set_result(outcome)
            self._rouse()

    def advance(self, progress: Progress) -> None:
        """Take one sign of progress, which starts the patience again."""
        # The timer is left alone and looks at the deadline when it fires: a flood costs no timers.
        self._deadline = min(self._loop.time() + self._patience.idle, self._ends)
        self._progress.append(progress)
        self._rouse()

    async def outcome(self, on_progress: OnProgress | None) -> Mapping[str, Any]:
        """The answer, when every sign of progress before it has been passed on.

        Raises:
            Fault: there is none.
        """
        if on_progress is not None:
            await self._follow(on_progress)
        outcome = await self._future
        if isinstance(outcome, ExchangeFault):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Release the timer."""
        if self._timer is not None:
            self._timer.cancel()

    async def _follow(self, on_progress: OnProgress) -> None:
        while True:
            while self._progress:
                await on_progress(*self._progress.popleft())
            if self._future.done():
                return
            self._wake = self._loop.create_future()
            await self._wake

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _tick(self) -> None:
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._tick)
        else:
            self.finish(expired(self._patience, at_end=self._deadline >= self._ends))


def expired(patience: ExchangeTimeouts, *, at_end: bool = False, sent: Sent = Sent.UNKNOWN) -> Expired:
    """The fault of a request that was not answered in time."""
    if at_end or patience.total <= patience.idle:
        return Expired(
            f"no answer within {patience.total:g} s, the most that one call may take",
            "raise `timeouts.total` of this server if the call needs longer",
            sent=sent,
        )
    return Expired(
        f"no answer and no progress for {patience.idle:g} s",
        "raise `timeouts.call` of this server if the call needs longer",
        sent=sent,
    )


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # JSON has integers that no float can hold
        return None


def progress_of(params: Mapping[str, Any]) -> Progress:
    """The three parts of a progress notification, with anything odd left out."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    return (
        _number(done) or 0.0,
        _number(total),
        message if isinstance(message, str) else None,
    )


COUNTED_FROM = 1024 * 1024
"""Bytes from which values are counted; a shorter message cannot hold enough of them to do harm."""
LARGE_AT_ONCE = 2
"""Answers of more than `COUNTED_FROM` bytes that one server over HTTP may send at the same time."""
HEAD = 1024
"""Bytes of a message that are looked at to find out what it is."""


class TooLarge(ExchangeFault):
    """A message beyond its bounds."""

    def __init__(self, said: str, *fixes: str) -> None:
        super().__init__(said, "ask for less: a page, a range or a filter", *fixes, sent=Sent.ANSWERED)


class Bounds(NamedTuple):
    """How many bytes and how many values a message may have."""

    size: int = MESSAGE_LIMIT
    values: int = VALUES_LIMIT


class Counter:
    """Counts the values of a JSON text that comes in parts."""

    def __init__(self) -> None:
        self.values = 0
        self._is_in_string = False
        self._carried = b""

    def feed(self, part: bytes) -> None:
        """Count one part; nothing inside a string counts."""
        part = self._carried + part
        self._carried = b""
        if (len(part) - len(part.rstrip(b"\\"))) % 2:
            part, self._carried = part[:-1], b"\\"
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self._is_in_string :: 2])
        self.values += outside.count(b",") + outside.count(b"{") + outside.count(b"[")
        self._is_in_string ^= len(pieces) % 2 == 0


class Incoming:
    """One message on its way in; `bound` gives its bounds, when it turns out to be a long one."""

    __slots__ = ("_bound", "_bounds", "_counter", "data")

    def __init__(self, bound: Callable[[bytearray], Bounds]) -> None:
        self.data = bytearray()
        self._bound = bound
        self._counter: Counter | None = None
        self._bounds = Bounds()

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            TooLarge: there are too many of them, or too many values in them.
        """
        self.data += part
        if len(self.data) > COUNTED_FROM:
            self._check(part)

    def _check(self, part: bytes) -> None:
        if self._counter is None:
            self._counter = Counter()
            self._bounds = self._bound(self.data)
            part = bytes(self.data)
        size, values = self._bounds
        if len(self.data) > size:
            raise TooLarge(f"the server's answer is longer than {size / 2**20:.3g} MiB")
        self._counter.feed(part)
        if self._counter.values > values:
            fix = "or raise `answer_values` of this server, if its answers are worth the memory"
            raise TooLarge(f"the server's answer has more than {values:,} values", fix)


def values_of(text: bytes) -> int:
    """The number of values in a whole JSON text."""
    counter = Counter()
    counter.feed(text)
    return counter.values


def up_to(bounds: Bounds) -> Callable[[bytearray], Bounds]:
    """The same bounds, whatever the message begins with."""
    return lambda _: bounds


class Turn:
    """A place among the large answers that are read at the same time; small ones need none."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._is_held = places, False

    async def take(self, size: int) -> None:
        """Wait for a place when an answer has become large."""
        if size > COUNTED_FROM and not self._is_held:
            await self._places.acquire()
            self._is_held = True

    def give_back(self) -> None:
        """Let the next large answer in."""
        if self._is_held:
            self._is_held = False
            self._places.release()


OnLost = Callable[[], None]
"""Called once when a link is of no more use."""


@dataclass(frozen=True, slots=True)
class ExchangeTimeouts:
    """How long one exchange may take, between two signs of progress and in all, and how long its answer may be."""

    idle: float = inf
    total: float = inf
    size: int = MESSAGE_LIMIT
    """Bytes of the answer."""
    values: int = VALUES_LIMIT
    """JSON values in the answer."""

    @property
    def first(self) -> float:
        """Seconds until the first sign must come."""
        return min(self.idle, self.total)


FOREVER = ExchangeTimeouts()


class Transport(Protocol):
    """Carries requests and notifications to one server until it is lost or closed."""

    fault: Lost | None
    """Why it is of no more use."""
    dialect: RequestDialect

    @property
    def pid(self) -> int | None:
        """The child process, where there is one."""
        ...

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        Raises:
            Fault: there is none.
        """
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send one notification."""
        ...

    async def listen(self) -> None:
        """Read what the server sends on its own, until it stops; returns at once where that needs no reading."""
        ...

    async def aclose(self) -> None:
        """Close it; bounded in time."""
        ...
