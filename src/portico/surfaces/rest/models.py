"""What the tiers of disclosure answer over REST, as types: they make the OpenAPI document and check nothing themselves.

The bytes that are sent come from the walk as they were counted; a test holds them against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An answer whose fields are all named here."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetShape(Shape):
    """What an answer may cost, and what was spent on the way to it."""

    limit: int = Field(description="Tokens that this tier and those before it may cost together.")
    cumulative: int = Field(description="Tokens of this answer and of those that a caller reads on the way to it.")
    counter: str = Field(description="What counted the tokens.")


class Disclosed(Shape):
    """What every tier says of itself; what is not there had no room in the caller's own budget, or nothing to say."""

    tokens: int = Field(description="What this answer costs, exactly as it is sent.")
    budget: BudgetShape | None = None
    truncated: bool = Field(description="Whether something was shortened or left out to fit.")
    shown: int | None = Field(default=None, description="Entries in this answer.")
    total: int | None = Field(default=None, description="Entries that there are, on all pages.")
    next: str | None = Field(default=None, description="The request that shows more.")
    warning: str | None = Field(default=None, description="What was left out, in words.")


class HotTool(Shape):
    """One tool of the hot list; what follows its name gives way when the answer does not fit."""

    tool: str = Field(description="As `server::tool`; the server may be spelled by its alias.")
    server: str | None = None
    description: str | None = None
    params: list[str] | None = Field(default=None, description="Names of all parameters, optional ones too.")
    avg_latency: str | None = Field(default=None, description="As `47ms`; null before the first call.")
    success_rate: str | None = Field(default=None, description="As `98.7%`; null before the first call.")
    parameter_count: int | None = Field(default=None, description="Where not all parameters have room.")


class HotToolsResponse(Disclosed):
    """T0: the tools that are used most and best."""

    tier: Literal["hot"]
    tools: list[HotTool]


class CategoryLine(Shape):
    """One category of the overview; what follows its name gives way when the answer does not fit."""

    category: str
    display_name: str | None = None
    description: str | None = None
    tool_count: int | None = None
    server_count: int | None = None
    popular_tools: list[str] | None = Field(default=None, description="At most two, as `server::tool`.")


class CategoryOverviewResponse(Disclosed):
    """T1: all categories, without their tools."""

    tier: Literal["category_overview"]
    categories: list[CategoryLine]


class ToolSummary(Shape):
    """One tool with its top-level parameters; what follows its name gives way when the answer does not fit."""

    tool: str
    server: str | None = None
    description: str | None = None
    params: dict[str, str] | None = Field(
        default=None,
        description="Name to `type (required)` or `type (optional)`; without the type where it has no room.",
    )
    returns: str | None = None
    avg_latency: str | None = None
    score: float | None = Field(default=None, description="How well it answers the search.")
    why: dict[str, float] | None = Field(default=None, description="The parts of the score.")
    param_names: list[str] | None = Field(default=None, description="Some of them, where `params` has no room.")
    parameter_count: int | None = Field(default=None, description="Where not all parameters have room.")

    def to_summary(self) -> dict[str, Any]:
        """What stands in an answer, ready for JSON."""
        return self.model_dump(exclude_unset=True)


class Pagination(Shape):
    """Which page this is, and of how many."""

    page: int
    page_size: int
    total_count: int
    total_pages: int


class ToolSummariesResponse(Disclosed):
    """T2: the tools of a category or of a search."""

    tier: Literal["tool_summaries"]
    filter: str | None = Field(default=None, description="What was asked for, as `category=code_analysis`.")
    fits: bool | None = Field(default=None, description="Of a search: false when no tool answers it, only the nearest.")
    tools: list[ToolSummary]
    pagination: Pagination | None = None


class Example(Shape):
    """One way to call a tool."""

    query: dict[str, Any]
    description: str


class Performance(Shape):
    """How a tool has done so far; null where nothing is known."""

    avg_latency_ms: float | None
    p50_latency_ms: float | None
    p95_latency_ms: float | None
    success_rate: float | None = Field(description="From 0 to 100.")
    total_invocations: int


class FullToolSchemaResponse(Disclosed):
    """T3: everything about one tool; what a small budget has no room for is not there."""

    tier: Literal["full_schema"]
    tool: str | None = None
    server: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = Field(
        default=None, description="The input schema; a smaller one, required parameters first, where it has no room."
    )
    returns: dict[str, Any] | None = Field(default=None, description="The output schema, where there is one.")
    examples: list[Example] | None = None
    performance: Performance | None = None
    server_display_name: str | None = None
    docker_image: str | None = None
    network_mode: str | None = None
    handle: str | None = Field(default=None, description="The spelling to call it by.")
    param_names: list[str] | None = Field(default=None, description="Instead of a schema that has no room.")
    parameter_count: int | None = Field(default=None, description="Where not the whole schema has room.")
