"""The `search` surface of a running gateway, and the switches that choose it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = pytest.mark.timeout(90)

PROXIES = ["search_tool", "execute_tool", "hub__read_query"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("search-home")
    tools = [
        definition("read_query", "Run a query", sql="string"),
        definition("table_list", "Lists all tables in a database", database_name="string"),
        definition("table_ddl", "Displays the definition of a table", table_name="string"),
    ]
    write_config(home, {"hub": serving(home / "tools.json", tools)}, pins=["read_query"])
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home, "--surface", "search") as found:
        yield found


@pytest.mark.anyio
@pytest.mark.requirement("S0-3", "S0-4", "S0-27", "S0-41", "S0-67")
@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_searches_and_executes_until_it_can_answer(running: Gateway, era: str):
    async with client("http", era, surface="search", running=running) as connected:
        assert [tool.name for tool in (await connected.list_tools()).tools] == PROXIES
        context: list[Any] = []
        for query, arguments in (("table list", {"database_name": "demo"}), ("table ddl", {"table_name": "orders"})):
            found = (await connected.call_tool("search_tool", {"query": query})).structured_content
            name = found["tools"][0]["name"]
            told = (await connected.call_tool("search_tool", {"query": name})).structured_content
            assert told["tool"]["parameters"].keys() == arguments.keys()
            result = await connected.call_tool("execute_tool", {"tool_name": name, "arguments": arguments})
            context.append(json.loads(text_of(result)))
        assert context == [
            {"tool": "table_list", "arguments": {"database_name": "demo"}},
            {"tool": "table_ddl", "arguments": {"table_name": "orders"}},
        ]
        for spelling in ("hub__read_query", "hub.table_list"):
            refused = await connected.call_tool(spelling, {})
            assert refused.is_error, "listed or not, it is called by its name"
            assert text_of(refused).startswith("error invalid_arguments for hub.")
            assert "\nnext: execute_tool(" in text_of(refused)


@pytest.mark.anyio
async def test_the_chosen_surface_is_at_the_short_path_and_the_others_at_theirs(running: Gateway):
    async with Client(running.url, mode="2026-07-28") as connected:
        assert [tool.name for tool in (await connected.list_tools()).tools] == PROXIES
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        assert len((await connected.list_tools()).tools) == 3


@pytest.mark.anyio
@pytest.mark.parametrize("surface", ["search", "discover"])
async def test_a_first_listing_waits_for_the_server_of_a_pin(tmp_path: Path, surface: str):
    quick = serving(tmp_path / "tools.json", [definition("read_query", "Run a query", sql="string")])
    command = shlex.join([quick["command"], *quick["args"]])
    slow = {"command": "sh", "args": ["-c", f"sleep 2; exec {command}"]}
    write_config(tmp_path, {"hub": slow}, pins=["read_query"])
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface=surface, running=running) as connected:
            assert (await connected.list_tools()).tools[-1].name == "hub__read_query", "clients list once"


@pytest.mark.anyio
@pytest.mark.requirement("S0-5")
async def test_the_switch_of_the_command_line_chooses_the_surface(home: Path):
    with gateway(home, "--progressive_disclosure") as running:
        async with Client(running.url, mode="2026-07-28") as connected:
            assert [tool.name for tool in (await connected.list_tools()).tools] == PROXIES


@pytest.mark.anyio
@pytest.mark.requirement("S0-6")
@pytest.mark.parametrize(("value", "listed"), [("true", PROXIES), ("false", None)])
async def test_the_switch_of_the_environment_chooses_the_surface(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str, listed: list[str] | None
):
    monkeypatch.setenv("PROGRESSIVE_DISCLOSURE", value)
    with gateway(home) as running:
        async with Client(running.url, mode="2026-07-28") as connected:
            names = [tool.name for tool in (await connected.list_tools()).tools]
            assert names == (listed or ["hub__read_query", "hub__table_ddl", "hub__table_list"])


@pytest.mark.anyio
@pytest.mark.requirement("S0-3", "S0-43", "S0-67")
@pytest.mark.parametrize("switch", [["--progressive_disclosure"], ["--surface", "search"]], ids=" ".join)
async def test_the_packaged_profile_lists_three_tools(tmp_path: Path, switch: list[str]):
    with gateway(tmp_path, "--profile", "base", *switch) as running:
        for era in ERAS:
            async with client("http", era, surface="search", running=running) as connected:
                assert [tool.name for tool in (await connected.list_tools()).tools] == [*PROXIES[:2], "base_readQuery"]
                listed = await connected.call_tool("base_tableList", {})
                assert not listed.is_error, "what is not listed can still be called"


@pytest.mark.requirement("S0-5")
def test_a_switch_and_a_surface_that_disagree_are_refused(home: Path):
    done = portico(home, "serve", "--progressive_disclosure", "--surface", "static")
    assert done.returncode == 3
    assert "--progressive_disclosure means --surface search, not static" in done.stderr
