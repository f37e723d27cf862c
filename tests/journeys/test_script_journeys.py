"""Scripts over real processes: real clients of both eras, real servers, the command line, and clients that go away."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from portico.rendering.budget import TokenEstimate
from tests.fleet.install import FLEET
from tests.journeys.kit import definition, serving
from tests.journeys.meetings import NOTES, write_notes
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "remember_decisions.lua"
SAMPLES = {
    "calculator": {"command": sys.executable, "args": ["-m", "portico.samples.calculator"]},
    "data-server": {"command": sys.executable, "args": ["-m", "portico.samples.data_server"]},
}
SLEEP = "slow.sleep({}):await()"
AT_ONCE = "result('free')"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, and a server whose `sleep` never answers; one script at a time, so that a lost one would be felt."""
    found = tmp_path_factory.mktemp("scripts")
    slow = serving(found / "tools.json", [definition("sleep"), definition("ping")])
    hidden = {**serving(found / "hidden.json", [definition("seen"), definition("unseen")]), "tools": {"deny": ["uns*"]}}
    write_config(found, {**SAMPLES, "slow": slow, "partly": hidden}, scripts={"at_once": 1})
    return found


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as found:
        yield found


@pytest.mark.requirement("S3-3", "S3-4", "S3-5", "S3-6", "S3-28", "S3-35", "S3-43", "P-SCRIPTS-DOORS")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_session_of_the_design_runs_as_it_is_written(transport: str, era: str, running: Gateway, home: Path):
    async with client(transport, era, surface="gateway", running=running, home=home) as agent:
        assert len((await agent.list_tools()).tools) == 5
        servers = text_of(await agent.call_tool("list-servers", {}))
        assert "## calculator (Lua: calculator)\nA simple calculator server\nVersion: 1.0.0\n" in servers
        assert "## data-server (Lua: data_server)" in servers
        tools = text_of(await agent.call_tool("list-server-tools", {"luaServerName": "calculator"}))
        assert re.findall(r"\(Lua: (\w+)\)", tools) == ["add", "divide", "multiply", "sqrt"]
        add = {"luaServerName": "calculator", "luaToolName": "add"}
        details = text_of(await agent.call_tool("tool-details", add))
        assert "- a (number, required): First number to add" in details
        seen = await agent.call_tool("inspect-tool-response", {**add, "sampleArgs": {"a": 1, "b": 2}})
        assert seen.structured_content == {"result": 3}
        ran = await agent.call_tool("execute", {"script": "result(calculator.add({a=5,b=3}):await())"})
        assert ran.structured_content == {"result": 8}
        assert text_of(ran) == '{"result":8}'


@pytest.mark.requirement("S3-27", "S3-29", "P-SCRIPTS-DOORS")
@pytest.mark.parametrize("era", ERAS)
async def test_one_script_combines_servers_on_discover(era: str, running: Gateway):
    script = """
    local sum = calculator.add({ a = 10, b = 20 })
    local sets = data_server.list_datasets({})
    local product = calculator.multiply({ a = sum:await().result, b = 2 }):await()
    result({ sum = sum:await(), product = product, sets = sets:await() ~= null })
    """
    async with client("http", era, surface="discover", running=running) as agent:
        ran = await agent.call_tool("run_script", {"script": script, "timeout_s": 20})
    assert ran.structured_content == {"sum": {"result": 30}, "product": {"result": 60}, "sets": True}


@pytest.mark.requirement("P-SCRIPTS-IDENTITY")
async def test_a_hidden_tool_looks_missing_to_a_script(running: Gateway):
    said = {}
    async with client("http", "2026-07-28", surface="discover", running=running) as agent:
        for name in ("unseen", "unseem"):
            ran = await agent.call_tool("run_script", {"script": f"result(partly.{name}({{}}):await())"})
            assert ran.is_error
            said[name] = text_of(ran).replace(name, "_")
        seen = await agent.call_tool("run_script", {"script": "result(partly.seen({}):await())"})
    assert said["unseen"] == said["unseem"]
    assert seen.structured_content == {"tool": "seen", "arguments": {}}


