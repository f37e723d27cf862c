"""Errors of the REST surface, in the one shape that the OpenAPI document has for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from portico.domain.search_answers import FILTERS
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
from portico.tiers.compose_tiers import CATEGORIES, REST, search_path

MAP = f"GET {CATEGORIES}"
DOCUMENT = "GET /openapi.json"
SHOWN_LENGTH = 200
DETAIL_LENGTH = 2_000
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

Find = Callable[[str], Tool | None]  # the permitted tool of a spelling

logger = logging.getLogger(__name__)


class Shape(BaseModel):
    """An answer whose fields are all named here."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(BaseModel):
    """What is wrong, where, and what to ask next."""

    code: str = Field(description="Stable: `unknown_tool`, `unknown_filter`, `invalid_arguments`, ...")
    message: str
    details: list[str] = Field(default_factory=list)
    next: str = Field(default="", description="The request that would move the caller on.")
    outcome: str = Field(default="", description="`unknown_outcome` when nobody knows whether it took effect.")


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


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[str] = (),
    next: str = DOCUMENT,
    headers: Mapping[str, str] | None = None,
    outcome: str = "",
) -> Response:
    """An error as a response."""
    error = {"code": code, "message": message, "details": list(details), "next": next}
    body = {"error": {**error, "outcome": outcome} if outcome else error}
    return Response(_dump(body), status, headers=headers, media_type="application/json")


def add_error_handlers(app: FastAPI, find: Find) -> None:
    """Let an application answer every error that it meets in the one shape."""

    async def ours(request: Request, error: Exception) -> Response:
        return _respond(cast(PorticoError, error), find)

    async def refused(request: Request, error: Exception) -> Response:
        return _respond_http(request, cast(HTTPException, error))

    async def invalid(request: Request, error: Exception) -> Response:
        return _respond_invalid(request, cast(RequestValidationError, error))

    app.add_exception_handler(PorticoError, ours)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)


def spell(call: NextCall | None, find: Find) -> str:
    """The next call as a request."""
    if call is None:
        return MAP
    names = call.parameters.get("names")
    if call.action == "describe" and isinstance(names, list) and names and (tool := find(str(names[0]))):
        return f"GET {REST.tool(tool)}"
    if call.action == "search" and (text := call.parameters.get("query")):
        wanted = {"text": text, **{name: call.parameters[name] for name in FILTERS if name in call.parameters}}
        return f"GET {search_path(wanted)}"
    return MAP


def _respond(error: PorticoError, find: Find) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 502)
    if isinstance(error, CallError):
        details = [_cut(line, DETAIL_LENGTH) for line in error.details]
        said, following = _sentence(error), spell(error.next_call, find)
        return error_response(status, error.code, said, details=details, next=following, outcome=error.outcome)
    if status == 503:
        logger.warning("%s", error)
    said, _, advice = str(error).rpartition(". ")
    message = _cut(str(error), 2 * SHOWN_LENGTH)
    if len(said) > SHOWN_LENGTH:  # the last sentence stays whole: it says what to do
        message = f"{said[:SHOWN_LENGTH].rsplit(' ', 1)[0]}… {_cut(advice)}"
    return error_response(status, error.code, message, next=MAP)


def _sentence(error: CallError) -> str:
    if isinstance(error, UnknownTool):
        return f"there is no tool {_cut(error.subject)!r} that you may see"
    if isinstance(error, UnknownFilter):
        return f"no tool that you may see has the {_cut(error.subject)}"
    if isinstance(error, InvalidArguments):
        return "a value of the request cannot be used"
    return f"{error.code.replace('_', ' ')}: {_cut(error.subject)}"


def _respond_http(request: Request, error: HTTPException) -> Response:
    """Paths and methods that are not there."""
    where = _cut(repr(request.url.path))
    if error.status_code == 405:
        methods = (error.headers or {}).get("Allow", "")
        allowed = next((method for method in ("DELETE", "POST") if method in methods), "GET, HEAD")
        message = f"{request.method} is not possible on {where}: use {allowed}"
        return error_response(405, "method_not_allowed", message, headers={"allow": allowed})
    code = "not_found" if error.status_code == 404 else "refused"
    return error_response(error.status_code, code, f"there is nothing at {where}", headers=error.headers)


def _respond_invalid(request: Request, error: RequestValidationError) -> Response:
    """Values that cannot be used, each with what it should be."""
    details, names = [], []
    for found in error.errors():
        name = _cut(str(found["loc"][-1]))
        wanted = f"{str(found['msg']).removeprefix('Input ')}, not {_cut(repr(found.get('input')))}"
        wanted = "there is no such parameter" if found["type"] == "extra_forbidden" else wanted
        names.append(name)
        details.append(f"{name}: {wanted}")
    return error_response(
        422,
        "invalid_arguments",
        f"these values of the request cannot be used: {', '.join(dict.fromkeys(names))}",
        details=details,
        next=f"{request.method} {_cut(quote(request.url.path, safe='/:'))}",
    )


def _cut(text: str, length: int = SHOWN_LENGTH) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _dump(body: Mapping[str, Any]) -> bytes:
    """JSON whatever the text: what callers spell may hold half a character."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
