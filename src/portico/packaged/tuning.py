"""Tools that tell how the database would run a query."""

from __future__ import annotations

from typing import Any

from portico.providers.python.decorator import tool
from portico.providers.sql import ReadConnection


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
