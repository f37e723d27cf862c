"""Tools that ask any database: queries and their plans, tables, their columns and their DDL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from portico.providers.python.decorator_and_injection import tool
from portico.providers.sql import ReadConnection

PREVIEWED = 5


@tool(read_only=True, idempotent=True)
def handle_base_readQuery(  # noqa: N802
    conn: ReadConnection, sql: str, parameters: dict[str, Any] | None = None, max_rows: int | None = None
) -> dict[str, Any]:
    """Execute a SQL query via SQLAlchemy, bind parameters if provided.

    The database is only read: one SELECT, WITH or VALUES. The answer has the columns once and the rows as arrays; when
    it says `truncated`, `next` tells how to see the rest.

    Arguments:
      sql - SQL text, with optional bind-parameter placeholders
      parameters - values for the placeholders by name, e.g. {"city": "Bern"} for :city
      max_rows - rows to return at most; the server's own limit is never exceeded
    """
    return conn.rows(sql, parameters, limit=max_rows).shown()


@tool(read_only=True, idempotent=True)
def handle_base_databaseList(conn: ReadConnection) -> dict[str, Any]:  # noqa: N802
    """Names the schemas of the connected database, the default one first."""
    return {"dialect": conn.dialect, "databases": list(conn.schemas())}


@tool(read_only=True, idempotent=True)
def handle_base_tableList(conn: ReadConnection, database_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Lists all tables in a database.

    Arguments:
      database_name - Database name; empty for the default one
    """
    found = conn.tables(database_name)
    return {"tables": [{"name": _spelled(table), "kind": table.kind} for table in found]}


@tool(read_only=True, idempotent=True)
def handle_base_tableDDL(conn: ReadConnection, table_name: str, database_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Displays the DDL definition of a table via SQLAlchemy.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
    """
    table = conn.find(table_name, database_name)
    return {"table": _spelled(table), "kind": table.kind, "ddl": conn.ddl(table)}


@tool(read_only=True, idempotent=True)
def handle_base_columnDescription(  # noqa: N802
    conn: ReadConnection, table_name: str, database_name: str = ""
) -> dict[str, Any]:
    """Shows detailed column information of a table: types, defaults, keys and comments.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
    """
    table = conn.find(table_name, database_name)
    return {"table": _spelled(table), "columns": [asdict(column) for column in conn.columns(table)]}


@tool(read_only=True, idempotent=True)
def handle_base_tablePreview(  # noqa: N802
    conn: ReadConnection, table_name: str, database_name: str = "", rows: int = PREVIEWED
) -> dict[str, Any]:
    """Shows a few sample rows of a table, with its column names.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
      rows - how many rows to show
    """
    table = conn.find(table_name, database_name)
    found = conn.rows(f"SELECT * FROM {conn.quoted(table)}", limit=rows)  # noqa: S608 - a name that the database knows
    return {"table": _spelled(table), "columns": list(found.columns), "rows": [list(row) for row in found.rows]}


@tool(read_only=True, idempotent=True)
def handle_sql_opt_explain(conn: ReadConnection, sql: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """Explains how the database would run a query, without running it.

    Arguments:
      sql - SQL text of one SELECT, with optional bind-parameter placeholders
      parameters - values for the placeholders by name
    """
    plan = conn.explain(sql, parameters)
    place = plan.columns.index("detail") if "detail" in plan.columns else 0
    lines = [str(row[place]) for row in plan.rows]
    return {"dialect": conn.dialect, "plan": lines if len(plan.columns) in (1, 4) else plan.records()}


def _spelled(table: Any) -> str:
    return f"{table.schema}.{table.name}" if table.schema else table.name
