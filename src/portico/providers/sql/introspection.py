"""Engines for databases that are only read, and the tables and columns that they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, MetaData, create_engine, inspect, text
from sqlalchemy import Table as SqlTable
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.types import TypeEngine

from portico.domain.call import Caller
from portico.errors import ConfigError, InvalidArguments

from .connection import Column, Mode, QueryLimits, TableName
from .source import EXAMPLES, Address, missing_driver
from .statements import ReadStatement

POOLED = 5
CONNECT_SECONDS = 5


class Door(Protocol):
    """One way into a database, through which nothing is written unless its mode says so."""

    engine: Engine
    mode: Mode

    def begin(self, connection: Connection, caller: Caller) -> AbstractContextManager[None]:
        """Make a connection read-only, within its time, and known as this caller's, while the context is open."""
        ...

    def admit(self, connection: Connection, statement: ReadStatement) -> None:
        """Return when a statement may be sent.

        Raises:
            Refused: it calls what it must not.
        """
        ...

    def sized(self, sql: str) -> str | None:
        """The statement with a first column that tells whether a row is too large to be sent; None without one."""
        ...

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The columns and rows of a plan."""
        ...

    def inspecting(self, connection: Connection | None) -> AbstractContextManager[Any]:
        """SQLAlchemy's inspector, of this connection where the door has no other."""
        ...

    def stop(self, connection: Connection) -> None:
        """End what a connection is at work on, from another thread."""
        ...

    def close(self) -> None:
        """Let go of every connection."""
        ...


class AnyDoor:
    """Whatever SQLAlchemy has a driver for: words are checked, and everything is rolled back at the end.

    What the database itself forbids its user is the real lock here; the guide says so.
    """

    def __init__(self, address: Address, limits: QueryLimits, *, mode: Mode = Mode.READ) -> None:
        self._limits, self.mode = limits, mode
        self.engine = opened(address.url, pool_timeout=limits.seconds)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """Ask for a transaction that reads where the database knows one."""
        if self.mode is Mode.WRITE:
            yield
            return
        if connection.dialect.name in ("mysql", "mariadb"):
            connection.rollback()
            connection.exec_driver_sql(f"SET SESSION MAX_EXECUTION_TIME={int(1_000 * self._limits.seconds)}")
            connection.exec_driver_sql("START TRANSACTION READ ONLY")
        elif connection.dialect.name == "oracle":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        yield

    def admit(self, connection: Connection, statement: ReadStatement) -> None:
        """The words were checked already."""

    def sized(self, sql: str) -> str | None:
        """No common way to tell."""
        return None

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """Most databases know EXPLAIN."""
        result = connection.execute(text(f"EXPLAIN {sql}"), binds)
        return list(result.keys()), [tuple(row) for row in result]

    @contextmanager
    def inspecting(self, connection: Connection | None) -> Iterator[Any]:
        """Of the same connection."""
        yield inspect(connection)

    def stop(self, connection: Connection) -> None:
        """No common way to do it; the database's own limit ends it."""

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()


def opened(url: Any, **options: Any) -> Engine:
    """An engine; nothing is connected yet.

    Raises:
        ConfigError: the URL cannot be read, or there is no driver.
    """
    try:
        return create_engine(url, pool_size=POOLED, max_overflow=POOLED, **options)
    except NoSuchModuleError as error:
        raise missing_driver(str(url).partition("://")[0]) from error
    except ModuleNotFoundError as error:
        raise missing_driver(str(error.name), str(error.name)) from error
    except (ArgumentError, ValueError, SQLAlchemyError) as error:
        raise ConfigError("the URL cannot be read", where="DATABASE_URI", fix=f"Write {EXAMPLES}") from error


def driver_of(connection: Connection) -> DBAPIConnection:
    """The driver's own connection."""
    driver: DBAPIConnection | None = connection.connection.driver_connection
    assert driver is not None
    return driver


NEAREST = 5
_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"


