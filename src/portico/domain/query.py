"""A search as a caller asks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FILTERS = ("server", "category", "tag", "source", "read_only", "max_latency_ms", "min_success")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search: words, filters, and where the last page ended."""

    text: str = ""
    server: str = ""
    category: str = ""
    tag: str = ""
    source: str = ""
    """The kind of provider: upstream, database, local or library."""
    read_only: bool = False
    max_latency_ms: float = 0.0
    """The longest that calls may take on average; 0 leaves it open, and so does a tool that was never called."""
    min_success: float = 0.0
    """The share of calls that must have ended well, from 0 to 1; a tool that was never called passes."""
    limit: int = 0
    """How many tools; 0 leaves it to the settings."""
    cursor: str = ""

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that are set, by name."""
        return {name: value for name in FILTERS if (value := getattr(self, name))}
