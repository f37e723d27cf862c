"""Single calls as the journal has them: which ones are asked for, and what is told of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .call import Invocation, Outcome
from .tool import ToolId

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_END = 253_402_300_800
"""The year 10,000."""
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuery:
    """Which calls: those that pass everything that is set, the newest ones first."""

    tool: str = ""
    """A tool's own name, `server.tool`, or the way in which callers spelled it."""
    server: str = ""
    outcome: str = ""
    caller: str = ""
    since: float = 0.0
    """From this moment on, in seconds since 1970."""
    after: int = 0
    """Only entries with a higher number."""
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
