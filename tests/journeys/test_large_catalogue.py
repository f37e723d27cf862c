"""A hundred servers with two thousand tools: known ones cost nothing to start, little to list, and are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.catalogue import generate, load_fleet
from tests.journeys.kit import serving
from tests.journeys.running import Gateway, client, gateway, portico, text_of, write_config

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that knows all of them; real definitions, where a file of them is given, instead of generated ones."""
    home = tmp_path_factory.mktemp("crowd")
    definitions = load_fleet() or generate(servers=100, tools=2000)
    write_config(
        home, {name: serving(home / f"{n}.json", tools) for n, (name, tools) in enumerate(definitions.items())}
    )
    asked = portico(home, "refresh", timeout=200)
    assert asked.returncode == 0, asked.stderr
    return home


@pytest.fixture(scope="module")
def running(crowd: Path) -> Iterator[Gateway]:
    with gateway(crowd) as found:
        yield found


@pytest.mark.requirement("P-START-COLD")
def test_two_thousand_known_tools_start_no_process(running: Gateway, crowd: Path):
    async def listed() -> int:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            total, cursor = 0, None
            while True:
                page = await connected.list_tools(cursor=cursor)
                total += len(page.tools)
                cursor = page.next_cursor
                if cursor is None:
                    return total

    known = sum(server["tools"] for server in json.loads(portico(crowd, "list", "--json").stdout))
    assert anyio.run(listed) == known
    assert running.children() == []


@pytest.mark.requirement("P-TOKENS-DISCOVER")
def test_discover_costs_at_most_seven_hundred_tokens(crowd: Path):
    bill = json.loads(portico(crowd, "tokens", "--json").stdout)
    assert bill["after"] <= 700
    assert bill["saved"] >= 0.995


@pytest.mark.requirement("P-TOKENS-SEARCH")
def test_a_search_answer_costs_at_most_eight_hundred_tokens(running: Gateway):
    async def ask() -> list[str]:
        async with client("http", "2025-11-25", surface="discover", running=running) as connected:
            queries = ["", "create issue", "read a file", "x", "delete " * 500, "list all the things that there are"]
            return [text_of(await connected.call_tool("search_tools", {"query": query})) for query in queries]

    from portico.rendering.budget import TokenEstimate

    assert [answer[:80] for answer in anyio.run(ask) if TokenEstimate().count(answer) > 800] == []
