"""The catalog in a plain program, without MCP, a server or a network: `python examples/catalog_without_mcp.py`."""

from __future__ import annotations

import asyncio

from portico import Catalog


def handle_base_tableList(database_name: str = "demo") -> list[str]:  # noqa: N802  tools of databases are named so
    """List the tables of a database.

    Arguments:
      database_name - the database to look at
    """
    return [f"{database_name}.customers", f"{database_name}.orders"]


def handle_base_tableDDL(table_name: str) -> str:  # noqa: N802
    """Show the statement that created a table.

    Arguments:
      table_name - the table
    """
    return f"CREATE TABLE {table_name} (id INTEGER PRIMARY KEY)"


async def main() -> None:
    """Find a tool by what it does, read about it, call it."""
    catalog = Catalog()
    for function in (handle_base_tableList, handle_base_tableDDL):
        catalog.register_tool(function)
    best = catalog.search("list the tables")[0]
    print(f"found {best.handle} (score {best.score:.2f})")
    print(catalog.describe([best.handle]).text)
    result = await catalog.call(best.handle, {"database_name": "shop"})
    print("result:", result.structured)


if __name__ == "__main__":
    asyncio.run(main())
