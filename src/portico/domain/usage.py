"""How tools have done so far: a fold of their invocations."""

from __future__ import annotations

from dataclasses import dataclass

from .call import Invocation, Outcome

_COUNTED = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT})
"""A call that was refused, invalid or given up by its caller says nothing about the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What became of a tool's calls; one that was never called has none."""

    calls: int = 0
    """Those that ended well, ended badly or timed out."""
    done: int = 0
    seconds: float = 0.0
    """How long callers have waited, all calls together."""

    def __add__(self, invocation: Invocation) -> Usage:
        """The same with one invocation more; one that says nothing about the tool changes nothing."""
        if invocation.outcome not in _COUNTED:
            return self
        return Usage(
            calls=self.calls + 1,
            done=self.done + (invocation.outcome is Outcome.DONE),
            seconds=self.seconds + invocation.seconds,
        )

    @property
    def success(self) -> float | None:
        """The share of calls that ended well, from 0 to 1; None before the first call."""
        return self.done / self.calls if self.calls else None

    @property
    def mean_ms(self) -> float | None:
        """How long a call takes on average; None before the first call."""
        return 1_000 * self.seconds / self.calls if self.calls else None

    def __str__(self) -> str:
        if not self.calls:
            return "never called"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"{calls}, {self.success:.1%} success, {self.mean_ms:.0f} ms on average"
