"""Entries of the journal, single calls as it lists them, and reports over it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from time import time
from typing import Any

from .call import Invocation, Outcome
from .tool import ToolId

LATEST = 1e12  # a moment that no clock shows, in seconds since 1970
LONGEST = 1e9  # seconds that nothing takes
MOST = 2**53  # a number that no count reaches; beyond it a database would refuse it


class Look(StrEnum):
    """The ways of looking at tools and results without calling a tool."""

    LIST = "list"  # the definitions that a surface lists
    SEARCH = "search"
    BROWSE = "browse"  # the hot list, the categories, or the tools of one category
    DESCRIBE = "describe"
    READ = "read"  # the next part of a result that was shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One look at the catalog, and what it cost."""

    look: Look
    caller: str
    surface: str
    at: float = 0.0
    seconds: float = 0.0
    text: str = ""  # the query, the names or the category, as far as it is kept
    shown: int = 0
    found: int = 0
    fits: bool = True
    tokens: int = 0  # what the answer cost
    instead: int = 0  # what listing every tool would have cost, where this look takes its place


Entry = Invocation | Lookup


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """Something that happened to a server, or to the gateway itself."""

    kind: str
    """One word, as `started` or `exited`."""
    server: str = ""
    """Empty where it is the gateway's own."""
    text: str = ""
    """What happened, in one line."""
    stderr: str = ""
    """The last lines that a server wrote to stderr, for operators only."""
    at: float = field(default_factory=time)
    """In seconds since 1970."""
    gateway: str = ""
    """The process that noticed it; told by whoever keeps it."""
    times: int = 1
    """How often it happened within a second; the text is that of the last time."""


