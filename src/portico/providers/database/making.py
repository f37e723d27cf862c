"""Makes a SQLite file, whole or not at all; everything else in this room only reads."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from portico.errors import StoreError

Rows = Sequence[Sequence[Any]]


def make_sqlite(file: Path, schema: str, tables: Mapping[str, Rows]) -> None:
    """Write a new file with these tables; one that is there stays as it is.

    Raises:
        StoreError: the folder cannot be written.
    """
    if file.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        number, name = mkstemp(prefix=f"{file.stem}-", suffix=".new", dir=file.parent)
        os.close(number)
        draft = Path(name)
        try:
            _write(draft, schema, tables)
            draft.replace(file)  # two processes that start together make the same file
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        reason = f"{file} cannot be made: {error}. Make its folder writable, or set DATABASE_URI"
        raise StoreError(reason) from error


def _write(file: Path, schema: str, tables: Mapping[str, Rows]) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(schema)
        for table, rows in tables.items():
            marks = ", ".join("?" for _ in rows[0])
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our words
