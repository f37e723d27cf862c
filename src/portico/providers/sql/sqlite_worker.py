"""The process that agents' SQL runs in on SQLite: it can be killed at any moment, and has little memory to take.

It is started as a file of its own, so it uses the standard library alone; the gateway imports the guard from here. A
request and its answer are each one frame: four bytes of length, then JSON.
"""

from __future__ import annotations

import base64
import json
import math
import os
import resource
import select
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import Any

LARGEST_VALUE = 16_000_000
"""Bytes of one value, also of one that is only worked out on the way."""
MOST_MEMORY = 128_000_000
"""Bytes that SQLite may hold in one process: one statement can make thousands of large values."""
SLACK = 128_000_000
"""Bytes of address space beside that, for the interpreter and the answer."""
MOST_ON_DISK = 1_000_000_000
"""Bytes of one temporary file, which a large sort or a recursive query makes."""
STEPS = 2_000
"""Steps of SQLite's machine between two looks at the clock."""
LOCK_SECONDS = 5.0
"""Seconds to wait for a file that another program has locked."""
SAFE = 2**53 - 1
HEADER = 4

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_BARRED = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "zipfile", "fsdir"})
_PRAGMAS = frozenset({"data_version", "read_uncommitted"})
"""Asked by full-text tables and by SQLAlchemy, without a value: they tell and change nothing."""
_BUILT_IN = ("SELECT 1 FROM json_each('[]')", "SELECT 1 FROM json_tree('[]')")
"""Tables that SQLite itself brings; to the guard their first use looks like making one."""
_VIRTUAL = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}


class Guarded(sqlite3.Connection):
    """A connection with a time at which it stops, and a guard that looks away from what is ours."""

    until: float = math.inf
    is_ours: bool = False


def connect(address: str, most_memory: int = MOST_MEMORY, wait: float = LOCK_SECONDS) -> Guarded:
    """Open a file for reading alone, with every limit that SQLite knows.

    Raises:
        sqlite3.Error: it cannot be read, or is no database.
    """
    connection = sqlite3.connect(
        address, uri=True, check_same_thread=False, timeout=wait, factory=Guarded, isolation_level=None
    )
    try:
        heap = f"hard_heap_limit={most_memory}"
        for pragma in ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", heap):
            connection.execute(f"PRAGMA {pragma}")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.execute("SELECT count(*) FROM sqlite_master")  # a file that is no database is told here
    except sqlite3.Error:
        connection.close()
        raise
    connection.text_factory = _text
    return connection


def guard(connection: Guarded, steps: int = STEPS) -> Guarded:
    """Let a connection do nothing but read, with the functions that SQLite itself brings."""
    for statement in _BUILT_IN:
        with suppress(sqlite3.Error):  # a SQLite that was built without JSON
            connection.execute(statement)
    built_in = {str(row[0]).lower() for row in connection.execute("SELECT name FROM pragma_function_list")} - _BARRED

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _ALLOWED or connection.is_ours:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if str(second).lower() in built_in else sqlite3.SQLITE_DENY
        is_telling = action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS and not second
        return sqlite3.SQLITE_OK if is_telling else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    connection.set_progress_handler(lambda: int(monotonic() > connection.until), steps)
    return connection


def wake(connection: Guarded) -> None:
    """Let virtual tables declare their columns, which looks like writing to the guard; once for each schema."""
    connection.is_ours = True
    try:
        names = [str(row[0]) for row in connection.execute(_VIRTUAL)]
        for name in names:
            with suppress(sqlite3.Error):  # one whose module is not there cannot be read, and says so when it is
                connection.execute('SELECT 1 FROM "{}" LIMIT 0'.format(name.replace('"', '""')))  # noqa: S608
    finally:
        connection.is_ours = False


def identity(file: str) -> tuple[int, int] | None:
    """Device and inode, which tell a file from another that was put in its place; None when it is gone."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sent_value(value: Any) -> Any:
    """A value as a frame can carry it: what JSON has no word for is an object with one key.

    Raises:
        TypeError: SQLite has no type for it.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if hasattr(value, "isoformat"):
        return value.isoformat(" ") if hasattr(value, "astimezone") else value.isoformat()
    raise TypeError(f"a value of the type {type(value).__name__!r} cannot be sent")


