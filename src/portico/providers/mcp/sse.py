"""The deprecated HTTP+SSE transport: messages are posted, and answers come by one event stream."""

from __future__ import annotations

import asyncio

import aiohttp
import anyio
from anyio.abc import TaskGroup
from yarl import URL

from portico.domain.server import ServerSpec

from .jsonrpc import JsonRpcTransport
from .message_limits_and_errors import (
    VALUES_LIMIT,
    BadStatus,
    Bounds,
    EventParser,
    ExchangeFault,
    ExchangeTimeouts,
    Lost,
    OnLost,
    ServerSentEvent,
    public_url,
    split_chunk,
)
from .server_questions import Notifications
from .streamable_http import close_session, network_fault, open_session, parse_url, read_refusal

UNPOSTED = 64
"""Messages on their way to a server that nobody waits for; what comes on top is dropped."""


async def open_stream(
    spec: ServerSpec, notifications: Notifications, tasks: TaskGroup, on_lost: OnLost
) -> SseTransport:
    """Open the event stream of a server and wait for the address that messages go to.

    Raises:
        ExchangeFault: there is no such stream.
    """
    transport = SseTransport(spec, notifications, tasks, on_lost)
    tasks.start_soon(transport.read)
    try:
        await transport.wait_until_open()
    except BaseException:
        await transport.aclose()
        raise
    return transport


class SseTransport(JsonRpcTransport):
    """The event stream of one server, and the address that messages are posted to."""

    def __init__(self, spec: ServerSpec, notifications: Notifications, tasks: TaskGroup, on_lost: OnLost) -> None:
        super().__init__(spec.name, notifications, on_lost)
        self._spec, self._tasks = spec, tasks
        self._url = parse_url(spec)
        self._http = open_session(spec)
        self._endpoint: URL | None = None
        self._open: asyncio.Future[ExchangeFault | None] = asyncio.get_running_loop().create_future()
        self._scope = anyio.CancelScope()
        self._is_closed = False
        self._posting = 0

    async def wait_until_open(self) -> None:
        """Return when the server has named its address for messages.

        Raises:
            ExchangeFault: it has not.
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

    async def send(self, data: bytes, timeouts: ExchangeTimeouts) -> None:
        """Post one message; the answer comes by the stream."""
        if self._is_closed or self._endpoint is None:
            raise Lost("the event stream is closed")
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(timeouts.first if timeouts.first < 1e9 else None),
                self._http.post(self._endpoint, data=data, headers=headers, allow_redirects=False) as response,
            ):
                if not 200 <= response.status < 300:
                    raise await read_refusal(response, self._spec)
        except (aiohttp.ClientError, OSError) as error:
            if type(error) is TimeoutError:
                raise timeouts.expired() from None
            fault = network_fault(error, str(self._endpoint))
            if isinstance(fault, Lost):
                self._end(fault)
            raise fault from error
        except Lost as fault:
            self._end(fault)
            raise

    def send_soon(self, data: bytes) -> None:
        """Post one message that nobody waits for."""

        async def post_quietly() -> None:
            try:
                await self.send(data, ExchangeTimeouts(self._spec.timeouts.start))
            except ExchangeFault:
                # Nobody waits for it; the next request will find out what is wrong.
                return
            finally:
                self._posting -= 1

        if not self._is_closed and self._posting < UNPOSTED:
            self._posting += 1
            self._tasks.start_soon(post_quietly)

    async def aclose(self) -> None:
        """Close the stream and every connection."""
        self.close_requests()
        self._is_closed = True
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await close_session(self._http)

    async def _read_all(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with self._http.get(self._url, headers=headers, allow_redirects=False) as response:
            kind = response.headers.get("Content-Type", "")
            if response.status != 200 or not kind.startswith("text/event-stream"):
                raise await read_refusal(response, self._spec)
            parser = EventParser(Bounds(values=max(self._spec.limits.answer_values, VALUES_LIMIT)))
            async for chunk in response.content.iter_any():
                for piece in split_chunk(chunk):
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
            self.receive(event.data)

    def _end(self, fault: ExchangeFault) -> None:
        if not self._open.done():
            self._open.set_result(fault)
        elif not self._is_closed:
            self._is_closed = True
            self.lose(fault if isinstance(fault, Lost) else Lost(*fault.details))
