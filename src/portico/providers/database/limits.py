"""How much of a database one call may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The rows and bytes of one answer, and the seconds of one call."""

    rows: int = 1_000
    bytes: int = 1_000_000
    seconds: float = 30.0
