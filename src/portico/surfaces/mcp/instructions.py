"""What a client reads first has little room: as many names as fit, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def as_many_as_fit(names: Sequence[str], room: int) -> str:
    """Names with commas between them, then how many were left out."""
    shown: list[str] = []
    for name in names:
        if len(", ".join([*shown, name])) + len(" and 999 more") > room:
            break
        shown.append(name)
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")
