"""Types and errors of the REST surface, as the OpenAPI document has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from portico.domain.disclosure import FILTERS
from portico.domain.tool import Tool
from portico.errors import (
    AmbiguousTool,
    Busy,
    CallError,
    InvalidArguments,
    NextCall,
    PorticoError,
    Refused,
    StoreError,
    UnknownFilter,
    UnknownItem,
    UnknownServer,
    UnknownTool,
)
from portico.tiers.view import CATEGORIES, search_path, tool_path


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


MAP = f"GET {CATEGORIES}"
DOCUMENT = "GET /openapi.json"
SHOWN_LENGTH = 200
DETAIL_LENGTH = 2_000
INTERNAL = "something went wrong here; the log of the gateway says what"
_STATUS: Mapping[type[PorticoError], int] = {
    UnknownTool: 404,
    AmbiguousTool: 404,
    UnknownItem: 404,
    UnknownFilter: 404,
    UnknownServer: 404,
    InvalidArguments: 422,
    Refused: 403,
    Busy: 503,
    StoreError: 503,
}
_CODES = {404: "not_found", 405: "method_not_allowed"}

Find = Callable[[str], Tool | None]
"""The permitted tool of a spelling."""

logger = logging.getLogger(__name__)


class Fault(BaseModel):
    """What is wrong, where, and what to ask next."""

    code: str = Field(description="Stable: `unknown_tool`, `unknown_filter`, `invalid_arguments`, ...")
    message: str
    details: list[str] = Field(default_factory=list)
    next: str = Field(default="", description="The request that would move the caller on.")


class ErrorResponse(BaseModel):
    """The one shape of every error."""

    error: Fault


Responses = dict[int | str, dict[str, Any]]

RESPONSES: Responses = {
    404: {"model": ErrorResponse, "description": "There is nothing of that name that the caller may see."},
    414: {"model": ErrorResponse, "description": "The path or the query is too long."},
    422: {"model": ErrorResponse, "description": "A value of the request cannot be used."},
}
"""What the OpenAPI document says of errors."""


def fault(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[str] = (),
    next: str = DOCUMENT,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as a response."""
    body = {"error": {"code": code, "message": message, "details": list(details), "next": next}}
    return Response(_dumped(body), status, headers=headers, media_type="application/json")


def install(app: FastAPI, find: Find) -> None:
    """Let an application answer every error that it meets in the one shape."""

    async def ours(request: Request, error: Exception) -> Response:
        return _ours(cast(PorticoError, error), find)

    async def refused(request: Request, error: Exception) -> Response:
        return _http(request, cast(HTTPException, error))

    async def invalid(request: Request, error: Exception) -> Response:
        return _invalid(request, cast(RequestValidationError, error))

    app.add_exception_handler(PorticoError, ours)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)


def internal() -> Response:
    """What is said of an error that nobody foresaw; the log has the rest."""
    return fault(500, "internal", INTERNAL, next="")


def spell(call: NextCall | None, find: Find) -> str:
    """The next call as a request."""
    if call is None:
        return MAP
    names = call.parameters.get("names")
    if call.action == "describe" and isinstance(names, list) and names and (tool := find(str(names[0]))):
        return f"GET {tool_path(tool)}"
    if call.action == "search" and (text := call.parameters.get("query")):
        wanted = {"text": text, **{name: call.parameters[name] for name in FILTERS if name in call.parameters}}
        return f"GET {search_path(wanted)}"
    return MAP


def _ours(error: PorticoError, find: Find) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 502)
    if isinstance(error, CallError):
        details = [_shown(line, DETAIL_LENGTH) for line in error.details]
        return fault(status, error.code, _said(error), details=details, next=spell(error.next_call, find))
    if status == 503:
        logger.warning("%s", error)
    return fault(status, error.code, _advised(str(error)), next=MAP)


def _said(error: CallError) -> str:
    """What is wrong, in one sentence."""
    if isinstance(error, UnknownTool):
        return f"there is no tool {_shown(error.subject)!r} that you may see"
    if isinstance(error, UnknownFilter):
        return f"no tool that you may see has the {_shown(error.subject)}"
    if isinstance(error, InvalidArguments):
        return "a value of the request cannot be used"
    return f"{error.code.replace('_', ' ')}: {_shown(error.subject)}"


def _http(request: Request, error: HTTPException) -> Response:
    """Paths and methods that are not there."""
    code = _CODES.get(error.status_code, "refused")
    where = _shown(repr(request.url.path))
    if error.status_code == 405:
        allowed = "DELETE" if "DELETE" in (error.headers or {}).get("Allow", "") else "GET, HEAD"
        message = f"{request.method} is not possible on {where}: use {allowed}"
        return fault(405, code, message, headers={"allow": allowed})
    return fault(error.status_code, code, f"there is nothing at {where}", headers=error.headers)


def _invalid(request: Request, error: RequestValidationError) -> Response:
    """Values that cannot be used, each with what it should be."""
    details = [_detail(found) for found in error.errors()]
    names = ", ".join(dict.fromkeys(_shown(str(found["loc"][-1])) for found in error.errors()))
    path = quote(request.url.path, safe="/:")
    return fault(
        422,
        "invalid_arguments",
        f"these values of the request cannot be used: {names}",
        details=details,
        next=f"{request.method} {_shown(path)}",
    )


def _detail(found: Mapping[str, Any]) -> str:
    name = _shown(str(found["loc"][-1]))
    if found["type"] == "extra_forbidden":
        return f"{name}: there is no such parameter"
    said = str(found["msg"]).removeprefix("Input ")
    return f"{name}: {said}, not {_shown(repr(found.get('input')))}"


def _shown(text: str, length: int = SHOWN_LENGTH) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _advised(text: str) -> str:
    """A text of several sentences in which the last one stays whole: it says what to do."""
    said, _, advice = text.rpartition(". ")
    if len(said) <= SHOWN_LENGTH:
        return _shown(text, 2 * SHOWN_LENGTH)
    return f"{said[:SHOWN_LENGTH].rsplit(' ', 1)[0]}… {_shown(advice)}"


def _dumped(body: Mapping[str, Any]) -> bytes:
    """JSON whatever the text: what callers spell may hold half a character."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return orjson.dumps(_sound(body))


def _sound(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sound(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_sound(inner) for inner in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
