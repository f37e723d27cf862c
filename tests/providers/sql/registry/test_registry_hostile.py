"""Objects and views that mean ill, or were written badly: what they do ends with their call, and nobody sees it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import psycopg
import pytest
from sqlalchemy import event
from tests.databases import OWNER
from tests.registries import ALICE, BOB, Shop

from portico.domain.call import Caller
from portico.errors import CallError, Refused, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.providers.sql.registry import provider as providing
from portico.providers.sql.registry.provider import RegistryProvider

Provide = Callable[..., RegistryProvider]

LEAVING = """
CREATE ROLE left_behind;
CREATE PROCEDURE mcp.leave() LANGUAGE plpgsql AS $$ BEGIN
  PERFORM set_config('role', 'left_behind', false); PERFORM set_config('search_path', 'elsewhere', false);
  PERFORM set_config('portico.caller', 'root', false); PERFORM pg_advisory_lock(42);
  CREATE TEMP TABLE leftover (x integer); END $$;
CREATE PROCEDURE mcp.look(INOUT who text, INOUT path text, INOUT temp text) LANGUAGE plpgsql AS $$ BEGIN
  who := current_user; path := current_setting('search_path');
  temp := coalesce(to_regclass('pg_temp.leftover')::text, 'none'); END $$;
"""
RAISING = """
CREATE FUNCTION mcp.raising(code text, words text) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN
  RAISE EXCEPTION USING ERRCODE = code, MESSAGE = words, HINT = words, DETAIL = words; END $$;
"""
STUBBORN = """
CREATE FUNCTION mcp.stubborn() RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN
  FOR i IN 1..600 LOOP
    BEGIN PERFORM pg_sleep(0.1); EXCEPTION WHEN query_canceled THEN NULL; END;
  END LOOP; RETURN 'done'; END $$;
