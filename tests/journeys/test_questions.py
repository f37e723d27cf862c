"""A server of the handshake era asks, and the client whose call it is answers: both eras, both transports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.journeys.running import ERAS, Gateway, client, gateway, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("P-ASKS-BACK")]
SERVER = str(Path(__file__).with_name("asking_server.py"))


async def elicited(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": f"ana ({params.message})"})


async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
    text = types.TextContent(type="text", text="four")
    return types.CreateMessageResult(role="assistant", content=text, model="small")


async def refused(context: Any, params: Any) -> types.ErrorData:
    return types.ErrorData(code=-1, message="the user does not want that")


async def rooted(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///work", name="work")])


CALLBACKS: dict[str, Any] = {
    "elicitation_callback": elicited,
    "sampling_callback": sampled,
    "list_roots_callback": rooted,
}
EXPECTED = {"elicitation": "ana (What is your name?)", "sampling": "four", "roots": "file:///work"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("asking")
    write_config(home, {"asking": {"command": sys.executable, "args": [SERVER]}})
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as started:
        yield started


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_every_question_reaches_the_client(transport: str, era: str, running: Gateway, home: Path) -> None:
    async with client(transport, era, surface="discover", running=running, home=home, **CALLBACKS) as connected:
        for kind, expected in EXPECTED.items():
            call = {"name": f"asking.ask_{kind}", "arguments": {}}
            assert expected in text_of(await connected.call_tool("call_tool", call)), kind


@pytest.mark.parametrize("era", ERAS)
async def test_client_that_cannot_be_asked_gets_the_servers_error(era: str, running: Gateway) -> None:
    async with client("http", era, surface="static", running=running) as connected:
        result = await connected.call_tool("asking__ask_sampling", {})
        assert result.is_error
        assert "cannot be asked" in json.loads(text_of(result))["error"]["message"]
    async with client("http", era, surface="static", running=running, elicitation_callback=elicited) as connected:
        result = await connected.call_tool("asking__ask_sampling", {})
        assert "does not support sampling" in json.loads(text_of(result))["error"]["message"]


async def test_refusal_of_a_client_is_told_to_the_server(running: Gateway) -> None:
    async with client("http", "2025-11-25", surface="static", running=running, sampling_callback=refused) as connected:
        result = await connected.call_tool("asking__ask_sampling", {})
        assert json.loads(text_of(result))["error"]["message"] == "the user does not want that"


async def test_address_to_visit_first_reaches_a_client_that_takes_addresses(running: Gateway) -> None:
    async with client("http", "2025-11-25", surface="static", running=running, elicitation_callback=elicited) as one:
        with pytest.raises(MCPError) as caught:
            await one.call_tool("asking__visit_first", {})
        assert (caught.value.error.code, caught.value.error.data["elicitations"][0]["url"]) == (
            -32042,
            "https://example.com",
        )
    async with client("http", "2025-11-25", surface="static", running=running) as other:
        assert "sign in first" in text_of(await other.call_tool("asking__visit_first", {}))


@pytest.mark.parametrize("era", ERAS)
async def test_all_tools_of_a_real_server_that_asks(era: str, fleet_home: Path, tmp_path: Path) -> None:
    with gateway(fleet_home) as started:
        async with client("http", era, surface="static", running=started, **CALLBACKS) as connected:
            listed = {tool.name for tool in (await connected.list_tools()).tools}
            names = ("trigger-elicitation-request", "trigger-sampling-request", "trigger-url-elicitation")
            assert {f"everything__{name}" for name in (*names, "get-roots-list")} <= listed
            assert len([name for name in listed if name.startswith("everything__")]) == 17
            sampling = await connected.call_tool("everything__trigger-sampling-request", {"prompt": "2+2?"})
            assert "four" in text_of(sampling)
            roots = await connected.call_tool("everything__get-roots-list", {})
            assert "file:///work" in text_of(roots)
            asked = await connected.call_tool("everything__trigger-elicitation-request", {})
            assert "ana" in text_of(asked)
