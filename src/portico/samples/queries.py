"""What can be asked of a table: filters, groups and measures."""

from __future__ import annotations

import csv
import io
import operator
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from .tables import DATASETS, Cell, Dataset, Row

Operator = Literal["eq", "ne", "lt", "le", "gt", "ge", "contains"]
Measure = Literal["count", "sum", "mean", "median", "min", "max"]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "contains": lambda cell, value: str(value).lower() in str(cell).lower(),
}
_MEASURES: dict[str, Callable[[Sequence[float]], float]] = {
    "count": len,
    "sum": sum,
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


class Filter(BaseModel):
    """One condition on one column."""

    column: str = Field(description="Column to look at")
    op: Operator = Field(default="eq", description="How to compare; contains ignores case")
    value: str | int | float = Field(description="Value to compare with")


class Group(BaseModel):
    """A value of the grouping column and the measure over its rows."""

    key: Cell
    value: float


def find(name: str) -> Dataset:
    """The dataset of that name.

    Raises:
        ToolError: there is none.
    """
    if name not in DATASETS:
        raise ToolError(f"no dataset {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def known(data: Dataset, column: str) -> str:
    """The same column name, once it is sure that the dataset has it.

    Raises:
        ToolError: it has not.
    """
    if column not in data.columns:
        raise ToolError(f"no column {column!r}; there are {', '.join(data.columns)}")
    return column


def cell_of(data: Dataset, column: str) -> Callable[[Row], Any]:
    """A function from a row to its cell in one column."""
    return operator.itemgetter(known(data, column))


def matching(data: Dataset, filters: list[Filter] | None) -> Sequence[Row]:
    """The rows that meet all conditions."""
    rows = data.rows
    for condition in filters or ():
        cell, compare = cell_of(data, condition.column), _COMPARE[condition.op]
        try:
            rows = [row for row in rows if compare(cell(row), condition.value)]
        except TypeError as error:
            kind = data.columns[condition.column]
            raise ToolError(f"{condition.column!r} is {kind}: {condition.value!r} cannot be compared") from error
    return rows


def grouped(
    data: Dataset, measure: Measure, column: str | None, group_by: str | None, filters: list[Filter] | None
) -> list[Group]:
    """The measure over each group of rows, in the order of the groups."""
    if measure != "count" and (column is None or data.columns[known(data, column)] == "text"):
        raise ToolError(f"{measure} needs a number column; there are {', '.join(_numbers(data))}")
    collected: dict[Cell, list[float]] = defaultdict(list)
    for row in matching(data, filters):
        key = row[known(data, group_by)] if group_by else "all"
        collected[key].append(float(row[column]) if column and measure != "count" else 1.0)
    compute = _MEASURES[measure]
    return [Group(key=key, value=round(float(compute(values)), 4)) for key, values in sorted(collected.items())]


def _numbers(data: Dataset) -> list[str]:
    return [name for name, kind in data.columns.items() if kind != "text"]


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header line."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()
