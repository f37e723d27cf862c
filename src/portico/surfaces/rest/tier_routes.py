"""The four tiers over REST, with ETags: parameters, answers and routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from portico.domain.call import Caller
from portico.domain.search_answers import Query as Search
from portico.domain.search_answers import View
from portico.errors import InvalidArguments
from portico.tiers.compose_tiers import CATEGORIES, HOT, REST, ROOT, SEARCH
from portico.tiers.tier_requests import TierAnswers
from portico.tiers.token_budgets import LARGEST_PAGE, PAGE_SIZE, SMALLEST_BUDGET

from .errors import RESPONSES, Shape

KEEPING = "private, no-cache"
"""A caller may keep an answer, and asks whether it is still the same before it uses it again."""


def answer(request: Request, body: bytes) -> Response:
    """The body, or 304 when the caller has it."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": KEEPING}
    known = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


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
    also: list[str] | None = Field(
        default=None, description="Handles of tools of other servers that do practically the same, best first."
    )
    need: str | None = Field(default=None, description="The part of the search that it answers, where it has several.")
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
    weak: bool | None = Field(default=None, description="Of a search: true when its tools may not answer it.")
    unmatched: list[str] | None = Field(default=None, description="Words of such a search that no tool has.")
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


LARGEST_BUDGET = 1_000_000
LAST_PAGE = 1_000_000_000
"""Further on there is nothing in any catalog, and numbers beyond 64 bits cannot be told as JSON."""

Tokens = Annotated[
    int | None,
    Field(
        ge=SMALLEST_BUDGET,
        le=LARGEST_BUDGET,
        description="Tokens that the answer must fit; the tier's own if not given.",
    ),
]


class TierParameters(BaseModel):
    """What may be asked of a tier; a parameter that is not here is an error, since it would be a misspelled one."""

    model_config = ConfigDict(extra="forbid")


class Priced(TierParameters):
    """The parameters of T0, T1 and T3."""

    budget: Tokens = None


class OnePage(Priced):
    """The parameters of T2."""

    page: int = Field(default=1, ge=1, le=LAST_PAGE, description="A page beyond the last one is empty.")
    page_size: int = Field(default=PAGE_SIZE, ge=1, le=LARGEST_PAGE)


class Wanted(OnePage):
    """The parameters of a search: words, and filters that narrow it."""

    text: str = Field(default="", description="What the tool should do, in a few words.")
    q: str = Field(default="", description="The same as `text`.")
    category: str = ""
    tag: str = ""
    server: str = ""
    source: str = Field(default="", description="The kind of provider: upstream, database or local.")
    read_only: bool = False
    max_latency_ms: float = Field(default=0, ge=0, allow_inf_nan=False, description="On average; 0 leaves it open.")
    min_success: float = Field(default=0, ge=0, le=1, description="The share of calls that ended well.")

    def search(self) -> Search:
        """The same for the tiers.

        Raises:
            InvalidArguments: `text` and `q` at once.
        """
        if self.text and self.q:
            raise InvalidArguments("search", details=("q: the same as text; give one of the two",))
        filters = self.model_dump(exclude={"text", "q", "page", "page_size", "budget"})
        return Search(text=self.text or self.q, **filters)


@dataclass(slots=True)
class ToolRoutes:
    """Asks the tiers, and sends what they say."""

    tier_answers: TierAnswers
    caller: Caller

    async def hot(self, request: Request, asked: Annotated[Priced, Query()]) -> Response:
        """The tools that are used most and best, at most 15."""
        return await self._send(request, self.tier_answers.hot, **asked.model_dump())

    async def categories(self, request: Request, asked: Annotated[Priced, Query()]) -> Response:
        """All categories with their descriptions and numbers, without their tools."""
        return await self._send(request, self.tier_answers.categories, **asked.model_dump())

    async def category(
        self, request: Request, name: Annotated[str, Path()], asked: Annotated[OnePage, Query()]
    ) -> Response:
        """The tools of one category, best first."""
        return await self._send(request, self.tier_answers.category, name, **asked.model_dump())

    async def search(self, request: Request, asked: Annotated[Wanted, Query()]) -> Response:
        """The tools that answer a question or pass filters, without a way through categories."""
        page = asked.model_dump(include=set(OnePage.model_fields))
        return await self._send(request, self.tier_answers.search, asked.search(), **page)

    async def tool(
        self,
        request: Request,
        server: Annotated[str, Path()],
        tool: Annotated[str, Path(description="May contain `/`, percent-encoded or not.")],
        asked: Annotated[Priced, Query()],
    ) -> Response:
        """Everything about one tool."""
        server, tool = _names_in_path(request) or (server, tool)
        return await self._send(request, self.tier_answers.tool, server, tool, **asked.model_dump())

    async def _send(self, request: Request, tier: Callable[..., Awaitable[View]], *of: Any, **asked: Any) -> Response:
        await self.tier_answers.gateway.wait_until_ready()
        return answer(request, (await tier(self.caller, *of, **asked)).body)


async def asked_once(request: Request) -> None:
    """Return when no parameter is given twice: which of the two is meant, nobody can tell.

    Raises:
        InvalidArguments: with those that are.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    if again := [name for name, times in given.items() if times > 1]:
        raise InvalidArguments("query", details=[f"{name}: given {given[name]} times; give it once" for name in again])


def add_routes(app: FastAPI, routes: ToolRoutes) -> None:
    """The routes of the tiers; literal ones come first, so that no server's name can stand in their place."""
    add = partial(app.add_api_route, tags=["tools"], responses=RESPONSES, dependencies=[Depends(asked_once)])
    add(HOT, routes.hot, response_model=HotToolsResponse)
    add(CATEGORIES, routes.categories, response_model=CategoryOverviewResponse)
    add(SEARCH, routes.search, response_model=ToolSummariesResponse)
    add(f"{REST.category_root}/{{name:path}}", routes.category, response_model=ToolSummariesResponse)
    add(f"{ROOT}/{{server}}/{{tool:path}}", routes.tool, response_model=FullToolSchemaResponse)


def _names_in_path(request: Request) -> tuple[str, str] | None:
    """Server and tool from the path as it was sent: decoded, a `/` in a name looks like the one between them."""
    raw = request.scope.get("raw_path")
    prefix = f"{ROOT}/".encode()
    if not isinstance(raw, bytes) or not raw.startswith(prefix):
        return None
    server, between, tool = raw.removeprefix(prefix).decode("latin-1").partition("/")
    return (unquote(server), unquote(tool)) if between else None
