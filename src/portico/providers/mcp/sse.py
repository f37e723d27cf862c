"""Server-sent events, and the deprecated HTTP+SSE transport."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp
import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from yarl import URL

from portico.domain.server import ServerSpec

from .elicitation import Notifications
from .http_session import endpoint, network_fault, open_session, pieces, refusal
from .jsonrpc import Peer
from .transport import (
    MESSAGE_LIMIT,
    VALUES_LIMIT,
    BadStatus,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    Incoming,
    Lost,
    OnLost,
    TooLarge,
    expired,
    public_url,
    up_to,
)

LINES_LIMIT = 100_000
"""Lines of one event."""
_FIELD_LIMIT = 8_192
"""Bytes of a line that is not data: a name, an id or a comment; a longer one is skipped."""
_DATA = b"data:"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream."""

    name: str
    data: bytes | bytearray
    id: str = ""


class EventParser:
    """Turns chunks of a stream into events; lines may end in CR, LF or both, and no event may grow without bound."""

    def __init__(self, limit: int = MESSAGE_LIMIT, values: int = VALUES_LIMIT) -> None:
        self._limit, self._values = limit, values
        self._line = bytearray()
        self._is_data = self._is_skipped = self._after_cr = False
        self._name, self._id = "", ""
        self._data: Incoming | None = None
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
        if self.pending + len(self._line) > self._limit:
            raise TooLarge(f"the server sent an event of more than {self._limit / 2**20:.3g} MiB")
        return events

    def _extend(self, part: bytes) -> None:
        """Take a part of a line; data goes to the event at once, so that a long line is held only once."""
        if self._is_skipped:
            return
        if self._is_data:
            self._add(part)
            return
        self._line += part
        if len(self._line) > _FIELD_LIMIT:
            self._is_data = self._line.startswith(_DATA)
            self._is_skipped = not self._is_data
            if self._is_data:
                self._begin_data(bytes(self._line[len(_DATA) :]))
            self._line.clear()

    def _end_line(self) -> ServerSentEvent | None:
        line, is_long = bytes(self._line), self._is_data or self._is_skipped
        self._line.clear()
        self._is_data = self._is_skipped = False
        if is_long:
            return None
        if not line:
            return self._dispatch()
        self._take(line)
        return None

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if not field:  # a comment, which servers send to keep a stream open
            return
        if field == b"data":
            self._begin_data(value)
            return
        self._count_line()
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry = min(int(value[:9]) / 1000, 300.0)

    def _begin_data(self, value: bytes) -> None:
        self._count_line()
        if self._data is None:
            self._data = Incoming(up_to(Bounds(self._limit, self._values)))
        else:
            self._add(b"\n")
        self._add(value.removeprefix(b" "))

    def _add(self, part: bytes) -> None:
        assert self._data is not None
        self._data.feed(part)

    def _count_line(self) -> None:
        self._lines += 1
        if self._lines > LINES_LIMIT:
            raise TooLarge(f"the server sent an event of more than {LINES_LIMIT:,} lines")

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._name or "message", self._data.data, self._id) if self._data is not None else None
        self._name, self._data, self._lines = "", None, 0
        return event


UNPOSTED = 64
"""Messages on their way to a server that nobody waits for; what comes on top is dropped."""


async def open_stream(spec: ServerSpec, inbox: Notifications, chores: TaskGroup, on_lost: OnLost) -> Peer:
    """Open the event stream of a server and wait for the address that messages go to.

    Raises:
        Fault: there is no such stream.
    """
    peer = Peer(spec.name, inbox, on_lost)
    stream = EventStream(spec, peer, chores)
    peer.wire = stream
    chores.start_soon(stream.read)
    try:
        await stream.wait_until_open()
    except BaseException:
        await stream.aclose()
        raise
    return peer


