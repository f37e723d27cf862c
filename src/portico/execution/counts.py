"""What has passed since the process began, in numbers that only grow."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from portico.domain.call import Invocation, Outcome
from portico.domain.journal import Entry, Look
from portico.domain.usage import counts

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which a call falls into each bucket of a histogram; slower ones fall into one more."""
NO_SERVER = ""
"""Stands for the server of a call whose tool is not known: what callers spell must not make new names here."""


def _no_calls() -> list[int]:
    return [0] * (len(BOUNDS) + 1)


@dataclass(slots=True)
class Counts:
    """Counts calls and lookups; told of each once, by whoever writes it to the journal.

    Nothing here is ever taken back, not even when a server goes: a reader of counters takes a fall for a restart.
    """

    calls: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """By server and outcome."""
    latencies: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(_no_calls))
    """By server: how many calls fell into each bucket, of those that say something about the server."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By server: how long those calls took together."""
    lookups: Counter[Look] = field(default_factory=Counter)
    lookup_tokens: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def observe(self, entry: Entry) -> None:
        """Count one entry."""
        if not isinstance(entry, Invocation):
            self.lookups[entry.look] += 1
            self.lookup_tokens += entry.tokens
            return
        server = entry.tool.server if entry.tool else NO_SERVER
        self.calls[server, entry.outcome] += 1
        self.tokens_in += entry.tokens_in
        self.tokens_out += entry.tokens_out
        if counts(entry.outcome):
            self.latencies[server][bisect_left(BOUNDS, entry.seconds)] += 1
            self.seconds[server] += entry.seconds
