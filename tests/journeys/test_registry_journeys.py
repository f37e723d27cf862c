"""Tools that live in a database, behind a real gateway with real clients: loaded, found, called, followed, revoked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config
from tests.registries import Shop, postgres_shop, sqlite_shop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "sqlite":
        return sqlite_shop(tmp_path / "shop.db")
    return postgres_shop(request.getfixturevalue("postgres_url"))


@pytest.fixture
def running(shop: Shop, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway over the database; a registry that cannot tell is looked at often."""
    refresh = 0.2 if shop.file else 3_600
    databases = {"warehouse": {"url": shop.url, "registry": "mcp", "refresh_s": refresh}}
    write_config(tmp_path, {}, databases=databases)
    with gateway(tmp_path) as started:
        yield started


async def names(connected: Client) -> set[str]:
    return {tool.name for tool in (await connected.list_tools(cache_mode="refresh")).tools}


@pytest.mark.requirement("S4-2", "S4-9", "S4-E5", "P-REGISTRY-LOADS")
@pytest.mark.parametrize("era", ERAS)
async def test_the_first_list_of_a_client_has_the_registered_tools(running: Gateway, era: str) -> None:
    async with client("http", era, surface="static", running=running) as connected:
        assert {"sample_sales", "sample_sales_by_region"} <= await names(connected)
        result = await connected.call_tool("sample_sales", {"region": "north", "columns": ["product"]})
        assert sorted(json.loads(text_of(result))["rows"]) == [["desk"], ["lamp"]]
        wrong = await connected.call_tool("sample_sales", {"id": "1); DROP TABLE x; --"})
        assert wrong.is_error
        assert "nothing was sent" in text_of(wrong)


@pytest.mark.requirement("S4-2", "P-REGISTRY-LOADS")
async def test_registered_tools_are_found_described_called_and_scripted_on_every_surface(running: Gateway) -> None:
    asked: dict[str, tuple[str, dict[str, Any], str]] = {
        "discover": ("search_tools", {"query": "sales of a small shop"}, "warehouse.sample_sales("),
        "search": ("search_tool", {"query": "sales"}, "sample_sales"),
        "capabilities": ("capabilities", {}, "sample_sales"),
        "gateway": ("list-server-tools", {"server": "warehouse"}, "sample_sales"),
    }
    for surface, (tool, arguments, expected) in asked.items():
        async with client("http", "2026-07-28", surface=surface, running=running) as connected:
            assert expected in text_of(await connected.call_tool(tool, arguments)), surface
            direct = await connected.call_tool("sample_sales", {"region": "west", "limit": 5})
            assert json.loads(text_of(direct))["row_count"] == 2, surface
    async with client("http", "2026-07-28", surface="discover", running=running) as connected:
        described = text_of(await connected.call_tool("describe_tools", {"names": ["sample_sales"]}))
        assert "The price that was paid, in euros" in described
        called = await connected.call_tool("call_tool", {"name": "warehouse.sample_sales", "arguments": {"limit": 1}})
        assert json.loads(text_of(called))["truncated"] is True
        script = 'return warehouse.sample_sales({region = "south"}):await().row_count'
        assert text_of(await connected.call_tool("run_script", {"script": script})).strip().startswith("2")
    async with client("http", "2026-07-28", surface="search", running=running) as connected:
        executed = await connected.call_tool("execute_tool", {"tool_name": "sample_sales", "arguments": {"limit": 2}})
        assert json.loads(text_of(executed))["row_count"] == 2


@pytest.mark.requirement("S4-P1", "S4-P2", "S4-E5", "P-REGISTRY-REFRESH", "P-LIST-CHANGED")
async def test_a_new_row_is_announced_and_callable_and_a_deleted_one_is_gone(running: Gateway, shop: Shop) -> None:
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        assert "fresh" not in await names(connected)
        async with connected.listen(tools_list_changed=True) as events:
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(lambda: shop.register("fresh", "sample_sales", "T", "region CV?"))
                await anext(aiter(events))
        with anyio.fail_after(20):
            while "fresh" not in await names(connected):
                continue  # each look is a question to another process
            assert json.loads(text_of(await connected.call_tool("fresh", {})))["row_count"] == 6
            await anyio.to_thread.run_sync(shop.forget, "fresh")
            while "fresh" in await names(connected):
                continue
        gone = await connected.call_tool("fresh", {})
        assert "unknown_tool" in text_of(gone)
        assert "sample_sales" in await names(connected)


