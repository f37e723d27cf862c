"""Locks that their process cannot leave behind: SQLite's own, on files that have nothing in them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .sqlite_faults import code_of


class SqliteLock:
    """Held by one at a time, or `shared` by any number; until it is closed, or its process ends."""

    def __init__(self, path: Path, *, shared: bool = False, seconds: float = 0.0) -> None:
        """Take it, waiting at most so long; `is_mine` says whether it was free.

        Raises:
            sqlite3.Error: the file cannot be had.
        """
        self._connection = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
        self.is_mine = self._take(shared)

    def close(self) -> None:
        """Let go."""
        self._connection.close()

    def _take(self, shared: bool) -> bool:
        try:
            # A transaction that has read, be it nothing, keeps out whoever wants to be alone.
            for step in ("BEGIN", "SELECT 1 FROM sqlite_master") if shared else ("BEGIN EXCLUSIVE",):
                self._connection.execute(step).fetchall()
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_BUSY:
                return False
            self._connection.close()
            raise
        return True
