"""The common ground of all transports to MCP servers: revisions, messages and their limits, timeouts, and faults."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import orjson

from portico.domain.call import OnProgress
from portico.errors import Busy, CallError, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.text.redaction import Redactor

JsonObject = Mapping[str, Any]

MODERN = "2026-07-28"
"""The revision without sessions: every request carries an envelope in its `_meta`."""
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`, oldest first."""

METHOD_NOT_FOUND = -32601
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{_PREFIX}protocolVersion"
CLIENT_KEY = f"{_PREFIX}clientInfo"
CAPABILITIES_KEY = f"{_PREFIX}clientCapabilities"
LOG_LEVEL_KEY = f"{_PREFIX}logLevel"
SERVER_KEY = f"{_PREFIX}serverInfo"

UNCANCELLABLE = frozenset({"initialize", "server/discover"})
"""Negotiation must not be cancelled, says the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDialect:
    """The spelling of requests once a revision is agreed: its name, and the envelope where it wants one."""

    version: str = ""
    envelope: JsonObject = field(default_factory=dict)

    @property
    def is_modern(self) -> bool:
        """Whether there is no session and every request stands alone."""
        return self.version == MODERN


def add_envelope(params: JsonObject, envelope: JsonObject, token: int | None) -> JsonObject:
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


def cancellation(id: int) -> dict[str, Any]:
    """The notification that nobody waits for a request any more."""
    params = {"requestId": id, "reason": "the caller no longer waits"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


Progress = tuple[float, float | None, str | None]


def read_progress(params: JsonObject) -> Progress:
    """The three parts of a progress notification, with anything odd left out."""

    def number(value: Any) -> float | None:
        try:
            return float(value) if isinstance(value, int | float) else None
        except OverflowError:  # JSON has integers that no float can hold
            return None

    message = params.get("message")
    done, total = number(params.get("progress")), number(params.get("total"))
    return done or 0.0, total, message if isinstance(message, str) else None


class ExchangeFault(Exception):
    """An exchange that failed, in sentences for whoever can fix it."""

    error: type[CallError] = UpstreamGone
    usual_cause = ""

    def __init__(self, *details: str, sent: Sent = Sent.NOTHING, cause: str = "") -> None:
        super().__init__("; ".join(details))
        self.details, self.sent = details, sent
        self.cause = cause or self.usual_cause
        """What went wrong in one word for programs, where it is known."""

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        return self.error(subject, details=redactor.texts(self.details), sent=self.sent)


class Expired(ExchangeFault):
    """No answer in time."""

    error = UpstreamTimeout
    usual_cause = "timeout"


class RpcError(ExchangeFault):
    """A JSON-RPC error, kept whole."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"the server said: {message} (code {code})", sent=Sent.ANSWERED)
        self.code, self.message, self.data = code, message, data

    @classmethod
    def read(cls, error: Any) -> RpcError:
        """The JSON-RPC `error` member of an answer, whatever shape it has."""
        if not isinstance(error, Mapping):
            return cls(-32603, str(error)[:500])
        code, message = error.get("code"), str(error.get("message", "no message"))[:4000]
        return cls(code if isinstance(code, int) else -32603, message, error.get("data"))

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        message, data = redactor.text(self.message), redactor.data(self.data)
        return UpstreamError(subject, rpc_code=self.code, message=message, data=data, sent=self.sent)


class BadStatus(ExchangeFault):
    """An HTTP status that is no answer."""

    usual_cause = "http"

    def __init__(self, status: int, *details: str, sent: Sent = Sent.ANSWERED, cause: str = "") -> None:
        super().__init__(*details, sent=sent, cause=cause)
        self.status = status


class Lost(ExchangeFault):
    """The connection is of no more use; the next call makes a new one."""


class Permanent(Lost):
    """The connection cannot be made until somebody changes something."""


class Unauthorized(Permanent):
    """Our credentials are not accepted, or not for this one request."""

    usual_cause = "credentials"

    def __init__(self, *details: str, sent: Sent = Sent.NOTHING, status: int = 401, cause: str = "") -> None:
        super().__init__(*details, sent=sent, cause=cause)
        self.status = status


