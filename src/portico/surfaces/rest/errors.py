"""Errors over REST: one shape for all of them, and the one place where ours meet HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
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
from portico.tiers.compose import CATEGORIES, search_path, tool_path

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
