"""Turns a batch of entries into rows: one for each entry, and one for each tool, day and latency that they add to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from portico.domain.call import Invocation
from portico.domain.journal import LATEST, LONGEST, Entry, Lookup, bounded, count_within
from portico.domain.usage import day_of

from .counting import DaySum, day_sums
from .texts import SPELLED_LENGTH, TEXT_LENGTH, clean, key

Key = tuple[str, str]
"""A server and a tool, as they are stored."""


@dataclass(slots=True)
class Folded:
    """The rows of a batch; a tool that was called five hundred times is added to once."""

    invocations: list[dict[str, Any]] = field(default_factory=list)
    lookups: list[dict[str, Any]] = field(default_factory=list)
    days: dict[tuple[str, str, int], DaySum] = field(default_factory=dict)
    """The sums of each server, tool and day."""

    def day_rows(self) -> list[dict[str, Any]]:
        """What is added to each day of each tool, in the order in which everybody writes."""
        return [
            {"server": server, "tool": tool, "day": day, **_row(sums)}
            for (server, tool, day), sums in sorted(self.days.items(), key=_place)
        ]

    def latency_rows(self) -> list[dict[str, Any]]:
        """What is added to each bucket."""
        return [
            {"server": server, "tool": tool, "day": day, "bucket": bucket, "calls": calls}
            for (server, tool, day), sums in sorted(self.days.items(), key=_place)
            for bucket, calls in sorted(sums.buckets.items())
        ]

    def tool_rows(self) -> list[dict[str, Any]]:
        """What is added to each tool."""
        totals: dict[Key, dict[str, Any]] = {}
        for (server, tool, _), sums in self.days.items():
            row, found = _row(sums), totals.get((server, tool))
            totals[server, tool] = {name: found[name] + row[name] for name in row} if found else row
        return [{"server": server, "tool": tool, **row} for (server, tool), row in sorted(totals.items(), key=_place)]


def fold(entries: Iterable[Entry]) -> Folded:
    """The rows of some entries."""
    folded, words, invocations = Folded(), _Words(), []
    for entry in entries:
        if isinstance(entry, Lookup):
            folded.lookups.append(_lookup_row(entry, words))
        else:
            entry = bounded(entry)
            invocations.append(entry)
            folded.invocations.append(_invocation_row(entry, words))
    names = words.names
    for (tool, day), sums in day_sums(invocations).items():
        folded.days[names[tool.server], names[tool.name], day] = sums
    return folded


class _Names(dict[str, str]):
    """Keys by name: the same few come again and again."""

    def __missing__(self, name: str) -> str:
        self[name] = found = key(name)
        return found


class _Texts(dict[str, str]):
    """Clean texts by text, for the same reason."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __missing__(self, text: str) -> str:
        self[text] = found = clean(text, self._length)
        return found


class _Words:
    """What has been cleaned of one batch so far."""

    __slots__ = ("names", "spelled", "texts")

    def __init__(self) -> None:
        self.names, self.texts, self.spelled = _Names(), _Texts(TEXT_LENGTH), _Texts(SPELLED_LENGTH)


def _invocation_row(entry: Invocation, words: _Words) -> dict[str, Any]:
    """The row of an invocation whose numbers are in their bounds."""
    names, texts = words.names, words.texts
    server, tool = entry.tool or ("", None)
    return {
        "at": entry.at,
        "day": day_of(entry.at),
        "server": names[server],
        "tool": None if tool is None else names[tool],
        "spelled": words.spelled[entry.spelled],
        "caller": texts[entry.caller],
        "surface": texts[entry.surface],
        "outcome": str(entry.outcome),
        "seconds": entry.seconds,
        "code": texts[entry.code],
        "tokens_in": entry.tokens_in,
        "tokens_out": entry.tokens_out,
        "parent": texts[entry.parent],
        "rank": entry.rank,
    }


def _lookup_row(entry: Lookup, words: _Words) -> dict[str, Any]:
    texts = words.texts
    at = entry.at if 0 <= entry.at < LATEST else 0.0
    return {
        "at": at,
        "day": day_of(at),
        "look": str(entry.look),
        "caller": texts[entry.caller],
        "surface": texts[entry.surface],
        "seconds": entry.seconds if 0 <= entry.seconds < LONGEST else 0.0,
        "text": clean(entry.text, SPELLED_LENGTH),
        "shown": count_within(entry.shown),
        "found": count_within(entry.found),
        "fits": bool(entry.fits),
        "tokens": count_within(entry.tokens),
        "instead": count_within(entry.instead),
    }


def _row(sums: DaySum) -> dict[str, Any]:
    return {
        "calls": sums.calls,
        "done": sums.done,
        "seconds": sums.seconds,
        "tokens_in": sums.tokens_in,
        "tokens_out": sums.tokens_out,
    }


def _place(item: tuple[tuple[Any, ...], Any]) -> tuple[Any, ...]:
    return item[0]
