"""What is kept of the catalog: servers, tools with their standing, and categories."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from portico.catalog.prompts_and_resources import Items
from portico.catalog.snapshot import CatalogSnapshot, Resolver
from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch
from portico.domain.server import Packaging, Server
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage_and_tiers import Standing, Tier
from portico.storage.catalog_tables import TierRecords
from portico.storage.database_interface import Database
from portico.storage.journal_tables import Ledger

FIND = ToolId("serena", "find_symbol")
SNAP = ToolId("playwright", "browser_snapshot")
HOT = Standing(tier=Tier.HOT, score=0.91)
WARM = Standing(tier=Tier.WARM, score=0.65)


@pytest.fixture
def tiers(database: Database) -> TierRecords:
    return TierRecords(database)


def made(id: ToolId, **more: Any) -> Tool:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    given = {"description": "does it", "input_schema": schema, "category": "code_analysis", **more}
    return Tool(id=id, handle=".".join(id), listed="__".join(id), definition={}, **given)


def snapshot(tools: Iterable[Tool], **titles: str) -> CatalogSnapshot:
    tools = list(tools)
    names = {tool.id.server for tool in tools} | titles.keys()
    return CatalogSnapshot(
        number=1,
        sections={},
        tools={tool.id: tool for tool in tools},
        servers={name: Server(name=name, identifier=name, title=titles.get(name, "")) for name in names},
        rejected=(),
        items=Items(),
        resolver=Resolver({}),
    )


def active(database: Database) -> tuple[set[str], set[str]]:
    servers = database.rows("SELECT server_name FROM mcp_servers WHERE is_active")
    tools = database.rows("SELECT tool_name FROM mcp_tools WHERE is_active")
    return {name for (name,) in servers}, {name for (name,) in tools}


@pytest.mark.requirement("S1-49", "S1-51")
def test_the_catalog_is_written_down_with_all_that_there_is_to_know(tiers: TierRecords, database: Database) -> None:
    packaging = {"serena": Packaging(docker_image="serena:1", network_mode="none")}
    tool = made(FIND, title="Find symbol", description="Finds “symbols” ✓")
    tiers.keep_catalog(snapshot([tool, made(SNAP)], serena="Serena"), packaging, {FIND: HOT})
    assert database.rows(
        "SELECT server_name, display_name, docker_image, network_mode, is_active FROM mcp_servers ORDER BY server_name"
    ) == [("playwright", "playwright", "", "", True), ("serena", "Serena", "serena:1", "none", True)]
    ((*row, schema),) = database.rows(
        "SELECT t.tool_name, t.display_name, t.description, t.primary_category, t.tier, t.tier_score, t.is_active,"
        " t.parameters_schema FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id WHERE s.server_name = 'serena'"
    )
    assert row == ["find_symbol", "Find symbol", "Finds “symbols” ✓", "code_analysis", "hot", 0.91, True]
    assert json.loads(schema) == tool.input_schema


@pytest.mark.requirement("S1-49")
def test_the_queries_of_the_design_run_as_they_are_written(tiers: TierRecords, database: Database) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tiers.keep_catalog(snapshot([made(FIND, input_schema=schema), made(SNAP)]), {}, {FIND: HOT})
    ((name, required, rate),) = database.rows(
        "SELECT tool_name, parameters_schema -> 'required' AS required_params, "
        "success_count * 100.0 / NULLIF(total_invocations, 0) AS success_rate "
        "FROM mcp_tools WHERE tier = 'hot' ORDER BY tier_score DESC LIMIT 15"
    )
    assert (name, json.loads(required), rate) == ("find_symbol", ["a"], None)


def test_standings_come_back_and_stay_until_new_ones_are_given(tiers: TierRecords) -> None:
    assert tiers.standings() == {}
    both = snapshot([made(FIND), made(SNAP)])
    tiers.keep_catalog(both, {})
    assert tiers.standings() == {}
    tiers.keep_catalog(both, {}, {FIND: HOT, SNAP: WARM, ToolId("no", "where"): HOT})
    assert tiers.standings() == {FIND: HOT, SNAP: WARM}
    tiers.keep_catalog(snapshot([made(FIND, description="new"), made(SNAP)]), {})
    assert tiers.standings() == {FIND: HOT, SNAP: WARM}
    tiers.keep_catalog(both, {}, {FIND: WARM})
    assert tiers.standings() == {FIND: WARM, SNAP: WARM}


def test_what_is_no_longer_there_becomes_inactive_and_comes_back(tiers: TierRecords, database: Database) -> None:
    both = snapshot([made(FIND), made(SNAP)])
    tiers.keep_catalog(both, {}, {FIND: HOT})
    tiers.keep_catalog(snapshot([made(SNAP)]), {})
    assert active(database) == ({"playwright"}, {"browser_snapshot"})
    assert tiers.standings() == {FIND: HOT}
    tiers.keep_catalog(both, {})
    assert active(database) == ({"playwright", "serena"}, {"browser_snapshot", "find_symbol"})
    tiers.keep_catalog(snapshot([]), {})
    assert active(database) == (set(), set())


def test_the_catalog_and_the_journal_write_to_one_row(tiers: TierRecords, database: Database) -> None:
    ledger = Ledger(database)
    entry = Invocation(tool=FIND, spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=0.05, at=5.0)
    ledger.append(Batch(writer="w", entries=(entry,)))
    assert tiers.standings() == {}
    tiers.keep_catalog(snapshot([made(FIND, title="Find")]), {}, {FIND: HOT})
    ledger.append(Batch(writer="w", first=1, entries=(entry,)))
    assert database.rows("SELECT display_name, total_invocations, tier FROM mcp_tools") == [("Find", 2, "hot")]
    assert database.rows("SELECT server_name FROM mcp_servers") == [("serena",)]


def test_a_catalog_that_has_not_changed_writes_nothing(tiers: TierRecords, database: Database) -> None:
    mark = {
        "sqlite": "PRAGMA data_version",
        "postgresql": "SELECT SUM(CAST(CAST(xmin AS text) AS bigint)) FROM mcp_tools",
    }
    tools = [made(ToolId(f"s{n % 7}", f"t{n}")) for n in range(100)]
    standings = {tool.id: HOT for tool in tools}
    tiers.keep_catalog(snapshot(tools), {}, standings)
    before = database.rows(mark[database.dialect])
    tiers.keep_catalog(snapshot(tools), {}, standings)
    tiers.keep_catalog(snapshot(tools), {})
    assert database.rows(mark[database.dialect]) == before


def test_a_large_catalog_is_kept_whole(tiers: TierRecords, database: Database) -> None:
    tools = [made(ToolId(f"server{n % 100}", f"tool{n}")) for n in range(3_000)]
    tiers.keep_catalog(snapshot(tools), {}, {tool.id: WARM for tool in tools})
    assert len(tiers.standings()) == 3_000
    tiers.keep_catalog(snapshot(tools[:1_000]), {}, {tool.id: HOT for tool in tools})
    assert len(active(database)[1]) == 1_000
    assert sum(standing == HOT for standing in tiers.standings().values()) == 1_000


@pytest.mark.requirement("S1-E9")
def test_hostile_names_are_data(tiers: TierRecords, database: Database) -> None:
    ids = [
        ToolId("'; DROP TABLE mcp_tools; --", '"; --'),
        ToolId("100%", ":name %(tool)s {x}"),
        ToolId("🚪", "t" * 512),
        ToolId("", ""),
    ]
    odd = [ToolId("n\0", "\ud83d"), ToolId("n\0", "\ud83e"), ToolId("n", "🚪" * 512)]
    tools = [made(id, description=f"{id.name}\0", title=id.name, category="c\0" + id.server) for id in (*ids, *odd)]
    tiers.keep_catalog(snapshot(tools), {}, {tool.id: HOT for tool in tools})
    assert len(tiers.standings()) == len(tools)
    assert tiers.standings().keys() >= set(ids)
    assert len(active(database)[1]) == len(tools)


def test_a_schema_that_is_hardly_json_is_kept_all_the_same(tiers: TierRecords, database: Database) -> None:
    tiers.keep_catalog(snapshot([made(FIND, input_schema={"maximum": 10**30, "title": "\ud83d\0"})]), {})
    ((schema,),) = database.rows("SELECT parameters_schema FROM mcp_tools")
    assert json.loads(schema) == {"maximum": 10**30, "title": "\ud83d\0"}


def test_processes_that_keep_different_catalogs_at_once_do_not_stop_each_other(
    tiers: TierRecords, database: Database
) -> None:
    tools = [made(ToolId(f"s{n % 3}", f"t{n}")) for n in range(30)]
    ledger = Ledger(database)

    def keep(turn: int) -> None:
        if turn % 3:
            tiers.keep_catalog(snapshot(tools[turn:] + tools[: turn // 2]), {}, {tool.id: HOT for tool in tools[::2]})
        else:
            done = {"outcome": Outcome.DONE, "spelled": "", "caller": "", "surface": ""}
            entries = [Invocation(tool=tool.id, seconds=0.1, **done) for tool in reversed(tools)]  # type: ignore[arg-type]
            ledger.append(Batch(writer=f"w{turn}", entries=tuple(entries)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(keep, range(24)))
    assert {usage.calls for usage in ledger.usage().values()} == {8}


@pytest.mark.requirement("S1-50")
def test_categories_come_back_in_their_order(tiers: TierRecords) -> None:
    assert tiers.categories() == {}
    last = Category(name="web_automation", display_name="Web", description="Browsers")
    first = Category(name="code_analysis", display_name="Code Analysis & Refactoring", description="✓", order=1)
    tiers.keep_categories([last, first])
    assert list(tiers.categories().values()) == [first, last]
    changed = Category(name="code_analysis", display_name="Code")
    tiers.keep_categories([changed])
    assert tiers.categories()["code_analysis"] == changed
    tiers.keep_categories([])


@pytest.mark.requirement("S1-50")
def test_shipped_categories_stand_beside_what_an_operator_wrote(tiers: TierRecords, database: Database) -> None:
    old, new = Category(name="a", display_name="old"), Category(name="a", display_name="new", order=1)
    mine = Category(name="b", display_name="mine", order=2)
    tiers.keep_categories([old, Category(name="b"), Category(name="no longer shipped")], shipped=True)
    assert tiers.categories() == {}
    tiers.keep_categories([mine])
    tiers.keep_categories([new, Category(name="b", display_name="shipped")], shipped=True)
    assert tiers.categories() == {"b": mine}
    table = "SELECT category_name, display_name, is_edited FROM mcp_categories ORDER BY sort_order"
    assert database.rows(table) == [("a", "new", False), ("b", "mine", True)]
    assert not tiers.drop_category("a")
    assert tiers.drop_category("b")
    tiers.keep_categories([new, Category(name="b", display_name="shipped", order=3)], shipped=True)
    assert database.rows(table) == [("a", "new", False), ("b", "shipped", False)]


def test_shipped_categories_that_are_known_already_write_nothing(tiers: TierRecords, database: Database) -> None:
    mark = {
        "sqlite": "SELECT total_changes()",
        "postgresql": "SELECT SUM(CAST(CAST(xmin AS text) AS bigint)) FROM mcp_categories",
    }
    shipped = [Category(name=f"c{n}", description="✓\0", order=n) for n in range(11)]
    tiers.keep_categories(shipped, shipped=True)
    with database.transaction() as work:
        before = work.rows(mark[database.dialect])
    tiers.keep_categories(shipped, shipped=True)
    with database.transaction() as work:
        assert work.rows(mark[database.dialect]) == before


def test_a_category_can_be_dropped(tiers: TierRecords) -> None:
    tiers.keep_categories([Category(name="'; --")])
    assert tiers.drop_category("'; --")
    assert not tiers.drop_category("'; --")
    assert tiers.categories() == {}
