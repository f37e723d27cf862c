"""The bell of PostgreSQL: LISTEN and NOTIFY on a connection of its own, and advisory locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from zlib import crc32

from psycopg import Error

from .changes import CHANNEL
from .database import Work
from .postgres import PostgresDatabase, PostgresEar

_LOCKS = 8_421 << 32
"""Keeps our advisory locks apart from those of others in the same database."""
CLOSE_SECONDS = 1.0
"""How long the end waits for whoever listens; a server that hangs must not hold it up."""


class PostgresBell:
    """Hears at once; a connection that was lost is opened again, and then whatever was missed counts as heard."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._ear: PostgresEar | None = None
        self._is_closed = False
        self._turn = Lock()

    def ring(self, work: Work) -> None:
        """Wake everybody when the transaction is committed."""
        work.rows("SELECT pg_notify(:channel, '')", {"channel": CHANNEL})

    def begin(self) -> None:
        """Listen, if not yet."""
        with self._my_turn():
            self._listen()

    def heard(self, seconds: float) -> bool:
        """Wait for an announcement."""
        with self._my_turn():
            if self._ear is not None:
                try:
                    return self._ear.heard(seconds)
                except Error:
                    self._hang_up()
            self._listen()
            return True

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """Hold an advisory lock; the server lets go of it when the connection ends."""
        return self._database.holding(_LOCKS + crc32(job.encode(errors="surrogatepass")))

    def close(self) -> None:
        """Hang up; whoever listens at this moment, and does not come back soon, does it when it is back."""
        self._is_closed = True
        if self._turn.acquire(timeout=CLOSE_SECONDS):
            try:
                self._hang_up()
            finally:
                self._turn.release()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        with self._turn:
            try:
                yield
            finally:
                if self._is_closed:
                    self._hang_up()

    def _listen(self) -> None:
        if self._ear is None and not self._is_closed:
            self._ear = self._database.listen(CHANNEL)

    def _hang_up(self) -> None:
        if self._ear is not None:
            with suppress(Error):
                self._ear.close()
            self._ear = None
