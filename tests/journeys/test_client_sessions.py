"""Clients of one gateway, each with a session of its own with a server that keeps state."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.counting_server import URI, Sessions, counting_over_http
from tests.journeys.running import ERAS, Gateway, client, gateway, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("P-CLIENT-SESSIONS")]
SERVER = str(Path(__file__).parents[1] / "counting_server.py")
CLIENTS = 4


@pytest.fixture(scope="module")
def served() -> Iterator[Sessions]:
    with counting_over_http() as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, served: Sessions) -> Path:
    home = tmp_path_factory.mktemp("sessions")
    servers = {
        "process": {"command": sys.executable, "args": ["-S", "-E", SERVER], "sessions": "per_client"},
        "remote": {"url": served.url, "sessions": {"per": "client", "limit": 200, "idle_s": 600}},
        "together": {"command": sys.executable, "args": ["-S", "-E", SERVER]},
    }
    write_config(home, servers)
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as started:
        yield started


async def clients(stack: AsyncExitStack, running: Gateway, era: str, surface: str = "static") -> dict[str, Client]:
    """Several clients of one era at once, each another program."""
    found = {}
    for number in range(CLIENTS):
        name = f"{era} {number}"
        info = types.Implementation(name=name, version="1")
        opened = client("http", era, surface=surface, running=running, client_info=info)
        found[name] = await stack.enter_async_context(opened)
    return found


@pytest.mark.requirement("T16", "S3-48")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", ["process", "remote"])
async def test_every_client_has_its_own_state(server: str, era: str, running: Gateway) -> None:
    async with AsyncExitStack() as stack:
        connected = await clients(stack, running, era)
        seen: dict[str, list[str]] = {name: [] for name in connected}

        async def count(name: str) -> None:
            for _ in range(5):
                seen[name].append(text_of(await connected[name].call_tool(f"{server}__count", {})))

        async with anyio.create_task_group() as tasks:
            for name in connected:
                tasks.start_soon(count, name)
        for lines in seen.values():
            assert [line.split()[1] for line in lines] == ["1", "2", "3", "4", "5"]
        assert len({line.split()[0] for lines in seen.values() for line in lines}) == CLIENTS
        for name, one in connected.items():
            await one.call_tool(f"{server}__put", {"text": name})
        for name, one in connected.items():
            assert text_of(await one.call_tool(f"{server}__get", {})) == name


@pytest.mark.parametrize("era", ERAS)
async def test_a_shared_server_is_shared_as_before(era: str, running: Gateway) -> None:
    async with AsyncExitStack() as stack:
        connected = await clients(stack, running, era)
        pids = {text_of(await one.call_tool("together__pid", {})) for one in connected.values()}
        assert len(pids) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_and_resources_are_those_of_the_clients_session(era: str, running: Gateway) -> None:
    async with AsyncExitStack() as stack:
        connected = await clients(stack, running, era)
        for times, one in enumerate(connected.values(), 1):
            before = int((await resource_of(one, "process")) or 0)
            for _ in range(times):
                await one.call_tool("process__count", {})
            assert int(await resource_of(one, "process")) == before + times
            prompt = await one.get_prompt("process__state", {})
            assert str(prompt.messages[0].content.text).endswith(f" {before + times}")  # type: ignore[union-attr]


async def resource_of(one: Client, server: str) -> str:
    listed = (await one.list_resources()).resources
    uris = [str(resource.uri) for resource in listed if server in str(resource.uri) or str(resource.uri) == URI]
    found = next((uri for uri in uris if server in uri), uris[0])
    return str((await one.read_resource(found)).contents[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ERAS)
async def test_the_calls_of_a_script_are_its_clients(era: str, running: Gateway) -> None:
    script = "local last = '' for i = 1, 3 do last = process.count():await() end result(last)"
    async with AsyncExitStack() as stack:
        connected = await clients(stack, running, era, surface="discover")
        seen = {}
        for name, one in connected.items():
            direct = text_of(await one.call_tool("call_tool", {"name": "process.count", "arguments": {}}))
            scripted = text_of(await one.call_tool("run_script", {"script": script}))
            session, before = direct.split()
            assert scripted.split() == [session, str(int(before) + 3)]
            seen[name] = session
        assert len(set(seen.values())) == CLIENTS


@pytest.mark.requirement("T16")
@pytest.mark.parametrize("era", ERAS)
async def test_a_question_reaches_the_client_whose_call_it_is(era: str, running: Gateway) -> None:
    strayed: list[str] = []

    async def ask(number: int) -> None:
        own = f"{era} asked {number}"

        async def elicited(context: Any, params: Any) -> types.ElicitResult:
            strayed.extend([own] if params.message != own else [])
            return types.ElicitResult(action="accept", content={"name": own})

        async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
            strayed.extend([own] if params.messages[0].content.text != own else [])
            return types.CreateMessageResult(
                role="assistant", content=types.TextContent(type="text", text=own), model="m"
            )

        async def rooted(context: Any) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=f"file:///{number}")])

        async with client(
            "http",
            era,
            surface="static",
            running=running,
            client_info=types.Implementation(name=own, version="1"),
            elicitation_callback=elicited,
            sampling_callback=sampled,
            list_roots_callback=rooted,
        ) as one:
            for _ in range(3):
                for tool in ("elicit", "ask"):
                    assert own in text_of(await one.call_tool(f"process__{tool}", {"text": own}))
                assert f"file:///{number}" in text_of(await one.call_tool("process__roots", {}))

    async with anyio.create_task_group() as tasks:
        for number in range(CLIENTS):
            tasks.start_soon(ask, number)
    assert strayed == []


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("surface", ["static", "discover"])
async def test_log_messages_reach_the_client_whose_session_it_is(surface: str, running: Gateway) -> None:
    heard: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        opened = {}
        for number in range(CLIENTS):
            name = f"logs {number}"
            heard[name] = []

            async def logged(params: Any, into: list[str] = heard[name]) -> None:
                into.append(str(params.data))

            info = types.Implementation(name=name, version="1")
            one = client(
                "http", "2025-11-25", surface=surface, running=running, client_info=info, logging_callback=logged
            )
            opened[name] = await stack.enter_async_context(one)
            await opened[name].set_logging_level("info")

        async def tell(name: str) -> None:
            for number in range(5):
                given = {"text": f"{name} says {number}"}
                if surface == "static":
                    await opened[name].call_tool("process__tell", given)
                else:
                    await opened[name].call_tool("call_tool", {"name": "process.tell", "arguments": given})

        async with anyio.create_task_group() as tasks:
            for name in opened:
                tasks.start_soon(tell, name)
        with anyio.fail_after(10):
            while sum(map(len, heard.values())) < 5 * CLIENTS:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    for name, lines in heard.items():
        assert [line.split(" ", 1)[1] for line in lines] == [f"{name} says {number}" for number in range(5)]


@pytest.mark.requirement("P-CLIENT-SESSIONS-BOUNDED")
async def test_what_was_opened_for_a_client_ends_with_its_session(running: Gateway) -> None:
    before = set(running.children())
    async with AsyncExitStack() as stack:
        connected = await clients(stack, running, "2025-11-25")
        pids = {int(text_of(await one.call_tool("process__pid", {}))) for one in connected.values()}
        assert pids.isdisjoint(before)
        assert pids <= set(running.children())
    with anyio.fail_after(10):
        while pids & set(running.children()):  # noqa: ASYNC110
            await anyio.sleep(0.02)


@pytest.mark.parametrize("era", ERAS)
async def test_over_stdio_there_is_one_client(era: str, home: Path) -> None:
    async with client("stdio", era, surface="static", home=home) as one:
        counts = [text_of(await one.call_tool("process__count", {})) for _ in range(3)]
        assert [line.split()[1] for line in counts] == ["1", "2", "3"]


HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}


@pytest.mark.requirement("T16")
async def test_two_hundred_clients_with_the_same_request_ids_get_their_own_answers(running: Gateway) -> None:
    strays: Counter[str] = Counter()

    async def ask(http: aiohttp.ClientSession, number: int) -> None:
        async def post(message: dict[str, Any]) -> tuple[str, Any]:
            async with http.post(running.path("static"), data=json.dumps(message), headers=headers) as reply:
                text = await reply.text()
                assert reply.status in (200, 202), text
                data = text.partition("data: ")[2] if text.startswith(("event", "data", "id")) else text
                return reply.headers.get("mcp-session-id", ""), json.loads(data) if data else None

        headers = dict(HEADERS)
        info = {"name": "same", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        headers["mcp-session-id"], _ = await post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        await post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for tool, given in (("put", {"text": f"canary {number}"}), *[("get", {})] * 4):
            asked = {"name": f"remote__{tool}", "arguments": given}
            _, answer = await post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked})
            text = answer["result"]["content"][0]["text"]
            strays["answers"] += 1
            strays["foreign"] += text not in ("done", f"canary {number}")
        async with http.delete(running.path("static"), headers=headers) as reply:
            assert reply.status == 200

    connector = aiohttp.TCPConnector(limit=50)
    async with aiohttp.ClientSession(connector=connector) as http, anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, http, number)
    assert strays == {"answers": 1_000, "foreign": 0}
