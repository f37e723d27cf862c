"""Bounds of one message from a server, kept while its bytes come in: its length and the number of its values.

A short text can become very large in memory: `{},` is 3 bytes and more than 64 as an object. So values are counted
before anything is parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from portico.errors import Sent

from .faults import Fault
from .protocol import MESSAGE_LIMIT, VALUES_LIMIT

COUNTED_FROM = 1024 * 1024
"""Bytes from which values are counted; a shorter message cannot hold enough of them to do harm."""
LARGE_AT_ONCE = 2
"""Answers of more than `COUNTED_FROM` bytes that one server over HTTP may send at the same time."""
HEAD = 1024
"""Bytes of a message that are looked at to find out what it is."""


class TooLarge(Fault):
    """A message beyond its bounds."""

    def __init__(self, said: str, *fixes: str) -> None:
        super().__init__(said, "ask for less: a page, a range or a filter", *fixes, sent=Sent.ANSWERED)


class Bounds(NamedTuple):
    """How many bytes and how many values a message may have."""

    size: int = MESSAGE_LIMIT
    values: int = VALUES_LIMIT


class Counter:
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


class Incoming:
    """One message on its way in; `bound` gives its bounds, when it turns out to be a long one."""

    __slots__ = ("_bound", "_bounds", "_counter", "data")

    def __init__(self, bound: Callable[[bytearray], Bounds]) -> None:
        self.data = bytearray()
        self._bound = bound
        self._counter: Counter | None = None
        self._bounds = Bounds()

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            TooLarge: there are too many of them, or too many values in them.
        """
        self.data += part
        if len(self.data) > COUNTED_FROM:
            self._check(part)

    def _check(self, part: bytes) -> None:
        if self._counter is None:
            self._counter = Counter()
            self._bounds = self._bound(self.data)
            part = bytes(self.data)
        size, values = self._bounds
        if len(self.data) > size:
            raise TooLarge(f"the server's answer is longer than {size / 2**20:.3g} MiB")
        self._counter.feed(part)
        if self._counter.values > values:
            fix = "or raise `answer_values` of this server, if its answers are worth the memory"
            raise TooLarge(f"the server's answer has more than {values:,} values", fix)


def values_of(text: bytes) -> int:
    """The number of values in a whole JSON text."""
    counter = Counter()
    counter.feed(text)
    return counter.values


def up_to(bounds: Bounds) -> Callable[[bytearray], Bounds]:
    """The same bounds, whatever the message begins with."""
    return lambda _: bounds


class Turn:
    """A place among the large answers that are read at the same time; small ones need none."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._is_held = places, False

    async def take(self, size: int) -> None:
        """Wait for a place when an answer has become large."""
        if size > COUNTED_FROM and not self._is_held:
            await self._places.acquire()
            self._is_held = True

    def give_back(self) -> None:
        """Let the next large answer in."""
        if self._is_held:
            self._is_held = False
            self._places.release()