class Missing(Permanent):
    """There is no such command, or it cannot be run."""

    usual_cause = "command"


class BrokenOff(ExchangeFault):
    """The network failed in the middle of an exchange, and nothing of the answer was read."""


class Crowded(ExchangeFault):
    """The server has more to do than it is given at a time."""

    error = Busy


class TooLarge(ExchangeFault):
    """A message beyond its bounds."""

    def __init__(self, said: str, *fixes: str) -> None:
        super().__init__(said, "ask for less: a page, a range or a filter", *fixes, sent=Sent.ANSWERED)


def read_result(message: JsonObject) -> dict[str, Any]:
    """The result of an answer.

    Raises:
        ExchangeFault: the answer is an error, or has no result object.
    """
    result = message.get("result")
    if isinstance(result, dict):
        return result
    if "error" in message:
        raise RpcError.read(message["error"])
    raise ExchangeFault("the server's answer has no result object: it does not keep to MCP", sent=Sent.ANSWERED)


def public_url(url: str) -> str:
    """A URL as it may be shown: without user, query and fragment, which can hold secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Bounds(NamedTuple):
    """The most bytes of one message, and the most values: objects, arrays, and their items."""

    size: int = 64 * 1024 * 1024
    values: int = 500_000
    """A server's `answer_values` counts instead."""


DEFAULT_BOUNDS = MESSAGE_LIMIT, VALUES_LIMIT = Bounds()
COUNTED_FROM = 1024 * 1024
"""Bytes from which values are counted; a shorter message cannot hold enough of them to do harm."""
LARGE_AT_ONCE = 2
"""Answers of more than `COUNTED_FROM` bytes that one server over HTTP may send at the same time."""
HEAD = 1024
"""Bytes of a message that are looked at to find out what it is."""


@dataclass(frozen=True, slots=True)
class ExchangeTimeouts:
    """The most seconds of one exchange, between two signs of progress and in all, and the bounds of its answer."""

    idle: float = inf
    total: float = inf
    bounds: Bounds = DEFAULT_BOUNDS
    tool: str = ""
    """The tool whose override has the limit on progress."""
    is_repeatable: bool = False
    """Whether the operator has said that the exchange changes nothing, so that it may be made twice."""

    @property
    def first(self) -> float:
        """Seconds until the first sign must come."""
        return min(self.idle, self.total)

    def expired(self, *, at_end: bool = False, sent: Sent = Sent.UNKNOWN) -> Expired:
        """The fault of a request that was not answered in time."""
        if at_end or self.total <= self.idle:
            said, setting = f"no answer within {self.total:g} s, the most that one call may take", "total"
        else:
            said, setting = f"no answer and no progress for {self.idle:g} s", "call"
        key = f"`timeouts.{setting}` of this server"
        if setting == "call" and self.tool:
            key = f"`timeout` in the override of {self.tool!r}"
        return Expired(said, f"raise {key} if the call needs longer", sent=sent)


class ProgressTimer:
    """Ends what runs within `timeout` when there is no progress in time, or when it takes too long in all."""

    def __init__(self, idle: float, total: float) -> None:
        self._idle = idle
        now = asyncio.get_running_loop().time()
        self._ends, first = now + total, now + min(idle, total)
        self.timeout = asyncio.timeout_at(first if isfinite(first) else None)

    def put_off(self) -> None:
        """Take a sign of progress."""
        if isfinite(self._idle):
            self.timeout.reschedule(min(asyncio.get_running_loop().time() + self._idle, self._ends))

    @property
    def is_at_end(self) -> bool:
        """Whether the time in all is over."""
        return asyncio.get_running_loop().time() >= self._ends


class JsonCounter:
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


def count_values(text: bytes) -> int:
    """The number of values in a whole JSON text."""
    counter = JsonCounter()
    counter.feed(text)
    return counter.values


