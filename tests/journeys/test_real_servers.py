"""An unmodified client config with eight real servers: every tool is found and called, through every door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.fleet.install import FLEET
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of

pytestmark = pytest.mark.timeout(300)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "everything.trigger_long_running_operation": {"duration": 0.2, "steps": 2},
    "everything.simulate_research_query": {"topic": "porticos"},
    "everything.trigger_url_elicitation": {"url": "https://example.com", "message": "Open it"},
    "everything.gzip_file_as_resource": {"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"},
}
"""Where an example made from the schema would take long or leave the machine."""

OURS = ("error unknown_tool", "error invalid_arguments", "error upstream", "error timed_out", "error refused")


@pytest.fixture(scope="module")
def running(fleet_home: Path) -> Iterator[Gateway]:
    with gateway(fleet_home) as found:
        yield found


@pytest.fixture(scope="module")
def catalogue(fleet_home: Path) -> list[dict[str, Any]]:
    """Every tool of every server, as the command line describes it."""
    servers = json.loads(portico(fleet_home, "list", "--json").stdout)
    handles = []
    for server in servers:
        listed = json.loads(portico(fleet_home, "list", server["name"], "--json").stdout)
        handles += [tool["handle"] for tool in listed[0]["tool_list"]]
    described = portico(fleet_home, "describe", *handles, "--json")
    return json.loads(described.stdout)


@pytest.mark.requirement("P-IMPORT")
def test_a_client_config_with_eight_servers_is_imported_whole(catalogue: list[dict[str, Any]]):
    found: dict[str, set[str]] = {}
    for tool in catalogue:
        found.setdefault(tool["server"], set()).add(tool["name"])
    assert found.keys() == FLEET.keys()
    assert [name for name, server in FLEET.items() if not server.tools <= found[name]] == []


@pytest.mark.requirement("P-START-COLD")
def test_a_start_with_known_servers_spawns_no_process(fleet_home: Path):
    async def look(running: Gateway) -> list[str]:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            tools = [tool.name for tool in (await connected.list_tools()).tools]
            searched = await connected.call_tool("everything.echo", {"message": "hello"})
            assert "hello" in text_of(searched)
            return tools

    with gateway(fleet_home) as running:
        assert running.children() == []
        assert len(anyio.run(look, running)) > 50
        assert len(running.children()) == 1


@pytest.mark.anyio
@pytest.mark.requirement("P-EVERY-TOOL")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("surface", ["discover", "static"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_every_tool_is_found_and_called(
    transport: str, surface: str, era: str, running: Gateway, fleet_home: Path, catalogue: list[dict[str, Any]]
):
    async with client(transport, era, surface=surface, running=running, home=fleet_home) as connected:
        listed = {tool.name for tool in (await connected.list_tools()).tools}
        failures = []
        for tool in catalogue:
            with anyio.fail_after(60):
                found = await _is_found(connected, surface, tool, listed)
                answer = await _call(connected, surface, tool)
            if not found:
                failures.append(f"{tool['handle']} was not found")
            if answer.startswith(OURS):
                failures.append(answer)
        assert failures == []


async def _is_found(connected: Any, surface: str, tool: dict[str, Any], listed: set[str]) -> bool:
    if surface == "static":
        return tool["listed"] in listed
    words = tool["name"].replace("_", " ").replace("-", " ")
    found = await connected.call_tool("search_tools", {"query": f"{words} {tool['server']}"})
    return f"{tool['handle']}(" in text_of(found)


async def _call(connected: Any, surface: str, tool: dict[str, Any]) -> str:
    arguments = ARGUMENTS.get(tool["handle"]) or example(tool["inputSchema"])
    if surface == "static":
        return text_of(await connected.call_tool(tool["listed"], arguments))
    result = await connected.call_tool("call_tool", {"name": tool["handle"], "arguments": arguments})
    return text_of(result)


def example(schema: Any) -> Any:
    """Arguments that fit a schema; what they mean to the server is the server's to say."""
    from portico.rendering.cards import example_value

    return example_value({"type": "object", **schema}, schema)
