"""The deprecated HTTP+SSE transport: one stream of events to us, one POST per message from us."""

from __future__ import annotations

import asyncio

import aiohttp
import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from yarl import URL

from portico.domain.server import ServerSpec

from .faults import BadStatus, Fault, Lost, public_url
from .inbox import Inbox
from .link import OnLost, Patience
from .peer import Peer
from .protocol import VALUES_LIMIT
from .sse_events import Event, EventParser
from .waiting import expired
from .web import endpoint, network_fault, open_session, pieces, refusal

UNPOSTED = 64
"""Messages on their way to a server that nobody waits for; what comes on top is dropped."""


async def open_stream(spec: ServerSpec, inbox: Inbox, chores: TaskGroup, on_lost: OnLost) -> Peer:
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
        self._open: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
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
        fault: Fault = Lost("the server ended its event stream")
        try:
            with self._scope:
                await self._read_all()
        except (aiohttp.ClientError, OSError) as error:
            fault = network_fault(error, self._spec.url)
        except Fault as found:
            fault = found
        self._end(fault)

    async def send(self, data: bytes, patience: Patience) -> None:
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
            await self.send(data, Patience(self._spec.timeouts.start))
        except Fault:
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

    def _take(self, event: Event) -> None:
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

    def _end(self, fault: Fault) -> None:
        if not self._open.done():
            self._open.set_result(fault)
        elif not self._is_closed:
            self._is_closed = True
            self._peer.lose(fault if isinstance(fault, Lost) else Lost(*fault.details))

    def _lost(self, fault: Fault) -> Fault:
        if isinstance(fault, Lost):
            self._end(fault)
        return fault
