"""A read-only connection as tools see it: they can ask within limits and look around, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """The rows and bytes of one answer, and the seconds of one call."""

    rows: int = 1_000
    bytes: int = 1_000_000
    seconds: float = 30.0

    def rows_for(self, wanted: int | None) -> int:
        """The rows of an answer; a caller can lower their number, and never raises it."""
        return self.rows if wanted is None else max(1, min(wanted, self.rows))


class Mode(StrEnum):
    """How the transactions of a source begin and end."""

    READ = "read"
    """Nothing is written; each statement sees what is there when it begins."""
    STEADY = "steady"
    """Nothing is written; all statements of one connection see the same moment."""
    WRITE = "write"
    """Changes are kept when nothing went wrong: for tools that were declared as writing, and nothing else."""


Binds = Mapping[str, Any]
"""Values for the `:name` placeholders of a statement; they are sent beside it and never become part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows whose values JSON knows, as many as the limits let through."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False
    note: str = ""
    """What was left out, and how to get it; empty when nothing was."""

    def records(self) -> list[dict[str, Any]]:
        """Each row by its columns' names; of columns that share a name, the last is kept."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def shown(self) -> dict[str, Any]:
        """The answer of a tool: columns once, rows as lists, and a hint when something was left out."""
        answer: dict[str, Any] = {
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "row_count": len(self.rows),
            "truncated": self.truncated,
        }
        return {**answer, "next": self.note} if self.note else answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column as the database describes it."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    primary_key: bool = False
    comment: str = ""
    kind: str = "other"
    """`number`, `text`, `time` or `other`: what can be worked out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """One table or view that the database says it has, under its exact name."""

    name: str
    schema: str = ""
    """Empty for the schema that names without one belong to."""
    kind: str = "table"


class ReadConnection(Protocol):
    """A connection of one caller to one database; tools take it as their parameter `conn`."""

    @property
    def dialect(self) -> str:
        """The SQL that is spoken: `sqlite`, `postgresql`, ..."""
        ...

    @property
    def inspector(self) -> Any:
        """SQLAlchemy's inspector of this database, for what the methods below do not tell."""
        ...

    def rows(self, sql: str, binds: Binds | None = None, *, limit: int | None = None) -> QueryResult:
        """Run one statement that reads; `limit` lowers the number of rows, it never raises it.

        Raises:
            InvalidArguments: the SQL or a value cannot be used.
            Refused: the statement would do more than read.
            UpstreamTimeout: the database took too long.
            UpstreamGone: the database cannot be reached.
        """
        ...

    def explain(self, sql: str, binds: Binds | None = None) -> QueryResult:
        """How the database would run a statement that reads; it is not run."""
        ...

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas, the default one first."""
        ...

    def tables(self, schema: str = "") -> tuple[TableName, ...]:
        """The tables and views of a schema, by name; none is named for the default one.

        Raises:
            InvalidArguments: no schema of that name; the nearest are named.
        """
        ...

    def find(self, table: str, schema: str = "") -> TableName:
        """The table or view of that name, written `table` or `schema.table`, in whatever case is clear.

        Raises:
            InvalidArguments: there is none; the nearest are named.
        """
        ...

    def columns(self, table: TableName) -> tuple[Column, ...]:
        """The columns of a table in their order."""
        ...

    def column(self, table: TableName, name: str) -> Column:
        """One column by name, in whatever case is clear.

        Raises:
            InvalidArguments: there is none; the nearest are named.
        """
        ...

    def ddl(self, table: TableName) -> str:
        """The statements that would create a table or view."""
        ...

    def quoted(self, subject: TableName | Column | str) -> str:
        """A name as it can stand in SQL of this database, whatever letters it has."""
        ...


class OwnQuery(Protocol):
    """A connection for queries that we have built ourselves; tools are not given it."""

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query whose words are ours and were checked before; nothing of a caller may be in them."""
        ...

    def stop(self) -> None:
        """End what runs, from another thread."""
        ...


class OwnConnection(ReadConnection, OwnQuery, Protocol):
    """A connection for packages that build their statements themselves; it can also do what is no query."""

    def performed(self, sql: str, binds: Binds) -> QueryResult:
        """Run one statement of ours that is no query, such as the call of a procedure."""
        ...