class EventStream:
    """The wire of the SSE transport."""

    def __init__(self, spec: ServerSpec, peer: Peer, chores: TaskGroup) -> None:
        self._spec, self._peer, self._chores = spec, peer, chores
        self._url = endpoint(spec)
        self._http = open_session(spec)
        self._endpoint: URL | None = None
        self._open: asyncio.Future[ExchangeFault | None] = asyncio.get_running_loop().create_future()
        self._scope = anyio.CancelScope()
        self._is_closed = False
        self._posting = 0

    @property
    def pid(self) -> int | None:
        """None: the server is not our child."""
        return None

    @property
    def stderr(self) -> str:
        """Nothing: the server is not our child."""
        return ""

    async def wait_until_open(self) -> None:
        """Return when the server has named its address for messages.

        Raises:
            Fault: it has not.
        """
        fault = await asyncio.shield(self._open)
        if fault is not None:
            raise fault

    async def read(self) -> None:
        """Read the stream to its end."""
        fault: ExchangeFault = Lost("the server ended its event stream")
        try:
            with self._scope:
                await self._read_all()
        except (aiohttp.ClientError, OSError) as error:
            fault = network_fault(error, self._spec.url)
        except ExchangeFault as found:
            fault = found
        self._end(fault)

    async def send(self, data: bytes, patience: ExchangeTimeouts) -> None:
        """Post one message; the answer comes by the stream."""
        if self._is_closed or self._endpoint is None:
            raise Lost("the event stream is closed")
        try:
            async with asyncio.timeout(patience.first if patience.first < 1e9 else None):
                await self._post(self._endpoint, data)
        except (aiohttp.ClientError, OSError) as error:
            if type(error) is TimeoutError:
                raise expired(patience) from None
            raise self._lost(network_fault(error, str(self._endpoint))) from error
        except Lost as fault:
            raise self._lost(fault) from None

    def send_soon(self, data: bytes) -> None:
        """Post one message that nobody waits for."""
        if not self._is_closed and self._posting < UNPOSTED:
            self._posting += 1
            self._chores.start_soon(self._post_quietly, data)

    async def aclose(self) -> None:
        """Close the stream and every connection."""
        self._is_closed = True
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._http.close()
            await anyio.lowlevel.checkpoint()

    async def _post(self, endpoint: URL, data: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._http.post(endpoint, data=data, headers=headers, allow_redirects=False) as response:
            if not 200 <= response.status < 300:
                raise await refusal(response, self._spec)

    async def _post_quietly(self, data: bytes) -> None:
        try:
            await self.send(data, ExchangeTimeouts(self._spec.timeouts.start))
        except ExchangeFault:
            # Nobody waits for it; the next request will find out what is wrong.
            return
        finally:
            self._posting -= 1

    async def _read_all(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with self._http.get(self._url, headers=headers, allow_redirects=False) as response:
            kind = response.headers.get("Content-Type", "")
            if response.status != 200 or not kind.startswith("text/event-stream"):
                raise await refusal(response, self._spec)
            parser = EventParser(values=max(self._spec.answer_values, VALUES_LIMIT))
            async for chunk in response.content.iter_any():
                for piece in pieces(chunk):
                    for event in parser.feed(piece):
                        self._take(event)
                    if piece is not chunk:
                        await asyncio.sleep(0)

    def _take(self, event: ServerSentEvent) -> None:
        if event.name == "endpoint" and self._endpoint is None:
            endpoint = self._url.join(URL(event.data.decode("utf-8", "replace").strip()))
            if endpoint.origin() != self._url.origin():
                raise BadStatus(
                    200,
                    f"the server wants messages sent to another origin, {public_url(str(endpoint))}",
                    "this is not followed: check the `url`",
                )
            self._endpoint = endpoint
            if not self._open.done():
                self._open.set_result(None)
        elif event.name == "message" and event.data and not event.data.isspace():
            self._peer.receive(event.data)

    def _end(self, fault: ExchangeFault) -> None:
        if not self._open.done():
            self._open.set_result(fault)
        elif not self._is_closed:
            self._is_closed = True
            self._peer.lose(fault if isinstance(fault, Lost) else Lost(*fault.details))

    def _lost(self, fault: ExchangeFault) -> ExchangeFault:
        if isinstance(fault, Lost):
            self._end(fault)
        return fault