@pytest.mark.requirement("P-SCRIPTS-TEACH")
async def test_a_failed_script_tells_what_it_did_and_what_was_meant(running: Gateway):
    script = "local result = calculator.add({ a = 1, b = 2 }):await()\nresult(result)"
    async with client("http", "2026-07-28", surface="gateway", running=running) as agent:
        ran = await agent.call_tool("execute", {"script": script})
    assert ran.is_error
    said = text_of(ran)
    assert said.startswith("error script_failed for the script; the call was sent and the server answered\n- line 2: ")
    assert "hint: " in said
    assert "made before it failed: calculator.add [read] done" in said


@pytest.mark.requirement("S3-29", "P-SCRIPTS-DOORS")
@pytest.mark.timeout(300)
def test_a_script_moves_between_real_servers_what_no_agent_has_to_read(fleet_home: Path, tmp_path: Path):
    write_config(tmp_path, {name: FLEET[name].entry(tmp_path / "work") for name in ("filesystem", "memory")})
    folder = tmp_path / "work" / "notes"
    files = write_notes(folder)
    source = EXAMPLE.read_text()
    ran = portico(tmp_path, "run", str(EXAMPLE), "--arg", f"folder={folder}")
    assert (ran.returncode, ran.stdout) == (0, f"remembered {NOTES} decisions\n"), ran.stderr
    found = portico(tmp_path, "call", "memory.search_nodes", "query=step 7 goes ahead", "--json")
    (entity,) = json.loads(found.stdout)["structuredContent"]["entities"]
    assert entity["observations"] == ["by Ben", "in meeting-07.md"]
    count = TokenEstimate().count
    assert count(source) + count(ran.stdout) < 300
    assert sum(count(file.read_text()) for file in files) > 5_000


@pytest.mark.requirement("P-SCRIPTS-DOORS")
@pytest.mark.parametrize("start", ["\ufeff", "#!/usr/bin/env -S portico run\n", "\ufeff#!/usr/bin/env lua\n"])
def test_a_script_file_may_begin_as_files_do(start: str, home: Path, tmp_path: Path):
    file = tmp_path / "script.lua"
    file.write_text(f"{start}result(1)\nerror('no')", encoding="utf-8")
    failed = portico(home, "run", str(file))
    assert f"line {2 + start.count(chr(10))}: no" in failed.stderr


@pytest.mark.requirement("P-SCRIPTS-DOORS")
def test_the_command_line_runs_a_script(home: Path):
    source = "result({ n = args.n + 1, word = args.word, sum = calculator.add({ a = 1, b = 2 }):await().result })"
    ran = portico(home, "run", "-", "--arg", "n:=1", "--arg", "word=7", "--json", stdin=source)
    assert json.loads(ran.stdout)["structuredContent"] == {"n": 2, "word": "7", "sum": 3}
    failed = portico(home, "run", "-", "--timeout", "0.3", stdin="while true do end")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error script_failed for the script; nothing was sent\n- ")
    as_data = portico(home, "run", "-", "--json", stdin="error('no')")
    assert json.loads(as_data.stdout)["error"]["code"] == "script_failed"
    assert portico(home, "run", "nowhere.lua").returncode == 2
    assert portico(home, "run", "-", "--timeout", "nan", stdin="result(1)").stdout == "1\n"
    assert portico(home, "run", "-", "--arg", "x", stdin="").returncode == 2
    assert portico(home, "run", "-", "--arg", "x:=", stdin="").returncode == 2


def test_scripts_can_be_switched_off(tmp_path: Path):
    write_config(tmp_path, {}, scripts={"enabled": False})
    ran = portico(tmp_path, "run", "-", stdin="result(1)")
    assert ran.returncode == 1
    assert "scripts are switched off" in ran.stderr


@pytest.mark.requirement("P-SCRIPTS-CANCEL", "T65")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_cancelled_script_and_its_call_are_gone(transport: str, era: str, running: Gateway, home: Path):
    async with client(transport, era, surface="gateway", running=running, home=home) as agent:
        with anyio.move_on_after(0.5):
            await agent.call_tool("execute", {"script": SLEEP})
        with anyio.fail_after(15):  # the only place would be taken for 30 s
            assert text_of(await agent.call_tool("execute", {"script": AT_ONCE})) == "free"


