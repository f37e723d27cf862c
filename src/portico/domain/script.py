"""Scripts: what one is, what limits it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run of a script may use; all of it is enforced from outside of the script."""

    seconds: float = 30.0
    """Wall clock, from its start to its answer, the time of its calls included."""
    cpu_seconds: float = 5.0
    memory_mb: int = 64
    """What the script's own values may take together."""
    calls: int = 100
    in_flight: int = 16
    """Calls that run at once; those beyond wait for their turn."""
    output_bytes: int = 1_000_000
    """The value that it returns, as JSON."""
    printed_bytes: int = 64_000
    source_bytes: int = 256_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One run: source text, the value of its global `args`, and its limits."""

    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A script that came to its end."""

    value: Any = None
    has_value: bool = False
    """Whether it said what its result is; JSON null is a result too."""
    printed: str = ""
    printed_cut: int = 0
    """Bytes that were printed beyond the limit."""
    unawaited: tuple[str, ...] = ()
    """What went wrong in calls that the script never awaited, one line each."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What holds scripts in on this machine."""

    ready: int = 0
    size: int = 0
    running: int = 0
    missing: tuple[str, ...] = ()
    """Protections that this machine does not give, in words; none is missing on a current Linux."""
    problem: str = ""
    """Why scripts cannot be run at all."""

    @property
    def is_degraded(self) -> bool:
        """Whether scripts are held in by less than we want."""
        return bool(self.missing or self.problem)

    @property
    def state(self) -> str:
        """All of it in a few words: `hardened`, or what is missing."""
        if self.problem:
            return f"unavailable: {self.problem}"
        return f"degraded: {', '.join(self.missing)}" if self.missing else "hardened"
