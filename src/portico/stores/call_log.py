"""Reads single calls out of the journal's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from portico.domain.call import Invocation, Outcome
from portico.domain.calls import CallQuery, RecordedCall
from portico.domain.tool import ToolId

from .database import Database
from .texts import key

_TOLD = ("spelled", "caller", "surface", "seconds", "code", "at", "tokens_in", "tokens_out", "parent", "rank")
_COLUMNS = f"id, server, tool, outcome, {', '.join(_TOLD)}"
_TOOL = "(tool = :tool OR spelled = :tool OR server || '.' || tool = :tool OR server || '::' || tool = :tool)"


def read_calls(database: Database, query: CallQuery) -> list[RecordedCall]:
    """The newest calls that a query asks for, the newest first."""
    conditions, binds = ["id > :after", "at >= :since"], {"after": query.after, "since": query.since}
    given = {"server": query.server, "outcome": query.outcome, "caller": query.caller}
    wanted: dict[str, Any] = {**binds, "most": query.limit}
    for name, value in given.items():
        if value:
            conditions.append(f"{name} = :{name}")
            wanted[name] = key(value)
    if query.tool:
        conditions.append(_TOOL)
        wanted["tool"] = key(query.tool)
    # Words of ours and names of columns; every value is bound.
    sql = f"SELECT {_COLUMNS} FROM invocations WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT :most"  # noqa: S608
    return [_call(row) for row in database.rows(sql, wanted)]


def _call(row: Sequence[Any]) -> RecordedCall:
    number, server, tool, outcome, *told = row
    named = ToolId(server, tool) if tool is not None else None
    entry = Invocation(tool=named, outcome=Outcome(outcome), **dict(zip(_TOLD, told, strict=True)))
    return RecordedCall(number=number, entry=entry)
