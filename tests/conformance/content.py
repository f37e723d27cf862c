"""What the fixture serves besides tools: pictures, sounds, resources, prompts and completions."""

from __future__ import annotations

import base64
import io
import json
import re
import wave

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from portico.samples.data_server import bar_chart
from tests.conformance.asking import Context, ask, form

Block = TextContent | ImageContent | EmbeddedResource


def _silence() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(160))
    return out.getvalue()


PNG = base64.b64encode(bar_chart([1, 2, 3])).decode()
WAV = base64.b64encode(_silence()).decode()
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def text(words: str) -> TextContent:
    """A block of text."""
    return TextContent(type="text", text=words)


def image() -> ImageContent:
    """A block with a real picture."""
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def audio() -> AudioContent:
    """A block with a real, silent sound."""
    return AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def embedded(uri: str, words: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """A block with a resource inside."""
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=words))


async def list_resources(_ctx: Context, _params: PaginatedRequestParams | None) -> ListResourcesResult:
    """Answer `resources/list`."""
    return ListResourcesResult(
        resources=[
            Resource(uri="test://static-text", name="static-text", description="A text", mime_type="text/plain"),
            Resource(uri="test://static-binary", name="static-binary", description="A picture", mime_type="image/png"),
            Resource(uri="test://watched-resource", name="watched", description="It changes", mime_type="text/plain"),
        ]
    )


async def list_templates(_ctx: Context, _params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """Answer `resources/templates/list`."""
    template = ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="By id", mime_type="application/json"
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Answer `resources/read`."""
    uri = str(params.uri)
    if uri == "test://static-binary":
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)])
    mime_type, words = _read_text(uri)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=words)])


def _read_text(uri: str) -> tuple[str, str]:
    fixed = {
        "test://static-text": "This is the content of the static text resource.",
        "test://watched-resource": "Watched resource content.",
    }
    if uri in fixed:
        return "text/plain", fixed[uri]
    found = _TEMPLATE.fullmatch(uri)
    if not found:
        raise MCPError(code=INVALID_PARAMS, message=f"Resource not found: {uri}", data={"uri": uri})
    number = found.group(1)
    return "application/json", json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})


async def accept(_ctx: Context, _params: object) -> EmptyResult:
    """Answer requests that only want to be acknowledged."""
    return EmptyResult()


async def list_prompts(_ctx: Context, _params: PaginatedRequestParams | None) -> ListPromptsResult:
    """Answer `prompts/list`."""
    needed = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
        "test_input_required_result_prompt": (),
    }
    return ListPromptsResult(
        prompts=[
            Prompt(
                name=name,
                description=f"The prompt {name}",
                arguments=[PromptArgument(name=arg, description=f"The {arg}", required=True) for arg in arguments],
            )
            for name, arguments in needed.items()
        ]
    )


async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    """Answer `prompts/get`."""
    if params.name == "test_input_required_result_prompt":
        question = form("What context should the prompt use?", {"context": {"type": "string"}})
        answers = await ask(ctx, params, {"user_context": question})
        if isinstance(answers, InputRequiredResult):
            return answers
        return _prompt(text(f"The context is {answers['user_context'].content}."))
    return _prompt(*_blocks(params.name, params.arguments or {}))


def _blocks(name: str, arguments: dict[str, str]) -> tuple[Block, ...]:
    match name:
        case "test_simple_prompt":
            return (text("This is a simple prompt for testing."),)
        case "test_prompt_with_arguments":
            return (text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"),)
        case "test_prompt_with_embedded_resource":
            resource = embedded(arguments["resourceUri"], "Embedded resource content for testing.")
            return resource, text("Please process the embedded resource above.")
        case "test_prompt_with_image":
            return image(), text("Please analyze the image above.")
    raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {name}")


def _prompt(*blocks: Block) -> GetPromptResult:
    return GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in blocks])


async def complete(_ctx: Context, params: CompleteRequestParams) -> CompleteResult:
    """Answer `completion/complete`."""
    words = [word for word in ("paris", "park", "party", "test", "text") if word.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=words, total=len(words), has_more=False))
