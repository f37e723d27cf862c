"""How deep a value is nested."""

from __future__ import annotations

from typing import Any


def depth_of(value: Any) -> int:
    """How many objects and lists stand inside each other."""
    depth, level = 0, [value]
    while nested := [inner for inner in level if isinstance(inner, dict | list)]:
        depth += 1
        level = [child for inner in nested for child in (inner.values() if isinstance(inner, dict) else inner)]
    return depth
