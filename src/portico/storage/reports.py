"""Reports over the journal, its single calls, and all of its entries in the order of their time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from heapq import merge
from typing import Any

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import (
    CallQuery,
    DayLine,
    Entry,
    Look,
    Lookup,
    Losses,
    RecordedCall,
    Report,
    SearchLine,
    ToolLine,
)
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import DAY_SECONDS, Usage, counts, day_of

from .database_interface import Binds, Database, Row, key

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


_LOOKED = ("caller", "surface", "at", "seconds", "text", "shown", "found", "tokens", "instead")
_LOOKED_COLUMNS = ", ".join(f'"{name}"' for name in _LOOKED)  # one of them is a word of SQL
_CALL_ROWS = f"SELECT at, {_COLUMNS} FROM invocations"  # noqa: S608 - words of ours
_LOOKUP_ROWS = f"SELECT at, id, look, fits, {_LOOKED_COLUMNS} FROM lookups"  # noqa: S608 - words of ours
PAGE = 1_000
"""Entries of one kind that are held at a time."""


def read_entries(database: Database, since: float, until: float) -> Iterator[Entry]:
    """Every entry that began from one moment to another, the oldest first."""
    calls, looks = (_pages(database, columns, since, until) for columns in (_CALL_ROWS, _LOOKUP_ROWS))
    found = (map(_call_at, calls), map(_look_at, looks))
    return (entry for _, entry in merge(*found, key=lambda one: one[0]))


def _pages(database: Database, select: str, since: float, until: float) -> Iterator[Row]:
    at, id = since, -1
    # Words of ours and names of columns; every value is bound.
    place = "at >= :at AND at <= :until AND (at > :at OR id > :id)"  # the first of it is what an index is read by
    sql = f"{select} WHERE {place} ORDER BY at, id LIMIT {PAGE}"
    while rows := database.rows(sql, {"at": at, "id": id, "until": until}):
        yield from rows
        at, id = rows[-1][:2]


def _call_at(row: Row) -> tuple[float, Entry]:
    return row[0], _call(row[1:]).entry


def _look_at(row: Row) -> tuple[float, Entry]:
    at, _, look, fits, *told = row
    return at, Lookup(look=Look(look), fits=bool(fits), **dict(zip(_LOOKED, told, strict=True)))


_EPOCH = date(1970, 1, 1)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_DONE, _FAILED = str(Outcome.DONE), str(Outcome.FAILED)
_FAILURES = frozenset(str(outcome) for outcome in Outcome if counts(outcome) and outcome is not Outcome.DONE)

_OUTCOMES = "SELECT day, outcome, COUNT(*) FROM invocations WHERE at >= :since GROUP BY day, outcome"
_RANKS = "SELECT rank, COUNT(*) FROM invocations WHERE at >= :since AND tool IS NOT NULL GROUP BY rank"
_DAYS = """
SELECT day, CAST(SUM(calls) AS BIGINT), CAST(SUM(done) AS BIGINT) FROM usage_days WHERE day >= :day GROUP BY day
"""
_LOOKS = """
SELECT day, surface, look, fits, COUNT(*), CAST(SUM(tokens) AS BIGINT),
    CAST(SUM(CASE WHEN instead > tokens THEN instead - tokens ELSE 0 END) AS BIGINT)
FROM lookups WHERE at >= :since GROUP BY day, surface, look, fits
"""
_UNANSWERED = f"""
SELECT MAX(text), COUNT(*), MAX(at) FROM lookups WHERE at >= :since AND look = '{Look.SEARCH}' AND NOT fits
GROUP BY LOWER(text) ORDER BY COUNT(*) DESC, MAX(at) DESC, MAX(text) LIMIT :limit
"""  # noqa: S608 - a word of ours
_TOOLS = """
SELECT server, tool, CAST(SUM(calls) AS BIGINT), CAST(SUM(done) AS BIGINT), SUM(seconds),
    CAST(SUM(tokens_out) AS BIGINT)
