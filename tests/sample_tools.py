"""Database tools as plain functions, with docstrings as their authors write them, and a house that offers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from portico.domain.server import Offering
from portico.providers.python import LocalProvider, make_tool
from portico.testing import FakeApplication, parts_of
from portico.wiring import assemble


def handle_base_readQuery(sql: str | None = None, _request_context: Any = None, **bindings: Any) -> Any:  # noqa: N802
    """Execute a SQL query via SQLAlchemy, bind parameters if provided.

    Arguments:
      sql - SQL text, with optional bind-parameter placeholders
    """
    return {"status": "success", "sql": sql}


def handle_base_tableList(database_name: str) -> Any:  # noqa: N802
    """Lists all tables in a database.

    Arguments:
      database_name - Database name
    """
    return {"status": "success", "tables": [f"{database_name}.orders"]}


def handle_base_tableDDL(database_name: str, table_name: str) -> Any:  # noqa: N802
    """Displays the DDL definition of a table via SQLAlchemy...

    Arguments:
      database_name - Database name
      table_name - Table name
    """
    return f"CREATE TABLE {database_name}.{table_name}"


def handle_dba_userSqlList(user_name: str = "", no_days: int = 7) -> Any:  # noqa: N802
    """Get a list of SQL run by a user in the last number of days.

    Arguments:
      user_name - user name, "" for everybody
      no_days - how many days to look back
    """
    return []


def handle_sql_opt_explain(sql: str) -> Any:
    """Explain how a statement would run."""
    raise ValueError(f"cannot explain {sql!r}")


def reports(count: int) -> list[Callable[..., Any]]:
    """So many functions, documented at the length that such functions are."""
    found = []
    for number in range(count):

        def report(region: str, year: int = 2026, currency: str = "EUR", returns: bool = False, limit: int = 50) -> Any:
            """Report the sales of a region by product, with totals and the change against the year before.

            Arguments:
              region   - the region as it is spelled in the table of regions, or "all" for every one of them
              year     - the calendar year to report; years before 2015 are not available
              currency - the currency that amounts are converted to, at the average rate of the year
              returns  - whether returned goods are taken off the amounts of the month in which they were sold
              limit    - the most products to list; the others are added up under "other"

            Returns:
              rows with product, amount, share and change, the totals, and the notes that the finance team has left
            """
            return {}

        report.__name__ = report.__qualname__ = f"handle_sales_report_{number}"
        found.append(report)
    return found


TWO = (handle_base_tableList, handle_base_tableDDL)
ALL = (handle_base_readQuery, *TWO, handle_dba_userSqlList, handle_sql_opt_explain)


def sample_app(*functions: Callable[..., Any], **parts: Any) -> FakeApplication:
    """A house with these functions on its local server."""
    provider = LocalProvider(server="local")
    for function in functions or ALL:
        provider.add_tool(make_tool(function))
    application = assemble(parts_of(providers={"local": provider}, **parts))
    application.gateway.publisher.accept([(Offering(server="local", tools=provider.offering().tools), "local")])
    return FakeApplication(application.gateway, application.admin)
