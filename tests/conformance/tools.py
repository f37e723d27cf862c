"""The tools that the suite calls by name, except those that ask back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    InputRequiredResult,
    SamplingCapability,
)

from tests.conformance.asking import Context, is_modern
from tests.conformance.content import audio, embedded, image, text

Handler = Callable[[Context, CallToolRequestParams], Awaitable[CallToolResult | InputRequiredResult]]

BUS = InMemorySubscriptionBus()
"""Carries changes to every open `subscriptions/listen` stream."""

_PAUSE_S = 0.05
_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_HEADER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "description": "Sent as a header too", "x-mcp-header": "Region"}},
}
SCHEMAS: dict[str, dict[str, Any]] = {"json_schema_2020_12_tool": _SCHEMA_2020_12, "test_x_mcp_header": _HEADER_SCHEMA}
"""Input schemas of the tools that take arguments."""


def says(words: str) -> CallToolResult:
    """A result that is one text."""
    return CallToolResult(content=[text(words)])


async def simple_text(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Return one text."""
    return says("This is a simple text response for testing.")


async def image_content(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Return one picture."""
    return CallToolResult(content=[image()])


async def audio_content(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Return one sound."""
    return CallToolResult(content=[audio()])


async def embedded_resource(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Return one embedded resource."""
    return CallToolResult(content=[embedded("test://embedded-resource", "This is an embedded resource content.")])


async def multiple_content_types(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Return a text, a picture and an embedded resource."""
    resource = embedded("test://mixed-content-resource", '{"test": "data", "value": 123}', "application/json")
    return CallToolResult(content=[text("Multiple content types test:"), image(), resource])


async def tool_with_logging(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Log three times, with pauses."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)
        await anyio.sleep(_PAUSE_S)
    return says("Tool with logging executed successfully")


async def tool_with_progress(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Report progress three times, with pauses."""
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100, f"Completed step {progress} of 100")
        await anyio.sleep(_PAUSE_S)
    return says("Tool with progress executed successfully")


async def error_handling(_ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Fail, as a tool does."""
    words = "This tool intentionally returns an error for testing"
    return CallToolResult(content=[text(words)], is_error=True)


async def reconnection(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Close the stream under the call, so that the client has to come back for the result."""
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await anyio.sleep(4 * _PAUSE_S)
    return says("Reconnection test completed")


async def missing_capability(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Refuse a client that does not offer sampling."""
    if not ctx.session.check_client_capability(ClientCapabilities(sampling=SamplingCapability())):
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="This tool needs the sampling capability",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return says("The client offers sampling")


async def trigger_tool_change(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Tell everybody that the tools have changed."""
    await BUS.publish(ToolsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_tool_list_changed()
    return says("told")


async def trigger_prompt_change(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Tell everybody that the prompts have changed."""
    await BUS.publish(PromptsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_prompt_list_changed()
    return says("told")


async def trigger_resource_update(ctx: Context, _params: CallToolRequestParams) -> CallToolResult:
    """Tell everybody that the watched resource has changed."""
    await BUS.publish(ResourceUpdated(uri="test://watched-resource"))
    if not is_modern(ctx):
        await ctx.session.send_resource_updated("test://watched-resource")
    return says("told")


async def echo_arguments(_ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    """Return the arguments."""
    return CallToolResult(content=[text(str(params.arguments))], structured_content=dict(params.arguments or {}))


PLAIN: dict[str, Handler] = {
    "test_simple_text": simple_text,
    "test_image_content": image_content,
    "test_audio_content": audio_content,
    "test_embedded_resource": embedded_resource,
    "test_multiple_content_types": multiple_content_types,
    "test_tool_with_logging": tool_with_logging,
    "test_logging_tool": tool_with_logging,
    "test_tool_with_progress": tool_with_progress,
    "test_error_handling": error_handling,
    "test_reconnection": reconnection,
    "test_missing_capability": missing_capability,
    "test_trigger_tool_change": trigger_tool_change,
    "test_trigger_prompt_change": trigger_prompt_change,
    "test_trigger_resource_update": trigger_resource_update,
    "json_schema_2020_12_tool": echo_arguments,
    "test_x_mcp_header": echo_arguments,
}
"""Name -> what the tool does."""
