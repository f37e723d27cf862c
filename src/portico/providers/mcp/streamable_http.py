"""Requests to MCP servers over HTTP: client sessions, headers and refusals, and the streamable HTTP transport."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from yarl import URL

from portico.domain.call import OnProgress
from portico.domain.server import ServerSpec, pause_after
from portico.errors import Sent

from .message_limits_and_errors import (
    COUNTED_FROM,
    LARGE_AT_ONCE,
    UNCANCELLABLE,
    BadStatus,
    BrokenOff,
    EventParser,
    ExchangeFault,
    ExchangeTimeouts,
    GarbledMessage,
    IncomingMessage,
    JsonObject,
    Lost,
    OnLost,
    ProgressTimer,
    RpcError,
    Transport,
    Unauthorized,
    add_envelope,
    cancellation,
    decode,
    encode,
    public_url,
    read_progress,
    read_result,
    split_chunk,
)
from .server_questions import Notifications

logger = logging.getLogger(__name__)

KEPT_ALIVE = 4.0
"""Seconds that an unused connection is kept: less than the 5 s after which common servers close theirs."""
SPARE = 8
"""Connections to one server beside those of its calls: for its streams, and for what nobody waits for."""
EXCERPT, EXCERPT_READ = 200, 65_536
"""Characters of a refusal that are told, and bytes of it that are read."""


PROXY_WANTS_CREDENTIALS = 407
PROXY_FIX = "put the user and the password of the proxy into HTTP_PROXY and HTTPS_PROXY"
CERTIFICATES = {9: "tls_expired", 10: "tls_expired", 62: "tls_host", 63: "tls_host", 64: "tls_host"}
"""The causes that OpenSSL's codes for certificates mean: one out of its time, or for another host."""


def parse_url(spec: ServerSpec) -> URL:
    """The address of a server.

    Raises:
        Lost: it is none.
    """
    try:
        url = URL(spec.url)
    except ValueError as error:
        raise Lost(f"{spec.url!r} is not a usable address", "check the `url`") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise Lost(f"{public_url(spec.url)!r} is not an http or https address", "check the `url`")
    return url


class ConnectionPool(aiohttp.TCPConnector):
    """The connections to one server, which may turn out to lead nowhere."""

    def drop_unused(self) -> None:
        """Close those that nobody uses: where one was dead and nobody said so, the others may be."""
        # aiohttp has no way to say this. Should its inside change, they are dropped after `KEPT_ALIVE` all the same.
        for unused in getattr(self, "_conns", {}).values():
            while unused:
                unused.pop()[0].close()


def open_session(spec: ServerSpec) -> aiohttp.ClientSession:
    """The one client session of a server; its timeouts are ours, not aiohttp's."""
    # The environment is asked once, because aiohttp would look for a proxy at every request, and into .netrc.
    parts = urlsplit(spec.url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    return aiohttp.ClientSession(
        connector=ConnectionPool(limit=spec.limits.calls_at_once + SPARE, keepalive_timeout=KEPT_ALIVE),
        headers=dict(spec.headers),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=spec.timeouts.start),
        proxy=None if proxy is None or urllib.request.proxy_bypass(parts.hostname or "") else proxy,
        read_bufsize=2**18,
    )


async def close_session(session: aiohttp.ClientSession) -> None:
    """Close a session with its sockets."""
    await session.close()
    # aiohttp closes its sockets in the next turns of the loop.
    await anyio.lowlevel.checkpoint()


