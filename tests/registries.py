"""Real databases with a registry in them, of each engine, and houses over them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import psycopg

from portico.application import Application
from portico.config import GatewaySettings, StorageSettings, find_paths
from portico.domain.call import Call, Caller
from portico.domain.server import DatabaseSpec
from portico.providers.sql.registry.registry_admin import setup_script
from portico.wiring import open_app, watch

ALICE, BOB = Caller(name="alice", surface="test"), Caller(name="bob", surface="test")
EXTRA = """
CREATE FUNCTION mcp.who() RETURNS TABLE (db_user text, caller text, app text) LANGUAGE sql STABLE AS
  $$ SELECT current_user::text, current_setting('portico.caller'), current_setting('application_name') $$;
CREATE FUNCTION mcp.wait_for(seconds double precision) RETURNS text LANGUAGE plpgsql STABLE AS
  $$ BEGIN PERFORM pg_sleep(seconds); RETURN 'waited'; END $$;
CREATE FUNCTION mcp.sneak() RETURNS integer LANGUAGE plpgsql STABLE AS
  $$ BEGIN DELETE FROM mcp.sample_sales; RETURN 1; END $$;
CREATE FUNCTION mcp.sneak_plainly() RETURNS integer LANGUAGE plpgsql AS
  $$ BEGIN DELETE FROM mcp.sample_sales; RETURN 1; END $$;
CREATE FUNCTION mcp.many(n integer) RETURNS TABLE (k integer, filler text) LANGUAGE sql STABLE AS
  $$ SELECT g, repeat('x', 1000) FROM generate_series(1, n) g $$;
CREATE FUNCTION mcp.huge(n integer) RETURNS text LANGUAGE sql STABLE AS $$ SELECT repeat('x', n) $$;
"""
"""Functions of PostgreSQL that tests register."""


@dataclass(frozen=True)
class Shop:
    """A database with a registry, and the way to write into it past Portico."""

    url: str
    file: Path | None = None

    @property
    def dialect(self) -> str:
        """The kind of database."""
        return "sqlite" if self.file else "postgresql"

    @property
    def home(self) -> str:
        """The schema of its objects."""
        return "main" if self.file else "mcp"

    def run(self, *statements: str) -> None:
        """Change something, in one transaction."""
        if self.file:
            with closing(sqlite3.connect(self.file, timeout=60)) as connection, connection:
                for statement in statements:
                    connection.execute(statement.replace("mcp.", ""))
            return
        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Look at something."""
        if self.file:
            with closing(sqlite3.connect(self.file)) as connection:
                return connection.execute(sql.replace("mcp.", "")).fetchall()
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql.encode()).fetchall()

    def register(self, name: str, object: str, kind: str, *params: str, users: str = "*", **columns: str) -> None:
        """Insert the rows of one tool; each parameter is `name type`, with ? behind it when it is optional."""
        fields = {"ToolName": name, "DataBaseName": self.home, "TableName": object, "ToolType": kind, **columns}
        statements = [_insert("mcp_tools", fields)]
        for place, param in enumerate(params, 1):
            own, _, type = param.partition(" ")
            row = {"ToolName": name, "ParamName": own, "ParamType": type.rstrip("?"), "ParamPosition": str(place)}
            required = "N" if type.endswith("?") else "Y"
            statements.append(_insert("mcp_tool_params", {**row, "ParamRequired": required}))
        if not self.file:
            statements.append(_insert("mcp_tool_users", {"ToolName": name, "DatabaseUser": "PUBLIC"}))
        statements += [_insert("mcp_user_grants", {"ToolName": name, "UserName": user}) for user in users.split()]
        self.run(*statements)

    def forget(self, name: str) -> None:
        """Delete the rows of one tool."""
        tables = ["mcp_user_grants", "mcp_tool_params", *(() if self.file else ("mcp_tool_users",)), "mcp_tools"]
        self.run(*(f"DELETE FROM mcp.{table} WHERE ToolName = '{name}'" for table in tables))

    def spec(self, **fields: Any) -> DatabaseSpec:
        """How a config would name it."""
        return DatabaseSpec(**{"name": "warehouse", "url": self.url, **fields})


def _insert(table: str, row: Mapping[str, str]) -> str:
    values = ", ".join("'{}'".format(value.replace("'", "''")) for value in row.values())
    return f"INSERT INTO mcp.{table} ({', '.join(row)}) VALUES ({values})"


def postgres_shop(url: str) -> Shop:
    """A registry with samples in an empty PostgreSQL database."""
    with psycopg.connect(url) as connection:
        connection.execute(setup_script("postgresql", "mcp").encode())
        connection.execute(EXTRA.encode())
    return Shop(url)


def sqlite_shop(file: Path) -> Shop:
    """A registry with samples in a SQLite file."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(setup_script("sqlite", "main"))
    return Shop(f"sqlite:///{file}", file)


def settings_for(folder: Path, *specs: DatabaseSpec, **fields: Any) -> GatewaySettings:
    """Settings with these databases and a store in memory."""
    home = find_paths({"PORTICO_HOME": str(folder)}, folder)
    return GatewaySettings(**{"home": home, "databases": specs, "storage": StorageSettings(store="memory"), **fields})


@asynccontextmanager
async def registry_house(
    folder: Path, *specs: DatabaseSpec, watched: bool = False, **fields: Any
) -> AsyncIterator[Application]:
    """A house over databases, with their tools loaded; with `watched` it also follows their changes."""
    async with open_app(settings_for(folder, *specs, **fields)) as application, anyio.create_task_group() as tasks:
        for spec in specs:
            await application.admin.refresher.refresh(spec.name)
        if watched:
            watch(application, tasks)
        yield application
        tasks.cancel_scope.cancel()


async def called(
    application: Application, tool: str, arguments: Mapping[str, Any] | None = None, caller: Caller = ALICE
) -> Any:
    """What a tool answers as data."""
    result = await application.gateway.call(caller, Call(tool=tool, arguments=arguments or {}))
    assert not result.is_error, result.raw
    return result.raw["structuredContent"]


async def until_tool(application: Application, name: str, *, there: bool = True) -> None:
    """Wait until a tool is in the catalog, or no longer."""
    while (any(id.name == name for id in application.gateway.snapshot.tools)) is not there:
        published = anyio.Event()
        application.gateway.publisher.subscribe(lambda _, event=published: event.set())  # type: ignore[misc]
        await published.wait()
