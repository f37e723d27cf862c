"""A registry as its keeper changes it from the command line: make it, add to it, take from it, grant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    TableClause,
    and_,
    column,
    create_engine,
    delete,
    func,
    insert,
    quoted_name,
    select,
    table,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from portico.catalog.naming import META_TOOLS, identifier
from portico.errors import ConfigError
from portico.providers.sql.database_source import CONNECT_SECONDS, read_address
from portico.providers.sql.sql_lexer import tokens

from .configured_registries import CHANNEL
from .database_objects import HOME
from .registry_rows import OBJECT_NAME, TOOL_NAME, ObjectKind
from .sql_dialects import dialect_named

PUBLIC = "PUBLIC"
EVERYBODY = "*"
_SAMPLES = "-- Samples:"
"""Begins the part of the setup that can be left out."""
_THERE = 3803
"""The error of Teradata for a table that is already there."""

_POSTGRES_KIND = """
SELECT CASE c.relkind WHEN 'v' THEN 'V' WHEN 'm' THEN 'V' ELSE 'T' END FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :database AND c.relname = :object AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
UNION ALL SELECT CASE p.prokind WHEN 'p' THEN 'M' ELSE 'F' END FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :database AND p.proname = :object
"""
_POSTGRES_PARAMS = """
SELECT coalesce(nullif(p.proargnames[a.place], ''), 'p' || a.place),
    pg_catalog.format_type(
        CASE WHEN p.provariadic <> 0 AND a.place = p.pronargs THEN p.provariadic ELSE a.type END, NULL),
    a.place <= p.pronargs - p.pronargdefaults - CASE WHEN p.provariadic <> 0 THEN 1 ELSE 0 END
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
CROSS JOIN LATERAL unnest(CAST(p.proargtypes AS oid[])) WITH ORDINALITY AS a(type, place)
WHERE n.nspname = :database AND p.proname = :object AND p.oid = (
    SELECT min(o.oid) FROM pg_catalog.pg_proc o WHERE o.proname = p.proname AND o.pronamespace = p.pronamespace)
ORDER BY a.place
"""
_SQLITE_KIND = "SELECT upper(substr(type, 1, 1)) FROM sqlite_master WHERE name = :object AND type IN ('table', 'view')"
_SQLITE_PARAMS = "SELECT name, coalesce(nullif(type, ''), 'text'), 0 FROM pragma_table_info(:object) ORDER BY cid"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewParam:
    """A parameter that is to be registered."""

    name: str
    type: str
    required: bool | None = None
    """None leaves it to the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool:
    """A tool that is to be registered."""

    name: str
    database: str
    object: str
    kind: ObjectKind | None = None
    """None leaves it to the database to say."""
    docstring: str = ""
    tags: str = ""
    writes: bool | None = None
    params: Sequence[NewParam] = ()
    """None of them means those that the database knows."""
    database_users: Sequence[str] = (PUBLIC,)
    users: Sequence[str] = (EVERYBODY,)


def setup_script(dialect: str, schema: str, *, samples: bool = True) -> str:
    """The whole SQL that makes a registry; it can be run again.

    On Teradata, which has no IF NOT EXISTS, a table that is already there is told by the error 3803.

    Raises:
        ConfigError: the schema cannot have such a name, or there is no registry for this kind of database.
    """
    spoken = dialect_named(dialect)
    if not OBJECT_NAME.fullmatch(schema) or len(schema) > spoken.longest_name:
        fix = f"Use at most {spoken.longest_name} letters, digits, _, $ and #, and begin with a letter or _"
        raise ConfigError(f"a registry cannot live in {schema[:60]!r}", where="registry", fix=fix)
    script = files(__package__).joinpath("setup", f"{spoken.name}.sql").read_text(encoding="utf-8")
    return (script if samples else script.partition(_SAMPLES)[0]).replace("{schema}", f'"{schema}"')


def setup_steps(dialect: str, schema: str, *, samples: bool = True) -> tuple[str, ...]:
    """The statements of that SQL one by one, for drivers that take no more.

    Raises:
        ConfigError: as for the whole.
    """
    spoken, steps, depth = dialect_named(dialect), [""], 0
    for piece in tokens(setup_script(dialect, schema, samples=samples), spoken.name):
        depth += {"open": 1, "close": -1}.get(piece.kind, 0)
        if piece.kind == "end" and depth == 0:  # the statements of a macro stand in parentheses
            steps.append("")
        elif piece.kind != "line":
            steps[-1] += piece.text
    return tuple(step.strip() for step in steps if step.strip())