def network_fault(error: BaseException, url: str) -> ExchangeFault:
    """The fault that an exception of the network means.

    Only a connection that was never made is known to have carried nothing.
    """
    where = public_url(url)
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error

    def reason(error: BaseException) -> str:
        return " ".join(str(error).split())[:300] or type(error).__name__

    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return Lost(
            f"the TLS certificate or handshake of {where} was not accepted: {reason(cause)}",
            "check the `url`; for a private certificate authority set SSL_CERT_FILE",
            cause=CERTIFICATES.get(getattr(cause, "verify_code", 0), "tls"),
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Lost(f"the host name of {where} cannot be found", "check the `url` and your DNS", cause="dns")
    if isinstance(cause, ConnectionRefusedError):
        fix = "check that the server runs and that the `url` has its port"
        return Lost(f"{where} refused the connection", fix, cause="refused")
    if isinstance(error, aiohttp.ClientHttpProxyError) and error.status == PROXY_WANTS_CREDENTIALS:
        return Lost(f"the proxy before {where} does not accept our credentials", PROXY_FIX, cause="proxy_auth")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError):
        kind = "timeout" if isinstance(error, aiohttp.ConnectionTimeoutError) else "unreachable"
        fix = "check the `url`, the network and the proxy"
        return Lost(f"{where} cannot be reached: {reason(cause)}", fix, cause=kind)
    if isinstance(error, ValueError):
        return Lost(f"the request cannot be sent: {reason(error)}", "check the `url` and the `headers`")
    # An answer that has begun shows that the call arrived: it is not made again.
    fault = ExchangeFault if isinstance(error, aiohttp.ClientPayloadError) else BrokenOff
    return fault(f"the connection to {where} broke off: {reason(error)}", sent=Sent.UNKNOWN)


async def read_refusal(response: aiohttp.ClientResponse, spec: ServerSpec) -> ExchangeFault:
    """The fault that an answer means which is not what was asked for."""
    status, where = response.status, public_url(spec.url)
    if status in (401, 403):
        fix = "set the `Authorization` header of this server, for example `headers: {Authorization: Bearer ...}`"
        if any(name.lower() == "authorization" for name in spec.headers):
            fix = "the `Authorization` header of this server is set but not accepted: put a valid token there"
        said = f"{where} answered HTTP {status}: it does not accept our credentials"
        return Unauthorized(said, fix, sent=Sent.ANSWERED, status=status)
    if status == PROXY_WANTS_CREDENTIALS:
        said = f"the proxy before {where} does not accept our credentials"
        return BadStatus(status, said, PROXY_FIX, cause="proxy_auth")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > EXCERPT_READ:
            break
    kind = response.headers.get("Content-Type", "no content type").partition(";")[0]
    if kind.lower().startswith("application/json"):
        try:
            message = decode(body)
        except GarbledMessage:
            message = None
        if isinstance(message, dict) and message.get("jsonrpc") == "2.0" and "error" in message:
            return RpcError.read(message["error"])
    if status < 300:
        what = "an empty body" if not body else f"{kind} instead of JSON"
        said = f"{where} answered with {what}: it is not an MCP endpoint"
        return BadStatus(status, said, "check the `url`", cause="not_mcp")
    return _bad_status(response, where, body.decode("utf-8", "replace"))


def _bad_status(response: aiohttp.ClientResponse, where: str, body: str) -> BadStatus:
    status, words = response.status, " ".join(body.split())[:EXCERPT]
    if status < 400:
        target = public_url(response.headers.get("Location", "an unnamed place"))
        return BadStatus(status, f"{where} redirects to {target}, which is not followed", "set that as the `url`")
    said = f"{where} answered HTTP {status}" + (f": {words}" if words and not words.startswith("<") else "")
    if status in (404, 405):
        return BadStatus(status, said, "check the `url`: there is no MCP endpoint at that path")
    if status == 429:
        wait = response.headers.get("Retry-After", "a while")[:20]
        return BadStatus(status, said, f"the server wants fewer requests: try again after {wait}")
    if status >= 500:
        return BadStatus(status, said, "the server or a proxy before it has failed; see its logs", sent=Sent.UNKNOWN)
    return BadStatus(status, said, "check the `url` and the `headers` of this server")


