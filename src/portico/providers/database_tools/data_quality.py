"""Tools that tell how good the data of a table is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from portico.errors import InvalidArguments
from portico.providers.python.decorator_and_injection import tool
from portico.providers.sql import Column, ReadConnection, TableName
from portico.providers.sql.sql_values import plain

AT_ONCE = 50  # columns that one statement counts
QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}


@tool(read_only=True, idempotent=True)
def handle_qlty_missingValues(conn: ReadConnection, table_name: str, database_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Counts the missing values (NULL) of every column of a table.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
    """
    table = conn.find(table_name, database_name)
    columns = conn.columns(table)
    total, filled = _counts(conn, table, columns, "count({})")
    return {
        "table": table.name,
        "row_count": total,
        "columns": [
            {"column": column.name, "missing": total - count, "percent": _percent(total - count, total)}
            for column, count in zip(columns, filled, strict=True)
        ],
    }


@tool(read_only=True, idempotent=True)
def handle_qlty_negativeValues(conn: ReadConnection, table_name: str, database_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Counts the values below zero in every numeric column of a table.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
    """
    table = conn.find(table_name, database_name)
    columns = [column for column in conn.columns(table) if column.kind == "number"]
    total, below = _counts(conn, table, columns, "sum(CASE WHEN {} < 0 THEN 1 ELSE 0 END)")
    found = [{"column": c.name, "negative": n or 0} for c, n in zip(columns, below, strict=True)]
    return {"table": table.name, "row_count": total, "columns": found}


@tool(read_only=True, idempotent=True)
def handle_qlty_distinctCategories(  # noqa: N802
    conn: ReadConnection, table_name: str, column_name: str, database_name: str = "", limit: int = 50
) -> dict[str, Any]:
    """Counts how often each distinct value of a column occurs, the most frequent first.

    Arguments:
      table_name - Table or view name
      column_name - Column whose values are counted
      database_name - Database name; empty for the default one
      limit - how many values to show
    """
    table = conn.find(table_name, database_name)
    name = conn.quoted(conn.column(table, column_name))
    grouped = f"SELECT {name} AS value, count(*) AS occurrences FROM {conn.quoted(table)} GROUP BY {name}"  # noqa: S608
    found = conn.rows(f"{grouped} ORDER BY 2 DESC, 1", limit=limit)
    distinct = conn.rows(f"SELECT count(DISTINCT {name}) FROM {conn.quoted(table)}").rows[0][0]  # noqa: S608
    values = [{"value": value, "count": count} for value, count in found.rows]
    return {"table": table.name, "column": column_name, "distinct": distinct, "values": values}


@tool(read_only=True, idempotent=True)
def handle_qlty_columnSummary(conn: ReadConnection, table_name: str, database_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Summarises every column of a table: type, missing and distinct values, smallest and largest.

    Arguments:
      table_name - Table or view name
      database_name - Database name; empty for the default one
    """
    table = conn.find(table_name, database_name)
    columns = conn.columns(table)
    total, filled = _counts(conn, table, columns, "count({})")
    comparable = [column for column in columns if column.kind != "other"]
    measures = ("count(DISTINCT {})", "min({})", "max({})")
    told = {
        column.name: values
        for column, *values in zip(
            comparable, *(_counts(conn, table, comparable, measure)[1] for measure in measures), strict=True
        )
    }
    found = []
    for column, count in zip(columns, filled, strict=True):
        distinct, least, most = told.get(column.name, (None, None, None))
        extent = {"distinct": distinct, "min": least, "max": most} if column.name in told else {}
        found.append({"column": column.name, "type": column.type, "missing": total - count, **extent})
    return {"table": table.name, "row_count": total, "columns": found}


@tool(read_only=True, idempotent=True)
def handle_qlty_standardDeviation(  # noqa: N802
    conn: ReadConnection, table_name: str, column_name: str, database_name: str = ""
) -> dict[str, Any]:
    """Computes the mean and the standard deviation of a numeric column.

    Arguments:
      table_name - Table or view name
      column_name - numeric column
      database_name - Database name; empty for the default one
    """
    table, column = _numeric(conn, table_name, column_name, database_name)
    return {"table": table.name, "column": column.name, **_spread(conn, table, column)}


@tool(read_only=True, idempotent=True)
def handle_qlty_univariateStatistics(  # noqa: N802
    conn: ReadConnection, table_name: str, column_name: str, database_name: str = ""
) -> dict[str, Any]:
    """Computes univariate statistics of a numeric column: count, mean, deviation, extremes, quartiles.

    Arguments:
      table_name - Table or view name
      column_name - numeric column
      database_name - Database name; empty for the default one
    """
    table, column = _numeric(conn, table_name, column_name, database_name)
    name, source = conn.quoted(column), conn.quoted(table)
    asked = f"SELECT count(*) - count({name}), count(DISTINCT {name}), min({name}), max({name}) FROM {source}"  # noqa: S608
    missing, distinct, least, most = conn.rows(asked).rows[0]
    spread = _spread(conn, table, column)
    return {
        "table": table.name,
        "column": column.name,
        **spread,
        "missing": missing,
        "distinct": distinct,
        "min": least,
        **_quartiles(conn, table, column, spread["count"]),
        "max": most,
    }


def _counts(conn: ReadConnection, table: TableName, columns: Sequence[Column], measure: str) -> tuple[int, list[Any]]:
    """The number of rows, and a measure of each column, a few columns at a time."""
    source = conn.quoted(table)
    total = conn.rows(f"SELECT count(*) FROM {source}").rows[0][0]  # noqa: S608
    found: list[Any] = []
    for start in range(0, len(columns), AT_ONCE):
        parts = ", ".join(measure.format(conn.quoted(column)) for column in columns[start : start + AT_ONCE])
        found += conn.rows(f"SELECT {parts} FROM {source}").rows[0]  # noqa: S608
    return int(total), found


def _numeric(conn: ReadConnection, table_name: str, column_name: str, database_name: str) -> tuple[TableName, Column]:
    table = conn.find(table_name, database_name)
    column = conn.column(table, column_name)
    if column.kind != "number":
        numbers = ", ".join(other.name for other in conn.columns(table) if other.kind == "number") or "none"
        problem = f"{column.name!r} is {column.type}, not a number; numeric columns of {table.name!r}: {numbers}"
        raise InvalidArguments("column_name", details=(problem,))
    return table, column


def _spread(conn: ReadConnection, table: TableName, column: Column) -> dict[str, Any]:
    """In two passes, because the sum of squares loses what matters of large numbers that lie close together."""
    number = f"CAST({conn.quoted(column)} AS DOUBLE PRECISION)"
    source = conn.quoted(table)
    count, mean = conn.rows(f"SELECT count({number}), avg({number}) FROM {source}").rows[0]  # noqa: S608
    if not count or not isinstance(mean, float | int):
        return {"count": count, "mean": mean, "stddev_population": None, "stddev_sample": None}
    away = f"({number} - :mean) * ({number} - :mean)"
    total = conn.rows(f"SELECT sum({away}) FROM {source}", {"mean": float(mean)}).rows[0][0]  # noqa: S608
    squares = float(total)
    return {
        "count": count,
        "mean": mean,
        "stddev_population": plain(math.sqrt(squares / count)),
        "stddev_sample": plain(math.sqrt(squares / (count - 1))) if count > 1 else None,
    }


def _quartiles(conn: ReadConnection, table: TableName, column: Column, count: int) -> dict[str, Any]:
    """Between the two nearest values, where there is none at exactly that place."""
    if not count:
        return dict.fromkeys(QUARTILES)
    places = {name: share * (count - 1) for name, share in QUARTILES.items()}
    wanted = sorted({edge + 1 for place in places.values() for edge in (math.floor(place), math.ceil(place))})
    name = conn.quoted(column)
    ranked = f"SELECT CAST({name} AS DOUBLE PRECISION) AS v, ROW_NUMBER() OVER (ORDER BY {name}) AS n"
    inner = f"{ranked} FROM {conn.quoted(table)} WHERE {name} IS NOT NULL"
    chosen = ", ".join(map(str, wanted))
    rows = conn.rows(f"SELECT n, v FROM ({inner}) AS ranked WHERE n IN ({chosen})").rows  # noqa: S608
    values = {int(n): float(v) for n, v in rows}
    return {name: plain(_between(values, place)) for name, place in places.items()}


def _between(values: dict[int, float], place: float) -> float:
    low, high = values[math.floor(place) + 1], values[math.ceil(place) + 1]
    share = place - math.floor(place)
    return low if low == high or not share else low * (1 - share) + high * share


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
