"""Tools of a database behind every door of a house: listed, found, described, called, scripted, followed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from portico.application import Application
from portico.config import CatalogSettings, StorageSettings
from portico.config.profiles import read_pattern
from portico.domain.call import Call
from portico.domain.search_answers import Query
from portico.domain.server import DatabaseSpec, Offering
from portico.domain.tool import Profile, ToolId
from portico.errors import InvalidArguments, UnknownTool, UpstreamGone
from portico.providers.sql.registry.configured_registries import open_registries
from portico.testing import definition
from portico.wiring import open_app, watch
from tests.registries import (
    ALICE,
    BOB,
    Shop,
    called,
    postgres_shop,
    registry_house,
    settings_for,
    sqlite_shop,
    until_tool,
)


@pytest.fixture
def pg(postgres_url: str) -> Shop:
    return postgres_shop(postgres_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "sqlite":
        return sqlite_shop(tmp_path / "shop.db")
    return postgres_shop(request.getfixturevalue("postgres_url"))


def code_tool(application: Application, *names: str) -> None:
    """Offer tools as code does."""
    tools = tuple(definition(name, "Code") for name in names)
    application.gateway.publisher.accept([(Offering(server="local", tools=tools), "local")])


@pytest.mark.requirement("S4-2", "S4-9", "S4-45", "P-REGISTRY-LOADS")
async def test_registered_tools_belong_to_their_database_and_are_listed_bare(shop: Shop, tmp_path: Path) -> None:
    async with registry_house(tmp_path, shop.spec()) as application:
        tool = application.gateway.snapshot.tools[ToolId("warehouse", "sample_sales")]
        assert (tool.handle, tool.listed, tool.source) == ("warehouse.sample_sales", "sample_sales", "database")
        assert tool.description == "Sales of a small shop, one row each."
        for spelling in ("sample_sales", "warehouse.sample_sales", "warehouse::sample_sales"):
            assert (await called(application, spelling, {"region": "north"}))["row_count"] == 2


@pytest.mark.requirement("S4-10")
async def test_without_a_registry_nothing_happens(tmp_path: Path) -> None:
    async with registry_house(tmp_path) as application:
        assert application.registries is None
        assert application.problems == ()


@pytest.mark.requirement("S4-P4", "S4-17")
async def test_the_first_tag_is_the_category_and_the_config_wins(shop: Shop, tmp_path: Path) -> None:
    shop.register("plain", "sample_sales", "T", "region CV?")
    shop.register("base_ish", "sample_sales", "T", "region CV?", Tags="Finance, base")
    shop.register("moved", "sample_sales", "T", "region CV?", Tags="finance")
    async with registry_house(
        tmp_path, shop.spec(), catalog=CatalogSettings(categories={"warehouse.moved": "planning"})
    ) as application:
        shelves = {id.name: tool.category for id, tool in application.gateway.snapshot.tools.items()}
        assert shelves["sample_sales"] == "sample"
        assert (shelves["base_ish"], shelves["moved"], shelves["plain"]) == ("finance", "planning", "misc")
        assert application.gateway.snapshot.tools[ToolId("warehouse", "base_ish")].tags == ("Finance", "base")


@pytest.mark.requirement("S4-6", "S4-E7")
async def test_a_registered_tool_takes_the_place_of_a_code_tool_and_says_so(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop.register("base_readQuery", "sample_sales", "T", "region CV?", docstring="From the registry")
    async with registry_house(tmp_path, shop.spec()) as application:
        with caplog.at_level(logging.WARNING):
            code_tool(application, "base_readQuery", "base_other")
        assert any("base_readQuery" in line and "takes the place" in line for line in caplog.messages)
        tools = application.gateway.snapshot.tools
        assert ToolId("local", "base_readQuery") not in tools
        winner = tools[ToolId("warehouse", "base_readQuery")]
        assert (winner.listed, winner.notes) == ("base_readQuery", ("takes the place of local.base_readQuery",))
        assert winner.definition["_meta"]["portico/registry"]["object"] == "sample_sales"
        assert tools[ToolId("local", "base_other")].listed == "base_other"
        assert (await called(application, "base_readQuery", {"region": "west"}))["row_count"] == 2
        shop.forget("base_readQuery")
        await application.admin.refresher.refresh("warehouse")
        assert application.gateway.snapshot.tools[ToolId("local", "base_readQuery")].listed == "base_readQuery"


@pytest.mark.requirement("S4-E7")
async def test_where_overriding_is_switched_off_code_keeps_its_name(shop: Shop, tmp_path: Path) -> None:
    shop.register("base_readQuery", "sample_sales", "T", "region CV?")
    spec = shop.spec(name="archive", registry_override=False)
    async with registry_house(tmp_path, spec) as application:
        code_tool(application, "base_readQuery")
        tools = application.gateway.snapshot.tools
        assert tools[ToolId("local", "base_readQuery")].listed == "base_readQuery"
        assert tools[ToolId("archive", "base_readQuery")].listed == "archive__base_readQuery"


@pytest.mark.requirement("S4-E7", "T31")
async def test_a_meta_tool_is_never_replaced(shop: Shop, tmp_path: Path) -> None:
    for name in ("search_tools", "execute_tool", "Run_Script"):
        shop.register(name, "sample_sales", "T", "region CV?")
    async with registry_house(tmp_path, shop.spec()) as application:
        assert not {"search_tools", "execute_tool", "Run_Script"} & {
            id.name for id in application.gateway.snapshot.tools
        }
        assert application.registries is not None
        refused = [
            problem.tool for problem in application.registries.providers["warehouse"].problems if not problem.loads
        ]
        assert {"search_tools", "execute_tool", "Run_Script"} <= {*refused}


@pytest.mark.requirement("S4-5", "S4-48", "S4-49", "S4-E12")
async def test_a_profile_filters_code_tools_and_no_registered_ones(shop: Shop, tmp_path: Path) -> None:
    profile = Profile(name="db-registry", tool=(read_pattern("X"),), prompt=(read_pattern(".*"),), registry="mcp")
    async with registry_house(tmp_path, shop.spec(), profile=profile) as application:
        code_tool(application, "base_readQuery")
        visible = application.gateway.view(ALICE).visible
        assert {id.server for id in visible} == {"warehouse"}
        assert len(visible) == len(application.gateway.snapshot.sections["warehouse"].tools)


@pytest.mark.requirement("S4-P5", "P-REGISTRY-USERS", "P-HIDDEN-LOOKS-MISSING", "T45")
async def test_an_end_users_rights_decide_for_every_door(shop: Shop, tmp_path: Path) -> None:
    shop.register("private", "sample_sales", "T", "region CV?", users="alice", docstring="Secret sales figures")
    async with registry_house(tmp_path, shop.spec()) as application:
        gateway = application.gateway
        mine = ToolId("warehouse", "private")
        assert mine in gateway.view(ALICE).visible
        assert mine not in gateway.view(BOB).visible
        found = gateway.search(ALICE, Query(text="secret sales figures"))
        other = gateway.search(BOB, Query(text="secret sales figures"))
        assert "private" in found.text
        assert "private" not in other.text
        assert (await called(application, "private", caller=ALICE))["row_count"] == 6
        with pytest.raises(UnknownTool) as hidden:
            await called(application, "private", caller=BOB)
        with pytest.raises(UnknownTool) as missing:
            await called(application, "privatf", caller=BOB)
        assert str(hidden.value).replace("private", "privatf") == str(missing.value)
        if application.scripts is not None:
            script = "local ok, err = pcall(function() return warehouse.private({}):await() end) return ok"
            assert (await application.scripts.run(BOB, script)).text == "false"


@pytest.mark.requirement("S4-P2", "S4-P5", "P-REGISTRY-REFRESH", "T45")
async def test_a_revoked_right_is_gone_with_the_next_edition(shop: Shop, tmp_path: Path) -> None:
    shop.register("private", "sample_sales", "T", "region CV?", users="alice bob")
    async with registry_house(tmp_path, shop.spec()) as application:
        before = application.gateway.snapshot
        shop.run("DELETE FROM mcp.mcp_user_grants WHERE ToolName = 'private' AND UserName = 'bob'")
        await application.admin.refresher.refresh("warehouse")
        assert application.gateway.snapshot.number == before.number + 1
        with pytest.raises(UnknownTool):
            await called(application, "private", caller=BOB)
        assert (await called(application, "private", caller=ALICE))["row_count"] == 6
        assert (await application.admin.refresher.refresh("warehouse")).number == before.number + 1


@pytest.mark.requirement("S4-P1", "S4-E5", "P-REGISTRY-REFRESH")
async def test_a_row_that_is_told_by_notify_is_callable_without_a_restart(pg: Shop, tmp_path: Path) -> None:
    async with registry_house(tmp_path, pg.spec(refresh_s=3_600), watched=True) as application:
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(lambda: pg.register("fresh", "sample_sales", "T", "region CV?"))
            await until_tool(application, "fresh")
            assert (await called(application, "fresh", {"region": "north"}))["row_count"] == 2
            await anyio.to_thread.run_sync(pg.forget, "fresh")
            await until_tool(application, "fresh", there=False)


@pytest.mark.requirement("S4-P1", "P-REGISTRY-REFRESH")
async def test_a_registry_that_cannot_tell_is_looked_at_again_and_again(shop: Shop, tmp_path: Path) -> None:
    if shop.dialect == "postgresql":
        for table in ("mcp_tools", "mcp_tool_params", "mcp_tool_users", "mcp_user_grants"):
            shop.run(f"DROP TRIGGER mcp_tell_change ON mcp.{table}")
    async with registry_house(tmp_path, shop.spec(refresh_s=0.1), watched=True) as application:
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(lambda: shop.register("fresh", "sample_sales", "T", "region CV?"))
            await until_tool(application, "fresh")
            assert (await called(application, "fresh"))["row_count"] == 6


@pytest.mark.requirement("S4-E5", "S4-E6", "P-REGISTRY-LOADS")
async def test_a_database_that_is_away_at_start_is_loaded_when_it_comes(tmp_path: Path) -> None:
    file = tmp_path / "later.db"
    spec = DatabaseSpec(name="warehouse", url=f"sqlite:///{file}", refresh_s=0.1)
    from portico.wiring import open_app

    async with open_app(settings_for(tmp_path, spec)) as application, anyio.create_task_group() as tasks:
        assert application.unknown == {"warehouse"}
        with anyio.fail_after(20):
            watch(application, tasks)
            while "warehouse" not in application.admin.refresher.failures:
                await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(sqlite_shop, file)
            await until_tool(application, "sample_sales")
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("P-REGISTRY-LOADS")
async def test_a_start_while_the_database_is_away_knows_the_tools_and_calls_none(tmp_path: Path) -> None:
    shop = sqlite_shop(tmp_path / "shop.db")
    shop.register("revoked", "sample_sales", "T", "region CV?", users="alice")
    assert shop.file is not None
    async with registry_house(tmp_path, shop.spec(), storage=StorageSettings()) as application:
        known = {id.name for id in application.gateway.snapshot.tools}
    shop.forget("revoked")
    away = shop.file.rename(tmp_path / "away.db")
    async with open_app(settings_for(tmp_path, shop.spec(), storage=StorageSettings())) as application:
        assert {id.name for id in application.gateway.snapshot.tools} == known
        with pytest.raises(UnknownTool):  # its rights are remembered too
            await called(application, "revoked", caller=BOB)
        with pytest.raises(UpstreamGone):
            await called(application, "revoked")
    away.rename(shop.file)
    async with open_app(settings_for(tmp_path, shop.spec(), storage=StorageSettings())) as application:
        with pytest.raises(UnknownTool):
            await called(application, "revoked")
        assert (await called(application, "sample_sales"))["row_count"] == 6


@pytest.mark.requirement("S4-43")
async def test_a_required_parameter_is_asked_for_by_name(shop: Shop, tmp_path: Path) -> None:
    shop.register("of_region", "sample_sales", "T", "region CV", "product CV?")
    async with registry_house(tmp_path, shop.spec()) as application:
        with pytest.raises(InvalidArguments, match="missing: region"):
            await called(application, "of_region", {})
        assert (await called(application, "of_region", {"region": "south"}))["row_count"] == 2


async def test_a_script_calls_registered_tools_like_any_other(shop: Shop, tmp_path: Path) -> None:
    async with registry_house(tmp_path, shop.spec()) as application:
        assert application.scripts is not None
        script = 'local found = warehouse.sample_sales({region = "north"}):await() return found.row_count'
        assert (await application.scripts.run(ALICE, script)).text == "2"


async def test_two_registries_with_one_name_for_a_tool_are_told_apart(tmp_path: Path) -> None:
    one, other = sqlite_shop(tmp_path / "one.db"), sqlite_shop(tmp_path / "two.db")
    async with registry_house(tmp_path, one.spec(name="one"), other.spec(name="two")) as application:
        listed = {
            id: tool.listed for id, tool in application.gateway.snapshot.tools.items() if id.name == "sample_sales"
        }
        assert set(listed.values()) == {"sample_sales", "sample_sales_2"}
        assert (await called(application, "two.sample_sales"))["row_count"] == 6


def test_databases_that_cannot_be_used_are_named_by_file_and_line(tmp_path: Path) -> None:
    def spec(name: str, url: str, **fields: Any) -> DatabaseSpec:
        return DatabaseSpec(name=name, url=url, file="portico.yaml", line=7, **fields)

    good = spec("good", f"sqlite:///{tmp_path}/x.db")
    specs = (good, spec("github", "sqlite:///x.db"), spec("bad", "nonsense"), spec("td", "teradatasql://u:pw@h/d"))
    roles = spec("roled", "sqlite:///x.db", roles={"a": "b"})
    port = spec("port", "postgresql://u:pw@h:port/d")
    found = open_registries((*specs, roles, port), taken={"github"})
    assert found.providers.keys() == {"good"}
    assert [(p.file, p.line, p.where) for p in found.problems] == [
        ("portico.yaml", 7, "databases.github"),
        ("portico.yaml", 7, "databases.bad.url"),
        ("portico.yaml", 7, "databases.td.url"),
        ("portico.yaml", 7, "databases.roled.role"),
        ("portico.yaml", 7, "databases.port.url"),
    ]
    assert not any("pw" in str(problem) for problem in found.problems)


@pytest.mark.requirement("S4-53")
async def test_a_check_shows_what_each_tool_would_send_and_why_others_do_not_load(shop: Shop, tmp_path: Path) -> None:
    shop.register("gone", "nothing", "T", "a CV?")
    async with registry_house(tmp_path, shop.spec()) as application:
        assert application.registries is not None
        checked = await application.registries.check("warehouse")
        assert f'FROM "{shop.home}"."sample_sales"' in checked.statements["sample_sales"].sql
        assert any(problem.tool == "gone" for problem in checked.problems)
        assert checked.refused >= 1
        other = await application.registries.check("warehouse", "teradata")
        assert other.statements["sample_sales"].sql.startswith("SELECT TOP")


async def test_a_value_that_has_one_reading_is_repaired_before_it_is_bound(shop: Shop, tmp_path: Path) -> None:
    async with registry_house(tmp_path, shop.spec()) as application:
        result = await application.gateway.call(ALICE, Call(tool="sample_sales", arguments={"limit": "1"}))
        assert result.structured["row_count"] == 1
        assert any("limit" in note for note in result.notes)
