"""The `capabilities` surface of a running gateway: inventory, schema, direct call, over both transports and eras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from portico.domain import VERSION
from portico.protocols import TokenCounter
from portico.rendering.budget import ExactTokens, TokenEstimate
from tests import tana_server
from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

WAYS = [("http", era) for era in ERAS] + [("stdio", era) for era in ERAS]
COUNTERS = [TokenEstimate(), *([ExactTokens()] if find_spec("splintr") else [])]
"""The exact one is an extra that need not be installed."""
SETTINGS = {"prefix": tana_server.PREFIX, "quick_actions": list(tana_server.QUICK_ACTIONS)}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("capabilities-home")
    servers = {tana_server.SERVER: serving(home / "tools.json", list(tana_server.DEFINITIONS))}
    write_config(home, servers, surface="capabilities", categories=tana_server.EXPLICIT, capabilities=SETTINGS)
    asked = portico(home, "refresh")
    assert asked.returncode == 0, asked.stderr
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as found:
        yield found


@pytest.mark.requirement("S2-1", "S2-3", "S2-4", "S2-5", "S2-6", "S2-8", "S2-27", "S2-42", "S2-E2")
@pytest.mark.parametrize(("transport", "era"), WAYS)
async def test_an_agent_goes_the_four_steps(running: Gateway, home: Path, transport: str, era: str):
    async with client(transport, era, surface="capabilities", running=running, home=home) as connected:
        assert [tool.name for tool in (await connected.list_tools()).tools] == list(tana_server.OWN)
        inventory = await connected.call_tool("tana_capabilities", {})
        assert json.loads(text_of(inventory)) == inventory.structured_content
        shelves = {c["name"]: [t["name"] for t in c["tools"]] for c in inventory.structured_content["categories"]}
        assert inventory.structured_content["version"] == VERSION
        assert list(shelves) == list(tana_server.CATEGORIES)
        assert sum(map(len, shelves.values())) == 16
        assert set(tana_server.OWN) <= set(shelves["system"])
        told = (await connected.call_tool("tana_tool_schema", {"tool": "tana_search"})).structured_content
        assert told["schema"] == tana_server.DEFINITIONS[0]["inputSchema"]
        assert told["tool"] in shelves["query"]
        for name in ("tana_search", told["tool"]):
            result = await connected.call_tool(name, {"query": "project plans"})
            assert json.loads(text_of(result)) == {"tool": "tana_search", "arguments": {"query": "project plans"}}


@pytest.mark.requirement("S2-49")
@pytest.mark.parametrize(("transport", "era"), WAYS)
async def test_a_tool_is_called_at_once_and_errors_are_results(running: Gateway, home: Path, transport: str, era: str):
    async with client(transport, era, surface="capabilities", running=running, home=home) as connected:
        assert json.loads(text_of(await connected.call_tool("tana_stats", {})))["tool"] == "tana_stats"
        unknown = await connected.call_tool("tana_tool_schema", {"tool": "tana_serch"})
        assert unknown.is_error
        assert unknown.structured_content["error"]["next"] == 'tana_tool_schema({"tool": "tana__tana_search"})'
        wrong = await connected.call_tool("tana_capabilities", {"category": "nothing"})
        assert wrong.is_error
        assert "'transcript'" in text_of(wrong)


@pytest.mark.requirement("S2-14")
async def test_the_same_bytes_come_over_both_transports_and_in_both_eras(running: Gateway, home: Path):
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tana_capabilities", {}),
        ("tana_capabilities", {"category": "query"}),
        ("tana_tool_schema", {"tool": "tana_create"}),
    ]
    seen = set()
    for transport, era in WAYS:
        async with client(transport, era, surface="capabilities", running=running, home=home) as connected:
            listed = [tool.model_dump_json() for tool in (await connected.list_tools()).tools]
            answers = [text_of(await connected.call_tool(name, arguments)) for name, arguments in asked]
            seen.add((*listed, *answers))
    assert len(seen) == 1


@pytest.mark.requirement("S2-2", "S2-43", "S2-53", "S2-55")
@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
async def test_what_an_agent_reads_keeps_to_the_budgets(running: Gateway, counter: TokenCounter):
    async with client("http", "2026-07-28", surface="capabilities", running=running) as connected:
        assert counter.count(text_of(await connected.call_tool("tana_capabilities", {}))) < 500
        for name in tana_server.NAMES:
            told = await connected.call_tool("tana_tool_schema", {"tool": name})
            assert counter.count(text_of(told)) < 300, name


@pytest.mark.requirement("S2-48", "S2-50", "S2-51")
async def test_the_chosen_surface_is_at_the_short_path_and_the_others_are_as_ever(running: Gateway):
    async with Client(running.url, mode="2026-07-28") as connected:
        assert [tool.name for tool in (await connected.list_tools()).tools] == list(tana_server.OWN)
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        assert len((await connected.list_tools()).tools) == 14
    async with client("http", "2026-07-28", surface="discover", running=running) as connected:
        assert not {tool.name for tool in (await connected.list_tools()).tools} & set(tana_server.OWN)


@pytest.mark.requirement("S2-E6", "S2-E9")
async def test_a_client_of_2026_hears_of_a_new_category(tmp_path: Path):
    file = tmp_path / "tools.json"
    categories = {"shop.announce": "system", "shop.refund": "mutate"}
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])}, categories=categories)
    assert portico(tmp_path, "refresh").returncode == 0
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="capabilities", running=running) as connected:
            assert choices(await connected.list_tools()) == ["system"]
            assert (await connected.call_tool("tool_schema", {"tool": "refund"})).is_error
            serving(file, [definition("announce"), definition("refund", order="string")])
            async with connected.listen(tools_list_changed=True) as events:
                with anyio.fail_after(15):
                    await connected.call_tool("announce", {})
                    await anext(aiter(events))
            assert choices(await connected.list_tools(cache_mode="refresh")) == ["mutate", "system"]
            told = await connected.call_tool("tool_schema", {"tool": "refund"})
            assert told.structured_content["schema"]["required"] == ["order"]


@pytest.mark.requirement("S2-E9")
async def test_a_client_of_2025_hears_of_a_new_category(tmp_path: Path):
    file = tmp_path / "tools.json"
    categories = {"shop.announce": "system", "shop.refund": "mutate"}
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])}, categories=categories)
    assert portico(tmp_path, "refresh").returncode == 0
    changed = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with client(
        "stdio", "2025-11-25", surface="capabilities", home=tmp_path, message_handler=listen
    ) as connected:
        assert choices(await connected.list_tools()) == ["system"]
        serving(file, [definition("announce"), definition("refund", order="string")])
        with anyio.fail_after(15):
            await connected.call_tool("announce", {})
            await changed.wait()
        assert choices(await connected.list_tools(cache_mode="refresh")) == ["mutate", "system"]


def choices(listed: Any) -> list[str]:
    """The categories that the first tool may be asked for."""
    found: list[str] = listed.tools[0].input_schema["properties"]["category"]["enum"]
    return found


@pytest.mark.requirement("S2-18")
async def test_the_config_gives_tools_example_prompts(tmp_path: Path):
    tools = [definition("find-notes", "Find notes", text="string"), definition("count", "Count notes")]
    prompts = {"hub.find-notes": "What did we decide about the logo?", "hub.nothing": "never shown"}
    write_config(tmp_path, {"hub": serving(tmp_path / "tools.json", tools)}, surface="capabilities", examples=prompts)
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="capabilities", running=running) as connected:
            await connected.list_tools()
            inventory = (await connected.call_tool("capabilities", {})).structured_content
    told = {tool["name"]: tool.get("example") for shelf in inventory["categories"] for tool in shelf["tools"]}
    assert told["hub__find-notes"] == prompts["hub.find-notes"]
    assert told["hub__count"] is None
