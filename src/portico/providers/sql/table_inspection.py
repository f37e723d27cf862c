"""The schemas, tables and columns of a database, as its own catalog has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import Connection, MetaData
from sqlalchemy import Table as SqlTable
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

from portico.domain.suggestions import nearest_names
from portico.errors import InvalidArguments

from .read_connection import Column, TableName

if TYPE_CHECKING:
    from .database_session import DatabaseEngine

NEAREST = 5
_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"
_SQLITE_DDL = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type = 'index', name"

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")
Method = Callable[Concatenate["TableInspection", Arguments], Found]


def _translate_errors(method: Method[Arguments, Found]) -> Method[Arguments, Found]:
    """Translate the errors of drivers that a method raises."""

    @wraps(method)
    def translating(self: TableInspection, *arguments: Arguments.args, **named: Arguments.kwargs) -> Found:
        with self.database.errors.translating():
            return method(self, *arguments, **named)

    return cast("Method[Arguments, Found]", translating)


class TableInspection:
    """The half of a `conn` that looks around; the inspector is made when it is first needed."""

    def __init__(self, database: DatabaseEngine, connection: Connection | None = None) -> None:
        self.database = database
        self._inspected, self._inspector = connection, None
        self._opened = ExitStack()

    @property
    def dialect(self) -> str:
        """The SQL that is spoken."""
        return str(self.database.engine.dialect.name)

    @property
    def inspector(self) -> Any:
        """SQLAlchemy's inspector; on SQLite it has a connection of its own, past the guard."""
        if self._inspector is None:
            with self.database.errors.translating():
                self._inspector = self._opened.enter_context(self.database.open_inspector(self._inspected))
        return self._inspector

    @_translate_errors
    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas, the default one first; what only the system uses is left out."""
        names = [
            name
            for name in self.inspector.get_schema_names()
            if name != "information_schema" and not name.startswith("pg_")
        ]
        default = self.inspector.default_schema_name or (names[0] if names else "")
        return tuple(sorted(names, key=lambda name: (name != default, name)))

    @_translate_errors
    def tables(self, schema: str = "") -> tuple[TableName, ...]:
        """The tables and views of a schema, by name."""
        home = self._schema(schema)
        tables = set(self.inspector.get_table_names(schema=home or None))
        views = set(self.inspector.get_view_names(schema=home or None))
        if self.dialect == "sqlite":  # tables that belong to a full-text index say nothing to anybody
            tables -= set(self.inspector.bind.exec_driver_sql(_SHADOWS).scalars())
        if self.dialect == "postgresql":
            views |= set(self.inspector.get_materialized_view_names(schema=home or None))
        found = [(name, "view" if name in views else "table") for name in tables | views]
        return tuple(TableName(name=name, schema=home, kind=kind) for name, kind in sorted(found))

    @_translate_errors
    def find(self, table: str, schema: str = "") -> TableName:
        """The table or view of that name."""
        if not schema and "." in table and _same(table, [one.name for one in self.tables()]) is None:
            # Schema and table; both may have dots of their own.
            known = (*self.schemas(), self.database.name)
            dots = [place for place, letter in enumerate(table) if letter == "."]
            cut = next((place for place in dots if _same(table[:place], known)), dots[0])
            schema, table = table[:cut], table[cut + 1 :]
        return _chosen("table", table, {one.name: one for one in self.tables(schema)})

    @_translate_errors
    def columns(self, table: TableName) -> tuple[Column, ...]:
        """The columns of a table in their order."""
        home = table.schema or None
        key = self.inspector.get_pk_constraint(table.name, schema=home) if table.kind == "table" else {}
        keys = set(key.get("constrained_columns") or ())
        return tuple(
            Column(
                name=raw["name"],
                type=_type_name(raw["type"], self.inspector.dialect),
                nullable=bool(raw.get("nullable", True)),
                default=None if raw.get("default") is None else str(raw["default"]),
                primary_key=raw["name"] in keys,
                comment=str(raw.get("comment") or ""),
                kind=_kind(raw["type"]),
            )
            for raw in self.inspector.get_columns(table.name, schema=home)
        )

    def column(self, table: TableName, name: str) -> Column:
        """One column by name."""
        return _chosen(f"column of {table.name!r}", name, {column.name: column for column in self.columns(table)})

    @_translate_errors
    def ddl(self, table: TableName) -> str:
        """The statements that would create a table or view; SQLite keeps them, others are asked for the parts."""
        home = table.schema or None
        if self.dialect == "sqlite":
            return ";\n".join(self.inspector.bind.exec_driver_sql(_SQLITE_DDL, (table.name,)).scalars().all())
        if table.kind == "view":
            is_postgres = self.dialect == "postgresql"
            stored = self.inspector.get_materialized_view_names(schema=home) if is_postgres else ()
            kind = "MATERIALIZED VIEW" if table.name in stored else "VIEW"
            body = self.inspector.get_view_definition(table.name, schema=home)
            return f"CREATE {kind} {self.quoted(table)} AS {str(body).strip()}"
        sql_table = SqlTable(table.name, MetaData(), schema=home, autoload_with=self.inspector)
        parts: list[ExecutableDDLElement] = [
            CreateTable(sql_table),
            *map(CreateIndex, sorted(sql_table.indexes, key=lambda index: str(index.name))),
        ]
        dialect = self.inspector.dialect
        ddl = ";\n".join(str(part.compile(dialect=dialect)).strip() for part in parts)
        return ddl.replace("%%", "%") if dialect.identifier_preparer._double_percents else ddl

    def quoted(self, subject: TableName | Column | str) -> str:
        """A name between this database's quotes, whatever letters it has."""
        if isinstance(subject, TableName):
            return ".".join(self.quoted(part) for part in (subject.schema, subject.name) if part)
        preparer = self.database.engine.dialect.identifier_preparer
        found = str(preparer.quote_identifier(subject if isinstance(subject, str) else subject.name))
        # Statements are texts, in which a percent sign is doubled for the driver later on; once is enough.
        return found.replace("%%", "%") if preparer._double_percents else found

    def close(self) -> None:
        """Let go of what was opened on the way."""
        self._opened.close()

    def _schema(self, name: str) -> str:
        """The schema that is meant; empty for the default one, which the database's own name means too."""
        known = self.schemas()
        if not name or not known:
            return ""
        found = _same(name, known)
        if found is None and name.casefold() != self.database.name.casefold():
            raise _unknown("schema", name, known)
        return "" if found in (None, known[0]) else str(found)


