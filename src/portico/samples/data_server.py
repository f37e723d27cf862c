"""A data server: tables to list, query, add up, draw and export."""

from __future__ import annotations

import csv
import io
import json
import operator
import random
import statistics
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    PromptReference,
    ResourceTemplateReference,
    TextResourceContents,
)
from pydantic import BaseModel, Field

from portico.samples import READ

_WIDTH, _HEIGHT, _MARGIN = 480, 240, 16
_PAPER, _INK, _AXIS = b"\xfa\xfa\xf7", b"\x2f\x6f\x8f", b"\x55\x55\x55"


def bar_chart(values: Sequence[float]) -> bytes:
    """Draw one bar for each value as a PNG, the tallest filling the height; negative values show as empty."""
    base, room = _HEIGHT - _MARGIN, _HEIGHT - 2 * _MARGIN
    highest = max([*values, 0]) or 1
    slot = (_WIDTH - 2 * _MARGIN) / max(len(values), 1)
    tops = [base] * _WIDTH  # the first painted line of the bar at each x
    for index, value in enumerate(values):
        left = int(_MARGIN + index * slot)
        right = max(left + 1, int(left + slot * 0.8))
        tops[left:right] = [base - round(room * max(value, 0) / highest)] * (right - left)
    tops = tops[:_WIDTH]
    lines = [b"".join(_INK if top <= y < base else _PAPER for top in tops) for y in range(_HEIGHT)]
    lines[base] = _AXIS * _WIDTH
    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    # Each scan line starts with its filter type; 0 means none.
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


Cell = str | int | float
Row = Mapping[str, Cell]

