"""Server-sent events, parsed as the bytes come in."""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import Bounds, Incoming, TooLarge, up_to
from .protocol import MESSAGE_LIMIT, VALUES_LIMIT

LINES_LIMIT = 100_000
"""Lines of one event."""
_FIELD_LIMIT = 8_192
"""Bytes of a line that is not data: a name, an id or a comment; a longer one is skipped."""
_DATA = b"data:"


@dataclass(frozen=True, slots=True)
class Event:
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

    def feed(self, chunk: bytes) -> list[Event]:
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

    def _end_line(self) -> Event | None:
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

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", self._data.data, self._id) if self._data is not None else None
        self._name, self._data, self._lines = "", None, 0
        return event
