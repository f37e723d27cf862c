"""Counts invocations by tool and day: both the ledger and usage in memory are made of this one count."""

from __future__ import annotations

from collections.abc import Iterable

from portico.domain.call import Invocation, Outcome
from portico.domain.tool import ToolId
from portico.domain.usage import bucket_of, counts, day_of

_DONE = Outcome.DONE
_COUNTED = tuple(outcome for outcome in Outcome if counts(outcome))


class DaySum:
    """What became of a tool's calls on one day."""

    __slots__ = ("buckets", "calls", "done", "seconds", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.calls = self.done = self.tokens_in = self.tokens_out = 0
        self.seconds = 0.0
        self.buckets: dict[int, int] = {}
        """How many calls fell into each bucket of latencies."""


def day_sums(invocations: Iterable[Invocation]) -> dict[tuple[ToolId, int], DaySum]:
    """The sums of each tool and day; what says nothing about a tool is passed over. The numbers are in their bounds."""
    found: dict[tuple[ToolId, int], DaySum] = {}
    for one in invocations:
        if one.tool is None or one.outcome not in _COUNTED:
            continue
        try:
            place, bucket = (one.tool, day_of(one.at)), bucket_of(one.seconds)
            sums = found.get(place)
        except TypeError:  # it makes no sense, and must not stop the count of all others
            continue
        if sums is None:
            sums = found[place] = DaySum()
        sums.calls += 1
        sums.done += one.outcome is _DONE
        sums.seconds += one.seconds
        sums.tokens_in += one.tokens_in
        sums.tokens_out += one.tokens_out
        buckets = sums.buckets
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return found