_REGIONS = ("north", "south", "east", "west")
_PRODUCTS = ("lantern", "compass", "kettle", "rope", "tent", "stove")
_STATIONS = ("harbour", "ridge", "valley", "old mill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One table: what it is about, and its rows."""

    title: str
    rows: Sequence[Row]

    @property
    def columns(self) -> dict[str, str]:
        """Name -> type of each column."""
        return {name: _TYPE_NAMES[type(value)] for name, value in self.rows[0].items()}


_TYPE_NAMES = {str: "text", int: "integer", float: "number"}


def _orders(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number in range(1, 241):
        quantity, price = rng.randint(1, 9), rng.randint(300, 18000) / 100
        rows.append(
            {
                "order_id": number,
                "day": str(date(2026, 1, 1) + timedelta(days=rng.randrange(180))),
                "region": rng.choice(_REGIONS),
                "product": rng.choice(_PRODUCTS),
                "quantity": quantity,
                "unit_price": price,
                "amount": round(quantity * price, 2),
            }
        )
    return rows


def _weather(rng: random.Random) -> list[Row]:
    days = [date(2026, 3, 1) + timedelta(days=offset) for offset in range(30)]
    return [
        {
            "day": str(day),
            "station": station,
            "temperature": round(rng.gauss(9, 4), 1),
            "rain_mm": round(max(0.0, rng.gauss(1, 3)), 1),
        }
        for day in days
        for station in _STATIONS
    ]


def _inventory(rng: random.Random) -> list[Row]:
    return [
        {"product": product, "warehouse": region, "in_stock": rng.randint(0, 400), "reorder_at": rng.randint(20, 90)}
        for product in _PRODUCTS
        for region in _REGIONS
    ]


def _build(title: str, make: Callable[[random.Random], list[Row]]) -> Dataset:
    # Not for secrets: a fixed seed is the point.
    return Dataset(title=title, rows=make(random.Random(title)))  # noqa: S311


DATASETS: Mapping[str, Dataset] = {
    "orders": _build("Orders of an outdoor shop, first half of 2026", _orders),
    "weather": _build("Daily weather at four stations, March 2026", _weather),
    "inventory": _build("Stock of each product in each warehouse", _inventory),
}
"""Name -> dataset."""


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


def matching(data: Dataset, filters: list[Filter] | None) -> Sequence[Row]:
    """The rows that meet all conditions."""
    rows = data.rows
    for condition in filters or ():
        cell, compare = operator.itemgetter(known(data, condition.column)), _COMPARE[condition.op]
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
        numbers = ", ".join(name for name, kind in data.columns.items() if kind != "text")
        raise ToolError(f"{measure} needs a number column; there are {numbers}")
    collected: dict[Cell, list[float]] = defaultdict(list)
    for row in matching(data, filters):
        key = row[known(data, group_by)] if group_by else "all"
        collected[key].append(float(row[column]) if column and measure != "count" else 1.0)
    compute = _MEASURES[measure]
    return [Group(key=key, value=round(float(compute(values)), 4)) for key, values in sorted(collected.items())]


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header line."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


DatasetName = Annotated[str, Field(description="Name of a dataset, as list_datasets gives it")]

server = MCPServer(
    "data-server",
    title="Data server",
    version="1.0.0",
    description="Provides data access tools",
    instructions="Call list_datasets first; column names are in describe_dataset.",
    log_level="WARNING",
)


Filters = Annotated[list[Filter] | None, Field(description="Conditions that a row must meet, all of them")]


class DatasetLine(BaseModel):
    """A dataset in a list."""

    name: str
    title: str
    rows: int


class DatasetDescription(DatasetLine):
    """A dataset with its columns and a few rows."""

    columns: dict[str, str]
    sample: list[dict[str, Cell]]


class Page(BaseModel):
    """A part of the rows that matched."""

    rows: list[dict[str, Cell]]
    matched: int
    next_offset: int | None = None


@server.tool(annotations=READ)
def list_datasets() -> list[DatasetLine]:
    """List the datasets that can be queried, with their size."""
    return [DatasetLine(name=name, title=data.title, rows=len(data.rows)) for name, data in DATASETS.items()]


@server.tool(annotations=READ)
def describe_dataset(dataset: DatasetName) -> DatasetDescription:
    """Describe one dataset: its columns with their types, its size and three sample rows."""
    data = find(dataset)
    sample = [dict(row) for row in data.rows[:3]]
    return DatasetDescription(name=dataset, title=data.title, rows=len(data.rows), columns=data.columns, sample=sample)


@server.tool(annotations=READ)
def query_rows(
    dataset: DatasetName,
    filters: Filters = None,
    columns: Annotated[list[str] | None, Field(description="Columns to return; all when left out")] = None,
    order_by: Annotated[str | None, Field(description="Column to sort by; a leading - sorts downwards")] = None,
    limit: Annotated[int, Field(ge=1, le=200, description="Most rows to return")] = 20,
    offset: Annotated[int, Field(ge=0, description="Rows to skip, as next_offset said")] = 0,
) -> Page:
    """Return the rows of a dataset that meet all filters, sorted and page by page."""
    data = find(dataset)
    rows = matching(data, filters)
    if order_by:
        cell = operator.itemgetter(known(data, order_by.removeprefix("-")))
        rows = sorted(rows, key=cell, reverse=order_by.startswith("-"))
    wanted = [known(data, name) for name in columns or data.columns]
    shown = [{name: row[name] for name in wanted} for row in rows[offset : offset + limit]]
    following = offset + len(shown)
    return Page(rows=shown, matched=len(rows), next_offset=following if following < len(rows) else None)


@server.tool(annotations=READ)
def aggregate(
    dataset: DatasetName,
    measure: Annotated[Measure, Field(description="What to compute over the rows of each group")],
    column: Annotated[str | None, Field(description="Number column to measure; not needed for count")] = None,
    group_by: Annotated[
        str | None, Field(description="Column whose values make the groups; one group if left out")
    ] = None,
    filters: Filters = None,
) -> list[Group]:
    """Compute a count, sum, mean, median, minimum or maximum, for all rows or for each group."""
    return grouped(find(dataset), measure, column, group_by, filters)


@server.tool(annotations=READ, structured_output=False)
def chart(
    dataset: DatasetName,
    column: Annotated[str, Field(description="Number column to add up")],
    group_by: Annotated[str, Field(description="Column whose values become the bars")],
) -> list[Any]:
    """Draw a bar chart of a sum per group as a PNG picture, with a legend in text."""
    groups = grouped(find(dataset), "sum", column, group_by, None)
    legend = ", ".join(f"{group.key} {group.value:g}" for group in groups)
    return [Image(data=bar_chart([group.value for group in groups]), format="png"), f"{column}: {legend}"]


@server.tool(annotations=READ)
def export_dataset(
    dataset: DatasetName,
    format: Annotated[Literal["csv", "json"], Field(description="File format")] = "csv",
    filters: Filters = None,
) -> EmbeddedResource:
    """Export the matching rows as a file that is embedded in the result."""
    rows = matching(find(dataset), filters)
    text = as_csv(rows) if format == "csv" else json.dumps([dict(row) for row in rows])
    mime = "text/csv" if format == "csv" else "application/json"
    contents = TextResourceContents(uri=f"data://exports/{dataset}.{format}", mime_type=mime, text=text)
    return EmbeddedResource(type="resource", resource=contents)


@server.resource("data://catalog", mime_type="application/json", description="All datasets with their columns")
def catalog() -> str:
    """All datasets with their columns."""
    return json.dumps({name: {"title": data.title, "columns": data.columns} for name, data in DATASETS.items()})


@server.resource("data://readme", mime_type="text/markdown", description="How the data was made")
def readme() -> str:
    """How the data was made."""
    return "# Sample data\n\nThree invented tables; every start gives the same rows.\n"


@server.resource("data://datasets/{name}", mime_type="text/csv", description="A whole dataset as CSV")
def dataset_file(name: str) -> str:
    """A whole dataset as CSV."""
    if name not in DATASETS:
        raise ResourceNotFoundError(f"no dataset {name!r}; there are {', '.join(DATASETS)}")
    return as_csv(DATASETS[name].rows)


@server.prompt(description="Ask for a short report on one dataset")
def report(dataset: str, audience: str = "a manager") -> str:
    """Ask for a short report on one dataset."""
    return f"Use the data-server tools to write five sentences about {dataset!r} for {audience}. Give figures."


# The SDK leaves this one decorator without types.
@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    """Complete dataset names, in the prompt and in the resource template."""
    names = {"dataset": DATASETS, "name": DATASETS, "audience": ("a manager", "an engineer")}.get(argument.name, ())
    found = [name for name in names if name.startswith(argument.value)]
    return Completion(values=found, total=len(found), has_more=False)


if __name__ == "__main__":
    server.run()
