"""Clients of one gateway, each with a session of its own with a server that keeps state."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.counting_server import Sessions, counting_over_http
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


async def uri_of(one: Client, server: str) -> str:
    """The count of a server, as the gateway lists it."""
    listed = [str(resource.uri) for resource in (await one.list_resources()).resources]
    return next(uri for uri in listed if f"//{server}/" in uri)


async def resource_of(one: Client, server: str) -> str:
    read = await one.read_resource(await uri_of(one, server))
    return str(read.contents[0].text)  # type: ignore[union-attr]


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


@pytest.mark.requirement("T16")
async def test_a_question_outside_of_calls_reaches_the_client_whose_session_it_is(
    running: Gateway, tmp_path: Path
) -> None:
    asked: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        opened = {}
        for name in ("late ana", "late ben", "late cleo"):
            asked[name] = []

            async def elicited(context: Any, params: Any, own: str = name) -> types.ElicitResult:
                asked[own].append(params.message)
                return types.ElicitResult(action="accept", content={"name": own})

            one = client(
                "http",
                "2025-11-25",
                surface="static",
                running=running,
                client_info=types.Implementation(name=name, version="1"),
                **({"elicitation_callback": elicited} if name != "late cleo" else {}),
            )
            opened[name] = await stack.enter_async_context(one)
        go_on = tmp_path / "go on"
        for name, connected in opened.items():
            await connected.call_tool("process__later", {"until": str(go_on), "text": f"for {name}"})
            await connected.call_tool("process__ask", {})  # by now its event stream is open
        go_on.touch()
        for name, connected in opened.items():
            answer = ""
            with anyio.fail_after(10):
                while not answer:
                    answer = text_of(await connected.call_tool("process__get", {}))
            assert (name if name != "late cleo" else "error") in answer
    assert asked == {"late ana": ["for late ana"], "late ben": ["for late ben"], "late cleo": []}


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
@pytest.mark.parametrize("era", ERAS)
async def test_a_changed_resource_is_told_to_the_client_that_watches_it_in_its_session(
    era: str, running: Gateway
) -> None:
    told: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        opened = {}
        for number in range(CLIENTS):
            name = f"watches {number}"
            told[name] = []
            opened[name] = await stack.enter_async_context(watching(running, era, name, told[name]))
        for _ in range(3):
            for name in list(opened)[:2]:
                await opened[name].call_tool("process__touch", {})
        with anyio.fail_after(10):
            while sum(map(len, told.values())) < 6:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        for connected in opened.values():  # whatever else was on its way has come by then
            await connected.call_tool("process__count", {})
    assert [len(lines) for lines in told.values()] == [3, 3, 0, 0]


@asynccontextmanager
async def watching(running: Gateway, era: str, name: str, told: list[str]) -> AsyncIterator[Client]:
    """A client that watches the count of its session."""

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(str(message.params.uri))

    info = types.Implementation(name=name, version="1")
    async with client("http", era, surface="static", running=running, client_info=info, message_handler=hear) as one:
        uri = await uri_of(one, "process")
        if era == "2025-11-25":
            await one.subscribe_resource(uri)
            yield one
            return
        async with one.listen(resource_subscriptions=[uri]):
            yield one


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
        session = await open_session(http, running)
        for tool, given in (("put", {"text": f"canary {number}"}), *[("get", {})] * 4):
            asked = {"name": f"remote__{tool}", "arguments": given}
            answer = await post(http, running, session, {"id": 1, "method": "tools/call", "params": asked})
            strays["answers"] += 1
            strays["foreign"] += answer["result"]["content"][0]["text"] not in ("done", f"canary {number}")
        headers = {**HEADERS, "mcp-session-id": session}
        async with http.delete(running.path("static"), headers=headers) as reply:
            assert reply.status == 200

    connector = aiohttp.TCPConnector(limit=50)
    async with aiohttp.ClientSession(connector=connector) as http, anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, http, number)
    assert strays == {"answers": 1_000, "foreign": 0}


def own_process(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", "-E", SERVER], "sessions": "per_client", **more}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def ended(pids: Iterable[int]) -> None:
    with anyio.fail_after(15):
        while any(map(is_running, pids)):  # noqa: ASYNC110
            await anyio.sleep(0.02)


@pytest.mark.requirement("P-CLIENT-SESSIONS-BOUNDED", "F09")
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
async def test_no_session_outlives_the_gateway(sig: signal.Signals, tmp_path: Path) -> None:
    write_config(tmp_path, {"process": own_process()})
    with gateway(tmp_path) as started:
        pids = [await pid_of(started, number) for number in range(3)]
        assert len(set(pids)) == 3
        started.process.send_signal(sig)
        await ended(pids)


async def pid_of(running: Gateway, number: int) -> int:
    """The process that a client of 2026-07-28 has, which has no session that would end."""
    info = types.Implementation(name=f"pid {number}", version="1")
    async with client("http", "2026-07-28", surface="static", running=running, client_info=info) as one:
        return int(text_of(await one.call_tool("process__pid", {})))


@pytest.mark.requirement("P-CLIENT-SESSIONS-BOUNDED")
async def test_the_session_of_a_client_without_one_ends_when_it_is_unused(tmp_path: Path) -> None:
    write_config(tmp_path, {"process": own_process(sessions={"per": "client", "idle_s": 0.5})})
    with gateway(tmp_path) as started:
        pid = await pid_of(started, 1)
        await ended([pid])
        assert await pid_of(started, 1) != pid


@pytest.mark.requirement("P-CLIENT-SESSIONS-BOUNDED")
@pytest.mark.parametrize("limits", [{"session_idle_s": 1}, {"sessions": 1}])
async def test_a_gateway_session_that_expires_or_gives_way_takes_its_server_session_along(
    limits: dict[str, Any], tmp_path: Path
) -> None:
    write_config(tmp_path, {"process": own_process()}, http=limits)
    with gateway(tmp_path) as started:
        async with aiohttp.ClientSession() as http:
            await open_session(http, started)
            session = await open_session(http, started)
            asked = {"name": "process__pid", "arguments": {}}
            answer = await post(http, started, session, {"id": 1, "method": "tools/call", "params": asked})
            pid = int(answer["result"]["content"][0]["text"])
            if "sessions" in limits:
                assert is_running(pid)
                await open_session(http, started)
            await ended([pid])


async def open_session(http: aiohttp.ClientSession, running: Gateway) -> str:
    """A session of the handshake era without an event stream; its id."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    async with http.post(running.path("static"), data=json.dumps(message), headers=HEADERS) as reply:
        session = reply.headers["mcp-session-id"]
        await reply.read()
    await post(http, running, session, {"method": "notifications/initialized"})
    return session


async def post(http: aiohttp.ClientSession, running: Gateway, session: str, message: dict[str, Any]) -> Any:
    headers = {**HEADERS, "mcp-session-id": session}
    body = json.dumps({"jsonrpc": "2.0", **message})
    async with http.post(running.path("static"), data=body, headers=headers) as reply:
        text = await reply.text()
        assert reply.status in (200, 202), text
    return json.loads(text.partition("data: ")[2] if text.startswith("event") else text or "null")


@pytest.mark.requirement("P-RELOAD")
async def test_a_changed_setting_is_in_force_without_a_restart(tmp_path: Path) -> None:
    write_config(tmp_path, {"process": own_process(sessions="shared")})
    with gateway(tmp_path) as started:
        assert await pid_of(started, 1) == await pid_of(started, 2)
        write_config(tmp_path, {"process": own_process()})
        with anyio.fail_after(10):
            while await pid_of(started, 1) == await pid_of(started, 2):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        pids = [await pid_of(started, number) for number in (1, 2)]
        write_config(tmp_path, {"process": own_process(sessions="shared")})
        await ended(pids)
        assert await pid_of(started, 1) == await pid_of(started, 2)
