"""Categories: the shelves that tools stand on."""

from __future__ import annotations

from dataclasses import dataclass

LAST = 1_000
"""The place of a category that was given none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A shelf as people see it."""

    name: str
    display_name: str = ""
    description: str = ""
    order: int = LAST
    """Shelves are shown in this order, then by name."""

    @property
    def title(self) -> str:
        """What to call it: its display name, or its name with blanks."""
        return self.display_name or self.name.replace("_", " ").replace("-", " ").strip().capitalize() or self.name