class _Session:
    """One file, open as long as it is the same one."""

    def __init__(self, file: str, address: str) -> None:
        self._file, self._address = file, address
        self._identity: tuple[int, int] | None = None
        self._connection: Guarded | None = None

    def answer(self, request: dict[str, Any]) -> bytes:
        """Answer one request, as the body of a frame."""
        try:
            connection = self._open()
        except (sqlite3.Error, MemoryError) as error:
            return _fault(error, "open")
        try:
            connection.until = monotonic() + request["seconds"]
            wake(connection)
            return _rows(connection, request)
        except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, UnicodeError) as error:
            return _fault(error, "run" if _can_be_prepared(connection, request["sql"]) else "prepare")

    def _open(self) -> Guarded:
        found = identity(self._file)
        if self._connection is None or found != self._identity:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._connection, self._identity = guard(connect(self._address)), found
        return self._connection


def _rows(connection: Guarded, request: dict[str, Any]) -> bytes:
    """Rows until one of the limits is met; `cut` says which."""
    values = {name: _received(value) for name, value in request["binds"].items()}
    most, room, cut = request["rows"], request["bytes"], ""
    parts: list[bytes] = []
    cursor = connection.execute(request["sql"], values)
    try:
        for raw in cursor:
            if len(parts) == most:
                cut = "rows"
                break
            is_large = sum(len(value) for value in raw if isinstance(value, str | bytes)) > room
            part = b"" if is_large else _json([_json_value(value) for value in raw])
            room -= len(part)
            if is_large or room < 0:
                cut = "bytes"
                break
            parts.append(part)
        columns = [column[0] for column in cursor.description or ()]
    finally:
        cursor.close()
    head = _json({"columns": columns, "cut": cut})
    return head[:-1] + b',"rows":[' + b",".join(parts) + b"]}"


def _can_be_prepared(connection: Guarded, sql: str) -> bool:
    """Whether the words of a statement are right, so that what failed was its work."""
    try:
        connection.execute(f"EXPLAIN {sql}").close()
    except sqlite3.ProgrammingError:
        return True  # values are missing, and nothing else
    except (sqlite3.Error, sqlite3.Warning, MemoryError):
        return False
    return True


def _fault(error: BaseException, stage: str) -> bytes:
    kind = "memory" if isinstance(error, MemoryError) else "value" if not isinstance(error, sqlite3.Error) else "sqlite"
    name = str(getattr(error, "sqlite_errorname", ""))
    return _json({"fault": {"kind": kind, "stage": stage, "name": name, "text": str(error)[:1_000]}})


def _received(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    return float(inner) if kind == "float" else base64.b64decode(inner)


def _json_value(value: Any) -> Any:
    """A value of SQLite as JSON can say it; the same rules as for every other database."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -SAFE <= value <= SAFE else str(value)
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    return {"base64": base64.b64encode(value).decode("ascii")}


def _json(value: Any) -> bytes:
    return _encode(value).encode()


def _text(raw: bytes) -> str | bytes:
    """Text as it was stored; what is none stays bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _limit_process() -> None:
    """Take little memory and disk, and leave no dump; a lower limit of the gateway stays."""
    try:
        with open("/proc/self/statm", "rb") as file:
            space = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        space = 0
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": MOST_ON_DISK, "RLIMIT_NOFILE": 64}
    if space:
        limits["RLIMIT_AS"] = space + MOST_MEMORY + SLACK
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def _leave_with(descriptor: int, leave: Callable[[], Any]) -> None:
    """Wait until the gateway's end is closed, be it by the end of the gateway, then leave at once."""
    poll = select.poll()
    poll.register(descriptor, 0)  # only the end of the other side is told
    poll.poll()
    leave()


def _read_exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def serve(descriptor: int, session: _Session) -> None:
    """Answer one request after the other, until nobody asks."""
    with suppress(EOFError, ConnectionError):
        while True:
            size = int.from_bytes(_read_exactly(descriptor, HEADER), "big")
            body = session.answer(json.loads(_read_exactly(descriptor, size)))
            left = memoryview(len(body).to_bytes(HEADER, "big") + body)
            while left:
                left = left[os.write(descriptor, left) :]


def main() -> None:
    """Be the process: the file and its address are the arguments, stdin is a socket."""
    # A thread, because SQLite may be at work on one statement for long; it lets other threads run meanwhile.
    Thread(target=_leave_with, args=(0, lambda: os._exit(0)), daemon=True).start()
    _limit_process()
    serve(0, _Session(sys.argv[1], sys.argv[2]))


if __name__ == "__main__":
    main()
