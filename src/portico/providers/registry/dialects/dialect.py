"""What one kind of SQL must be able to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from portico.errors import InvalidDefinition
from portico.providers.registry.registration import Parameter, Registration
from portico.providers.registry.types import ParamType


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One parameter in its place, and the SQL that stands for its value; none when it was left out."""

    parameter: Parameter
    sql: str | None


class Dialect(Protocol):
    """Writes statements of one kind of database; it is given SQL for values and never a value itself."""

    name: str
    binds_macros: bool
    """Whether a macro or procedure takes placeholders."""
    longest_name: int
    """Characters of a name that the database keeps; a longer one would become another."""

    def typed(self, mark: str, type: ParamType) -> str:
        """A placeholder, or NULL, as a value of exactly this type."""
        ...

    def bound(self, value: Any, type: ParamType) -> Any:
        """A checked value as the driver takes it.

        Raises:
            Unfit: this database cannot keep it.
        """
        ...

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that calls a function.

        Raises:
            InvalidDefinition: this database has no such thing.
        """
        ...

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that runs a macro or procedure.

        Raises:
            InvalidDefinition: this database has no such thing.
        """
        ...

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """A SELECT of so many rows at most; `bind` gives the placeholder for a value."""
        ...


def quoted(name: str, dialect: Dialect) -> str:
    """A name between quotes, however harmless it looks.

    Raises:
        InvalidDefinition: it is longer than the database keeps.
    """
    if len(name) > dialect.longest_name:
        raise InvalidDefinition(f"{name!r} is longer than the {dialect.longest_name} letters that a name may have here")
    return '"{}"'.format(name.replace('"', '""'))


def qualified(registration: Registration, dialect: Dialect) -> str:
    """The object with the database that it lives in."""
    return f"{quoted(registration.database, dialect)}.{quoted(registration.object, dialect)}"


def positional(given: Sequence[Given], dialect: Dialect) -> str:
    """Every argument in its place; one that was left out is NULL."""
    return ", ".join(one.sql or dialect.typed("NULL", one.parameter.type) for one in given)
