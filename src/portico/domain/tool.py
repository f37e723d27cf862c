"""Tools after normalising, and their categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

JsonObject = Mapping[str, Any]


class Effect(StrEnum):
    """What a tool does to the world, as far as its annotations say; unknown counts as write."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"


class ToolId(NamedTuple):
    """The pair (server, name) in the original spelling; a rename is a new tool."""

    server: str
    name: str

    def __str__(self) -> str:
        return f"{self.server}::{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that can be done."""

    id: ToolId
    handle: str
    listed: str
    description: str
    input_schema: JsonObject
    definition: JsonObject
    """The whole definition, ready for `tools/list` under its listed name."""
    title: str = ""
    output_schema: JsonObject | None = None
    effect: Effect = Effect.WRITE
    category: str = "misc"
    tags: tuple[str, ...] = ()
    example: str = ""
    """What somebody may ask for who needs it, as a prompt."""
    source: str = "upstream"
    notes: tuple[str, ...] = ()
    """What normalising had to change, for `doctor` and `list`."""
    users: frozenset[str] | None = None
    """Who may see it, and `*` for everybody; None where its source restricts nobody."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The parameters by name; empty when the schema declares none."""
        found = self.input_schema.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the parameters that a call must have, in the schema's order."""
        found = self.input_schema.get("required")
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A definition that was refused, and why."""

    server: str
    name: str
    reason: str


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
