"""The streamable HTTP transport, for both eras."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import isfinite
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from yarl import URL

from portico.domain.call import OnProgress
from portico.domain.server import ServerSpec
from portico.errors import Sent

from .elicitation import Notifications
from .http_session import endpoint, network_fault, open_session, pieces, read_body, refusal, same_origin
from .jsonrpc import Garbled, decode, encode
from .param_headers import NAMED_BY, HeaderMap, header_value, param_headers
from .sse import EventParser, ServerSentEvent
from .transport import (
    LARGE_AT_ONCE,
    UNCANCELLABLE,
    BadStatus,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    Lost,
    OnLost,
    RequestDialect,
    RpcError,
    Turn,
    Unauthorized,
    expired,
    progress_of,
    stamped,
    unwrapped,
)


class Flow:
    """The number of a request, its clock and its listener."""

    __slots__ = ("_ends", "_timer", "event_id", "id", "on_progress", "patience", "retry")

    def __init__(self, id: int, patience: ExchangeTimeouts, on_progress: OnProgress | None) -> None:
        self.id, self.patience, self.on_progress = id, patience, on_progress
        self.event_id, self.retry = "", 1.0
        now = asyncio.get_running_loop().time()
        self._ends = now + patience.total
        first = now + patience.first
        self._timer = asyncio.timeout_at(first if isfinite(first) else None)

    @property
    def timer(self) -> asyncio.Timeout:
        """Ends the request when its patience does."""
        return self._timer

    @property
    def is_at_end(self) -> bool:
        """Whether the time for the whole request is over."""
        return asyncio.get_running_loop().time() >= self._ends

    @property
    def is_bounded(self) -> bool:
        """Whether somebody waits for the answer, as opposed to listening for good."""
        return isfinite(self.patience.first)

    async def advance(self, params: Mapping[str, Any]) -> None:
        """Pass on one sign of progress, which starts the patience again."""
        if isfinite(self.patience.idle):
            self._timer.reschedule(min(asyncio.get_running_loop().time() + self.patience.idle, self._ends))
        if self.on_progress is not None:
            await self.on_progress(*progress_of(params))


logger = logging.getLogger(__name__)

SESSION = "Mcp-Session-Id"
VERSION = "MCP-Protocol-Version"
CLOSING = 2.0
"""Seconds for telling a server that its session is over."""
LINGER = 0.02
"""Seconds to wait for the end of a stream after its answer, so that the connection can be used again."""
REOPEN, REOPEN_CAP = 1.0, 60.0
"""Seconds between two openings of a session's own stream; twice as long each time, unless it has lasted."""
RESUMPTIONS = 2
UNTOLD = 64
"""Messages on their way to a server that nobody waits for; what comes on top is dropped."""
MOVES = 3

_POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class _SessionGone(ExchangeFault):
    """The server no longer knows our session, so it has not executed the request."""


class _Moved(ExchangeFault):
    """The endpoint has another address at the same origin."""

    def __init__(self, url: URL) -> None:
        super().__init__(f"moved to {url}")
        self.url = url


