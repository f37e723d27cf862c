"""What one of the four tiers of disclosure answers, ready to be sent."""

from __future__ import annotations

from dataclasses import dataclass

from .tool import ToolId


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer as it goes over the wire, with what it costs."""

    body: bytes
    """Compact JSON, exactly what is sent and what was counted."""
    tokens: int
    """Of this answer."""
    cumulative: int
    """Of this answer and of those that a caller reads on the way to it."""
    shown: tuple[ToolId, ...] = ()
    """The tools in it, in their order."""
    total: int = 0
    """How many there are to be shown, on all pages."""
    truncated: bool = False
