"""A server that changes its tools is noticed, found and announced, without a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from tests.journeys.kit import definition, serving
from tests.journeys.running import client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.mark.requirement("P-LIST-CHANGED")
async def test_a_client_of_2026_hears_of_new_tools_and_finds_them(tmp_path: Path):
    file = tmp_path / "tools.json"
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])})
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            assert [t.name for t in (await connected.list_tools()).tools] == ["shop__announce"]
            refund = definition("refund_order", "Pay back what an order cost", order="string")
            serving(file, [definition("announce"), refund])
            async with connected.listen(tools_list_changed=True) as events:
                with anyio.fail_after(15):
                    await connected.call_tool("shop__announce", {})
                    await anext(aiter(events))
            listed = await connected.list_tools(cache_mode="refresh")
            assert [t.name for t in listed.tools] == ["shop__announce", "shop__refund_order"]
        async with client("http", "2026-07-28", surface="discover", running=running) as agent:
            found = text_of(
                await agent.call_tool("search_tools", {"query": "give the money back for an order, refund"})
            )
            assert found.startswith("shop.refund_order(order) [write] Pay back what an order cost")


@pytest.mark.requirement("P-LIST-CHANGED")
async def test_a_client_of_2025_hears_of_new_tools(tmp_path: Path):
    file = tmp_path / "tools.json"
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])})
    changed = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with client("stdio", "2025-11-25", surface="static", home=tmp_path, message_handler=listen) as connected:
        await connected.list_tools()
        serving(file, [definition("announce"), definition("refund_order")])
        with anyio.fail_after(15):
            await connected.call_tool("shop__announce", {})
            # The first one may be about the first list, which came a moment before the server's own news.
            while len((await connected.list_tools(cache_mode="refresh")).tools) != 2:
                await changed.wait()
                changed = anyio.Event()


@pytest.mark.requirement("P-LIST-CHANGED")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_client_over_stdio_that_never_listed_hears_of_new_tools(tmp_path: Path, era: str):
    file = tmp_path / "tools.json"
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])})
    assert portico(tmp_path, "refresh").returncode == 0
    changed = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with client("stdio", era, surface="static", home=tmp_path, message_handler=listen) as connected:
        serving(file, [definition("announce"), definition("refund_order")])
        with anyio.fail_after(30):
            if era == "2025-11-25":
                await connected.call_tool("shop__announce", {})
                await changed.wait()
            else:
                async with connected.listen(tools_list_changed=True) as events:
                    await connected.call_tool("shop__announce", {})
                    await anext(aiter(events))


@pytest.mark.requirement("P-STABLE-SURFACE")
async def test_discover_lists_the_same_bytes_whatever_the_servers_offer(tmp_path: Path):
    file = tmp_path / "tools.json"
    write_config(tmp_path, {"shop": serving(file, [definition("announce")])})
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            before = [t.model_dump() for t in (await connected.list_tools()).tools]
            serving(file, [definition("announce"), definition("refund_order")])
            await connected.call_tool("call_tool", {"name": "shop.announce", "arguments": {}})
            with anyio.fail_after(15):
                found = ""
                while "refund" not in found:
                    found = text_of(await connected.call_tool("search_tools", {"query": "refund order"}))
            assert [t.model_dump() for t in (await connected.list_tools(cache_mode="refresh")).tools] == before


@pytest.mark.requirement("P-LIST-CHANGED")
async def test_a_server_that_was_upgraded_while_the_gateway_was_away_is_noticed_at_its_first_call(tmp_path: Path):
    file = tmp_path / "tools.json"
    write_config(tmp_path, {"shop": serving(file, [definition("ping")])})
    assert portico(tmp_path, "refresh").returncode == 0
    serving(file, [definition("ping"), definition("refund_order")])
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            assert "shop (1)" in text_of(await connected.call_tool("search_tools", {"query": ""}))
            await connected.call_tool("call_tool", {"name": "shop.ping", "arguments": {}})
            with anyio.fail_after(15):
                found = ""
                while "shop (2)" not in found:
                    found = text_of(await connected.call_tool("search_tools", {"query": ""}))
