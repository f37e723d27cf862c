"""What both HTTP transports share: the client session, and the reading of refusals."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from portico.domain.server import ServerSpec
from portico.errors import Sent

from .jsonrpc import Garbled, decode
from .transport import (
    COUNTED_FROM,
    BadStatus,
    Bounds,
    ExchangeFault,
    Incoming,
    Lost,
    Turn,
    Unauthorized,
    public_url,
    rpc_error,
    up_to,
)

KEPT_ALIVE = 4.0
"""Seconds that an unused connection is kept: less than the 5 s after which common servers close theirs."""
CONNECTIONS = 128
EXCERPT = 200
PIECE = 32 * 1024


def endpoint(spec: ServerSpec) -> URL:
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


def open_session(spec: ServerSpec) -> aiohttp.ClientSession:
    """The one client session of a server; its timeouts are ours, not aiohttp's."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=KEPT_ALIVE),
        headers=dict(spec.headers),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=spec.timeouts.start),
        proxy=_proxy_for(spec.url),
        read_bufsize=2**18,
    )


def _proxy_for(url: str) -> str | None:
    """The proxy of the environment; asked once, because aiohttp would look at every request, and into .netrc."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    return None if proxy is None or urllib.request.proxy_bypass(parts.hostname or "") else proxy


async def read_body(response: aiohttp.ClientResponse, bounds: Bounds, turn: Turn) -> bytes | bytearray:
    """The whole body of an answer.

    Raises:
        TooLarge: it is beyond its bounds.
    """
    length = response.content_length
    if length is not None and length <= COUNTED_FROM and "Content-Encoding" not in response.headers:
        return await response.read()
    body = Incoming(up_to(bounds))
    try:
        async for chunk in response.content.iter_any():
            await turn.take(len(body.data) + len(chunk))
            body.feed(chunk)
    finally:
        turn.give_back()
    return body.data


def pieces(chunk: bytes) -> Sequence[bytes]:
    """A chunk in pieces that are read without holding others up: a stream of tiny events is slow to read."""
    if len(chunk) <= PIECE:
        return (chunk,)
    return [chunk[start : start + PIECE] for start in range(0, len(chunk), PIECE)]


def network_fault(error: BaseException, url: str) -> ExchangeFault:
    """The fault that an exception of the network means.

    Only a connection that was never made is known to have carried nothing.
    """
    where, cause = public_url(url), getattr(error, "os_error", None) or error
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return Lost(
            f"the TLS certificate or handshake of {where} was not accepted: {_reason(cause)}",
            "check the `url`; for a private certificate authority set SSL_CERT_FILE",
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Lost(f"the host name of {where} cannot be found", "check the `url` and your DNS")
    if isinstance(cause, ConnectionRefusedError):
        return Lost(f"{where} refused the connection", "check that the server runs and that the `url` has its port")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError):
        return Lost(f"{where} cannot be reached: {_reason(cause)}", "check the `url`, the network and the proxy")
    if isinstance(error, ValueError):
        return Lost(f"the request cannot be sent: {_reason(error)}", "check the `url` and the `headers`")
    return ExchangeFault(f"the connection to {where} broke off: {_reason(error)}", sent=Sent.UNKNOWN)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def same_origin(ours: URL, theirs: URL) -> bool:
    """Whether an address stays with the server, or is its https spelling."""
    if ours.origin() == theirs.origin():
        return True
    upgraded = ours.scheme == "http" and theirs.scheme == "https"
    return upgraded and ours.host == theirs.host and ours.is_default_port() and theirs.is_default_port()


async def refusal(response: aiohttp.ClientResponse, spec: ServerSpec) -> ExchangeFault:
    """The fault that an answer means which is not what was asked for."""
    status, where = response.status, public_url(spec.url)
    if status in (401, 403):
        return _unauthorized(status, where, spec)
    body = await _excerpt(response)
    if _is_json(response):
        found = _rpc_error_in(body)
        if found is not None:
            return found
    if 300 <= status < 400:
        target = public_url(response.headers.get("Location", "an unnamed place"))
        return BadStatus(status, f"{where} redirects to {target}, which is not followed", "set that as the `url`")
    if status < 300:
        return _not_mcp(response, where, body)
    return _bad_status(response, where, body.decode("utf-8", "replace"))


def _unauthorized(status: int, where: str, spec: ServerSpec) -> ExchangeFault:
    if any(name.lower() == "authorization" for name in spec.headers):
        fix = "the `Authorization` header of this server is set but not accepted: put a valid token there"
    else:
        fix = "set the `Authorization` header of this server, for example `headers: {Authorization: Bearer ...}`"
    return Unauthorized(f"{where} answered HTTP {status}: it does not accept our credentials", fix, sent=Sent.ANSWERED)


def _not_mcp(response: aiohttp.ClientResponse, where: str, body: bytes) -> ExchangeFault:
    kind = response.headers.get("Content-Type", "no content type").partition(";")[0]
    what = "an empty body" if not body else f"{kind} instead of JSON"
    return BadStatus(response.status, f"{where} answered with {what}: it is not an MCP endpoint", "check the `url`")


def _bad_status(response: aiohttp.ClientResponse, where: str, body: str) -> ExchangeFault:
    status = response.status
    said = f"{where} answered HTTP {status}"
    words = " ".join(body.split())[:EXCERPT]
    if words and not words.startswith("<"):
        said = f"{said}: {words}"
    if status in (404, 405):
        return BadStatus(status, said, "check the `url`: there is no MCP endpoint at that path")
    if status == 429:
        wait = response.headers.get("Retry-After", "a while")[:20]
        return BadStatus(status, said, f"the server wants fewer requests: try again after {wait}")
    if status >= 500:
        return BadStatus(status, said, "the server or a proxy before it has failed; see its logs", sent=Sent.UNKNOWN)
    return BadStatus(status, said, "check the `url` and the `headers` of this server")


def _is_json(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Type", "").lower().startswith("application/json")


def _rpc_error_in(body: bytes) -> ExchangeFault | None:
    try:
        message = decode(body)
    except Garbled:
        return None
    if isinstance(message, dict) and message.get("jsonrpc") == "2.0" and "error" in message:
        return rpc_error(message["error"])
    return None


async def _excerpt(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > 65536:
            break
    return bytes(body)