class IncomingMessage:
    """One message on its way in; its bounds, or the function that gives them, are used when it is a long one."""

    __slots__ = ("_bounds", "_counter", "data")

    def __init__(self, bounds: Bounds | Callable[[bytearray], Bounds]) -> None:
        self.data = bytearray()
        self._bounds = bounds
        self._counter: JsonCounter | None = None

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            TooLarge: there are too many of them, or too many values in them.
        """
        self.data += part
        if len(self.data) <= COUNTED_FROM:
            return
        if self._counter is None:
            self._counter = JsonCounter()
            part = bytes(self.data)
        if callable(self._bounds):
            self._bounds = self._bounds(self.data)
        size, values = self._bounds
        if len(self.data) > size:
            raise TooLarge(f"the server's answer is longer than {size / 2**20:.3g} MiB")
        self._counter.feed(part)
        if self._counter.values > values:
            fix = "or raise `answer_values` of this server, if its answers are worth the memory"
            raise TooLarge(f"the server's answer has more than {values:,} values", fix)


class GarbledMessage(ValueError):
    """Bytes that are no message; `id` is that of the answer they were meant to be, where it can be seen."""

    def __init__(self, id: Any = None) -> None:
        super().__init__("not a JSON message")
        self.id = id


_BOM = b"\xef\xbb\xbf"
_OBJECT = b'{"jsonrpc"'
_MENDED_UP_TO, _REPLACED_UP_TO = 4 * 1024 * 1024, 16 * 1024 * 1024
"""Bytes of a message that is mended, and of one that is only freed of what is not UTF-8: both take several copies."""
_ID_FIRST = re.compile(rb'^[^{]{0,200}\{[^{}\[\]]{0,300}?"id"\s*:\s*("?)(\d{1,18})\1\s*[,}]')
_ID_LAST = re.compile(rb'[,}\]]\s*"id"\s*:\s*("?)(\d{1,18})\1\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*$')


def encode(message: Any) -> bytes:
    """One message on one line."""
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # orjson refuses integers beyond 64 bits, which JSON allows.
        return json.dumps(message, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode(data: bytes | bytearray) -> Any:
    """The message in some bytes: past a byte order mark or a banner, with what is not UTF-8 replaced.

    Raises:
        GarbledMessage: there is none.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_leniently(data)


def _decode_leniently(data: bytes | bytearray) -> Any:
    if len(data) > _REPLACED_UP_TO:
        raise GarbledMessage(answered_id(data))
    start = data.find(_OBJECT)
    body = bytes(data[start:] if start > 0 else data.removeprefix(_BOM))
    if body.lstrip()[:1] not in (b"{", b"["):
        raise GarbledMessage
    # Behind a banner with a quote in it, what was counted as a string is none.
    if start > 0 and count_values(body) > VALUES_LIMIT:
        raise GarbledMessage(answered_id(body))
    found: Any = None
    try:
        if len(body) > _MENDED_UP_TO:
            return orjson.loads(body.decode("utf-8", "replace").encode())
        found = json.loads(body.decode("utf-8", "replace"))
        # Through orjson again: a lone surrogate becomes "?", and NaN, which no surface could write, is refused.
        return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise GarbledMessage(found.get("id") if isinstance(found, dict) else answered_id(body)) from error


def looks_like_message(data: bytes | bytearray) -> bool:
    """Whether a long text may still become a message: it begins as one, or has one behind a banner."""
    head = bytes(data[:HEAD])
    return _OBJECT in head or head.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


def answered_id(data: bytes | bytearray) -> int | None:
    """The id of the answer that some bytes begin or end, found without parsing them."""
    found = _ID_FIRST.search(bytes(data[:HEAD])) or _ID_LAST.search(bytes(data[-HEAD:]))
    return int(found[2]) if found else None


LINES_LIMIT = 100_000
"""Lines of one event."""
FIELD_LIMIT = 8_192
"""Bytes of a line that is not data: a name, an id or a comment; a longer one is skipped."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream."""

    name: str
    data: bytes | bytearray
    id: str = ""