class HttpLink:
    """The link to one streamable HTTP endpoint."""

    def __init__(self, spec: ServerSpec, inbox: Notifications, chores: TaskGroup, on_lost: OnLost) -> None:
        self.fault: Lost | None = None
        self.dialect = RequestDialect()
        self.header_maps: Mapping[str, HeaderMap] = {}
        self.renew: Callable[[], Awaitable[None]] | None = None
        """Begins a new session; set when the first one has begun."""
        self._spec, self._inbox, self._chores, self._on_lost = spec, inbox, chores, on_lost
        self._url = endpoint(spec)
        self._http = open_session(spec)
        self._session = ""
        self._renewing = asyncio.Lock()
        self._flows: dict[int, Flow] = {}
        self._last_id = 0
        self._is_closing = False
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._telling = 0

    @property
    def pid(self) -> int | None:
        """None: the server is not our child."""
        return None

    @property
    def stderr(self) -> str:
        """Nothing: the server is not our child."""
        return ""

    async def request(
        self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer."""
        self._last_id = id = self._last_id + 1
        flow = self._flows[id] = Flow(id, patience, on_progress)
        try:
            async with flow.timer:
                return unwrapped(await self._exchange(method, params, flow))
        except TimeoutError as error:
            if not flow.timer.expired():
                raise self._lost(network_fault(error, self._spec.url)) from error
            self._abandon(method, id)
            raise expired(patience, at_end=flow.is_at_end) from None
        except asyncio.CancelledError:
            self._abandon(method, id)
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._lost(network_fault(error, self._spec.url)) from error
        except Unauthorized as fault:
            raise self._lost(fault) from None
        finally:
            del self._flows[id]

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send one notification; what the server makes of it is its own affair."""
        await self._tell({"jsonrpc": "2.0", "method": method, "params": params})

    async def listen(self) -> None:
        """Read the stream of a legacy session on which the server speaks by itself, as long as it offers one."""
        pause, event_id = REOPEN, ""
        while self._session and not self.dialect.is_modern:
            headers = {**self._legacy_headers(), "Accept": "text/event-stream"}
            if event_id:
                headers["Last-Event-ID"] = event_id
            flow, began = Flow(0, ExchangeTimeouts(), None), anyio.current_time()
            try:
                async with self._http.get(self._url, headers=headers, allow_redirects=False) as response:
                    if not _is_stream(response) and response.status != 404:
                        return
                    if response.status == 200:
                        await self._read_events(response, flow)
            except (aiohttp.ClientError, OSError, ExchangeFault):
                # It is opened again below, like a stream that the server has ended.
                pass
            event_id = flow.event_id or event_id
            await anyio.sleep(max(pause, flow.retry))
            pause = REOPEN if anyio.current_time() - began > REOPEN_CAP else min(pause * 2, REOPEN_CAP)

    async def aclose(self) -> None:
        """End the session, if there is one, and close every connection."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            if self._session and self.fault is None:
                with anyio.move_on_after(CLOSING):
                    await self._end_session()
            await self._http.close()
            # aiohttp closes its sockets in the next turns of the loop.
            await anyio.lowlevel.checkpoint()

    async def _exchange(self, method: str, params: Mapping[str, Any], flow: Flow) -> Mapping[str, Any]:
        params = stamped(params, self.dialect.envelope, None if flow.on_progress is None else flow.id)
        body = encode({"jsonrpc": "2.0", "id": flow.id, "method": method, "params": params})
        renewed = False
        for _ in range(MOVES):
            session = self._session
            try:
                return await self._post(method, body, self._headers(method, params), flow)
            except _Moved as moved:
                self._url = moved.url
            except _SessionGone:
                if renewed:
                    raise
                renewed = True
                await self._renew(session)
        raise ExchangeFault("the server redirects in circles", "check the `url`", sent=Sent.ANSWERED)

    async def _post(self, method: str, body: bytes, headers: Mapping[str, str], flow: Flow) -> Mapping[str, Any]:
        async with self._http.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            kind = response.headers.get("Content-Type", "").lower()
            if response.status == 200:
                if method == "initialize":
                    self._session = response.headers.get(SESSION, "")
                if kind.startswith("application/json"):
                    bounds = Bounds(flow.patience.size, flow.patience.values)
                    return self._answer_in(await read_body(response, bounds, Turn(self._large)))
                if kind.startswith("text/event-stream"):
                    return await self._answer_from(response, flow)
            raise await self._refused(response, method)

    def _answer_in(self, body: bytes | bytearray) -> Mapping[str, Any]:
        try:
            found = decode(body)
        except Garbled as error:
            said = "an empty body" if not body or body.isspace() else "what is not valid JSON"
            raise ExchangeFault(f"the server answered with {said}", sent=Sent.ANSWERED) from error
        for message in found if isinstance(found, list) else (found,):
            if isinstance(message, dict) and "method" not in message:
                return message
        raise ExchangeFault("the server's answer is no JSON-RPC response", sent=Sent.ANSWERED)

    async def _answer_from(self, response: aiohttp.ClientResponse, flow: Flow) -> Mapping[str, Any]:
        answer = await self._read_events(response, flow)
        attempts = 0
        while answer is None and flow.event_id and not self.dialect.is_modern and attempts < RESUMPTIONS:
            # A legacy server may close the stream and keep the answer for whoever asks for what came after.
            seen = flow.event_id
            await anyio.sleep(flow.retry)
            answer = await self._resume(flow)
            attempts = attempts + 1 if flow.event_id == seen else 0
        if answer is None:
            raise ExchangeFault("the server's answer was cut off", sent=Sent.UNKNOWN)
        return answer

    async def _resume(self, flow: Flow) -> Mapping[str, Any] | None:
        headers = {**self._legacy_headers(), "Accept": "text/event-stream", "Last-Event-ID": flow.event_id}
        async with self._http.get(self._url, headers=headers, allow_redirects=False) as response:
            if response.status != 200 or not _is_stream(response):
                raise ExchangeFault("the server's answer was cut off and is not kept", sent=Sent.UNKNOWN)
            return await self._read_events(response, flow)

    async def _read_events(self, response: aiohttp.ClientResponse, flow: Flow) -> Mapping[str, Any] | None:
        """Read one stream up to the answer of the flow, or to its end."""
        parser, turn = EventParser(flow.patience.size, flow.patience.values), Turn(self._large)
        try:
            async for chunk in response.content.iter_any():
                for piece in pieces(chunk):
                    answer = await self._take_events(parser.feed(piece), flow)
                    if answer is not None:
                        await _linger(response)
                        return answer
                    await turn.take(parser.pending)
                    if piece is not chunk:
                        await asyncio.sleep(0)
                flow.retry = flow.retry if parser.retry is None else parser.retry
        finally:
            turn.give_back()
        return None

    async def _take_events(self, events: Iterable[ServerSentEvent], flow: Flow) -> Mapping[str, Any] | None:
        for event in events:
            flow.event_id = event.id or flow.event_id
            answer = await self._take(event.data, flow)
            if answer is not None:
                return answer
        return None

    async def _take(self, data: bytes | bytearray, flow: Flow) -> Mapping[str, Any] | None:
        if not data or data.isspace():
            return None
        try:
            message = decode(data)
        except Garbled as error:
            raise ExchangeFault("the server sent an event that is not valid JSON", sent=Sent.UNKNOWN) from error
        if not isinstance(message, dict):
            return None
        if "method" not in message:
            # A server that answers on this stream answers this request, however it spells the number.
            return message if flow.id else None
        if message.get("id") is not None:
            self._reply(message)
        elif message["method"] == "notifications/progress":
            await self._progress(message.get("params"), flow)
        elif isinstance(message["method"], str):
            self._inbox.receive(message["method"], message.get("params"))
        return None

    def _reply(self, request: Mapping[str, Any]) -> None:
        # What comes by the session's own stream belongs to no call, says the specification.
        reply = self._inbox.answer(request, self._tell, is_own_stream=True)
        if reply is not None:
            self._soon(self._tell, reply)

    async def _progress(self, params: Any, flow: Flow) -> None:
        token = params.get("progressToken") if isinstance(params, dict) else None
        if token == flow.id:
            await flow.advance(params)
        elif isinstance(token, int) and token in self._flows:
            # Some servers report on the session's own stream; its reader must not wait for a listener.
            self._soon(self._flows[token].advance, params)

    async def _refused(self, response: aiohttp.ClientResponse, method: str) -> ExchangeFault:
        if response.status in (307, 308):
            target = self._url.join(URL(response.headers.get("Location", "")))
            if same_origin(self._url, target):
                return _Moved(target)
        if response.status == 202:
            return ExchangeFault("the server took the request and will not answer it", sent=Sent.UNKNOWN)
        fault = await refusal(response, self._spec)
        if self._session and method != "initialize" and _means_no_session(response.status, fault):
            return _SessionGone(*fault.details, sent=Sent.ANSWERED)
        return fault

    async def _renew(self, stale: str) -> None:
        async with self._renewing:
            if self._session == stale and self.renew is not None:
                await self.renew()
                self._inbox.changed()

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if not self.dialect.is_modern:
            return {**_POST, **self._legacy_headers()} if method != "initialize" else _POST
        headers = {**_POST, VERSION: self.dialect.version, "Mcp-Method": method}
        name = params.get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
            if method == "tools/call" and name in self.header_maps:
                headers.update(param_headers(self.header_maps[name], params.get("arguments") or {}))
        return headers

    def _legacy_headers(self) -> dict[str, str]:
        headers = {VERSION: self.dialect.version} if self.dialect.version else {}
        if self._session:
            headers[SESSION] = self._session
        return headers

    def _abandon(self, method: str, id: int) -> None:
        # In 2026-07-28 the closed response stream says it; before, a closed stream means nothing.
        if not self.dialect.is_modern and method not in UNCANCELLABLE:
            params = {"requestId": id, "reason": "the caller no longer waits"}
            self._soon(self._tell, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _soon(self, chore: Callable[..., Awaitable[None]], *args: Any) -> None:
        if not self._is_closing and self.fault is None and self._telling < UNTOLD:
            self._telling += 1
            self._chores.start_soon(self._run_quietly, chore, *args)

    async def _run_quietly(self, chore: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run what nobody waits for: it must not take the connection down."""
        try:
            await chore(*args)
        except Exception:
            logger.warning("a message that nobody waits for was not delivered", exc_info=True)
        finally:
            self._telling -= 1

    async def _tell(self, message: Mapping[str, Any]) -> None:
        method = str(message.get("method", ""))
        headers = self._headers(method, message.get("params") or {})
        try:
            async with (
                asyncio.timeout(self._spec.timeouts.start),
                self._http.post(self._url, data=encode(message), headers=headers, allow_redirects=False),
            ):
                pass
        except (aiohttp.ClientError, OSError):
            # Nobody waits for it; the next request will find out what is wrong.
            return

    async def _end_session(self) -> None:
        try:
            async with self._http.delete(self._url, headers=self._legacy_headers(), allow_redirects=False):
                pass
        except (aiohttp.ClientError, OSError):
            return

    def _lost(self, fault: ExchangeFault) -> ExchangeFault:
        """Note a fault; one connection that cannot be made does not end a link that others are using."""
        is_final = isinstance(fault, Unauthorized) or sum(flow.is_bounded for flow in self._flows.values()) <= 1
        if isinstance(fault, Lost) and is_final and self.fault is None and not self._is_closing:
            self.fault = fault
            self._on_lost()
        return fault


async def _linger(response: aiohttp.ClientResponse) -> None:
    if not response.content.at_eof():
        with anyio.move_on_after(LINGER):
            while await response.content.readany():
                pass


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Type", "").startswith("text/event-stream")


def _means_no_session(status: int, fault: ExchangeFault) -> bool:
    if status == 404:
        return True
    # Servers copied from a well-known example answer 400 and name the session.
    words = fault.message if isinstance(fault, RpcError) else str(fault) if isinstance(fault, BadStatus) else ""
    return status == 400 and "session" in words.lower()