OnEvent = Callable[[FleetEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events: those that pass everything that is set, the newest ones first."""

    server: str = ""
    kind: str = ""
    since: float = 0.0  # from this moment on, in seconds since 1970
    after: int = 0  # only events with a higher number
    limit: int = 20

    def passes(self, kept: RecordedEvent) -> bool:
        """Whether an event is one of those."""
        event = kept.event
        return (
            (not self.server or event.server == self.server)
            and (not self.kind or event.kind == self.kind)
            and event.at >= self.since
            and kept.number > self.after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One event that is kept, and its number there."""

    number: int
    event: FleetEvent

    def as_data(self) -> dict[str, Any]:
        """The event for a program."""
        event = self.event
        return {
            "id": self.number,
            "time": told_time(event.at),
            "gateway": event.gateway,
            "server": event.server,
            "kind": event.kind,
            "text": event.text,
            "stderr": event.stderr,
            "times": event.times,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Entries that are not in the journal: no room for them, or gone with the process that had them."""

    dropped: int = 0  # left out because the buffer was full
    lost: int = 0  # recorded by a process that ended before it could write them


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """How a journal has done since its process began."""

    waiting: int = 0  # entries that are not in the store yet
    recorded: int = 0
    stored: int = 0  # taken by the store; what was deleted with its file afterwards is in `lost` as well
    dropped: int = 0  # left out: there was no room for them, or the store cannot take them
    lost: int = 0
    """What other processes took with them when they ended, as far as this one has counted it, and what was deleted."""
    trouble: str = ""  # why the store cannot be written just now


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries that are written together, by one process."""

    writer: str  # tells this process from all others
    first: int = 0
    """How many entries of this writer came before, stored or dropped: a batch that is sent twice is written once."""
    entries: tuple[Entry, ...] = ()
    dropped: int = 0  # entries left out since the last batch
    caches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Hits and misses of each cache since the last batch."""

    @property
    def end(self) -> int:
        """How many entries of this writer are accounted for once this batch is stored."""
        return self.first + len(self.entries) + self.dropped


def bounded(invocation: Invocation) -> Invocation:
    """The invocation with every number in its bounds, so that whoever counts it counts the same."""
    at, seconds, rank = invocation.at, invocation.seconds, invocation.rank
    tokens_in, tokens_out = invocation.tokens_in, invocation.tokens_out
    is_timed = 0 <= at < LATEST and 0 <= seconds < LONGEST
    if is_timed and 0 <= tokens_in <= MOST and 0 <= tokens_out <= MOST and 0 <= rank <= MOST:
        return invocation
    return replace(
        invocation,
        at=at if 0 <= at < LATEST else 0.0,
        seconds=seconds if 0 <= seconds < LONGEST else 0.0,
        tokens_in=count_within(tokens_in),
        tokens_out=count_within(tokens_out),
        rank=count_within(rank),
    )


def count_within(number: int) -> int:
    """A count in its bounds."""
    return min(max(number, 0), MOST)


_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_END = 253_402_300_800  # the year 10,000
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuery:
    """Which calls: those that pass everything that is set, the newest ones first."""

    tool: str = ""  # a tool's own name, `server.tool`, or the way in which callers spelled it
    server: str = ""
    outcome: str = ""
    caller: str = ""
    since: float = 0.0  # from this moment on, in seconds since 1970
    after: int = 0  # only entries with a higher number
    limit: int = 20

    def passes(self, call: RecordedCall) -> bool:
        """Whether a call is one of those."""
        entry = call.entry
        name, server = (entry.tool.name, entry.tool.server) if entry.tool else ("", "")
        return (
            (not self.tool or self.tool in (name, f"{server}.{name}", f"{server}::{name}", entry.spelled))
            and (not self.server or server == self.server)
            and (not self.outcome or entry.outcome == self.outcome)
            and (not self.caller or entry.caller == self.caller)
            and entry.at >= self.since
            and call.number > self.after
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One entry of the journal, and its number there; the values of arguments are not among what is kept."""

    number: int
    entry: Invocation

    def as_data(self, spelled: Callable[[ToolId], str]) -> dict[str, Any]:
        """The call for a program."""
        entry = self.entry
        return {
            "id": self.number,
            "time": told_time(entry.at),
            "tool": spelled(entry.tool) if entry.tool else None,
            "server": entry.tool.server if entry.tool else "",
            "spelled": entry.spelled,
            "outcome": str(entry.outcome),
            "code": entry.code,
            "latency_ms": round(entry.seconds * 1_000, 1),
            "tokens_in": entry.tokens_in,
            "tokens_out": entry.tokens_out,
            "caller": entry.caller,
            "surface": entry.surface,
            "script": entry.parent,
            "rank": entry.rank,
        }


def entry_data(entry: Entry) -> dict[str, Any]:
    """An entry for an export: of a search the query, of other looks and of calls nothing that an agent wrote."""
    common: dict[str, Any] = {"time": told_time(entry.at), "caller": entry.caller, "surface": entry.surface}
    common["latency_ms"] = round(entry.seconds * 1_000, 1)
    if isinstance(entry, Lookup):
        query = {"query": entry.text} if entry.look is Look.SEARCH else {}
        counts = {"shown": entry.shown, "found": entry.found, "fits": entry.fits, "tokens": entry.tokens}
        return {"kind": str(entry.look), **common, **query, **counts}
    return {
        "kind": "call",
        **common,
        "tool": str(entry.tool) if entry.tool else None,
        "outcome": str(entry.outcome),
        "code": entry.code,
        "tokens_in": entry.tokens_in,
        "tokens_out": entry.tokens_out,
        "script": entry.parent,
        "rank": entry.rank,
    }


OUTCOMES = tuple(str(outcome) for outcome in Outcome)


def told_time(at: float) -> str:
    """A moment as RFC 3339, in UTC; empty for one that no calendar has."""
    if not 0 <= at < _END:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_moment(text: str, now: float) -> float | None:
    """A moment as people write it: `15m`, `2h`, `3d` ago, or a date with or without a time, in UTC unless it says."""
    if ago := _AGO.fullmatch(text.strip().lower()):
        return max(0.0, now - float(ago[1]) * _UNITS[ago[2]])
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLine:
    """How one tool did in the days of a report."""

    tool: ToolId
    calls: int
    done: int
    mean_ms: float
    p95_ms: float
    tokens_out: int = 0

    @property
    def success(self) -> float:
        """The share of calls that ended well."""
        return self.done / self.calls if self.calls else 0.0

    def as_data(self, tool: str) -> dict[str, Any]:
        """The line, ready for JSON, with the tool as it is spelled there."""
        return {
            "tool": tool,
            "server": self.tool.server,
            "calls": self.calls,
            "success_rate": round(100 * self.success, 1),
            "avg_latency_ms": self.mean_ms,
            "p95_latency_ms": self.p95_ms,
            "tokens_out": self.tokens_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLine:
    """One day: calls, looks, and the tokens that were not spent on listing every tool."""

    day: str  # as 2026-11-15, in UTC
    calls: int = 0
    failed: int = 0
    searches: int = 0
    tokens_saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLine:
    """A search that no tool fitted, as often as it was asked."""

    query: str  # what was asked, as far as it is kept, without control characters
    count: int
    last: str  # when it was asked last, as 2026-11-15T09:30:00Z


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedLine:
    """A word that callers searched with before they called a tool."""

    word: str
    tool: ToolId
    uses: int  # how often a call that ended well came after a search with it
    weight: float  # what these uses count by now
    callers: int  # how many different ones used it
    is_shared: bool  # whether it counts for everybody; else it is the asker's own

    def as_data(self, tool: str) -> dict[str, Any]:
        """The line, ready for JSON, with the tool as it is spelled there."""
        return {**asdict(self), "tool": tool, "server": self.tool.server}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The journal of the last days, summed up."""

    days: int  # how many are summed up; fewer than were asked for when no more are kept one by one
    calls: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """How calls ended; of days whose entries are gone, every call that did not end well counts as failed."""
    top: tuple[ToolLine, ...] = ()  # called most
    failing: tuple[ToolLine, ...] = ()  # with the largest share of calls that did not end well
    slow: tuple[ToolLine, ...] = ()  # with the longest p95
    by_day: tuple[DayLine, ...] = ()  # oldest first; days without an entry included
    searches: int = 0
    unanswered: int = 0  # searches that no tool fitted
    unanswered_searches: tuple[SearchLine, ...] = ()  # which they were, those asked most first
    ranks: Mapping[int, int] = field(default_factory=dict)
    """How many calls were of a tool that the caller's search had shown at this place; 0 is without a search."""
    caches: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # hits and misses of each cache
    losses: Losses = field(default_factory=Losses)
    learned: tuple[LearnedLine, ...] = ()
    """Words that have come to stand for tools, whenever they were used, those of most weight first."""

    def as_data(self, spelled: Callable[[ToolId], str]) -> dict[str, Any]:
        """The report, ready for JSON, the same through every door; `spelled` says what tools are called there."""
        return {
            **asdict(self),
            **{
                name: [line.as_data(spelled(line.tool)) for line in lines]
                for name, lines in (("top", self.top), ("failing", self.failing), ("slow", self.slow))
            },
            "learned": [line.as_data(spelled(line.tool)) for line in self.learned],
            "ranks": dict(sorted(self.ranks.items())),
            "caches": {name: {"hits": hits, "misses": misses} for name, (hits, misses) in sorted(self.caches.items())},
        }
