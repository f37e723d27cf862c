"""The fixture answers over stdio in both eras, so that a failure behind the gateway is the gateway's."""

from __future__ import annotations

import sys
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, CreateMessageResult, ElicitResult, TextContent

from tests.conformance.targets import FIXTURE

Mode = Literal["legacy", "2026-07-28"]
ERAS: list[Mode] = ["legacy", "2026-07-28"]


@pytest.mark.parametrize("mode", ERAS)
def test_tool_returns_its_text(mode: Mode) -> None:
    assert "simple text response" in anyio.run(_call, mode, "test_simple_text")


@pytest.mark.parametrize("mode", ERAS)
def test_tool_gets_the_models_answer(mode: Mode) -> None:
    assert "from the model" in anyio.run(_call, mode, "test_sampling")


@pytest.mark.parametrize("mode", ERAS)
def test_tool_gets_the_users_answers_in_two_rounds(mode: Mode) -> None:
    said = anyio.run(_call, mode, "test_input_required_result_multi_round")
    assert "Alice" in said
    assert "blue" in said


async def _call(mode: Mode, name: str) -> str:
    server = StdioServerParameters(command=sys.executable, args=[str(FIXTURE)])
    with anyio.fail_after(30):
        async with Client(server, mode=mode, sampling_callback=_sample, elicitation_callback=_elicit) as client:
            result = await client.call_tool(name, {})
    assert isinstance(result, CallToolResult)
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def _sample(_context: Any, _params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="from the model"), model="fake")


async def _elicit(_context: Any, _params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Alice", "color": "blue"})
