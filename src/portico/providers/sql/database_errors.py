"""Errors of database drivers in our words: enough to mend a query, and nothing of how the database is reached."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import (
    CompileError,
    DataError,
    DBAPIError,
    NoSuchTableError,
    ProgrammingError,
    SQLAlchemyError,
    UnreflectableTableError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from portico.errors import (
    CallError,
    InvalidArguments,
    Refused,
    RefusedValue,
    Sent,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)

LONGEST = 300
"""Characters of a driver's sentence that are passed on."""
FAILED = -32_603
"""The code of a failure inside of a server, in the protocol that agents speak."""

_TOLD = ("0A", "21", "22", "23", "2D", "2F", "38", "39", "3F", "42", "54", "55", "P0")
"""Classes of SQLSTATE that speak of the statement and its values alone, or are what a function raises on purpose."""
_WORDS = ("0A", "21", "3F", "42", "54")
"""Classes about the words of a statement: whoever wrote it can put it right."""
_VALUES = ("22", "23")
"""Classes about values."""
_WORKED_OUT = frozenset({"22012", "22004", "2201E", "2201F", "2201G", "22013", "22002"})
"""Values that no caller gave: a division by zero, the logarithm of nothing, a NULL where none may be."""
_INSIDE = re.compile(r"\bfunction\b")
"""PostgreSQL's word for something that happened within a function."""
_WRITES = frozenset({"25006", "25001", "42501", "2F002", "2F003", "2F004"})
_TIMES = frozenset({"57014", "55P03", "25P03", "25P04"})
_LIMITS = frozenset({"53200", "53400", "54000"})
_PRIVILEGE = re.compile(r"permission denied for \w+(?: \w+)? \S+")

READ_ONLY = "this database is only read, and the statement would do more. Use SELECT"
TOO_LONG = "the database took longer than it may. Ask for less: a WHERE, fewer joins, or a smaller table"
TOO_BIG = "the statement makes values that are larger than this database may. Ask for less"
AWAY = "the database cannot be reached or cannot be read. Try again later; if it stays so, tell the operator"
LOCKED = "another program holds the database locked. Try again in a moment"
IN_THE_WAY = "another transaction was in the way, and nothing was changed. Try again in a moment"
BUSY = "all connections to the database are in use. Try again in a moment"

DRIVERS = (SQLAlchemyError, psycopg.Error, sqlite3.Error, sqlite3.Warning)
"""Errors that nobody but a driver raises."""
HANDLED = (*DRIVERS, OverflowError, UnicodeError, MemoryError)
"""Errors that a driver may raise while it is at work."""


