"""Stdin and stdout from the first moment on: opening messages are answered, and everything is kept for the SDK.

The two descriptors are taken away from the rest of the process, as the SDK does it: what prints goes to stderr, and
what reads finds the end of the file.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from typing import Any, TextIO

from .early_answers import LONGEST, EarlyAnswers

if sys.platform != "win32":
    import fcntl


MOST_KEPT = 4 * 1024 * 1024
"""Bytes that are read before the SDK is there to take them; a client that sends more waits."""
_CHUNK = 65_536


class EarlyPipe:
    """One client's stdin and stdout, until the SDK takes them over."""

    def __init__(self, answers: EarlyAnswers, *, stdin: int = 0, stdout: int = 1) -> None:
        self.answers = answers
        self._in, self._out = _copied(stdin), _copied(stdout)
        _divert(stdin, os.open(os.devnull, os.O_RDONLY))
        _divert(stdout, _stderr())
        self._kept = bytearray()
        self._looked_at = 0
        self._stopping, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="portico-opening", daemon=True)

    def start(self) -> None:
        """Answer what is there already, and what comes from now on."""
        self._read_ready(timeout_ms=0)
        self._thread.start()

    def hand_over(self) -> tuple[TextIO, TextIO]:
        """Stop answering; the streams to go on with. The first begins with everything that was read so far."""
        os.write(self._stop, b".")
        self._thread.join()
        os.close(self._stop)
        os.close(self._stopping)
        source = io.BufferedReader(_Again(bytes(self._kept), self._in))
        self._kept.clear()
        # The descriptors stay open: a thread may still wait for the client when the server has ended.
        target = os.fdopen(self._out, "wb", closefd=False)
        return _as_text(source), _as_text(target)

    def _serve(self) -> None:
        while self._read_ready(timeout_ms=None) and len(self._kept) < MOST_KEPT:
            pass

    def _read_ready(self, *, timeout_ms: int | None) -> bool:
        """Take what the client has sent; False when it has gone, or when this is to stop."""
        poll = select.poll()
        poll.register(self._in, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        ready = {number for number, _ in poll.poll(timeout_ms)}
        if not ready or self._stopping in ready:
            return False
        chunk = os.read(self._in, _CHUNK)
        self._take(chunk)
        return bool(chunk)

    def _take(self, chunk: bytes) -> None:
        self._kept += chunk
        while not self.answers.is_over and (end := self._kept.find(b"\n", self._looked_at)) >= 0:
            answer = self.answers.answer(bytes(self._kept[self._looked_at : end]))
            self._looked_at = end + 1
            if answer is not None:
                self._send(answer)
        if len(self._kept) - self._looked_at > LONGEST:
            self.answers.is_over = True

    def _send(self, answer: bytes) -> None:
        left = memoryview(answer)
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except OSError:  # the client has gone, which the SDK will find out too
            self.answers.is_over = True


class _Again(io.RawIOBase):
    """What was read already, and then the rest."""

    def __init__(self, kept: bytes, fd: int) -> None:
        self._kept, self._fd = memoryview(kept), fd

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        chunk = self._kept[: len(room)] if self._kept else os.read(self._fd, len(room))
        self._kept = self._kept[len(chunk) :]
        room[: len(chunk)] = chunk
        return len(chunk)


def _copied(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _divert(fd: int, other: int) -> None:
    os.dup2(other, fd)
    os.close(other)


def _stderr() -> int:
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _as_text(stream: Any) -> TextIO:
    return io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
