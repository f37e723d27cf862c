"""Turns a batch of entries into rows: one for each entry, and one for each tool, day and latency that they add to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from portico.domain.call import Invocation, Outcome
from portico.domain.journal import Entry, Lookup
from portico.domain.usage import bucket_of, counts, day_of

from .texts import SPELLED_LENGTH, TEXT_LENGTH, clean, key

_COUNTED = frozenset(str(outcome) for outcome in Outcome if counts(outcome))
_MOST = 2**53
"""A number that no count reaches; beyond it a database would refuse the whole batch."""
_LATEST = 1e12
_LONGEST = 1e9

Key = tuple[str, str]
"""A server and a tool, as they are stored."""


@dataclass(slots=True)
class Folded:
    """The rows of a batch; a tool that was called five hundred times is added to once."""

    invocations: list[dict[str, Any]] = field(default_factory=list)
    lookups: list[dict[str, Any]] = field(default_factory=list)
    days: dict[tuple[str, str, int], list[Any]] = field(default_factory=dict)
    """Calls, done, seconds, tokens in and tokens out, by server, tool and day."""
    latencies: dict[tuple[str, str, int, int], int] = field(default_factory=dict)
    """Calls, by server, tool, day and bucket."""

    def day_rows(self) -> list[dict[str, Any]]:
        """What is added to each day of each tool, in the order in which everybody writes."""
        return [
            {"server": server, "tool": tool, "day": day, **_sums(sums)}
            for (server, tool, day), sums in sorted(self.days.items())
        ]

    def latency_rows(self) -> list[dict[str, Any]]:
        """What is added to each bucket."""
        return [
            {"server": server, "tool": tool, "day": day, "bucket": bucket, "calls": calls}
            for (server, tool, day, bucket), calls in sorted(self.latencies.items())
        ]

    def tool_rows(self) -> list[dict[str, Any]]:
        """What is added to each tool."""
        totals: dict[Key, list[Any]] = {}
        for (server, tool, _), sums in self.days.items():
            found = totals.get((server, tool))
            totals[server, tool] = [a + b for a, b in zip(found, sums, strict=True)] if found else sums
        return [{"server": server, "tool": tool, **_sums(sums)} for (server, tool), sums in sorted(totals.items())]


def fold(entries: Iterable[Entry]) -> Folded:
    """The rows of some entries."""
    folded, words = Folded(), _Words()
    for entry in entries:
        if isinstance(entry, Lookup):
            folded.lookups.append(_lookup_row(entry, words))
        else:
            row = _invocation_row(entry, words)
            folded.invocations.append(row)
            if row["tool"] is not None and row["outcome"] in _COUNTED:
                _count(folded, row)
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
    names, texts = words.names, words.texts
    server, tool = entry.tool or ("", None)
    at, seconds, rank = entry.at, entry.seconds, entry.rank
    tokens_in, tokens_out = entry.tokens_in, entry.tokens_out
    if not 0 <= at < _LATEST:
        at = 0.0
    return {
        "at": at,
        "day": day_of(at),
        "server": names[server],
        "tool": None if tool is None else names[tool],
        "spelled": words.spelled[entry.spelled],
        "caller": texts[entry.caller],
        "surface": texts[entry.surface],
        "outcome": str(entry.outcome),
        "seconds": seconds if 0 <= seconds < _LONGEST else 0.0,
        "code": texts[entry.code],
        "tokens_in": tokens_in if 0 <= tokens_in < _MOST else _bounded(tokens_in),
        "tokens_out": tokens_out if 0 <= tokens_out < _MOST else _bounded(tokens_out),
        "parent": texts[entry.parent],
        "rank": rank if 0 <= rank < _MOST else _bounded(rank),
    }


def _lookup_row(entry: Lookup, words: _Words) -> dict[str, Any]:
    texts = words.texts
    at = entry.at if 0 <= entry.at < _LATEST else 0.0
    return {
        "at": at,
        "day": day_of(at),
        "look": str(entry.look),
        "caller": texts[entry.caller],
        "surface": texts[entry.surface],
        "seconds": entry.seconds if 0 <= entry.seconds < _LONGEST else 0.0,
        "text": clean(entry.text, SPELLED_LENGTH),
        "shown": _bounded(entry.shown),
        "found": _bounded(entry.found),
        "fits": bool(entry.fits),
        "tokens": _bounded(entry.tokens),
        "instead": _bounded(entry.instead),
    }


def _count(folded: Folded, row: dict[str, Any]) -> None:
    server, tool, day, seconds = row["server"], row["tool"], row["day"], row["seconds"]
    sums = folded.days.get((server, tool, day))
    if sums is None:
        sums = folded.days[server, tool, day] = [0, 0, 0.0, 0, 0]
    sums[0] += 1
    sums[1] += row["outcome"] == "done"
    sums[2] += seconds
    sums[3] += row["tokens_in"]
    sums[4] += row["tokens_out"]
    place = (server, tool, day, bucket_of(seconds))
    folded.latencies[place] = folded.latencies.get(place, 0) + 1


def _sums(sums: list[Any]) -> dict[str, Any]:
    return dict(zip(("calls", "done", "seconds", "tokens_in", "tokens_out"), sums, strict=True))


def _bounded(number: int) -> int:
    return min(max(number, 0), _MOST)
