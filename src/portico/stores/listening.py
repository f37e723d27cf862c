"""The bell of PostgreSQL: LISTEN and NOTIFY on a connection of its own, and advisory locks."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from threading import Lock
from zlib import crc32

from psycopg import Error

from .database import Work
from .postgres import PostgresDatabase, PostgresEar
from .signals import CHANNEL

_LOCKS = 8_421 << 32
"""Keeps our advisory locks apart from those of others in the same database."""


class PostgresBell:
    """Hears at once; a connection that was lost is opened again, and then whatever was missed counts as heard."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._ear: PostgresEar | None = None
        self._turn = Lock()

    def ring(self, work: Work) -> None:
        """Wake everybody when the transaction is committed."""
        work.rows("SELECT pg_notify(:channel, '')", {"channel": CHANNEL})

    def begin(self) -> None:
        """Listen, if not yet."""
        with self._turn:
            self._listening()

    def heard(self, seconds: float) -> bool:
        """Wait for an announcement."""
        with self._turn:
            if self._ear is not None:
                try:
                    return self._ear.heard(seconds)
                except Error:
                    self._hang_up()
            self._listening()
            return True

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """Hold an advisory lock; the server lets go of it when the connection ends."""
        return self._database.holding(_LOCKS + crc32(job.encode(errors="surrogatepass")))

    def close(self) -> None:
        """Hang up, once whoever listens is back."""
        with self._turn:
            self._hang_up()

    def _listening(self) -> None:
        if self._ear is None:
            self._ear = self._database.listen(CHANNEL)

    def _hang_up(self) -> None:
        if self._ear is not None:
            with suppress(Error):
                self._ear.close()
            self._ear = None
