"""A data server: tables to list, query, add up, draw and export."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
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

from .hints import READ
from .png import bar_chart
from .queries import Filter, Group, Measure, as_csv, cell_of, find, grouped, known, matching
from .tables import DATASETS, Cell

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
        rows = sorted(rows, key=cell_of(data, order_by.removeprefix("-")), reverse=order_by.startswith("-"))
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