class EventParser:
    """Turns chunks of a stream into events; lines may end in CR, LF or both, and no event may grow without bound."""

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._bounds = bounds
        self._line = bytearray()
        self._is_data = self._is_skipped = self._after_cr = False
        self._name, self._id = "", ""
        self._data: IncomingMessage | None = None
        self._lines = 0
        self.retry: float | None = None
        """Seconds that the server asks us to wait before we connect again."""

    @property
    def pending(self) -> int:
        """Bytes of the event that is not complete yet."""
        return 0 if self._data is None else len(self._data.data)

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that a chunk completes.

        Raises:
            TooLarge: one event is beyond its bounds.
        """
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        events = []
        # Not splitlines on the whole: only CR and LF end a line here, and bytes.splitlines keeps to those.
        for line in chunk.splitlines(keepends=True):
            body = line.rstrip(b"\r\n")
            self._extend(body)
            if len(body) != len(line):
                event = self._end_line()
                if event is not None:
                    events.append(event)
        if self.pending + len(self._line) > self._bounds.size:
            raise TooLarge(f"the server sent an event of more than {self._bounds.size / 2**20:.3g} MiB")
        return events

    def _extend(self, part: bytes) -> None:
        """Take a part of a line; data goes to the event at once, so that a long line is held only once."""
        if self._is_skipped:
            return
        if self._is_data and self._data is not None:
            self._data.feed(part)
            return
        self._line += part
        if len(self._line) > FIELD_LIMIT:
            self._is_data = self._line.startswith(b"data:")
            self._is_skipped = not self._is_data
            if self._is_data:
                self._begin_data(bytes(self._line[len(b"data:") :]))
            self._line.clear()

    def _end_line(self) -> ServerSentEvent | None:
        line, is_long = bytes(self._line), self._is_data or self._is_skipped
        self._line.clear()
        self._is_data = self._is_skipped = False
        if not is_long and not line:
            data, name = self._data, self._name or "message"
            self._name, self._data, self._lines = "", None, 0
            return ServerSentEvent(name, data.data, self._id) if data is not None else None
        field, _, value = line.partition(b":")
        if is_long or not field:  # a comment, which servers send to keep a stream open
            return None
        if field == b"data":
            self._begin_data(value)
            return None
        self._count_line()
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry = min(int(value[:9]) / 1000, 300.0)
        return None

    def _begin_data(self, value: bytes) -> None:
        self._count_line()
        if self._data is None:
            self._data = IncomingMessage(self._bounds)
        else:
            self._data.feed(b"\n")
        self._data.feed(value.removeprefix(b" "))

    def _count_line(self) -> None:
        self._lines += 1
        if self._lines > LINES_LIMIT:
            raise TooLarge(f"the server sent an event of more than {LINES_LIMIT:,} lines")


PIECE = 32 * 1024


def split_chunk(chunk: bytes) -> Sequence[bytes]:
    """A chunk in pieces that are read without holding others up: a stream of tiny events is slow to read."""
    return [chunk[start : start + PIECE] for start in range(0, len(chunk), PIECE)] if len(chunk) > PIECE else (chunk,)


OnLost = Callable[[], None]
"""Called once when a transport is of no more use."""


class Transport(ABC):
    """Carries requests and notifications to one server until it is lost or closed."""

    def __init__(self, on_lost: OnLost) -> None:
        self.fault: Lost | None = None
        """The reason that it is of no more use."""
        self.dialect = RequestDialect()
        self._on_lost = on_lost
        self._last_id = 0

    @property
    def pid(self) -> int | None:
        """The child process, where there is one."""
        return None

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        return ""

    @abstractmethod
    async def request(
        self, method: str, params: JsonObject, timeouts: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        Raises:
            ExchangeFault: there is none.
        """

    @abstractmethod
    async def notify(self, method: str, params: JsonObject) -> None:
        """Send one notification."""

    @abstractmethod
    async def listen(self) -> None:
        """Read what the server sends on its own, until it stops; returns at once where that needs no reading."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close it; bounded in time."""
