"""Registered tools run: values are bound, limits hold, errors are told, and only what was declared writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from tests.registries import ALICE, Shop, sqlite_shop

from portico.domain.call import Caller
from portico.domain.server import State
from portico.errors import (
    ConfigError,
    InvalidArguments,
    Refused,
    Sent,
    UnknownTool,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.providers.sql.registry.provider import RegistryProvider


async def ask(provider: RegistryProvider, name: str, caller: Caller = ALICE, **arguments: Any) -> Any:
    result = await provider.call(name, arguments, meta={}, on_progress=None, caller=caller)
    return result["structuredContent"]


HALF = """
CREATE PROCEDURE mcp.half(n integer) LANGUAGE plpgsql AS
$$ BEGIN DELETE FROM mcp.sample_sales WHERE id = n; PERFORM 1 / 0; END $$
"""
Provide = Callable[..., RegistryProvider]


@pytest.fixture
async def provide() -> AsyncIterator[Provide]:
    """Makes providers, and closes them."""
    made: list[RegistryProvider] = []

    def provide(shop: Shop, **fields: Any) -> RegistryProvider:
        made.append(RegistryProvider(shop.spec(**fields)))
        return made[-1]

    yield provide
    for provider in made:
        await provider.aclose()


@pytest.fixture
def provider(any_shop: Shop, provide: Provide) -> RegistryProvider:
    return provide(any_shop)


@pytest.mark.requirement("S4-3", "S4-40", "P-REGISTRY-LOADS")
async def test_a_table_is_read_with_filters_groups_and_an_order(provider: RegistryProvider) -> None:
    found = await ask(provider, "sample_sales", region="north", columns=["product"], order_by=[{"column": "product"}])
    assert found == {"columns": ["product"], "rows": [["desk"], ["lamp"]], "row_count": 2, "truncated": False}
    sums = await ask(
        provider,
        "sample_sales",
        group_by=["region"],
        aggregates=[{"function": "sum", "column": "amount", "as": "total"}],
        order_by=[{"column": "total", "direction": "desc"}],
    )
    assert sums["rows"] == [["north", 600.5], ["west", 585.75], ["south", 305.25]]
    some = await ask(provider, "sample_sales", filters={"amount": {"ge": 400}, "product": {"like": "d%"}})
    assert some["row_count"] == 2


@pytest.mark.requirement("S4-44")
async def test_every_tool_runs_its_own_object(any_shop: Shop, provider: RegistryProvider) -> None:
    for region in ("north", "south", "west"):
        any_shop.run(f"CREATE VIEW mcp.only_{region} AS SELECT product FROM mcp.sample_sales WHERE region = '{region}'")
        any_shop.register(f"tool_{region}", f"only_{region}", "V", "product CV?")
    counts = {}
    for region in ("north", "south", "west"):
        counts[region] = sorted(row[0] for row in (await ask(provider, f"tool_{region}"))["rows"])
    assert counts == {"north": ["desk", "lamp"], "south": ["chair", "lamp"], "west": ["desk", "lamp"]}


@pytest.mark.requirement("S4-1", "S4-34", "S4-E2")
async def test_functions_of_postgresql_give_a_value_or_rows_and_keep_their_defaults(pg: Shop, provide: Provide) -> None:
    provider = provide(pg)
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}
    assert await ask(provider, "sample_revenue", region="north", since="2026-02-01") == {"result": 480.5}
    assert (await ask(provider, "sample_best_sales"))["row_count"] == 3
    best = await ask(provider, "sample_best_sales", how_many=1)
    assert best == {"columns": ["product", "amount"], "rows": [["desk", 480.5]], "row_count": 1, "truncated": False}


async def test_functions_of_sqlite_are_its_own(tmp_path: Path, provide: Provide) -> None:
    provider = provide(sqlite_shop(tmp_path / "shop.db"))
    assert await ask(provider, "sample_format_date", form="%d.%m.%Y", moment="2026-05-31") == {"result": "31.05.2026"}


@pytest.mark.requirement("S4-43", "S4-E15", "P-REGISTRY-BOUND")
async def test_what_does_not_fit_is_refused_before_anything_is_sent(provider: RegistryProvider) -> None:
    for arguments in ({"id": "1); DROP TABLE x; --"}, {"limit": 0}, {"id": True}, {"nothing": 1}, {"columns": ["x"]}):
        with pytest.raises(InvalidArguments) as failure:
            await ask(provider, "sample_sales", **arguments)
        assert failure.value.sent is Sent.NOTHING


@pytest.mark.requirement("P-REGISTRY-LOADS")
async def test_rows_beyond_the_limit_are_cut_with_what_to_do(any_shop: Shop, provide: Provide) -> None:
    provider = provide(any_shop, rows=5)
    short = await ask(provider, "sample_sales", limit=2)
    assert (short["row_count"], short["truncated"]) == (2, True)
    assert short["next"].startswith("there are more than these 2 rows. Raise limit")
    with pytest.raises(InvalidArguments, match="between 1 and 5"):
        await ask(provider, "sample_sales", limit=6)
    exact = await ask(provider, "sample_sales", region="north", limit=2)
    assert exact["truncated"] is False


async def test_answers_of_postgresql_stay_within_rows_and_bytes(pg: Shop, provide: Provide) -> None:
    pg.register("many", "many", "F", "n I")
    pg.register("huge", "huge", "F", "n I")
    provider = provide(pg, rows=50, bytes=20_000)
    found = await ask(provider, "many", n=1_000_000)
    assert found["truncated"] is True
    assert 1 <= found["row_count"] <= 20
    assert found["next"].endswith("Narrow it with the tool's parameters")
    few = await ask(provider, "many", n=3)
    assert (few["row_count"], few["truncated"]) == (3, False)
    huge = await ask(provider, "huge", n=50_000_000)
    assert (huge["row_count"], huge["truncated"]) == (0, True)


@pytest.mark.requirement("P-REGISTRY-BOUND", "T71")
async def test_a_reading_tool_never_writes_whatever_its_function_does(pg: Shop, provide: Provide) -> None:
    pg.register("sneak", "sneak", "F")
    pg.register("sneak_plainly", "sneak_plainly", "F")
    provider = provide(pg, writes=True)
    for name in ("sneak", "sneak_plainly"):
        with pytest.raises(Refused):
            await ask(provider, name)
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]


async def test_what_a_reading_tool_may_not_do_is_told_to_its_owner(pg: Shop, provide: Provide) -> None:
    pg.register("sneak_plainly", "sneak_plainly", "F")
    provider = provide(pg)
    with pytest.raises(Refused, match=r"registered as reading.*Writes = 'Y'"):
        await ask(provider, "sneak_plainly")


async def test_a_tool_that_is_declared_as_writing_writes_once_and_whole(pg: Shop, provide: Provide) -> None:
    pg.register("clear", "sneak_plainly", "F", Writes="Y")
    pg.run(
        "CREATE PROCEDURE mcp.half(n integer) LANGUAGE plpgsql AS $$ BEGIN DELETE FROM mcp.sample_sales WHERE id = n; "
        "PERFORM 1 / 0; END $$"
    )
    pg.register("half", "half", "M", "n I", Writes="Y")
    provider = provide(pg, writes=True)
    assert await ask(provider, "sample_rename_product", old_name="lamp", new_name="light") == {"done": True}
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales WHERE product = 'light'") == [(3,)]
    with pytest.raises(UpstreamError, match="division by zero"):
        await ask(provider, "half", n=1)
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]
    assert await ask(provider, "clear") == {"result": 1}
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(0,)]


@pytest.mark.requirement("T72")
async def test_a_call_that_takes_too_long_is_ended_by_the_server(pg: Shop, provide: Provide) -> None:
    pg.register("slow", "wait_for", "F", "seconds F")
    provider = provide(pg, seconds=0.3)
    with anyio.fail_after(5), pytest.raises(UpstreamTimeout):
        await ask(provider, "slow", seconds=60)
    assert await ask(provider, "slow", seconds=0) == {"result": "waited"}


async def test_a_cancelled_call_leaves_the_server_free(pg: Shop, provide: Provide) -> None:
    pg.register("slow", "wait_for", "F", "seconds F")
    provider = provide(pg)
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT portico_row%wait_for%'"
    )
    await provider.offer()

    async def count() -> int:
        return int((await anyio.to_thread.run_sync(pg.rows, running))[0][0])

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ask(provider, "slow", seconds=60))
            while not await count():  # noqa: ASYNC110  the server is another process
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        while await count():  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert await ask(provider, "slow", seconds=0) == {"result": "waited"}


@pytest.mark.requirement("P-REGISTRY-ROWS")
async def test_a_function_that_was_dropped_fails_its_call_with_a_reason(pg: Shop, provide: Provide) -> None:
    provider = provide(pg)
    suspicions: list[str] = []
    provider.on_suspicion = lambda: suspicions.append("now")
    await provider.offer()
    pg.run("DROP FUNCTION mcp.sample_revenue(text, date)")
    with pytest.raises(UpstreamError, match="does not exist"):
        await ask(provider, "sample_revenue", region="north")
    assert suspicions == ["now"]
    assert await provider.has_changed()
    assert "sample_revenue" not in [tool["name"] for tool in (await provider.offer()).tools]
    with pytest.raises(UnknownTool):
        await ask(provider, "sample_revenue", region="north")


@pytest.mark.requirement("P-REGISTRY-ROWS")
async def test_a_column_that_changes_under_a_prepared_statement_is_read_anew(pg: Shop, provide: Provide) -> None:
    provider = provide(pg)
    for _ in range(7):
        assert (await ask(provider, "sample_sales", id=1, columns=["amount"]))["rows"] == [[120]]
    pg.run("DROP VIEW mcp.sample_sales_by_region")
    pg.run("ALTER TABLE mcp.sample_sales ALTER COLUMN amount TYPE text USING amount::text")
    assert (await ask(provider, "sample_sales", id=1, columns=["amount"]))["rows"] == [["120.00"]]


async def test_connections_that_the_server_has_ended_are_replaced(pg: Shop, provide: Provide) -> None:
    provider = provide(pg)
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}
    pg.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with anyio.fail_after(10):
        while await anyio.to_thread.run_sync(pg.rows, others) != [(0,)]:  # they end in processes of their own
            continue
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}
    assert not await provider.has_changed()


async def test_a_connection_that_dies_in_the_middle_of_a_call_fails_that_call_alone(pg: Shop, provide: Provide) -> None:
    pg.run(
        "CREATE FUNCTION mcp.die() RETURNS boolean LANGUAGE plpgsql STABLE AS "
        "$$ BEGIN RETURN pg_terminate_backend(pg_backend_pid()); END $$"
    )
    pg.register("die", "die", "F")
    provider = provide(pg)
    with pytest.raises(UpstreamGone, match="cannot be reached"):
        await ask(provider, "die")
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}


@pytest.mark.requirement("S4-4", "S4-39", "S4-41", "S4-42", "S4-E6")
async def test_calls_that_come_first_together_load_once(
    any_shop: Shop, provide: Provide, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = provide(any_shop)
    loads: list[object] = []
    load = RegistryProvider._load

    def counted(self: RegistryProvider, previous: Any) -> Any:
        loads.append(previous)
        return load(self, previous)

    monkeypatch.setattr(RegistryProvider, "_load", counted)
    assert provider.health().state is State.UNKNOWN
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(lambda: ask(provider, "sample_sales", limit=1))
    assert loads == [None]
    await ask(provider, "sample_sales", limit=1)
    assert loads == [None]
    assert provider.health().state is State.RUNNING


@pytest.mark.requirement("S4-E6")
async def test_after_a_failed_load_calls_are_told_at_once_and_the_next_load_may_succeed(
    tmp_path: Path, provide: Provide
) -> None:
    file = tmp_path / "later.db"
    provider = provide(Shop(f"sqlite:///{file}"))
    with pytest.raises(UpstreamGone):
        await provider.offer()
    assert provider.health().state is State.FAILED
    sqlite_shop(file)
    with pytest.raises(UpstreamGone):  # not asked again yet
        await ask(provider, "sample_sales")
    await provider.offer()
    assert (await ask(provider, "sample_sales"))["row_count"] == 6


async def test_a_failed_load_keeps_what_was_there(any_shop: Shop, provider: RegistryProvider) -> None:
    before = await provider.offer()
    cascade = " CASCADE" if any_shop.dialect == "postgresql" else ""
    any_shop.run(f"DROP VIEW mcp.mcp_list_toolParams{cascade}")
    with pytest.raises(UpstreamGone):
        await provider.offer()
    assert provider._offering is before
    assert (await ask(provider, "sample_sales"))["row_count"] == 6


async def test_a_caller_whose_name_no_database_takes_is_refused(pg: Shop, provide: Provide) -> None:
    provider = provide(pg)
    with pytest.raises(Refused, match="letters that no database takes"):
        await ask(provider, "sample_revenue", caller=Caller(name="a\0b"), region="north")


async def test_nothing_but_tools_is_offered(provider: RegistryProvider) -> None:
    with pytest.raises(UpstreamError):
        await provider.request("prompts/get", {})


@pytest.mark.requirement("S4-50", "S4-E8")
def test_urls_are_taken_as_people_write_them(tmp_path: Path) -> None:
    for url in ("postgresql+asyncpg://u:secret@h/d", "postgres://u@h/d", f"sqlite+aiosqlite:///{tmp_path}/x.db"):
        RegistryProvider(Shop(url).spec())
    for url in ("teradatasql://u:secret@h/d", "teradata://u:secret@h/d", "nonsense", "mysql://u:secret@h/d"):
        with pytest.raises(ConfigError) as failure:
            RegistryProvider(Shop(url).spec())
        assert "secret" not in str(failure.value)
    with pytest.raises(ConfigError, match="no roles"):
        RegistryProvider(Shop(f"sqlite:///{tmp_path}/x.db").spec(roles={"a": "b"}))


def test_a_fingerprint_tells_the_database_and_its_user_and_not_the_password() -> None:
    marks = [
        RegistryProvider(Shop(url).spec(**fields)).fingerprint
        for url, fields in (
            ("postgresql://u:one@h/d", {}),
            ("postgresql://u:two@h/d", {}),
            ("postgresql://v:one@h/d", {}),
            ("postgresql://u:one@h/d", {"registry": "other"}),
        )
    ]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3


@pytest.mark.requirement("T68")
async def test_values_of_every_type_come_back_exactly(pg: Shop, provide: Provide) -> None:
    types: Mapping[str, tuple[str, Any]] = {
        "text": ("CV", "it's; -- ü 😀 %s :x"),
        "bigint": ("I8", 2**53 - 1),
        "numeric": ("N", "12345678901234567890.123456789"),
        "boolean": ("boolean", True),
        "date": ("DA", "2026-02-28"),
        "timestamptz": ("SZ", "2026-05-31T12:30:00Z"),
        "jsonb": ("jsonb", {"a": [1, None, "x"]}),
        "uuid": ("uuid", "00000000-0000-4000-8000-000000000001"),
    }
    for name, (code, _) in types.items():
        pg.run(f"CREATE FUNCTION mcp.same_{name}(v {name}) RETURNS {name} LANGUAGE sql IMMUTABLE AS 'SELECT v'")
        pg.register(f"same_{name}", f"same_{name}", "F", f"v {code}")
    provider = provide(pg)
    for name, (_, value) in types.items():
        found = (await ask(provider, f"same_{name}", v=value))["result"]
        expected = "2026-05-31T12:30:00+00:00" if name == "timestamptz" else value
        assert json.dumps(found) == json.dumps(expected), name


async def test_errors_of_the_database_tell_nothing_of_how_it_is_reached(pg: Shop, provide: Provide) -> None:
    pg.run("DROP ROLE IF EXISTS hidden_role_7", "CREATE ROLE hidden_role_7")
    pg.run("REVOKE SELECT ON mcp.sample_sales FROM PUBLIC")
    provider = provide(pg, roles={"alice": "hidden_role_7"})
    with pytest.raises((Refused, InvalidArguments)) as failure:
        await ask(provider, "sample_revenue", region="north")
    assert "hidden_role_7" not in str(failure.value)
    assert pg.url not in str(failure.value)
    pg.run("DROP ROLE hidden_role_7")


SEED_VIEWS = """
CREATE SCHEMA tools;
CREATE TABLE tools.log (entry text);
CREATE PROCEDURE tools.report(INOUT n integer) LANGUAGE plpgsql AS $$ BEGIN n := n * 2; END $$;
CREATE PROCEDURE tools.enter(entry text) LANGUAGE sql AS $$ INSERT INTO tools.log VALUES (entry) $$;
CREATE VIEW tools.mcp_list_tools ("ToolName", "DataBaseName", "TableName", "ToolType", docstring, "Tags") AS VALUES
  ('report', 'tools', 'report', 'M', 'Doubles a number.', 'a'), ('enter', 'tools', 'enter', 'M', 'Writes.', 'a');
CREATE VIEW tools."mcp_list_toolParams"
  ("ToolName", "ParamName", "ParamType", "ParamLength", "ParamPosition", "ParamRequired", "ParamComment") AS VALUES
  ('report', 'n', 'I', NULL, 1, 'Y', 'A number'), ('enter', 'entry', 'CV', NULL, 1, 'Y', 'A text');
"""


@pytest.mark.requirement("S4-35")
async def test_procedures_load_from_the_views_of_the_design_and_only_read(postgres_url: str, provide: Provide) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(SEED_VIEWS.encode())
    shop = Shop(postgres_url)
    provider = provide(shop, registry="tools")
    assert {tool["name"] for tool in (await provider.offer()).tools} == {"enter", "report"}
    assert (await ask(provider, "report", n=21))["rows"] == [[42]]
    with pytest.raises(Refused, match="registered as reading"):
        await ask(provider, "enter", entry="x")
    assert shop.rows("SELECT count(*) FROM tools.log") == [(0,)]
