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


_WORDS = {
    "base": ("Base", "Tables, columns, previews and queries of a database"),
    "dba": ("Database Administration", "Sessions, space, users and versions of a database"),
    "qlty": ("Data Quality", "Missing values, distinct values and statistics of columns"),
    "sec": ("Security", "Users, roles and rights in a database"),
    "sql_opt": ("SQL Optimisation", "Expensive queries and how to make them cheaper"),
    "plot": ("Charts", "Line, pie, radar and polar charts of columns"),
    "rag": ("Retrieval", "Questions answered from documents by nearness of meaning"),
    "fs": ("Feature Store", "Features, entities and data sets of a feature store"),
    "tdvs": ("Vector Store", "Vector stores: create, update, ask"),
    "chat": ("Chat Completion", "Answers of a language model to rows of a table"),
    "bar": ("Backup and Restore", "Backup jobs, media and restores"),
}
"""What is known of categories that tools bring with them, by the prefixes of their names."""
BROUGHT = 5
"""The place of those: before the categories that are there without any tools."""


def unwritten(name: str) -> Category:
    """A category of which nobody has written anything down."""
    if name not in _WORDS:
        return Category(name=name)
    title, says = _WORDS[name]
    return Category(name=name, display_name=title, description=says, order=BROUGHT)


def is_category_name(name: str) -> bool:
    """Whether a category can be called this: something that prints, on one line, and not too long."""
    return bool(name.strip()) and name == name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
