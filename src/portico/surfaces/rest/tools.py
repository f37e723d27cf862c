"""The four tiers over REST, with ETags."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from portico.domain.call import Caller
from portico.domain.disclosure import Query as Search
from portico.errors import InvalidArguments
from portico.tiers.budget import LARGEST_PAGE, PAGE_SIZE, SMALLEST_BUDGET
from portico.tiers.tiers import TierAnswers
from portico.tiers.view import CATEGORIES, HOT, REST, ROOT, SEARCH

from .errors import RESPONSES, CategoryOverviewResponse, FullToolSchemaResponse, HotToolsResponse, ToolSummariesResponse

KEEPING = "private, no-cache"
"""A caller may keep an answer, and asks whether it is still the same before it uses it again."""


def answer(request: Request, body: bytes) -> Response:
    """The body, or 304 when the caller has it."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": KEEPING}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _has(known: str, tag: str) -> bool:
    """Whether one of the tags that a caller has is this one; `*` is any."""
    tags = [part.strip().removeprefix("W/") for part in known.split(",")] if known else []
    return tag in tags or "*" in tags


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
    """Asks the tiers, and sends what it says."""

    tier_answers: TierAnswers
    caller: Caller

    async def hot(self, request: Request, asked: Annotated[Priced, Query()]) -> Response:
        """The tools that are used most and best, at most 15."""
        await self.tier_answers.gateway.wait_until_ready()
        return answer(request, (await self.tier_answers.hot(self.caller, budget=asked.budget)).body)

    async def categories(self, request: Request, asked: Annotated[Priced, Query()]) -> Response:
        """All categories with their descriptions and numbers, without their tools."""
        await self.tier_answers.gateway.wait_until_ready()
        return answer(request, (await self.tier_answers.categories(self.caller, budget=asked.budget)).body)

    async def category(
        self, request: Request, name: Annotated[str, Path()], asked: Annotated[OnePage, Query()]
    ) -> Response:
        """The tools of one category, best first."""
        await self.tier_answers.gateway.wait_until_ready()
        view = await self.tier_answers.category(
            self.caller, name, page=asked.page, page_size=asked.page_size, budget=asked.budget
        )
        return answer(request, view.body)

    async def search(self, request: Request, asked: Annotated[Wanted, Query()]) -> Response:
        """The tools that answer a question or pass filters, without a way through categories."""
        await self.tier_answers.gateway.wait_until_ready()
        view = await self.tier_answers.search(
            self.caller, asked.search(), page=asked.page, page_size=asked.page_size, budget=asked.budget
        )
        return answer(request, view.body)

    async def tool(
        self,
        request: Request,
        server: Annotated[str, Path()],
        tool: Annotated[str, Path(description="May contain `/`, percent-encoded or not.")],
        asked: Annotated[Priced, Query()],
    ) -> Response:
        """Everything about one tool."""
        await self.tier_answers.gateway.wait_until_ready()
        server, tool = _spelled(request) or (server, tool)
        return answer(request, (await self.tier_answers.tool(self.caller, server, tool, budget=asked.budget)).body)


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


def _spelled(request: Request) -> tuple[str, str] | None:
    """Server and tool from the path as it was sent: decoded, a `/` in a name looks like the one between them."""
    raw = request.scope.get("raw_path")
    prefix = f"{ROOT}/".encode()
    if not isinstance(raw, bytes) or not raw.startswith(prefix):
        return None
    server, between, tool = raw.removeprefix(prefix).decode("latin-1").partition("/")
    return (unquote(server), unquote(tool)) if between else None
