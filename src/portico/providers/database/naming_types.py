"""Types of PostgreSQL that SQLAlchemy does not know, under the names that the database gives them."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import Connection, text
from sqlalchemy.types import UserDefinedType

_TYPES = text(
    "SELECT pg_catalog.format_type(t.oid, NULL) FROM pg_catalog.pg_type t "
    "LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid "
    "WHERE t.typtype IN ('b', 'c', 'r', 'm') AND t.typcategory <> 'A' AND (c.oid IS NULL OR c.relkind = 'c')"
)


class NamedType(UserDefinedType[Any]):
    """A type of which only the name is known."""

    cache_ok = True
    name: ClassVar[str] = ""

    def __init__(self, *details: str) -> None:
        self.details = details

    def get_col_spec(self, **_: Any) -> str:
        """The name as the database writes it."""
        return f"{self.name}({', '.join(self.details)})" if self.details else self.name


def learn_types(connection: Connection) -> None:
    """Let SQLAlchemy's inspector know every type that the database has, also those made a moment ago."""
    dialect: Any = connection.dialect
    known = dialect.ischema_names
    fresh = [name for name in connection.execute(_TYPES).scalars() if name.lower() not in known]
    if fresh:  # replaced as a whole, because other threads read it
        named = {name.lower(): type("NamedType", (NamedType,), {"name": name}) for name in fresh}
        dialect.ischema_names = {**known, **named}