class DriverErrors:
    """Turns what drivers raise into errors that an agent can act on."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({secret for secret in secrets if len(secret) > 1}, key=len, reverse=True)
        self._secret = re.compile("|".join(rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in known) or r"(?!)")

    @contextmanager
    def translating(self, handled: tuple[type[Exception], ...] = HANDLED) -> Iterator[None]:
        """Let nothing that a driver says pass as it is."""
        try:
            yield
        except handled as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> CallError:
        """The error that stands for a driver's."""
        if isinstance(error, PoolTimeout):
            return UpstreamTimeout("the database", details=(BUSY,))
        if isinstance(error, MemoryError):
            return self.mistake(TOO_BIG)
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, sqlite3.Error | sqlite3.Warning):
            return self._sqlite(cause)
        state = getattr(cause, "sqlstate", None)
        if state:
            return self._state(str(state), cause)
        if isinstance(error, ProgrammingError | DataError):
            return self.mistake(str(cause))
        if isinstance(error, CompileError | NoSuchTableError | UnreflectableTableError):
            return self.mistake("the table cannot be described, or is there no longer")
        if isinstance(cause, OverflowError | UnicodeError):
            return self.mistake("a value does not fit what the database can keep")
        is_sent = isinstance(error, DBAPIError) and not error.connection_invalidated
        return UpstreamGone("the database", details=(AWAY,), sent=Sent.ANSWERED if is_sent else Sent.NOTHING)

    def unreached(self, error: Exception) -> CallError:
        """The error that stands for a driver's which could not even connect: nothing was asked, so no SQL is wrong."""
        found = self.translate(error)
        if isinstance(found, UpstreamTimeout):
            return UpstreamTimeout("the database", details=found.details)
        return UpstreamGone("the database", details=found.details if isinstance(found, UpstreamGone) else (AWAY,))

    def mistake(self, text: str, kind: type[InvalidArguments] = InvalidArguments) -> InvalidArguments:
        """The error of who asked for something that cannot be asked."""
        return kind("sql", details=(f"the database says: {self._scrubbed(text)}",), sent=Sent.ANSWERED)

    def _scrubbed(self, text: str) -> str:
        """One line, without what belongs to the way the database is reached."""
        return self._secret.sub("...", " ".join(text.split()))[:LONGEST]

    def _sqlite(self, cause: sqlite3.Error | sqlite3.Warning) -> CallError:
        name = str(getattr(cause, "sqlite_errorname", ""))
        text = str(cause)
        if name.startswith(("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_PERM")) or "authorized" in text:
            return self._refused(text)
        if name.startswith("SQLITE_INTERRUPT"):
            return timeout_error()
        if name.startswith(("SQLITE_TOOBIG", "SQLITE_NOMEM")):
            return self.mistake(TOO_BIG)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return UpstreamGone("the database", details=(LOCKED,), sent=Sent.ANSWERED)
        if name in ("", "SQLITE_ERROR", "SQLITE_MISMATCH", "SQLITE_RANGE", "SQLITE_CONSTRAINT"):
            return self._failed(text) if getattr(cause, "is_running", False) else self.mistake(text)
        return UpstreamGone("the database", details=(AWAY,), sent=Sent.ANSWERED)

    def _state(self, state: str, cause: Exception) -> CallError:
        """The error that stands for one of SQL's standard codes."""
        said = getattr(cause, "diag", None)
        text = str(getattr(said, "message_primary", None) or "")
        if state in _WRITES or (state == "0A000" and "non-volatile function" in text):
            denied = _PRIVILEGE.search(text)
            return self._refused(denied[0] if denied else text if state == "25006" else "")
        if state in _TIMES:
            return timeout_error()
        if state == "25P02":
            return self.mistake("an earlier statement of this call has failed, so no other is taken")
        if state in _LIMITS:
            return self.mistake(TOO_BIG)
        if state.startswith("40"):
            return UpstreamGone("the database", details=(IN_THE_WAY,), sent=Sent.ANSWERED)
        if not state.startswith(_TOLD):
            return UpstreamGone("the database", details=(AWAY,), sent=Sent.ANSWERED)
        hint = getattr(said, "message_hint", None)
        told = f"{text}. {hint}" if hint else text
        is_inside = bool(_INSIDE.search(getattr(said, "context", None) or ""))
        if state.startswith("23") or (state.startswith(_VALUES) and state not in _WORKED_OUT and not is_inside):
            return self.mistake(told, RefusedValue)
        return self.mistake(told) if state.startswith(_WORDS) and not is_inside else self._failed(told)

    def _failed(self, text: str) -> UpstreamError:
        told = f"the database says: {self._scrubbed(text)}"
        return UpstreamError("sql", rpc_code=FAILED, message=told, details=(told,))

    def _refused(self, text: str) -> Refused:
        said = (f"the database says: {self._scrubbed(text)}",) if text else ()
        return Refused("sql", details=(READ_ONLY, *said), sent=Sent.ANSWERED)


def timeout_error() -> UpstreamTimeout:
    """The error of who has used up the time of a call."""
    return UpstreamTimeout("the database", details=(TOO_LONG,), sent=Sent.ANSWERED)
