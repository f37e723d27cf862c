"""Who asks, and through which surface."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Passed explicitly to every question and every call, never taken from a context variable."""

    name: str = "local"
    surface: str = "library"
    result_tokens: int = 0
    """What one result may cost this caller; 0 leaves it to the config."""
    client: str = field(default="", compare=False)
    """Which of several clients of the same name asks: its session, or its address and program. Shares are by client;
    rights and answers are not, so that two clients of one name are the same caller."""
