"""Tools after normalising, the identifier rule for their names, and their categories."""

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
class ToolSpellings:
    """How agents spell a tool."""

    name: str = ""  # its server's, unless an override gives another
    handle: str
    listed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(ToolSpellings):
    """Something that can be done."""

    id: ToolId
    description: str
    input_schema: JsonObject
    definition: JsonObject  # the whole definition, ready for `tools/list` under its listed name
    title: str = ""
    output_schema: JsonObject | None = None
    effect: Effect = Effect.WRITE
    category: str = "misc"
    tags: tuple[str, ...] = ()
    example: str = ""  # what somebody may ask for who needs it, as a prompt
    source: str = "upstream"
    notes: tuple[str, ...] = ()  # what normalising had to change, for `doctor` and `list`
    users: frozenset[str] | None = None  # who may see it, and `*` for everybody; None where its source restricts nobody

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.id.name)

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


LAST = 1_000  # the place of a category that was given none


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A shelf as people see it."""

    name: str
    display_name: str = ""
    description: str = ""
    order: int = LAST  # shelves are shown in this order, then by name

    @property
    def title(self) -> str:
        """What to call it: its display name, or its name with blanks."""
        return self.display_name or self.name.replace("_", " ").replace("-", " ").strip().capitalize() or self.name
