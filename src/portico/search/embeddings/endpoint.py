"""An HTTP endpoint that speaks the OpenAI form of embeddings."""

from __future__ import annotations

import asyncio
import os
import threading
import urllib.request
import weakref
from collections.abc import Sequence
from math import isfinite
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import orjson
from yarl import URL

from portico.errors import EmbedderAway

from .cache import DIMENSIONS

BATCH = 64  # texts in one request
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


KEPT_ALIVE = 20.0  # seconds that an unused connection is kept; servers hang up after some 30 seconds or more


class HttpPoster:
    """Posts to one address from any thread; follows no redirect, so that a key goes nowhere else."""

    def __init__(self, url: str, *, seconds: float, most_bytes: int) -> None:
        address = urlsplit(url)
        self._url = URL(urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2])), encoded=True)
        proxy = urllib.request.getproxies().get(address.scheme)
        self._proxy = None if proxy is None or urllib.request.proxy_bypass(address.hostname or "") else proxy
        self._seconds, self._most_bytes = seconds, most_bytes
        self._lock = threading.Lock()
        self._opened: tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession] | None = None

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """The status and the body of the answer.

        Raises:
            EmbedderAway: it cannot be reached, is too slow, or sends too much.
        """
        loop, session = self._open()
        try:
            return asyncio.run_coroutine_threadsafe(self._exchange(session, body, headers), loop).result()
        except TimeoutError:
            raise EmbedderAway(f"no answer within {self._seconds:g} s") from None
        except aiohttp.ClientOSError as error:
            raise EmbedderAway(f"it cannot be reached: {_why(error)}") from None
        except aiohttp.ClientPayloadError:
            raise EmbedderAway("the answer is not HTTP (IncompleteRead)") from None
        except ValueError:
            # aiohttp shows the header that it refuses, and with it the key.
            raise EmbedderAway("the key or the address has characters that HTTP does not allow") from None
        except aiohttp.ClientError as error:
            raise EmbedderAway(f"the answer is not HTTP ({type(error).__name__})") from None

    def _open(self) -> tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession]:
        """The session, in an event loop of its own: those who post block in threads of theirs."""
        with self._lock:
            if self._opened is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(loop,), name="portico-endpoint", daemon=True).start()
                session = asyncio.run_coroutine_threadsafe(_new_session(), loop).result()
                weakref.finalize(self, _close, loop, session)
                self._opened = loop, session
            return self._opened

    async def _exchange(
        self, session: aiohttp.ClientSession, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        async with asyncio.timeout(self._seconds):
            try:
                return await self._ask(session, body, headers)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # It hung up while nobody was asking: once more, on a new connection.
                return await self._ask(session, body, headers)

    async def _ask(self, session: aiohttp.ClientSession, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        sent = session.post(self._url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy)
        async with sent as response:
            content = bytearray()
            if (response.content_length or 0) <= self._most_bytes:
                async for chunk in response.content.iter_chunked(2**16):
                    content += chunk
                    if len(content) > self._most_bytes:
                        break
                else:
                    return response.status, bytes(content)
            response.close()
        raise EmbedderAway(f"the answer is larger than {self._most_bytes // 2**20} MiB")


async def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(keepalive_timeout=KEPT_ALIVE),
        headers={"Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _close(loop: asyncio.AbstractEventLoop, session: aiohttp.ClientSession) -> None:
    async def end() -> None:
        await session.close()
        loop.call_soon(loop.stop)  # the sockets are closed in the next turn of the loop

    asyncio.run_coroutine_threadsafe(end(), loop)


def _why(error: aiohttp.ClientOSError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({getattr(error.certificate_error, 'verify_message', '')})"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    cause = getattr(error, "os_error", error)
    return (os.strerror(cause.errno) if cause.errno and cause.errno > 0 else type(cause).__name__).lower()
