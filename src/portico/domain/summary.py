"""The report that usage alone gives, where no database keeps the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from .report import DayLine, Report, ToolLine
from .tool import ToolId
from .usage import DAY_SECONDS, DAYS_KEPT, Usage, day_of


def summed_up(usage: Mapping[ToolId, Usage], *, days: int, limit: int, now: float) -> Report:
    """The tools that were called in the last days, at most 30 of them.

    Calls are those of the days; how well and how fast they went is known of all calls together only. What was searched
    for, and what became of calls that say nothing about a tool, is not known.
    """
    days = min(days, DAYS_KEPT)
    lines = [_line(tool, found, called) for tool, found in usage.items() if (called := found.within(days, now))]
    return Report(
        days=days,
        calls=sum(line.calls for line in lines),
        top=tuple(sorted(lines, key=lambda line: (-line.calls, line.tool))[:limit]),
        failing=tuple(sorted((x for x in lines if x.done < x.calls), key=lambda x: (x.success, x.tool))[:limit]),
        slow=tuple(sorted(lines, key=lambda line: (-line.p95_ms, line.tool))[:limit]),
        by_day=tuple(_days(usage, days, day_of(now))),
    )


def _line(tool: ToolId, usage: Usage, calls: int) -> ToolLine:
    share = calls / usage.calls
    return ToolLine(
        tool=tool,
        calls=calls,
        done=round(usage.done * share),
        mean_ms=usage.mean_ms or 0.0,
        p95_ms=usage.p95_ms or 0.0,
        tokens_out=round(usage.tokens_out * share),
    )


def _days(usage: Mapping[ToolId, Usage], days: int, today: int) -> Iterator[DayLine]:
    for day in range(today - days + 1, today + 1):
        date = datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()
        yield DayLine(day=date.isoformat(), calls=sum(found.days.get(day, 0) for found in usage.values()))