class RegistryOperator:
    """Writes into the tables of one registry; every method blocks, and raises ConfigError when it cannot be done."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._address = read_address(url, needs_driver=False)
        self._dialect = dialect_named(self._address.dialect).name
        self._is_file = self._dialect == "sqlite"
        self._schema = HOME if self._is_file else schema
        self.script()  # the schema must be a name

    def script(self, *, samples: bool = True) -> str:
        """The SQL that makes the registry."""
        return setup_script(self._dialect, self._schema, samples=samples)

    def init(self, *, samples: bool = True) -> None:
        """Make the tables and views, and samples; what is there stays."""
        with self._connected(create=True) as connection:
            driver: Any = connection.connection.driver_connection
            if isinstance(driver, psycopg.Connection):
                driver.execute(self.script(samples=samples).encode())
            elif isinstance(driver, sqlite3.Connection):
                driver.executescript(self.script(samples=samples))
            else:
                for step in setup_steps(self._dialect, self._schema, samples=samples):
                    try:
                        connection.exec_driver_sql(step)
                    except DBAPIError as error:
                        if str(_THERE) not in str(error.orig):
                            raise

    def add(self, tool: NewTool) -> tuple[ObjectKind, int]:
        """Register a tool, whole or not at all; says its kind and how many parameters were written down."""
        _check(tool)
        with self._connected(tool.name) as connection:
            spot = {"database": tool.database or self._schema, "object": tool.object}
            kind = tool.kind or self._kind(connection, spot)
            params = list(tool.params) or self._params(connection, kind, spot)
            row = {"ToolName": tool.name, "DataBaseName": spot["database"], "TableName": tool.object}
            row |= {"ToolType": kind.value, "docstring": tool.docstring, "Tags": tool.tags}
            if tool.writes is not None and not self._is_file:
                row["Writes"] = _yes_or_no(tool.writes) or ""
            self._insert(connection, "mcp_tools", row)
            for place, one in enumerate(params, 1):
                named = {"ToolName": tool.name, "ParamName": one.name, "ParamRequired": _yes_or_no(one.required)}
                # The data dictionary of Teradata tells types and positions.
                told = {} if self._dialect == "teradata" else {"ParamType": one.type, "ParamPosition": place}
                self._insert(connection, "mcp_tool_params", {**named, **told})
            for user in dict.fromkeys(tool.users):
                self._insert(connection, "mcp_user_grants", {"ToolName": tool.name, "UserName": user})
            for user in dict.fromkeys(() if self._is_file else tool.database_users):
                self._insert(connection, "mcp_tool_users", {"ToolName": tool.name, "DatabaseUser": user})
        return kind, len(params)

    def remove(self, name: str) -> bool:
        """Take a tool out of the registry; says whether it was there."""
        tables = ["mcp_user_grants", "mcp_tool_params", "mcp_tools"]
        with self._connected(name) as connection:
            for place in tables if self._is_file else ["mcp_tool_users", *tables]:
                count = self._run(connection, delete(self._table(place)).where(_matches({"ToolName": name})))
        return count > 0

    def grant(self, name: str, user: str, *, revoke: bool = False, database_user: bool = False) -> bool:
        """Let a user see a tool, or no longer; says whether anything has changed."""
        place, who = ("mcp_tool_users", "DatabaseUser") if database_user else ("mcp_user_grants", "UserName")
        if database_user and self._is_file:
            raise ConfigError("a SQLite file has no users", fix="Leave --database-user out.")
        if not user.strip():
            raise ConfigError("a user needs a name", fix=f"Write one, or {EVERYBODY!r} for everybody")
        row = {"ToolName": name, who: user}
        with self._connected(name) as connection:
            if not self._has(connection, "mcp_tools", {"ToolName": name}):
                raise ConfigError(f"no tool {name!r} is registered", fix="See: portico registry check")
            is_there = self._has(connection, place, row)
            if is_there and revoke:
                self._run(connection, delete(self._table(place)).where(_matches(row)))
            elif not is_there and not revoke:
                self._insert(connection, place, row)
        return is_there == revoke

    def tell(self) -> None:
        """Let gateways that listen look at the registry."""
        if self._dialect == "postgresql":
            with self._connected() as connection:
                connection.execute(select(func.pg_notify(CHANNEL, self._schema)))

    def _kind(self, connection: Connection, spot: Mapping[str, str]) -> ObjectKind:
        asked = {"postgresql": _POSTGRES_KIND, "sqlite": _SQLITE_KIND}.get(self._dialect)
        found = set(connection.execute(text(asked), dict(spot)).scalars()) if asked else set()
        if len(found) != 1:
            what = f"{spot['database']}.{spot['object']}"
            reason = f"{what!r} is not in the database" if asked and not found else f"nobody can tell what {what!r} is"
            raise ConfigError(reason, fix="Put the name right, or say its kind with --kind.")
        return ObjectKind(found.pop())

    def _params(self, connection: Connection, kind: ObjectKind, spot: Mapping[str, str]) -> list[NewParam]:
        """The parameters that the database knows; the views of PostgreSQL and Teradata tell columns by themselves."""
        if self._dialect == "postgresql" and not kind.has_columns:
            asked = _POSTGRES_PARAMS
        elif self._is_file and kind.has_columns:
            asked = _SQLITE_PARAMS
        else:
            return []
        rows = connection.execute(text(asked), dict(spot)).all()
        return [NewParam(name=name, type=type, required=bool(required)) for name, type, required in rows]

    def _table(self, name: str, columns: Sequence[str] = ()) -> TableClause:
        # Every dialect folds names without quotes in its own way; that of the schema is quoted.
        schema = None if self._is_file else quoted_name(self._schema, quote=True)
        return table(name, *map(_column, columns), schema=schema)

    def _insert(self, connection: Connection, name: str, row: Mapping[str, Any]) -> None:
        self._run(connection, insert(self._table(name, list(row))).values(dict(row)))

    def _has(self, connection: Connection, name: str, row: Mapping[str, Any]) -> bool:
        asked = select(func.count()).select_from(self._table(name)).where(_matches(row))
        return bool(connection.execute(asked).scalar_one())

    def _run(self, connection: Connection, statement: Executable) -> int:
        return connection.execute(statement).rowcount

    @contextmanager
    def _connected(self, tool: str = "", *, create: bool = False) -> Iterator[Connection]:
        """One transaction, kept when nothing goes wrong; with `create` a file that is not there is made.

        Raises:
            ConfigError: what a driver says, in one line, without how the database is reached.
        """
        read_address(self._url)  # whoever only prints the SQL needs no driver
        options = {"connect_timeout": CONNECT_SECONDS} if self._dialect == "postgresql" else {}
        file = self._address.file
        try:
            if file is None:
                engine = create_engine(self._address.url, connect_args=options)
            else:
                place = f"{file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
                engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True))
            try:
                with engine.begin() as connection:
                    yield connection
            finally:
                engine.dispose()
        except IntegrityError as error:
            reason = f"{tool!r} is registered already, or a row breaks a rule of the registry's tables"
            raise ConfigError(reason, fix="Remove it first: portico registry remove") from error
        except UnicodeError as error:
            raise ConfigError("the command holds letters that no database takes", fix="Write it in UTF-8") from error
        except (SQLAlchemyError, psycopg.Error, sqlite3.Error) as error:
            raise ConfigError(f"the database says: {_said(error)}", fix="See: portico registry init --help") from error


def _column(name: str) -> Any:
    return column(quoted_name(name, quote=False))


def _matches(row: Mapping[str, Any]) -> ColumnElement[bool]:
    return and_(*(_column(name) == value for name, value in row.items()))


def _yes_or_no(value: bool | None) -> str | None:
    return None if value is None else "Y" if value else "N"


def _check(tool: NewTool) -> None:
    if not TOOL_NAME.fullmatch(tool.name):
        raise ConfigError(f"{tool.name!r} cannot be the name of a tool", fix="Use letters, digits, _, - and .")
    if identifier(tool.name).casefold() in META_TOOLS:
        raise ConfigError(f"{tool.name!r} is the name of one of the gateway's own tools", fix="Choose another name")
    if not all(user.strip() for user in (*tool.users, *tool.database_users)):
        raise ConfigError("a user needs a name", fix=f"Write one, or {EVERYBODY!r} for everybody")
    for name in (tool.object, *([tool.database] if tool.database else ()), *(one.name for one in tool.params)):
        if not OBJECT_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be used as a name in SQL", fix="Use letters, digits, _, $ and #")


def _said(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    if primary or isinstance(cause, sqlite3.Error):
        return str(primary or cause)
    return f"{type(cause).__name__}; it cannot be reached, or does not take this"