FROM usage_days WHERE day >= :day GROUP BY server, tool
"""
_BUCKETS = """
SELECT server, tool, bucket, CAST(SUM(calls) AS BIGINT) FROM usage_latencies WHERE day >= :day
GROUP BY server, tool, bucket
"""
_CACHES = """
SELECT name, CAST(SUM(hits) AS BIGINT), CAST(SUM(misses) AS BIGINT) FROM cache_counts WHERE day >= :day
GROUP BY name ORDER BY name
"""
_LOSSES = """
SELECT CAST(COALESCE(SUM(dropped), 0) AS BIGINT), CAST(COALESCE(SUM(lost), 0) AS BIGINT) FROM writers
"""


def read_report(database: Database, *, days: int, limit: int, now: float) -> Report:
    """The last days, today included, with so many tools in each list."""
    first = day_of(now) - days + 1
    binds = {"day": first, "since": float(first * DAY_SECONDS)}
    calls = _outcomes(range(first, first + days), database.rows(_OUTCOMES, binds), database.rows(_DAYS, binds))
    looks = database.rows(_LOOKS, binds)
    searches = [(fits, count) for _, _, look, fits, count, *_ in looks if look == Look.SEARCH]
    outcomes: Counter[str] = sum(calls.values(), Counter())
    lines = _tool_lines(database, binds)
    failing = [line for line in lines if line.done < line.calls]
    ((dropped, lost),) = database.rows(_LOSSES)
    return Report(
        days=days,
        calls=outcomes.total(),
        outcomes=dict(sorted(outcomes.items())),
        top=tuple(sorted(lines, key=lambda line: (-line.calls, line.tool))[:limit]),
        failing=tuple(sorted(failing, key=lambda line: (line.success, -line.calls, line.tool))[:limit]),
        slow=tuple(sorted(lines, key=lambda line: (-line.p95_ms, -line.calls, line.tool))[:limit]),
        by_day=_day_lines(calls, looks),
        searches=sum(count for _, count in searches),
        unanswered=sum(count for fits, count in searches if not fits),
        unanswered_searches=_searches(database.rows(_UNANSWERED, {"since": binds["since"], "limit": limit})),
        ranks=dict(sorted((rank, count) for rank, count in database.rows(_RANKS, binds))),
        caches={name: (hits, misses) for name, hits, misses in database.rows(_CACHES, binds)},
        losses=Losses(dropped=dropped, lost=lost),
    )


def _searches(rows: list[Row]) -> tuple[SearchLine, ...]:
    """The lines of searches; whoever reads them in a terminal must not be spoken to by whoever wrote them."""
    return tuple(
        SearchLine(
            query=_CONTROL.sub("\ufffd", text),
            count=count,
            last=datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        for text, count, at in rows
    )


def _outcomes(days: range, entries: list[Row], sums: list[Row]) -> dict[int, Counter[str]]:
    """How the calls of each day ended: by their entries, and by the sums where the entries are gone already.

    The sums know which calls ended well and which did not, but not how else: those count as failed.
    """
    found: dict[int, Counter[str]] = {day: Counter() for day in days}
    for day, outcome, count in entries:
        if day in found:
            found[day][outcome] += count
    for day, calls, done in sums:
        if day in found:
            known = found[day]
            failed = sum(known[outcome] for outcome in _FAILURES)
            missing = Counter({_DONE: done - known[_DONE], _FAILED: calls - done - failed})
            known.update(+missing)  # the entries know of more: of calls that say nothing about a tool
    return found


def _tool_lines(database: Database, binds: Binds) -> list[ToolLine]:
    latencies: dict[tuple[str, str], dict[int, int]] = {}
    for server, tool, bucket, calls in database.rows(_BUCKETS, binds):
        latencies.setdefault((server, tool), {})[bucket] = calls
    return [
        ToolLine(
            tool=ToolId(server, tool),
            calls=calls,
            done=done,
            mean_ms=1_000 * seconds / calls,
            p95_ms=Usage(latencies=latencies.get((server, tool), {})).p95_ms or 0.0,
            tokens_out=tokens_out,
        )
        for server, tool, calls, done, seconds, tokens_out in database.rows(_TOOLS, binds)
        if calls
    ]


def _day_lines(calls: Mapping[int, Counter[str]], looks: list[Row]) -> tuple[DayLine, ...]:
    searches, saved = (dict.fromkeys(calls, 0) for _ in range(2))
    # Whoever never lists spends nothing on lists, and so saves nothing by searching instead.
    listed = {(day, surface) for day, surface, look, *_ in looks if look == Look.LIST}
    for day, surface, look, _, count, tokens, spared in looks:
        if day in saved:
            searches[day] += count if look == Look.SEARCH else 0
            cost = tokens if (day, surface) in listed and look != Look.READ else 0  # results are no tools
            saved[day] += spared if look == Look.LIST else -cost
    return tuple(
        DayLine(
            day=(_EPOCH + timedelta(days=day)).isoformat(),
            calls=outcomes.total(),
            failed=sum(outcomes[outcome] for outcome in _FAILURES),
            searches=searches[day],
            tokens_saved=saved[day],
        )
        for day, outcomes in calls.items()
    )
