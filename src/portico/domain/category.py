"""Categories: the shelves that tools stand on."""

from __future__ import annotations

from dataclasses import dataclass

NAME_LENGTH = 64
NAMING = f"Write up to {NAME_LENGTH} letters, digits and underscores, such as code_analysis."
"""How to name a category, for people."""
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


def is_category_name(name: str) -> bool:
    """Whether a category can be called this: something that prints, on one line, and not too long."""
    return bool(name.strip()) and name == name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
