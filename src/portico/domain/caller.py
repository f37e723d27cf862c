"""Who asks, and through which surface."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Passed explicitly to every question and every call, never taken from a context variable."""

    name: str = "local"
    surface: str = "library"
    result_tokens: int = 0
    """What one result may cost this caller; 0 leaves it to the config."""
