"""One call of a registered tool: a statement, a connection of its caller's, and an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from portico.domain.caller import Caller
from portico.errors import CallError, InvalidArguments, Refused, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.providers.database import DatabaseSource, OwnConnection, Question, Result
from portico.providers.local.blaming import blamed
from portico.providers.local.results import as_result

from .registration import Registration
from .statements import Returns, Statement

TOO_LONG = "it took longer than the database gives it, and was stopped. Ask for less, with a narrower question"


@dataclass(slots=True, kw_only=True)
class StatementRun:
    """A call on its way through a thread; whoever waits for it may stop it."""

    source: DatabaseSource
    registration: Registration
    statement: Statement
    caller: Caller
    is_over: bool = False
    """Whether there is nothing left to stop."""
    _turn: Lock = field(default_factory=Lock)
    _conn: Question | None = None
    _is_stopped: bool = False

    def run(self) -> Mapping[str, Any]:
        """Send the statement and return the tool's result object; blocks.

        Raises:
            CallError: the database refuses, fails, or is away.
        """
        is_sent = False
        try:
            if self.statement.returns is Returns.ANYTHING or self.registration.writes:
                with self.source.reading(self.caller) as conn, self._held(conn):
                    is_sent = True
                    found = self._done(conn)
            else:
                with self.source.asking(self.caller) as question, self._held(question):
                    is_sent = True
                    found = question.prepared(self.statement.sql, self.statement.values, limit=self.statement.limit)
            return as_result(answer(self.registration, self.statement, found))
        except CallError as error:
            raise told(error, self.registration, is_sent=is_sent) from error
        finally:
            self.is_over = True

    def stop(self) -> None:
        """End the statement, or keep it from being sent; blocks a moment."""
        with self._turn:
            self._is_stopped = True
            if self._conn is not None:
                self._conn.stop()

    @contextmanager
    def _held(self, conn: Question) -> Iterator[None]:
        """While this is open the connection can be stopped; afterwards it may be another caller's."""
        with self._turn:
            if self._is_stopped:
                raise UpstreamGone("the database", details=("the call was given up before it was sent",))
            self._conn = conn
        try:
            yield
        finally:
            with self._turn:
                self._conn = None

    def _done(self, conn: OwnConnection) -> Result:
        sql, values = self.statement.sql, self.statement.values
        is_query = self.statement.returns is not Returns.ANYTHING
        return conn.prepared(sql, values, limit=self.statement.limit) if is_query else conn.performed(sql, values)


def answer(registration: Registration, statement: Statement, found: Result) -> dict[str, Any]:
    """What a tool has to say: one value as such, otherwise rows, and what to do when there are more."""
    is_value = statement.returns is Returns.VALUE and len(found.columns) == 1 and len(found.rows) == 1
    if is_value and not found.truncated:
        return {"result": found.rows[0][0]}
    if statement.returns is Returns.ANYTHING and not found.columns:
        return {"done": True}
    shown = found.shown()
    if found.truncated:
        shown["next"] = _advice(registration, statement, found)
    return shown


def _advice(registration: Registration, statement: Statement, found: Result) -> str:
    is_short = statement.limit is not None and len(found.rows) == statement.limit
    if not registration.kind.has_columns:
        return f"{found.note.partition('.')[0]}. Narrow it with the tool's parameters"
    if is_short:
        return f"there are more than these {len(found.rows)} rows. Raise limit, or narrow with filters and aggregates"
    return f"{found.note.partition('.')[0]}. Choose fewer columns, or a smaller limit"


def told(error: CallError, registration: Registration, *, is_sent: bool) -> CallError:
    """What a database's refusal means for somebody who wrote no SQL; what a writing tool did before is not known."""
    if isinstance(error, Refused) and error.sent is Sent.ANSWERED:
        said = [line for line in error.details if line.startswith("the database says")]
        owner = "it is registered as reading and would do more; its owner can register it with Writes = 'Y'"
        return Refused(registration.name, details=(owner, *said), sent=Sent.ANSWERED)
    if isinstance(error, InvalidArguments):
        return blamed(error, registration.name, has_values=bool(registration.parameters))
    if isinstance(error, UpstreamError):
        error.about(registration.name)
        return error
    if isinstance(error, UpstreamTimeout) and error.sent is Sent.ANSWERED:
        return UpstreamTimeout(registration.name, details=(TOO_LONG,), sent=error.sent)
    is_open = is_sent and isinstance(error, UpstreamGone | UpstreamTimeout)
    if is_open and error.sent is Sent.NOTHING:
        return type(error)(error.subject, details=error.details, sent=Sent.UNKNOWN)
    return error
