"""What SQLite says when something is wrong, in our words and with what to do."""

from __future__ import annotations

import sqlite3

from portico.errors import StoreError

from .database import brief, refusal, trouble

_REFUSALS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, UnicodeError, OverflowError)
_UNKNOWN_KIND = "Error binding parameter"
"""How newer versions of Python begin what they say of a value that no column can hold."""

DAMAGED = "The file is damaged: stop Portico and move it away to start afresh"

_ADVICE = {
    sqlite3.SQLITE_FULL: "The disk is full: make room",
    sqlite3.SQLITE_IOERR: "The disk is full or broken: make room, or set PORTICO_HOME to another folder",
    sqlite3.SQLITE_BUSY: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_LOCKED: "Another process has held the file for too long: end it, or try again",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or set PORTICO_HOME to a folder that is",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_AT_THE_DOOR = (
    "Move the file away to start afresh (definitions are fetched again), or set PORTICO_HOME to a folder that can be "
    "written"
)
_AT_A_LOSS = "Run `portico doctor` to have the file checked"


def said(where: str, error: Exception) -> StoreError:
    """The error for a statement that could not be run."""
    is_refusal = isinstance(error, _REFUSALS) or str(error).startswith(_UNKNOWN_KIND)
    return refusal(where, error) if is_refusal else trouble(where, error, _ADVICE.get(code_of(error), _AT_A_LOSS))


def unopened(where: str, error: Exception) -> StoreError:
    """The error for a file that could not be opened."""
    advice = _ADVICE.get(code_of(error), _AT_THE_DOOR)
    return StoreError(f"the store {where} cannot be opened: {brief(error)}. {advice}")


def is_damaged(error: StoreError) -> bool:
    """Whether an error came of a file that is no database, or no longer one."""
    cause = getattr(error.__cause__, "orig", None) or error.__cause__  # a migration wraps what SQLite said
    return code_of(cause) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def code_of(error: BaseException | None) -> int:
    """The primary code of what SQLite said; its extended codes have more in the upper bits."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
