"""The store in a SQLite file, opened by its path."""

from __future__ import annotations

from pathlib import Path

from .offerings import VECTORS_KEPT, DatabaseStore
from .opening import open_file


def open_sqlite(path: Path, *, vectors_kept: int = VECTORS_KEPT) -> DatabaseStore:
    """Open the store; a file that is no database is moved aside, never overwritten, and a new one begun.

    Raises:
        StoreError: the folder cannot be written, or the file is locked.
    """
    return DatabaseStore(open_file(path), vectors_kept=vectors_kept)
