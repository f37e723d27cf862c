"""An HTTP endpoint that speaks the OpenAI form of embeddings."""

from __future__ import annotations

import io
import socket
import ssl
import threading
import urllib.request
import weakref
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import isfinite
from time import monotonic
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

import orjson

from portico.errors import EmbedderAway

from .cache import DIMENSIONS

BATCH = 64
"""Texts in one request."""
ANSWER_SECONDS = 30.0
ANSWER_BYTES = 32 * 2**20

_REFUSED_TEXT = frozenset({400, 413, 422, 500})
"""What endpoints say to a text that is too long or that they stumble over; others may still pass."""


class Endpoint:
    """Asks `POST {url}/embeddings`; what it says in errors never holds the key."""

    def __init__(self, url: str, model: str, *, key: str = "", seconds: float = ANSWER_SECONDS) -> None:
        address = urlsplit(url)
        path = address.path.rstrip("/")
        path = path if path.endswith("/embeddings") else f"{path}/embeddings"
        shown = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], path, "", ""))
        self.name = f"{model} at {shown}"
        self._model, self._key = model, key
        self._wire = HttpPoster(urlunsplit(address._replace(path=path)), seconds=seconds, most_bytes=ANSWER_BYTES)

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of texts, in their order.

        Raises:
            EmbedderAway: the endpoint cannot be reached, refuses, or its answer cannot be used.
        """
        found: list[Sequence[float]] = []
        for start in range(0, len(texts), BATCH):
            found += self._ask(texts[start : start + BATCH])
        _check_lengths(found)
        return found

    def _ask(self, texts: Sequence[str]) -> list[Sequence[float]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "portico"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        status, body = self._wire.post(orjson.dumps({"model": self._model, "input": list(texts)}), headers)
        if status != 200:
            raise EmbedderAway(self._refusal(status, body), refused=status in _REFUSED_TEXT)
        return _vectors(body, len(texts))

    def _refusal(self, status: int, body: bytes) -> str:
        if status in (401, 403):
            return f"it refused the key (HTTP {status})"  # its words may repeat the key
        said = _message(body)
        if self._key:
            said = said.replace(self._key, "***")
        return f"it answered HTTP {status}" + (f": {said[:200]}" if said else "")


def _vectors(body: bytes, count: int) -> list[Sequence[float]]:
    """The vectors of an answer, in the order of their `index`."""
    try:
        rows = orjson.loads(body)["data"]
        placed = {row.get("index", place): row["embedding"] for place, row in enumerate(rows)}
        found = [placed[place] for place in range(count)]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise EmbedderAway("its answer does not have the OpenAI shape of embeddings", refused=True) from None
    if len(rows) != count:
        raise EmbedderAway(f"it answered with {len(rows)} vectors for {count} texts", refused=True)
    if not all(_is_vector(numbers) for numbers in found):
        raise EmbedderAway("it answered with something that is no vector", refused=True)
    return found


def _check_lengths(found: list[Sequence[float]]) -> None:
    lengths = sorted({len(numbers) for numbers in found})
    if len(lengths) > 1 or not all(0 < length <= DIMENSIONS for length in lengths):
        shown = " and ".join(str(length) for length in lengths[:3])
        raise EmbedderAway(f"it answered with vectors of {shown} numbers", refused=True)


def _is_vector(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(n) in (float, int) and isfinite(n) for n in numbers)


def _message(body: bytes) -> str:
    """What an endpoint says of its refusal, in one printable line; only in the shapes that are meant for people."""
    try:
        told = orjson.loads(body[:100_000])
        told = told.get("error", told)
        said = told if isinstance(told, str) else told.get("message", "")
    except (orjson.JSONDecodeError, AttributeError):
        return ""
    words = " ".join(str(said).split())
    return "".join(letter for letter in words if letter.isprintable())


SPARE = 4
"""Connections that are kept open."""
SPARE_SECONDS = 20.0
"""How long one is kept; servers hang up after some 30 seconds or more."""


class HttpPoster:
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
