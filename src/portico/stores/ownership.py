"""Whether a file is a database of ours: any other file is refused, and never changed or moved."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from portico.errors import StoreRefused

from .sqlite_faults import code_of

_MAGIC = b"SQLite format 3\0"
_DATABASE_SUFFIXES = frozenset({".db", ".db3", ".sqlite", ".sqlite3"})
_OUR_COLUMNS = frozenset({"server", "fingerprint", "saved_at", "offering"})
"""The columns of the table `offerings`, which every layout of ours has had."""
_DAMAGE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def refuse_foreign(path: Path) -> None:
    """Do nothing for a file that is ours or not there yet; nothing is written, whatever it is.

    Raises:
        StoreRefused: it is somebody else's file, or a damaged one.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise _foreign(path, "it is not a regular file")
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
    except OSError:
        return  # whoever opens it says why that cannot be done
    if not head:
        _refuse_empty(path)
    elif head != _MAGIC:
        raise _foreign(path, "it is not a SQLite database")
    elif not _holds_ours(path):
        raise _foreign(path, "its tables are not Portico's")


def _refuse_empty(path: Path) -> None:
    """An empty file is a database that was begun when it looks like one."""
    is_begun = any(path.with_name(path.name + ending).exists() for ending in ("-wal", "-open.lock"))
    if not is_begun and path.suffix.lower() not in _DATABASE_SUFFIXES:
        raise _foreign(path, "it is an empty file that is not called a database")


def _holds_ours(path: Path) -> bool:
    """Whether a SQLite file holds our tables, or none at all."""
    has_log = path.with_name(f"{path.name}-wal").exists()
    # Without a log the file is read as it lies: SQLite would otherwise put files beside it.
    address = f"file:{quote(str(path.absolute()))}?mode=ro" + ("" if has_log else "&immutable=1")
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            is_empty = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            columns = {row[1] for row in connection.execute("PRAGMA table_info(offerings)")}
    except sqlite3.Error as error:
        if code_of(error) in _DAMAGE:
            raise damaged(path) from error
        return True  # whoever opens it says why that cannot be done
    return is_empty or columns >= _OUR_COLUMNS


def damaged(path: Path) -> StoreRefused:
    """The error for a damaged file that the config names, and that is therefore not ours to move."""
    return StoreRefused(
        f"the store {path} is damaged, and is left as it is because the config names it. Move it away yourself to "
        "begin a new one, or point `store` at another file"
    )


def _foreign(path: Path, why: str) -> StoreRefused:
    return StoreRefused(
        f"the store {path} is not a database of Portico's: {why}. It is left as it is; point `store` at another file, "
        "or delete the line to use the default"
    )