class Inspection:
    """One look at a database's own catalog."""

    def __init__(self, inspector: Any, database: str) -> None:
        self.inspector, self._database = inspector, database
        self._dialect = inspector.dialect

    def schemas(self) -> tuple[str, ...]:
        """The names of the schemas, the default one first; what only the system uses is left out."""
        names = [name for name in self.inspector.get_schema_names() if not _is_system(name)]
        default = self.inspector.default_schema_name or (names[0] if names else "")
        return tuple(sorted(names, key=lambda name: (name != default, name)))

    def schema(self, name: str) -> str:
        """The schema that is meant; empty for the default one, which the database's own name means too."""
        known = self.schemas()
        if not name or not known:
            return ""
        found = _same(name, known)
        if found is None and name.casefold() != self._database.casefold():
            raise _unknown("schema", name, known)
        return "" if found in (None, known[0]) else str(found)

    def tables(self, schema: str = "") -> tuple[TableName, ...]:
        """The tables and views of a schema, by name."""
        home = self.schema(schema)
        tables = set(self.inspector.get_table_names(schema=home or None)) - self._shadows()
        views = set(self.inspector.get_view_names(schema=home or None))
        if self._dialect.name == "postgresql":
            views |= set(self.inspector.get_materialized_view_names(schema=home or None))
        found = [(name, "view" if name in views else "table") for name in tables | views]
        return tuple(TableName(name=name, schema=home, kind=kind) for name, kind in sorted(found))

    def find(self, name: str, schema: str = "") -> TableName:
        """The table that is meant."""
        if not schema and "." in name and _same(name, [table.name for table in self.tables()]) is None:
            schema, name = self._parted(name)
        known = {table.name: table for table in self.tables(schema)}
        found = _same(name, known)
        if found is None:
            raise _unknown("table", name, known)
        return known[found]

    def _parted(self, name: str) -> tuple[str, str]:
        """Schema and table; both may have dots of their own."""
        known = (*self.schemas(), self._database)
        places = [place for place, letter in enumerate(name) if letter == "."]
        cut = next((place for place in places if _same(name[:place], known)), places[0])
        return name[:cut], name[cut + 1 :]

    def columns(self, table: TableName) -> tuple[Column, ...]:
        """The columns of a table in their order."""
        home = table.schema or None
        key = self.inspector.get_pk_constraint(table.name, schema=home) if table.kind == "table" else {}
        keys = set(key.get("constrained_columns") or ())
        return tuple(
            Column(
                name=raw["name"],
                type=_type_name(raw["type"], self._dialect),
                nullable=bool(raw.get("nullable", True)),
                default=None if raw.get("default") is None else str(raw["default"]),
                primary_key=raw["name"] in keys,
                comment=str(raw.get("comment") or ""),
                kind=_kind(raw["type"]),
            )
            for raw in self.inspector.get_columns(table.name, schema=home)
        )

    def column(self, table: TableName, name: str) -> Column:
        """The column that is meant."""
        known = {column.name: column for column in self.columns(table)}
        found = _same(name, known)
        if found is None:
            raise _unknown(f"column of {table.name!r}", name, known)
        return known[found]

    def ddl(self, table: TableName) -> str:
        """The statements that would create a table or view; SQLite keeps them, others are asked for the parts."""
        if self._dialect.name == "sqlite":
            return self._sqlite_ddl(table)
        name = quoted(self._dialect, table)
        if table.kind == "view":
            body = self.inspector.get_view_definition(table.name, schema=table.schema or None)
            return f"CREATE {self._view_kind(table)} {name} AS {str(body).strip()}"
        sql_table = SqlTable(table.name, MetaData(), schema=table.schema or None, autoload_with=self.inspector)
        parts: list[ExecutableDDLElement] = [
            CreateTable(sql_table),
            *map(CreateIndex, sorted(sql_table.indexes, key=lambda i: str(i.name))),
        ]
        ddl = ";\n".join(str(part.compile(dialect=self._dialect)).strip() for part in parts)
        return ddl.replace("%%", "%") if self._dialect.identifier_preparer._double_percents else ddl

    def _view_kind(self, table: TableName) -> str:
        is_postgres = self._dialect.name == "postgresql"
        kept = self.inspector.get_materialized_view_names(schema=table.schema or None) if is_postgres else ()
        return "MATERIALIZED VIEW" if table.name in kept else "VIEW"

    def _sqlite_ddl(self, table: TableName) -> str:
        statement = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type = 'index', name"
        found = self.inspector.bind.exec_driver_sql(statement, (table.name,)).scalars().all()
        return ";\n".join(found)

    def _shadows(self) -> set[str]:
        """Tables that belong to a full-text index and say nothing to anybody."""
        if self._dialect.name != "sqlite":
            return set()
        return set(self.inspector.bind.exec_driver_sql(_SHADOWS).scalars())


def quoted(dialect: Any, subject: TableName | Column | str) -> str:
    """A name between a database's quotes, whatever letters it has."""
    preparer = dialect.identifier_preparer

    def quote(name: str) -> str:
        found = str(preparer.quote_identifier(name))
        # Statements are texts, in which a percent sign is doubled for the driver later on; once is enough.
        return found.replace("%%", "%") if preparer._double_percents else found

    if isinstance(subject, TableName):
        return ".".join(quote(part) for part in (subject.schema, subject.name) if part)
    return quote(subject if isinstance(subject, str) else subject.name)


def _is_system(name: str) -> bool:
    return name == "information_schema" or name.startswith("pg_")


def _same(name: str, known: Iterable[str]) -> str | None:
    """The exact name, or the only one that differs in case alone."""
    names = list(known)
    if name in names:
        return name
    alike = [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def _unknown(what: str, name: str, known: Iterable[str]) -> InvalidArguments:
    names = sorted(known)
    near = get_close_matches(name.casefold(), [other.casefold() for other in names], n=NEAREST, cutoff=0.5)
    shown = [other for other in names if other.casefold() in near] or names[:NEAREST]
    rest = f"; there are: {', '.join(shown)}" if names else "; there is none"
    word = f"; did you mean: {', '.join(shown)}" if near else rest
    return InvalidArguments(what.split()[0], details=(f"no {what} is called {name[:100]!r}{word}",))


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
    int: "number",
    float: "number",
    Decimal: "number",
    str: "text",
    date: "time",
    datetime: "time",
    time: "time",
    timedelta: "time",
}
"""What can be worked out of a column, by the type that SQLAlchemy gives its values."""
