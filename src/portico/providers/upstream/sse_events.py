"""Server-sent events, parsed as the bytes come in."""

from __future__ import annotations

from dataclasses import dataclass

from portico.errors import Sent

from .faults import Fault
from .protocol import MESSAGE_LIMIT


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    data: bytes
    id: str = ""


class EventParser:
    """Turns chunks of a stream into events; lines may end in CR, LF or both, and no event may grow without bound."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._after_cr = False
        self._name, self._id = "", ""
        self._data: list[bytes] = []
        self._size = 0
        self.retry: float | None = None
        """Seconds that the server asks us to wait before we connect again."""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that a chunk completes.

        Raises:
            Fault: one event is larger than the limit.
        """
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        events = []
        # Not splitlines on the whole: only CR and LF end a line here, and bytes.splitlines keeps to those.
        for line in chunk.splitlines(keepends=True):
            self._partial += line
            if line.endswith((b"\n", b"\r")):
                event = self._take(bytes(self._partial).rstrip(b"\r\n"))
                self._partial.clear()
                if event is not None:
                    events.append(event)
            if len(self._partial) + self._size > self._limit:
                raise Fault(f"the server sent an event of more than {self._limit >> 20} MiB", sent=Sent.UNKNOWN)
        return events

    def _take(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry = min(int(value[:9]) / 1000, 300.0)
        return None

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", b"\n".join(self._data), self._id) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event
