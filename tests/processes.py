"""What processes of tests get of our environment."""

from __future__ import annotations

import os


def inherited(*names: str) -> dict[str, str]:
    """These variables, and the one by which `make coverage` measures a process, where they are set."""
    return {name: os.environ[name] for name in (*names, "COVERAGE_PROCESS_CONFIG") if name in os.environ}
