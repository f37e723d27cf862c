"""What the transactions of a source are for."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """How a source's connections begin and end."""

    READ = "read"
    """Nothing is written; each statement sees what is there when it begins."""
    STEADY = "steady"
    """Nothing is written; all statements of one reading see the same moment."""
    WRITE = "write"
    """What a reading did is kept when it ends well: for tools that were declared as writing, and nothing else."""