"""
STATES = (
    "08000 08006 0A000 0B000 0L000 0P000 20000 21000 22000 22003 22012 22023 22P02 23502 23503 23505 23514 24000 25001 "
    "25006 25P02 26000 28000 28P01 2B000 2D000 2F000 34000 38000 39000 3B000 3D000 3F000 40001 40P01 42501 42601 42703 "
    "42883 42P01 44000 53000 53100 53300 54000 54001 55000 55006 55P03 57000 57014 57P01 58000 58030 F0000 HV000 P0001 "
    "P0002 P0003 P0004 XX000 XX001"
).split()


async def ask(provider: RegistryProvider, name: str, caller: Caller = ALICE, **arguments: Any) -> Any:
    result = await provider.call(name, arguments, meta={}, on_progress=None, caller=caller)
    return result["structuredContent"]


async def count(shop: Shop, sql: str) -> int:
    return int((await anyio.to_thread.run_sync(shop.rows, f"SELECT count(*) FROM {sql}"))[0][0])


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


@pytest.mark.requirement("P-REGISTRY-IDENTITY")
async def test_what_a_writing_tool_sets_for_its_session_meets_nobody_else(pg: Shop, provide: Provide) -> None:
    pg.run("DROP ROLE IF EXISTS left_behind", LEAVING)
    pg.register("leave", "leave", "M", Writes="Y")
    pg.register("look", "look", "M", "who CV?", "path CV?", "temp CV?", Writes="Y")
    provider = provide(pg, writes=True)
    before = (await ask(provider, "look", BOB))["rows"]
    for _ in range(3):
        assert await ask(provider, "leave") == {"done": True}
        assert (await ask(provider, "look", BOB))["rows"] == before
    with anyio.fail_after(5):
        while await count(pg, "pg_locks WHERE locktype = 'advisory'"):  # a session ends in a process of its own
            continue
    pg.run("DROP ROLE left_behind")


async def test_locks_that_a_reading_function_takes_end_with_its_call(pg: Shop, provide: Provide) -> None:
    taking = "PERFORM pg_advisory_lock(n); IF n > 1 THEN RAISE EXCEPTION 'no'; END IF; RETURN n;"
    pg.run(
        f"CREATE FUNCTION mcp.locking(n integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$ BEGIN {taking} END $$"
    )
    pg.register("locking", "locking", "F", "n I")
    provider = provide(pg)
    assert await ask(provider, "locking", n=1) == {"result": 1}
    with pytest.raises(UpstreamError, match="the database says: no"):
        await ask(provider, "locking", n=2)
    assert await count(pg, "pg_locks WHERE locktype = 'advisory'") == 0


async def test_a_function_that_does_not_let_itself_be_stopped_loses_its_session(pg: Shop, provide: Provide) -> None:
    pg.run(STUBBORN)
    pg.register("stubborn", "stubborn", "F")
    provider = provide(pg, seconds=0.3)
    with anyio.fail_after(10):
        with pytest.raises(UpstreamTimeout):
            await ask(provider, "stubborn")
        running = "pg_stat_activity WHERE state = 'active' AND query LIKE '%stubborn%' AND pid <> pg_backend_pid()"
        while await count(pg, running):
            continue
        while provider._workers.stuck:  # noqa: ASYNC110  it ends in a thread
            await anyio.sleep(0.02)
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}


@pytest.mark.requirement("P-REGISTRY-ROWS")
async def test_what_a_function_raises_on_purpose_is_told_and_counts_as_no_outage(pg: Shop, provide: Provide) -> None:
    pg.run(
        RAISING,
        "CREATE PROCEDURE mcp.twice() LANGUAGE sql AS 'INSERT INTO mcp.sample_sales SELECT * FROM mcp.sample_sales'",
        "CREATE PROCEDURE mcp.keeping() LANGUAGE plpgsql AS 'BEGIN DELETE FROM mcp.sample_sales; COMMIT; END'",
    )
    pg.register("raising", "raising", "F", "code CV", "words CV")
    pg.register("twice", "twice", "M", Writes="Y")
    pg.register("keeping", "keeping", "M", Writes="Y")
    provider = provide(pg, writes=True)
    with pytest.raises(UpstreamError, match=r"for raising;.*\n.*the amount must be above 0"):
        await ask(provider, "raising", code="P0001", words="the amount must be above 0")
    with pytest.raises(UpstreamError, match="duplicate key"):
        await ask(provider, "twice")
    with pytest.raises(UpstreamError, match="invalid transaction termination"):
        await ask(provider, "keeping")
    with pytest.raises(UpstreamGone, match="in the way"):
        await ask(provider, "raising", code="40001", words="x")
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]


@pytest.mark.requirement("T76")
async def test_no_error_of_a_hundred_tells_how_the_database_is_reached(pg: Shop, provide: Provide) -> None:
    pg.run("DROP ROLE IF EXISTS hidden_role_9", "CREATE ROLE hidden_role_9", RAISING)
    pg.register("raising", "raising", "F", "code CV", "words CV")
    provider = provide(pg, roles={"alice": "hidden_role_9"})
    folder = pg.url.partition("host=")[2]
    secrets = ("hidden_role_9", OWNER, pg.url, folder)
    told = []
    for state in STATES:
        for words in (f"as hidden_role_9 at {pg.url}", f'role "hidden_role_9" of {OWNER} in {folder}/x'):
            with pytest.raises(CallError) as failure:
                await ask(provider, "raising", code=state, words=words)
            told.append(str(failure.value))
    pg.run("DROP ROLE hidden_role_9")
    assert len(told) > 100
    assert [text for text in told if any(secret in text.replace("postgresql://", "") for secret in secrets)] == []


async def test_columns_may_have_the_names_that_we_use_ourselves(pg: Shop, provide: Provide) -> None:
    pg.run(
        "CREATE TABLE mcp.namesake (portico_asked text, portico_sum integer, portico_row text, portico_summed text)",
        "INSERT INTO mcp.namesake VALUES ('a', 1, 'b', 'c')",
    )
    pg.register("namesake", "namesake", "T")
    provider = provide(pg)
    assert (await ask(provider, "namesake", portico_sum=1))["rows"] == [["a", 1, "b", "c"]]
    pg.run("UPDATE mcp.namesake SET portico_row = repeat('x', 2000000)")
    assert (await ask(provider, "namesake"))["truncated"] is True


async def test_a_line_that_is_cut_in_the_middle_of_a_call_is_not_told_as_nothing_sent(
    pg: Shop, provide: Provide
) -> None:
    pg.register("wait", "wait_for", "F", "seconds F")
    provider = provide(pg)
    await provider.offer()
    drivers: list[psycopg.Connection[Any]] = []
    event.listen(provider._reading._open().engine, "checkout", lambda driver, *_: drivers.append(driver))

    async def cut() -> None:
        while not await count(pg, "pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE '%portico%'"):
            continue
        with socket.socket(fileno=os.dup(drivers[0].pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut)
            with pytest.raises(UpstreamGone) as failure:
                await ask(provider, "wait", seconds=30)
    assert failure.value.sent is Sent.UNKNOWN
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}


@pytest.mark.requirement("P-REGISTRY-REFRESH")
async def test_calls_that_hang_do_not_keep_a_change_from_being_seen(pg: Shop, provide: Provide) -> None:
    pg.register("wait", "wait_for", "F", "seconds F")
    provider = provide(pg)
    await provider.offer()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(providing.THREADS + 5):
                tasks.start_soon(lambda: ask(provider, "wait", seconds=60))
            while await count(pg, "pg_stat_activity WHERE wait_event = 'PgSleep'") < providing.THREADS:
                continue
            pg.forget("wait")
            assert await provider.has_changed()
            assert "wait" not in [tool["name"] for tool in (await provider.offer()).tools]
            tasks.cancel_scope.cancel()


VIEW = """
SELECT toolname, databasename, tablename, tooltype, docstring, tags, writes, 'N'::text AS returnsrows FROM mcp.mcp_tools
"""


@pytest.mark.requirement("P-REGISTRY-ROWS")
@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("pg_sleep(60) IS NOT NULL", "takes longer"),
        ("mcp.sneak_plainly() = 1", "read-only transaction"),
        ("1 / (length(toolname) - 12) IS NOT NULL", "division by zero"),
    ],
)
async def test_a_view_that_cannot_be_read_is_named_and_leaves_what_was_there(
    pg: Shop, provide: Provide, condition: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providing, "LOAD_SECONDS", 0.5)
    provider = provide(pg)
    before = await provider.offer()
    pg.run(f"CREATE OR REPLACE VIEW mcp.mcp_list_tools AS {VIEW} WHERE {condition}")
    for look in (provider.offer, provider.has_changed):
        with anyio.fail_after(10), pytest.raises(CallError) as failure:
            await look()
    with pytest.raises(UpstreamGone, match=rf'"mcp_list_tools" cannot be read.*{reason}.*Put the view right'):
        await provider.offer()
    assert failure.value.sent is Sent.ANSWERED
    assert len((await provider.registered()).tools) == len(before.tools)
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]
    assert await ask(provider, "sample_revenue", region="north") == {"result": 600.5}


async def test_tables_that_keep_passwords_are_no_tools(pg: Shop, provide: Provide) -> None:
    for name in ("pg_authid", "pg_subscription", "pg_user_mapping"):
        pg.register(name, name, "T", DataBaseName="pg_catalog")
    provider = provide(pg)
    await provider.offer()
    refused = {problem.tool for problem in provider.problems if "passwords" in problem.reason}
    assert refused == {"pg_authid", "pg_subscription", "pg_user_mapping"}


async def test_a_reading_procedure_does_not_write(pg: Shop, provide: Provide) -> None:
    pg.run("CREATE PROCEDURE mcp.clear() LANGUAGE sql AS 'DELETE FROM mcp.sample_sales'")
    pg.register("clear", "clear", "M", Writes="N")
    provider = provide(pg, writes=True)
    with pytest.raises(Refused):
        await ask(provider, "clear")
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]