def _same(name: str, known: Iterable[str]) -> str | None:
    """The exact name, or the only one that differs in case alone."""
    names = list(known)
    if name in names:
        return name
    alike = [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def _chosen(what: str, name: str, known: Mapping[str, Found]) -> Found:
    found = _same(name, known)
    if found is None:
        raise _unknown(what, name, known)
    return known[found]


def _unknown(what: str, name: str, known: Iterable[str]) -> InvalidArguments:
    names = sorted(known)
    near = nearest_names(name, names, limit=NEAREST, cutoff=50)
    there = f"there are: {', '.join(names[:NEAREST])}" if names else "there is none"
    told = f"did you mean: {', '.join(near)}" if near else there
    return InvalidArguments(what.split()[0], details=(f"no {what} is called {name[:100]!r}; {told}",))


def _type_name(kind: TypeEngine[Any], dialect: Any) -> str:
    try:
        return str(kind.compile(dialect=dialect))
    except Exception:  # noqa: BLE001  a type that SQLAlchemy does not know cannot be spelled, and drivers bring their own
        return str(kind)


def _kind(kind: TypeEngine[Any]) -> str:
    try:
        native = getattr(kind, "data_type", kind).python_type  # of a domain, that which it is made of
    except NotImplementedError:
        return "other"
    return _KINDS.get(native, "other")


_KINDS: Mapping[type, str] = {
    **dict.fromkeys((int, float, Decimal), "number"),
    str: "text",
    **dict.fromkeys((date, datetime, time, timedelta), "time"),
}
"""The kind of a column, by the type that SQLAlchemy gives its values."""
