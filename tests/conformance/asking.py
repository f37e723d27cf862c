"""Asking the client for something in the middle of a request, in the way of either era."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    CallToolRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    GetPromptRequestParams,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

Context = ServerRequestContext[Any, Any]
Params = CallToolRequestParams | GetPromptRequestParams
Question = CreateMessageRequest | ElicitRequest | ListRootsRequest
Answers = Mapping[str, Any]

ROOTS = ListRootsRequest()
_RESULTS: Mapping[str, type[BaseModel]] = {
    "sampling/createMessage": CreateMessageResult,
    "elicitation/create": ElicitResult,
    "roots/list": ListRootsResult,
}


def is_modern(ctx: Context) -> bool:
    """Whether the request came in an era in which a server cannot send requests of its own."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(message: str, properties: dict[str, Any], required: list[str] | None = None) -> ElicitRequest:
    """A question to the user, as a form."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, max_tokens: int = 100) -> CreateMessageRequest:
    """A question to the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


async def ask(
    ctx: Context, params: Params, questions: Mapping[str, Question], state: str | None = None
) -> Answers | InputRequiredResult:
    """The client's answers; in the modern era, until the retry has brought them, the result that asks for them."""
    if not is_modern(ctx):
        return {key: await _send(ctx, question) for key, question in questions.items()}
    given = params.input_responses or {}
    missing = {key: question for key, question in questions.items() if key not in given}
    return InputRequiredResult(input_requests=missing, request_state=state) if missing else given


async def _send(ctx: Context, question: Question) -> BaseModel:
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(question, _RESULTS[question.method], metadata=metadata)