@pytest.mark.requirement("P-SCRIPTS-CANCEL", "T65")
@pytest.mark.parametrize("era", ERAS)
async def test_a_script_whose_client_is_gone_is_gone_too(era: str, running: Gateway):
    pinged, cancelled = await calls(running, "done"), await calls(running, "cancelled")
    async with wire(running, era) as post, anyio.create_task_group() as tasks:
        script = "local slow_one = slow.sleep({}) slow.ping({}):await() slow_one:await()"
        tasks.start_soon(post, 7, "execute", {"script": script})
        with anyio.fail_after(15):
            while await calls(running, "done") == pinged:
                continue  # each look is a request of its own
        tasks.cancel_scope.cancel()
    with anyio.fail_after(15):
        while await calls(running, "cancelled") == cancelled:
            continue
        async with client("http", era, surface="gateway", running=running) as agent:
            assert text_of(await agent.call_tool("execute", {"script": AT_ONCE})) == "free"


@pytest.mark.requirement("P-SCRIPTS-CANCEL")
@pytest.mark.parametrize("era", ERAS)
async def test_no_process_outlives_a_client_over_stdio(era: str, home: Path):
    before = set(children_of(os.getpid()))
    async with client("stdio", era, surface="gateway", home=home) as agent, anyio.create_task_group() as tasks:
        (served,) = set(children_of(os.getpid())) - before
        tasks.start_soon(agent.call_tool, "execute", {"script": SLEEP})
        family: set[int] = set()
        with anyio.fail_after(15):
            while len(family) < 3:  # the server that sleeps, the fork server, and one of those
                await anyio.lowlevel.checkpoint()
                family = {pid for child in children_of(served) for pid in (child, *children_of(child))}
        tasks.cancel_scope.cancel()
    with anyio.fail_after(15):
        while any(map(is_running, (served, *family))):
            await anyio.lowlevel.checkpoint()


@pytest.mark.requirement("T63")
async def test_readiness_tells_what_holds_scripts_in(running: Gateway):
    def told() -> str:
        with urllib.request.urlopen(running.url.replace("/mcp", "/readyz")) as answer:
            return str(json.load(answer)["scripts"])

    with anyio.fail_after(20):
        while (state := await anyio.to_thread.run_sync(told)) == "not examined yet":
            continue
    assert state == "hardened" or state.startswith("degraded: ")


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found: list[int] = []
    with suppress(OSError):  # it, or one of its threads, may end while we look
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def calls(running: Gateway, outcome: str) -> float:
    """How many calls of the slow server have ended so until now."""

    def told() -> str:
        with urllib.request.urlopen(running.url.replace("/mcp", "/metrics")) as answer:
            return str(answer.read().decode())

    text = await anyio.to_thread.run_sync(told)
    found = re.search(rf'portico_calls_total{{outcome="{outcome}",server="slow"}} ([\d.]+)', text)
    return float(found[1]) if found else 0.0


@asynccontextmanager
async def wire(running: Gateway, era: str) -> AsyncIterator[Any]:
    """A client of either era as it looks on the wire, so that it can break off."""
    url = running.path("gateway")
    async with aiohttp.ClientSession() as http:
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
        if era == "2025-11-25":
            info = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": info}
            async with http.post(url, json=first, headers=headers) as answer:
                headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await (await http.post(url, json=ready, headers=headers)).read()
            # A notification is acknowledged before it is acted upon; an answered request comes after it.
            ping = {"jsonrpc": "2.0", "id": "after", "method": "ping"}
            await (await http.post(url, json=ping, headers=headers)).read()

        async def post(id: int, tool: str, arguments: dict[str, Any]) -> None:
            params: dict[str, Any] = {"name": tool, "arguments": arguments}
            own = dict(headers)
            if era != "2025-11-25":
                own |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
                params["_meta"] = {
                    "io.modelcontextprotocol/protocolVersion": era,
                    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                }
            message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            await (await http.post(url, json=message, headers=own)).read()

        yield post