@pytest.mark.requirement("S4-P5", "P-REGISTRY-USERS", "P-LIST-CHANGED")
async def test_a_revoked_right_hides_the_tool_and_is_announced(running: Gateway, shop: Shop) -> None:
    changed = anyio.Event()

    async def listen(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with client("http", "2025-11-25", surface="static", running=running, message_handler=listen) as connected:
        assert "sample_sales" in await names(connected)
        with anyio.fail_after(20):
            revoke = "UPDATE mcp.mcp_user_grants SET UserName = 'somebody' WHERE ToolName = 'sample_sales'"
            await anyio.to_thread.run_sync(shop.run, revoke)
            while "sample_sales" in await names(connected):  # the first news may be of the registry itself
                await changed.wait()
                changed = anyio.Event()
        assert "unknown_tool" in text_of(await connected.call_tool("sample_sales", {}))


@pytest.mark.requirement("S4-P2", "P-REGISTRY-REFRESH")
async def test_the_refresh_command_reaches_a_gateway_that_runs(shop: Shop, tmp_path: Path) -> None:
    if not shop.file:
        for table in ("mcp_tools", "mcp_tool_params", "mcp_tool_users", "mcp_user_grants"):
            shop.run(f"DROP TRIGGER mcp_tell_change ON mcp.{table}")
    databases = {"warehouse": {"url": shop.url, "registry": "mcp", "refresh_s": 3_600}}
    write_config(tmp_path, {}, databases=databases)
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            assert "sample_sales" in await names(connected)
            shop.register("fresh", "sample_sales", "T", "region CV?")
            done = portico(tmp_path, "registry", "refresh")
            assert done.returncode == 0, done.stderr
            with anyio.fail_after(30):
                while "fresh" not in await names(connected):
                    continue
                while (await connected.call_tool("fresh", {})).is_error:
                    continue


@pytest.mark.requirement("S4-46", "S4-47", "S4-49", "S4-50", "S4-51", "S4-9")
async def test_the_environment_and_a_profile_alone_make_a_registry(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text('def handle_base_one() -> str:\n    """Does one."""\n    return "one"\n')
    write_config(tmp_path, {}, python=["mine.py"])
    monkeypatch.setenv("DATABASE_URI", shop.url)
    monkeypatch.setenv("MCP_PROFILE", "db-registry")
    assert os.environ["MCP_PROFILE"] == "db-registry"
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            listed = await names(connected)
            assert {"sample_sales", "sample_sales_by_region"} <= listed
            assert all(name.startswith("sample_") for name in listed)
            assert json.loads(text_of(await connected.call_tool("mcp.sample_sales", {})))["row_count"] == 6


@pytest.mark.requirement("S4-52")
def test_an_empty_registry_is_told_in_the_log(tmp_path: Path) -> None:
    shop = sqlite_shop(tmp_path / "shop.db")
    for name in ("sample_sales", "sample_sales_by_region", "sample_format_date"):
        shop.forget(name)
    write_config(tmp_path, {}, databases={"warehouse": {"url": shop.url, "registry": "mcp"}})
    listed = portico(tmp_path, "list")
    assert "No tools found in registry database 'mcp'" in listed.stderr


@pytest.mark.requirement("P-REGISTRY-ROWS", "P-COMES-BACK")
async def test_a_database_that_comes_late_is_loaded_and_announced(tmp_path: Path) -> None:
    file = tmp_path / "late.db"
    databases = {"warehouse": {"url": f"sqlite:///{file}", "registry": "mcp", "refresh_s": 0.2}}
    write_config(tmp_path, {}, databases=databases)
    with gateway(tmp_path) as running:
        async with client("http", "2026-07-28", surface="static", running=running) as connected:
            assert await names(connected) == set()
            sqlite_shop(file)
            with anyio.fail_after(30):
                while "sample_sales" not in await names(connected):
                    continue
        assert any("cannot be read" in line or "cannot be reached" in line for line in running.said)
