"""What a data engineer registers: one object of a database as one tool."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from .types import ParamType


class Kind(StrEnum):
    """What the object is; the value is the ToolType of the registry."""

    FUNCTION = "F"
    MACRO = "M"
    """A macro of Teradata, or a procedure of PostgreSQL."""
    TABLE = "T"
    VIEW = "V"

    @property
    def word(self) -> str:
        """What people call it."""
        return "macro or procedure" if self is Kind.MACRO else self.name.lower()

    @property
    def has_columns(self) -> bool:
        """Whether its parameters are columns that rows are chosen by."""
        return self in (Kind.TABLE, Kind.VIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function or macro, or one column of a table or view."""

    name: str
    type: ParamType
    position: int
    required: bool = False
    comment: str = ""
    has_default: bool = True
    """Whether the object itself knows what to do when this is left out; otherwise NULL is sent."""

    @property
    def length(self) -> int | None:
        """Characters or bytes at most."""
        return self.type.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One row of the registry with its parameters in their order."""

    name: str
    database: str
    """The database or schema in which the object lives."""
    object: str
    kind: Kind
    docstring: str = ""
    tags: tuple[str, ...] = ()
    example: str = ""
    parameters: tuple[Parameter, ...] = ()
    writes: bool = False
    returns_rows: bool = False
    """Whether a function returns a table; Teradata calls it in another way then."""

    @property
    def fingerprint(self) -> str:
        """Changes when anything that was registered changes, and with nothing else."""
        # The text of a dataclass has every field, and is made ten times as fast as a copy of it.
        return hashlib.sha256(repr(self).encode("utf-8", "replace")).hexdigest()[:32]
