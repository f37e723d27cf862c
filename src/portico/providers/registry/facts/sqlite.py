"""The schema of a SQLite file: its tables and views with their columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from time import time

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from portico.providers.database import OwnConnection
from portico.providers.registry.registration import Kind

from .fact import Facts, Found, Named, grouped

HOME = "main"
"""What SQLite calls the file itself; there is no other schema in it."""

HEAD_BYTES = 32
"""Where a file counts its changes, and its log the rounds that it was written in."""
YOUNG = 1.0
"""Seconds; clocks of file systems tick some hundred times in each."""

_OBJECTS = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (0, 2, 3) ORDER BY cid"


def look_sqlite(conn: OwnConnection, named: Named) -> Facts:
    """Ask for the tables and views that are registered."""
    asked: Connection = conn.inspector.bind
    return Facts(found=grouped(list(_found_in_sqlite(asked, frozenset(named.objects)))), mark=glance_sqlite(conn))


def glance_sqlite(conn: OwnConnection) -> str:
    """A mark of the file and of its log of changes; empty while they are so young that the clock may not tell."""
    asked: Connection = conn.inspector.bind
    file = Path(asked.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one())
    marks = [_marked(one) for one in (file, file.with_name(f"{file.name}-wal"))]
    return " ".join(marks) if all(marks) else ""


def _marked(file: Path) -> str:
    try:
        found = file.stat()
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES).hex()
    except FileNotFoundError:
        return "none"
    return f"{found.st_ino}/{found.st_size}/{found.st_mtime_ns}/{head}" if time() - found.st_mtime > YOUNG else ""


def _found_in_sqlite(asked: Connection, wanted: frozenset[str]) -> Iterator[Found]:
    for name, type, sql in asked.exec_driver_sql(_OBJECTS).all():
        if name.lower() in wanted:
            columns = _columns(asked, name)
            yield Found(
                database=HOME,
                name=name,
                kind=Kind.VIEW if type == "view" else Kind.TABLE,
                columns=columns,
                denied="" if columns else "cannot be read: what it is made of is not there",
                mark=hashlib.sha256(str(sql).encode()).hexdigest()[:16],
            )


def _columns(asked: Connection, name: str) -> tuple[str, ...]:
    """None of a view whose tables are gone."""
    try:
        return tuple(asked.exec_driver_sql(_COLUMNS, (name,)).scalars())
    except DBAPIError:
        return ()