# The SDK has the same rules in `mcp.shared.inbound`, which takes half a second to load.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the `Mcp-Name` header repeats, by method."""
HeaderMap = Mapping[tuple[str, ...], str]
"""From the path of a property to the name that its header ends in."""
_SAFE = re.compile(r"[\x20-\x7E]*")
_WRAPPED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MIRRORED_TYPES = frozenset({"string", "integer", "boolean"})


def header_value(value: str) -> str:
    """A value as a header can carry it: as it is, or wrapped in base64."""
    if _SAFE.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode('ascii')}?="


def header_maps(tools: Iterable[JsonObject]) -> dict[str, HeaderMap]:
    """The header maps of those tools whose schema declares headers."""
    maps = {tool.get("name"): dict(_declared_headers(tool.get("inputSchema"))) for tool in tools}
    return {name: found for name, found in maps.items() if isinstance(name, str) and found}


def _declared_headers(schema: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every valid annotation that is reached through `properties` alone."""
    stack: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, Mapping):
            continue
        token = node.get("x-mcp-header")
        if path and isinstance(token, str) and _TOKEN.fullmatch(token) and str(node.get("type")) in _MIRRORED_TYPES:
            yield path, token
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            stack.extend(((*path, name), sub) for name, sub in properties.items())


def param_headers(declared: HeaderMap, arguments: JsonObject) -> dict[str, str]:
    """The `Mcp-Param-*` headers that repeat some of a call's arguments."""
    headers = {}
    for path, token in declared.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            headers[f"Mcp-Param-{token}"] = header_value(str(value))
    return headers


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
FORBIDDEN = 403

_POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class HttpRequest:
    """One request: its number, its time, its listener, and how far its stream was read."""

    __slots__ = ("event_id", "id", "on_progress", "retry", "timeouts", "timer")

    def __init__(self, id: int, timeouts: ExchangeTimeouts, on_progress: OnProgress | None) -> None:
        self.id, self.timeouts, self.on_progress = id, timeouts, on_progress
        self.event_id, self.retry = "", 1.0
        self.timer = ProgressTimer(timeouts.idle, timeouts.total)

    async def advance(self, params: JsonObject) -> None:
        """Pass on one sign of progress, which starts the time again."""
        self.timer.put_off()
        if self.on_progress is not None:
            await self.on_progress(*read_progress(params))


class LargeAnswerSlot:
    """A place among the large answers that are read at the same time; small ones need none."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._is_held = places, False

    async def take(self, size: int) -> None:
        """Wait for a place when an answer has become large."""
        if size > COUNTED_FROM and not self._is_held:
            await self._places.acquire()
            self._is_held = True

    def release(self) -> None:
        """Let the next large answer in."""
        if self._is_held:
            self._is_held = False
            self._places.release()


class _SessionGone(ExchangeFault):
    """The server no longer knows our session, so it has not executed the request."""


class _Moved(ExchangeFault):
    """The endpoint has another address at the same origin."""

    def __init__(self, url: URL) -> None:
        super().__init__(f"moved to {url}")
        self.url = url


class HttpTransport(Transport):
    """The transport to one streamable HTTP endpoint, for both eras."""

    def __init__(self, spec: ServerSpec, notifications: Notifications, tasks: TaskGroup, on_lost: OnLost) -> None:
        super().__init__(on_lost)
        self.header_maps: Mapping[str, HeaderMap] = {}
        self.renew: Callable[[], Awaitable[None]] | None = None
        """Begins a new session; set when the first one has begun."""
        self._spec, self._notifications, self._tasks = spec, notifications, tasks
        self._url = parse_url(spec)
        self._http = open_session(spec)
        self._session = ""
        self._renewing = asyncio.Lock()
        self._requests: dict[int, HttpRequest] = {}
        self._is_closing = False
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._untold = 0

    async def request(
        self, method: str, params: JsonObject, timeouts: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer."""
        self._last_id = id = self._last_id + 1
        request = self._requests[id] = HttpRequest(id, timeouts, on_progress)
        try:
            async with request.timer.timeout as timeout:
                return read_result(await self._exchange(method, params, request))
        except TimeoutError as error:
            if not timeout.expired():
                raise self._lost(network_fault(error, self._spec.url)) from error
            if isinstance(self._http.connector, ConnectionPool):
                self._http.connector.drop_unused()
            self._abandon(method, id)
            raise timeouts.expired(at_end=request.timer.is_at_end) from None
        except asyncio.CancelledError:
            self._abandon(method, id)
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._lost(network_fault(error, self._spec.url)) from error
        except Unauthorized as fault:
            if fault.status == FORBIDDEN and method not in UNCANCELLABLE:
                # Whoever was let in may still not do everything: the others' calls go on.
                raise ExchangeFault(*fault.details, sent=fault.sent) from None
            raise self._lost(fault) from None
        finally:
            del self._requests[id]

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send one notification; what the server makes of it is its own affair."""
        await self._tell({"jsonrpc": "2.0", "method": method, "params": params})

    async def listen(self) -> None:
        """Read the stream of a legacy session on which the server speaks by itself, as long as it offers one."""
        failures, event_id = 0, ""
        while self._session and not self.dialect.is_modern:
            headers = {**self._legacy_headers(), "Accept": "text/event-stream"}
            if event_id:
                headers["Last-Event-ID"] = event_id
            request, began = HttpRequest(0, ExchangeTimeouts(), None), anyio.current_time()
            try:
                async with self._http.get(self._url, headers=headers, allow_redirects=False) as response:
                    if not _is_stream(response) and response.status != 404:
                        return
                    if response.status == 200:
                        await self._read_events(response, request)
            except (aiohttp.ClientError, OSError, ExchangeFault):
                # It is opened again below, like a stream that the server has ended.
                pass
            event_id = request.event_id or event_id
            await anyio.sleep(max(pause_after(failures + 1, REOPEN, REOPEN_CAP), request.retry))
            failures = 0 if anyio.current_time() - began > REOPEN_CAP else failures + 1

    async def aclose(self) -> None:
        """End the session, if there is one, and close every connection."""
        self._is_closing = True
        with anyio.CancelScope(shield=True):
            if self._session and self.fault is None:
                with anyio.move_on_after(CLOSING):
                    try:
                        async with self._http.delete(self._url, headers=self._legacy_headers(), allow_redirects=False):
                            pass
                    except (aiohttp.ClientError, OSError):
                        pass  # it ends by itself when nobody uses it
            await close_session(self._http)

    async def _exchange(self, method: str, params: JsonObject, request: HttpRequest) -> JsonObject:
        params = add_envelope(params, self.dialect.envelope, None if request.on_progress is None else request.id)
        body = encode({"jsonrpc": "2.0", "id": request.id, "method": method, "params": params})
        is_renewed = False
        for _ in range(MOVES):
            session = self._session
            try:
                return await self._post(method, body, self._headers(method, params), request)
            except _Moved as moved:
                self._url = moved.url
            except _SessionGone:
                if is_renewed:
                    raise
                is_renewed = True
                await self._renew(session)
        raise ExchangeFault("the server redirects in circles", "check the `url`", sent=Sent.ANSWERED)

    async def _post(self, method: str, body: bytes, headers: Mapping[str, str], request: HttpRequest) -> JsonObject:
        async with self._http.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            kind = response.headers.get("Content-Type", "").lower()
            if response.status == 200:
                if method == "initialize":
                    self._session = response.headers.get(SESSION, "")
                if kind.startswith("application/json"):
                    answer = _find_answer(await self._read_body(response, request.timeouts), request.id)
                    if self._is_of_another(answer, request.id):
                        said = "the server answered another request than the one that it was sent"
                        raise ExchangeFault(said, sent=Sent.UNKNOWN)
                    return answer
                if kind.startswith("text/event-stream"):
                    return await self._read_stream(response, request)
            raise await self._refused(response, method)

    async def _read_body(self, response: aiohttp.ClientResponse, timeouts: ExchangeTimeouts) -> bytes | bytearray:
        length = response.content_length
        if length is not None and length <= COUNTED_FROM and "Content-Encoding" not in response.headers:
            return await response.read()
        body, slot = IncomingMessage(timeouts.bounds), LargeAnswerSlot(self._large)
        try:
            async for chunk in response.content.iter_any():
                await slot.take(len(body.data) + len(chunk))
                body.feed(chunk)
        finally:
            slot.release()
        return body.data

    async def _read_stream(self, response: aiohttp.ClientResponse, request: HttpRequest) -> JsonObject:
        answer = await self._read_events(response, request)
        attempts = 0
        while answer is None and request.event_id and not self.dialect.is_modern and attempts < RESUMPTIONS:
            # A legacy server may close the stream and keep the answer for whoever asks for what came after.
            seen = request.event_id
            await anyio.sleep(request.retry)
            headers = {**self._legacy_headers(), "Accept": "text/event-stream", "Last-Event-ID": seen}
            async with self._http.get(self._url, headers=headers, allow_redirects=False) as rest:
                if rest.status != 200 or not _is_stream(rest):
                    raise ExchangeFault("the server's answer was cut off and is not kept", sent=Sent.UNKNOWN)
                answer = await self._read_events(rest, request)
            attempts = attempts + 1 if request.event_id == seen else 0
        if answer is None:
            raise ExchangeFault("the server's answer was cut off", sent=Sent.UNKNOWN)
        return answer

    async def _read_events(self, response: aiohttp.ClientResponse, request: HttpRequest) -> JsonObject | None:
        """Read one stream up to the answer of the request, or to its end."""
        parser, slot = EventParser(request.timeouts.bounds), LargeAnswerSlot(self._large)
        misspelled: JsonObject | None = None
        try:
            async for chunk in response.content.iter_any():
                for piece in split_chunk(chunk):
                    for event in parser.feed(piece):
                        request.event_id = event.id or request.event_id
                        answer = await self._take(event.data, request)
                        if answer is not None and str(answer.get("id")) != str(request.id):
                            misspelled = misspelled or answer
                        elif answer is not None:
                            if not response.content.at_eof():
                                with anyio.move_on_after(LINGER):
                                    while await response.content.readany():
                                        pass
                            return answer
                    await slot.take(parser.pending)
                    if piece is not chunk:
                        await asyncio.sleep(0)
                request.retry = request.retry if parser.retry is None else parser.retry
        finally:
            slot.release()
        # Who answers nothing else on this stream has answered this request, however the number is spelled.
        return misspelled

    async def _take(self, data: bytes | bytearray, request: HttpRequest) -> JsonObject | None:
        """Take one event; the answer, if it is the one of this request."""
        if not data or data.isspace():
            return None
        try:
            message = decode(data)
        except GarbledMessage as error:
            raise ExchangeFault("the server sent an event that is not valid JSON", sent=Sent.UNKNOWN) from error
        if not isinstance(message, dict):
            return None
        method, params = message.get("method"), message.get("params")
        if "method" not in message:
            return message if request.id and not self._is_of_another(message, request.id) else None
        if message.get("id") is not None:
            # What comes by the session's own stream belongs to no call, says the specification.
            reply = self._notifications.answer(message, self._tell, is_own_stream=True)
            if reply is not None:
                self._soon(self._tell, reply)
        elif method == "notifications/progress":
            await self._progress(params if isinstance(params, dict) else {}, request)
        elif isinstance(method, str):
            self._notifications.receive(method, params)
        return None

    def _is_of_another(self, message: JsonObject, id: int) -> bool:
        """Whether an answer has the number of another request of ours, open or done."""
        number = message.get("id")
        return type(number) is int and 0 < number <= self._last_id and number != id

    async def _progress(self, params: JsonObject, request: HttpRequest) -> None:
        token = params.get("progressToken")
        if token == request.id:
            await request.advance(params)
        elif isinstance(token, int) and token in self._requests:
            # Some servers report on the session's own stream; its reader must not wait for a listener.
            self._soon(self._requests[token].advance, params)

    async def _refused(self, response: aiohttp.ClientResponse, method: str) -> ExchangeFault:
        if response.status in (307, 308):
            target = self._url.join(URL(response.headers.get("Location", "")))
            if _is_same_origin(self._url, target):
                return _Moved(target)
        if response.status == 202:
            return ExchangeFault("the server took the request and will not answer it", sent=Sent.UNKNOWN)
        fault = await read_refusal(response, self._spec)
        # Servers copied from a well-known example answer 400 and name the session.
        words = fault.message if isinstance(fault, RpcError) else str(fault) if isinstance(fault, BadStatus) else ""
        is_gone = response.status == 404 or (response.status == 400 and "session" in words.lower())
        if self._session and method != "initialize" and is_gone:
            return _SessionGone(*fault.details, sent=Sent.ANSWERED)
        return fault

    async def _renew(self, stale: str) -> None:
        async with self._renewing:
            if self._session == stale and self.renew is not None:
                await self.renew()
                self._notifications.changed()

    def _headers(self, method: str, params: JsonObject) -> dict[str, str]:
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
            self._soon(self._tell, cancellation(id))

    def _soon(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run what nobody waits for: it must not take the connection down."""

        async def run_quietly() -> None:
            try:
                await work(*args)
            except Exception:
                logger.warning("a message that nobody waits for was not delivered", exc_info=True)
            finally:
                self._untold -= 1

        if not self._is_closing and self.fault is None and self._untold < UNTOLD:
            self._untold += 1
            self._tasks.start_soon(run_quietly)

    async def _tell(self, message: JsonObject) -> None:
        headers = self._headers(str(message.get("method", "")), message.get("params") or {})
        try:
            async with (
                asyncio.timeout(self._spec.timeouts.start),
                self._http.post(self._url, data=encode(message), headers=headers, allow_redirects=False),
            ):
                pass
        except (aiohttp.ClientError, OSError):
            # Nobody waits for it; the next request will find out what is wrong.
            return

    def _lost(self, fault: ExchangeFault) -> ExchangeFault:
        """Note a fault; one connection that cannot be made does not end a transport that others are using."""
        # Who listens for good waits for no answer.
        waiting = sum(isfinite(request.timeouts.first) for request in self._requests.values())
        is_final = isinstance(fault, Unauthorized) or waiting <= 1
        if isinstance(fault, Lost) and is_final and self.fault is None and not self._is_closing:
            self.fault = fault
            self._on_lost()
        return fault


def _find_answer(body: bytes | bytearray, id: int) -> JsonObject:
    try:
        found = decode(body)
    except GarbledMessage as error:
        said = "an empty body" if not body or body.isspace() else "what is not valid JSON"
        raise ExchangeFault(f"the server answered with {said}", sent=Sent.ANSWERED) from error
    given = found if isinstance(found, list) else (found,)
    answers = [message for message in given if isinstance(message, dict) and "method" not in message]
    if answers:
        return next((answer for answer in answers if str(answer.get("id")) == str(id)), answers[0])
    raise ExchangeFault("the server's answer is no JSON-RPC response", sent=Sent.ANSWERED)


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Type", "").startswith("text/event-stream")


def _is_same_origin(ours: URL, theirs: URL) -> bool:
    """Whether an address stays with the server, or is its https spelling."""
    if ours.origin() == theirs.origin():
        return True
    upgraded = ours.scheme == "http" and theirs.scheme == "https"
    return upgraded and ours.host == theirs.host and ours.is_default_port() and theirs.is_default_port()
