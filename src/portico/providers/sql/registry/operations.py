"""What whoever keeps a registry can do from the command line: make it, add to it, take from it, grant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from portico.domain.tool import META_TOOLS, identifier
from portico.errors import ConfigError
from portico.providers.sql.introspection import CONNECT_SECONDS
from portico.providers.sql.source import Address, read_address

from .database_facts import HOME
from .pg_listen import CHANNEL
from .rows import OBJECT_NAME, TOOL_NAME, ObjectKind
from .setup import setup_script, setup_steps
from .statements import dialect_named

PUBLIC = "PUBLIC"
EVERYBODY = "*"
_THERE = 3803
"""What Teradata says of a table that is already there."""

_ADD_TOOL = """
INSERT INTO {home}mcp_tools (ToolName, DataBaseName, TableName, ToolType, docstring, Tags{writes_column})
VALUES (:name, :database, :object, :kind, :docstring, :tags{writes_value})
"""
_ADD_PARAM = """
INSERT INTO {home}mcp_tool_params (ToolName, ParamName, ParamType, ParamPosition, ParamRequired)
VALUES (:tool, :name, :type, :position, :required)
"""
_ADD_TERADATA_PARAM = """
INSERT INTO {home}mcp_tool_params (ToolName, ParamName, ParamRequired) VALUES (:tool, :name, :required)
"""
"""Its data dictionary tells types and positions."""
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


class RegistryOperator:
    """Writes into the tables of one registry; every method blocks, and raises ConfigError when it cannot be done."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._address: Address = read_address(url, needs_driver=False)
        self._dialect = dialect_named(self._address.dialect).name
        self._schema = HOME if self._dialect == "sqlite" else schema
        setup_script(self._dialect, self._schema)  # the schema must be a name

    def script(self, *, samples: bool = True) -> str:
        """The SQL that makes the registry."""
        return setup_script(self._dialect, self._schema, samples=samples)

    def init(self, *, samples: bool = True) -> None:
        """Make the tables and views, and samples; what is there stays."""
        with self._told(), self._connected(create=True) as connection:
            driver: Any = connection.connection.driver_connection
            if isinstance(driver, psycopg.Connection):
                driver.execute(self.script(samples=samples).encode())
            elif isinstance(driver, sqlite3.Connection):
                driver.executescript(self.script(samples=samples))
            else:
                self._step_by_step(connection, samples=samples)

    def add(self, tool: NewTool) -> tuple[ObjectKind, int]:
        """Register a tool, whole or not at all; says its kind and how many parameters were written down."""
        _check(tool)
        with self._told(tool.name), self._connected() as connection:
            database = tool.database or self._schema
            spot = {"database": database, "object": tool.object}
            kind = tool.kind or self._kind(connection, spot)
            params = list(tool.params) or self._params(connection, kind, spot)
            has_writes = tool.writes is not None and self._dialect != "sqlite"
            row = {**spot, "name": tool.name, "kind": kind.value, "docstring": tool.docstring, "tags": tool.tags}
            words = {"writes_column": ", Writes", "writes_value": ", :writes"} if has_writes else _NO_WRITES
            writes = {"writes": "Y" if tool.writes else "N"} if has_writes else {}
            self._run(connection, _ADD_TOOL, {**row, **writes}, **words)
            for place, one in enumerate(params, 1):
                self._add_param(connection, tool.name, one, place)
            self._grant(connection, tool)
        return kind, len(params)

    def remove(self, name: str) -> bool:
        """Take a tool out of the registry; says whether it was there."""
        tables = ["mcp_user_grants", "mcp_tool_params", "mcp_tools"]
        if self._dialect != "sqlite":
            tables.insert(0, "mcp_tool_users")
        with self._told(name), self._connected() as connection:
            counts = [
                self._run(connection, f"DELETE FROM {{home}}{table} WHERE ToolName = :name", {"name": name})  # noqa: S608
                for table in tables
            ]
        return counts[-1] > 0

    def grant(self, name: str, user: str, *, revoke: bool = False, database_user: bool = False) -> bool:
        """Let a user see a tool, or no longer; says whether anything has changed."""
        table, column = ("mcp_tool_users", "DatabaseUser") if database_user else ("mcp_user_grants", "UserName")
        if database_user and self._dialect == "sqlite":
            raise ConfigError("a SQLite file has no users", fix="Leave --database-user out.")
        if not user.strip():
            raise ConfigError("a user needs a name", fix=f"Write one, or {EVERYBODY!r} for everybody")
        row = {"name": name, "user": user}
        found = f"{{home}}{table} WHERE ToolName = :name AND {column} = :user"
        with self._told(name), self._connected() as connection:
            if not self._count(connection, "{home}mcp_tools WHERE ToolName = :name", {"name": name}):
                raise ConfigError(f"no tool {name!r} is registered", fix="See: portico registry check")
            is_there = self._count(connection, found, row) > 0
            if is_there and revoke:
                self._run(connection, f"DELETE FROM {found}", row)  # noqa: S608 - words of ours
            elif not is_there and not revoke:
                self._run(connection, f"INSERT INTO {{home}}{table} (ToolName, {column}) VALUES (:name, :user)", row)  # noqa: S608
        return is_there == revoke

    def tell(self) -> None:
        """Let gateways that listen look at the registry."""
        if self._dialect == "postgresql":
            with self._told(), self._connected() as connection:
                connection.execute(
                    text("SELECT pg_notify(:channel, :schema)"), {"channel": CHANNEL, "schema": self._schema}
                )

    def _grant(self, connection: Connection, tool: NewTool) -> None:
        for user in dict.fromkeys(tool.users):
            words = "INSERT INTO {home}mcp_user_grants (ToolName, UserName) VALUES (:name, :user)"
            self._run(connection, words, {"name": tool.name, "user": user})
        for user in dict.fromkeys(tool.database_users if self._dialect != "sqlite" else ()):
            words = "INSERT INTO {home}mcp_tool_users (ToolName, DatabaseUser) VALUES (:name, :user)"
            self._run(connection, words, {"name": tool.name, "user": user})

    def _add_param(self, connection: Connection, tool: str, one: NewParam, place: int) -> None:
        required = None if one.required is None else "Y" if one.required else "N"
        row: dict[str, Any] = {"tool": tool, "name": one.name, "required": required}
        if self._dialect == "teradata":
            self._run(connection, _ADD_TERADATA_PARAM, row)
        else:
            self._run(connection, _ADD_PARAM, {**row, "type": one.type, "position": place})

    def _kind(self, connection: Connection, spot: Mapping[str, str]) -> ObjectKind:
        asked = {"postgresql": _POSTGRES_KIND, "sqlite": _SQLITE_KIND}.get(self._dialect)
        found = set(connection.execute(text(asked), dict(spot)).scalars()) if asked else set()
        if len(found) != 1:
            what = f"{spot['database']}.{spot['object']}"
            reason = f"{what!r} is not in the database" if asked and not found else f"nobody can tell what {what!r} is"
            raise ConfigError(reason, fix="Put the name right, or say its kind with --kind.")
        return ObjectKind(found.pop())

    def _params(self, connection: Connection, kind: ObjectKind, spot: Mapping[str, str]) -> list[NewParam]:
        """What the database knows; the views of PostgreSQL and Teradata tell columns by themselves."""
        if self._dialect == "postgresql" and not kind.has_columns:
            rows = connection.execute(text(_POSTGRES_PARAMS), dict(spot)).all()
        elif self._dialect == "sqlite" and kind.has_columns:
            rows = connection.execute(text(_SQLITE_PARAMS), dict(spot)).all()
        else:
            return []
        return [NewParam(name=name, type=type, required=bool(required)) for name, type, required in rows]

    def _run(self, connection: Connection, words: str, row: Mapping[str, Any], **parts: str) -> int:
        return int(connection.execute(text(words.format(home=self._home, **parts)), dict(row)).rowcount)

    def _count(self, connection: Connection, words: str, row: Mapping[str, Any]) -> int:
        sql = f"SELECT COUNT(*) FROM {words}".format(home=self._home)  # noqa: S608 - words of ours
        return int(connection.execute(text(sql), dict(row)).scalar_one())

    @property
    def _home(self) -> str:
        return "" if self._dialect == "sqlite" else f'"{self._schema}".'

    def _step_by_step(self, connection: Connection, *, samples: bool) -> None:
        for step in setup_steps(self._dialect, self._schema, samples=samples):
            try:
                connection.exec_driver_sql(step)
            except DBAPIError as error:
                if str(_THERE) not in str(error.orig):
                    raise

    @contextmanager
    def _connected(self, *, create: bool = False) -> Iterator[Connection]:
        """One transaction, kept when nothing goes wrong; with `create` a file that is not there is made."""
        engine = self._engine(create=create)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def _engine(self, *, create: bool) -> Engine:
        read_address(self._url)  # whoever only prints the SQL needs no driver
        file = self._address.file
        if file is None:
            options = {"connect_timeout": CONNECT_SECONDS} if self._dialect == "postgresql" else {}
            return create_engine(self._address.url, connect_args=options)
        place = f"{file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        return create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True))

    @contextmanager
    def _told(self, tool: str = "") -> Iterator[None]:
        """What a driver says, in one line, without how the database is reached."""
        try:
            yield
        except IntegrityError as error:
            reason = f"{tool!r} is registered already, or a row breaks a rule of the registry's tables"
            raise ConfigError(reason, fix="Remove it first: portico registry remove") from error
        except UnicodeError as error:
            raise ConfigError("the command holds letters that no database takes", fix="Write it in UTF-8") from error
        except (SQLAlchemyError, psycopg.Error, sqlite3.Error) as error:
            raise ConfigError(f"the database says: {_said(error)}", fix="See: portico registry init --help") from error


_NO_WRITES = {"writes_column": "", "writes_value": ""}


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
