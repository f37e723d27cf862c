"""The tools that ask the client back before they answer."""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    InputRequiredResult,
    SamplingCapability,
)

from tests.conformance.asking import ROOTS, Answers, Context, Question, ask, form, is_modern, sample
from tests.conformance.tools import Handler, says

Outcome = CallToolResult | InputRequiredResult

_NAME = {"name": {"type": "string"}}
_DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in ((1, "First"), (2, "Second"), (3, "Third"))]
_ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}})


async def _report(ctx: Context, params: CallToolRequestParams, questions: dict[str, Question]) -> Outcome:
    """Ask, then say what came back."""
    answers = await ask(ctx, params, questions)
    return answers if isinstance(answers, InputRequiredResult) else says(_told(answers, *questions))


def _told(answers: Answers, *keys: str) -> str:
    return "; ".join(f"{key}: {answers[key].model_dump_json(by_alias=True, exclude_none=True)}" for key in keys)


async def sampling(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the client's model what the caller wants to know."""
    return await _report(ctx, params, {"sampled": sample((params.arguments or {}).get("prompt", "Say something"))})


async def elicitation(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the user for a name and an address."""
    fields = {key: {"type": "string", "description": f"User's {key}"} for key in ("username", "email")}
    return await _report(ctx, params, {"user": form((params.arguments or {}).get("message", "Who are you?"), fields)})


async def elicitation_defaults(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask with a form in which every field has a default."""
    return await _report(ctx, params, {"user": form("Please provide user information", _DEFAULTS, [])})


async def elicitation_enums(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask with a form of all five kinds of choices."""
    return await _report(ctx, params, {"choices": form("Please choose", _ENUMS, [])})


async def ask_name(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the user for a name."""
    return await _report(ctx, params, {"user_name": form("What is your name?", _NAME)})


async def ask_model(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the client's model for a capital."""
    return await _report(ctx, params, {"capital_question": sample("What is the capital of France?")})


async def ask_roots(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the client for its roots."""
    return await _report(ctx, params, {"client_roots": ROOTS})


async def ask_with_state(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask for a confirmation and insist on getting the state back."""
    answers = await ask(ctx, params, {"confirm": _CONFIRM}, state="confirming")
    if isinstance(answers, InputRequiredResult):
        return answers
    if is_modern(ctx) and params.request_state != "confirming":
        raise MCPError(code=INVALID_PARAMS, message="The request state is missing")
    return says(f"state-ok; {_told(answers, 'confirm')}")


async def ask_several(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask the user, the model and the client at once."""
    questions: dict[str, Question] = {
        "user_name": form("What is your name?", _NAME),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    answers = await ask(ctx, params, questions, state="several")
    return answers if isinstance(answers, InputRequiredResult) else says(_told(answers, *questions))


async def ask_twice(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask for a name, then for a colour; the state carries the name over the second round."""
    state = params.request_state or ""
    if state.startswith("name:"):
        name = state.removeprefix("name:")
    else:
        first = await ask(ctx, params, {"step1": form("Step 1: What is your name?", _NAME)}, state="begun")
        if isinstance(first, InputRequiredResult):
            return first
        name = str(first["step1"].content)
    colour = form("Step 2: What is your favorite color?", {"color": {"type": "string"}})
    second = await ask(ctx, params, {"step2": colour}, state=f"name:{name}")
    return second if isinstance(second, InputRequiredResult) else says(f"{name}; {_told(second, 'step2')}")


async def ask_what_is_offered(ctx: Context, params: CallToolRequestParams) -> Outcome:
    """Ask only what the client can answer."""
    questions: dict[str, Question] = {}
    if ctx.session.check_client_capability(ClientCapabilities(sampling=SamplingCapability())):
        questions["sampled"] = sample("Say something")
    if ctx.session.check_client_capability(ClientCapabilities(elicitation=ElicitationCapability())):
        questions["user_name"] = form("What is your name?", _NAME)
    return await _report(ctx, params, questions) if questions else says("The client offers nothing to ask for")


ASKING: dict[str, Handler] = {
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": elicitation_defaults,
    "test_elicitation_sep1330_enums": elicitation_enums,
    "test_streaming_elicitation": ask_name,
    "test_input_required_result_elicitation": ask_name,
    "test_input_required_result_sampling": ask_model,
    "test_input_required_result_list_roots": ask_roots,
    "test_input_required_result_request_state": ask_with_state,
    "test_input_required_result_tampered_state": ask_with_state,
    "test_input_required_result_multiple_inputs": ask_several,
    "test_input_required_result_multi_round": ask_twice,
    "test_input_required_result_capabilities": ask_what_is_offered,
}
"""Name -> what the tool does."""
