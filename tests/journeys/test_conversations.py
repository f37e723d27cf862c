"""Calls that are more than a question and an answer: plain ones, cancelled ones, ones that ask back, log or watch."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, QUIET, Gateway, client, gateway, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

FIXTURE = Path(__file__).parents[1] / "conformance" / "fixture_server.py"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a server that asks, logs and changes, and one that can be slow."""
    home = tmp_path_factory.mktemp("conversations")
    slow = serving(home / "tools.json", [definition("sleep"), definition("ping")])
    write_config(home, {"fixture": {"command": sys.executable, "args": [str(FIXTURE)]}, "slow": slow})
    with gateway(home) as found:
        yield found


class Session:
    """A client of the handshake era as it looks on the wire."""

    def __init__(self, http: aiohttp.ClientSession, url: str, id: str) -> None:
        self.http, self.url, self.id = http, url, id

    async def post(self, message: dict[str, Any], **headers: str) -> tuple[int, str, str]:
        given = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
            "Mcp-Session-Id": self.id,
            **headers,
        }
        async with self.http.post(self.url, json={"jsonrpc": "2.0", **message}, headers=given) as answer:
            return answer.status, answer.content_type, await answer.text()

    async def call(
        self, id: int, name: str, meta: dict[str, Any] | None = None, **headers: str
    ) -> tuple[int, str, str]:
        params = {"name": name, "arguments": {}, **({"_meta": meta} if meta else {})}
        return await self.post({"id": id, "method": "tools/call", "params": params}, **headers)


@asynccontextmanager
async def session(running: Gateway, **capabilities: Any) -> AsyncIterator[Session]:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "wire", "version": "0"},
    }
    async with aiohttp.ClientSession() as http:
        url = running.path("static")
        headers = {"Accept": "application/json, text/event-stream"}
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        async with http.post(url, json=first, headers=headers) as answer:
            found = Session(http, url, answer.headers["Mcp-Session-Id"])
        await found.post({"method": "notifications/initialized"})
        # A notification is acknowledged before it is acted upon; an answered request comes after it.
        await found.post({"id": "after", "method": "ping"})
        yield found


@pytest.mark.requirement("P-PLAIN-CALLS")
async def test_a_plain_call_is_answered_with_one_json_body(running: Gateway):
    async with session(running) as connected:
        status, kind, body = await connected.call(7, "slow__ping")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body)["id"] == 7
        assert "ping" in json.loads(body)["result"]["content"][0]["text"]


@pytest.mark.requirement("P-PLAIN-CALLS")
async def test_a_call_that_may_be_interrupted_is_answered_with_a_stream(running: Gateway):
    async with session(running) as connected:
        assert (await connected.call(1, "slow__ping", {"progressToken": "p"}))[1] == "text/event-stream"
    async with session(running, elicitation={}) as connected:
        assert (await connected.call(1, "slow__ping"))[1] == "text/event-stream"


@pytest.mark.requirement("P-PLAIN-CALLS")
async def test_a_plain_call_is_refused_where_any_other_would_be(running: Gateway):
    async with session(running) as connected:
        assert (await connected.call(1, "slow__ping", Origin="http://evil.example"))[0] == 403
        assert (await connected.post({"id": 2, "method": "tools/call", "params": {"name": 5}}))[0] in (200, 400)
        closing = {"Mcp-Session-Id": connected.id, "MCP-Protocol-Version": "2025-11-25"}
        async with connected.http.delete(connected.url, headers=closing) as answer:
            assert answer.status == 200
        assert (await connected.call(3, "slow__ping"))[0] == 404


@pytest.mark.requirement("P-PLAIN-CALLS", "P-PASS-CANCEL")
async def test_a_plain_call_can_be_cancelled(running: Gateway):
    async with session(running) as connected, anyio.create_task_group() as tasks:
        answers: list[str] = []

        async def wait() -> None:
            answers.append((await connected.call(9, "slow__sleep"))[2])

        tasks.start_soon(wait)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 9}}
        with anyio.fail_after(20):
            while not answers:  # until the call has arrived, there is nothing to cancel
                assert (await connected.post(cancel))[0] == 202
        assert "cancelled" in json.loads(answers[0])["error"]["message"]


@pytest.mark.requirement("P-ASKS-BACK")
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_may_ask_the_client_something(era: str, running: Gateway):
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"username": "ana", "email": "ana@example.com"})

    async with client("http", era, surface="discover", running=running, elicitation_callback=answer) as connected:
        call = {"name": "fixture.test_elicitation", "arguments": {"message": "Who are you?"}}
        assert "ana" in text_of(await connected.call_tool("call_tool", call))


@pytest.mark.requirement("P-LOGS", "T16")
async def test_log_messages_reach_the_client_whose_call_they_belong_to(running: Gateway):
    heard: list[str] = []

    async def listen(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with (
        client(
            "http", "2026-07-28", surface="static", running=running, logging_callback=listen, log_level="info"
        ) as one,
        client("http", "2026-07-28", surface="discover", running=running, logging_callback=listen) as other,
    ):
        await one.call_tool("fixture__test_tool_with_logging", {})
        assert heard
        before = len(heard)
        await other.call_tool("call_tool", {"name": "fixture.test_tool_with_logging", "arguments": {}})
        assert len(heard) == before


@pytest.mark.requirement("P-PASS-RESOURCES")
async def test_a_client_of_2026_hears_when_a_resource_changes(running: Gateway):
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        resource = "test://watched-resource"
        async with connected.listen(resource_subscriptions=[resource]) as events:
            with anyio.fail_after(20):
                await connected.call_tool("fixture__test_trigger_resource_update", {"uri": resource})
                event = await anext(aiter(events))
        assert getattr(event, "uri", None) == resource


@pytest.mark.requirement("P-PASS-DEFINITIONS")
@pytest.mark.parametrize("era", ERAS)
async def test_definitions_are_listed_as_the_server_wrote_them(era: str, running: Gateway):
    parameters = StdioServerParameters(command=sys.executable, args=[str(FIXTURE)])
    async with (
        Client(stdio_client(parameters, errlog=QUIET), mode=ERAS[era]) as direct,
        client("http", era, surface="static", running=running) as connected,
    ):
        plain = {f"fixture__{tool.name}": tool for tool in (await direct.list_tools()).tools}
        through = {
            tool.name: tool for tool in (await connected.list_tools()).tools if tool.name.startswith("fixture__")
        }
    assert through.keys() == plain.keys()
    for name, tool in plain.items():
        assert through[name].model_dump(exclude={"name"}) == tool.model_dump(exclude={"name"}), name
    assert "$defs" in through["fixture__json_schema_2020_12_tool"].input_schema
