"""One HTTP address that is asked within a deadline and a size, over connections that are used again."""

from __future__ import annotations

import io
import socket
import ssl
import threading
import urllib.request
import weakref
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import monotonic
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from portico.errors import EmbedderAway

SPARE = 4
"""Connections that are kept open."""
SPARE_SECONDS = 20.0
"""How long one is kept; servers hang up after some 30 seconds or more."""


class Wire:
    """Posts to one address; follows no redirect, so that a key goes nowhere else. Safe among threads."""

    def __init__(self, url: str, *, seconds: float, most_bytes: int) -> None:
        self._address = urlsplit(url)
        self._proxy = _proxy_for(self._address)
        self._seconds, self._most_bytes = seconds, most_bytes
        self._spare: list[tuple[float, HTTPConnection]] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._spare)

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """The status and the body of the answer.

        Raises:
            EmbedderAway: it cannot be reached, is too slow, or sends too much.
        """
        until = monotonic() + self._seconds
        try:
            if (spare := self._take()) is not None:
                try:
                    return self._exchange(spare, body, headers, until)
                except ConnectionError:
                    pass  # it hung up while nobody was asking: once more, on a new connection
            return self._exchange(self._connect(), body, headers, until)
        except TimeoutError:
            raise EmbedderAway(f"no answer within {self._seconds:g} s") from None
        except HTTPException as error:
            raise EmbedderAway(f"the answer is not HTTP ({type(error).__name__})") from None
        except OSError as error:
            raise EmbedderAway(f"it cannot be reached: {_why(error)}") from None
        except ValueError:
            # http.client shows the header that it refuses, and with it the key.
            raise EmbedderAway("the key or the address has characters that HTTP does not allow") from None

    def _exchange(
        self, connection: HTTPConnection, body: bytes, headers: dict[str, str], until: float
    ) -> tuple[int, bytes]:
        is_spare = False
        try:
            connection.timeout = max(0.001, until - monotonic())
            timed = partial(_TimedResponse, until)
            connection.response_class = cast(type[HTTPResponse], timed)
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            connection.request("POST", self._target(), body, headers)
            with closing(connection.getresponse()) as response:
                content = self._read(response)
                is_spare = not response.will_close
                return response.status, content
        finally:
            if is_spare:
                self._give_back(connection)
            else:
                connection.close()

    def _read(self, response: HTTPResponse) -> bytes:
        if (response.length or 0) <= self._most_bytes:
            content = response.read(self._most_bytes + 1)
            if len(content) <= self._most_bytes:
                response.read()  # the end of a chunked answer, or the connection could not be used again
                return content
        raise EmbedderAway(f"the answer is larger than {self._most_bytes // 2**20} MiB")

    def _connect(self) -> HTTPConnection:
        at = self._proxy or self._address
        if self._address.scheme == "http":
            return HTTPConnection(at.hostname or "", at.port)
        connection = HTTPSConnection(at.hostname or "", at.port, context=ssl.create_default_context())
        if self._proxy is not None:
            connection.set_tunnel(self._address.hostname or "", self._address.port)
        return connection

    def _target(self) -> str:
        """The path, or the whole address for a proxy that is spoken to in the clear."""
        address = self._address
        if self._proxy is not None and address.scheme == "http":
            return (
                f"http://{address.netloc.rpartition('@')[2]}{address.path}{'?' if address.query else ''}{address.query}"
            )
        return f"{address.path}{'?' if address.query else ''}{address.query}"

    def _take(self) -> HTTPConnection | None:
        with self._lock:
            while self._spare:
                since, connection = self._spare.pop()
                if monotonic() - since < SPARE_SECONDS:
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: HTTPConnection) -> None:
        with self._lock:
            self._spare.append((monotonic(), connection))
            while len(self._spare) > SPARE:
                self._spare.pop(0)[1].close()


class _TimedResponse(HTTPResponse):
    """An answer whose every read counts against one deadline: a byte a second is no way to hold us."""

    def __init__(self, until: float, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        # What reads the socket is kept: it holds it open after the connection has let go of it.
        self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock, until))


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _close_all(spare: list[tuple[float, HTTPConnection]]) -> None:
    for _, connection in spare:
        connection.close()


def _proxy_for(address: SplitResult) -> SplitResult | None:
    """The proxy that the environment names, as for servers."""
    proxy = urllib.request.getproxies().get(address.scheme)
    if proxy is None or urllib.request.proxy_bypass(address.hostname or ""):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    return (error.strerror or type(error).__name__).lower()
