"""Who asks is who the database sees: on every checkout, after errors and cancelled calls, among many users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from tests.concurrent_users import ConcurrentUsers, roles_and_functions
from tests.databases import OWNER
from tests.registries import ALICE, BOB, Shop

from portico.domain.call import Caller
from portico.errors import CallError, Refused
from portico.providers.sql.registry.provider import RegistryProvider

CALLS = 600
"""`bench/registry.py` does ten thousand."""


async def ask(provider: RegistryProvider, tool: str, caller: Caller, **arguments: Any) -> Any:
    result = await provider.call(tool, arguments, meta={}, on_progress=None, caller=caller)
    return result["structuredContent"]


@pytest.fixture
def roles(pg: Shop) -> Iterator[dict[str, str]]:
    """A role for each of many users."""
    with roles_and_functions(pg) as made:
        yield made


@pytest.fixture
async def provider(pg: Shop, roles: dict[str, str]) -> AsyncIterator[RegistryProvider]:
    made = RegistryProvider(pg.spec(roles=roles))
    yield made
    await made.aclose()


@pytest.mark.requirement("P-REGISTRY-IDENTITY", "T74")
async def test_among_many_users_the_database_always_sees_the_one_who_asks(
    provider: RegistryProvider, pg: Shop, roles: dict[str, str]
) -> None:
    run = ConcurrentUsers(provider, pg, roles)
    with anyio.fail_after(60):
        await run.run(CALLS, seed=7)
    assert run.counts["another_user"] == 0
    assert run.counts["failed"] > CALLS // 40
    assert run.counts["cancelled"] > CALLS // 40
    assert run.counts["answered"] + run.counts["failed"] + run.counts["cancelled"] == CALLS


@pytest.mark.requirement("P-REGISTRY-IDENTITY")
async def test_a_caller_without_a_role_is_nobody_unless_there_is_one_for_everybody(
    pg: Shop, roles: dict[str, str]
) -> None:
    strict = RegistryProvider(pg.spec(roles={"alice": "own_role_1"}))
    open_to_all = RegistryProvider(pg.spec(roles={"alice": "own_role_1", "*": "own_role_2"}))
    assert (await ask(strict, "who", ALICE))["rows"][0][0] == "own_role_1"
    with pytest.raises(Refused, match="no role of this database"):
        await ask(strict, "who", BOB)
    assert (await ask(open_to_all, "who", BOB))["rows"][0][0] == "own_role_2"
    for made in (strict, open_to_all):
        await made.aclose()


@pytest.mark.requirement("P-REGISTRY-IDENTITY")
async def test_a_role_that_the_server_does_not_know_keeps_the_statement_from_being_sent(pg: Shop) -> None:
    pg.register("who", "who", "F")
    provider = RegistryProvider(pg.spec(roles={"alice": "no_such_role"}))
    with pytest.raises(CallError):
        await ask(provider, "who", ALICE)
    await provider.aclose()


@pytest.mark.requirement("P-REGISTRY-IDENTITY", "T75")
async def test_without_roles_the_caller_is_told_to_the_database_whatever_letters_it_has(pg: Shop) -> None:
    pg.register("who", "who", "F")
    provider = RegistryProvider(pg.spec())
    for name in ("o'brien", 'a"b', "x\ny", "*/ --", "ü😀", "%s :p1 {x}"):
        row = (await ask(provider, "who", Caller(name=name, surface="test")))["rows"][0]
        assert row[1] == name
        assert row[2].startswith("portico:test:")
    await provider.aclose()


@pytest.mark.requirement("P-REGISTRY-IDENTITY")
async def test_a_function_that_changes_who_it_is_changes_it_for_itself_alone(pg: Shop, roles: dict[str, str]) -> None:
    pg.run(
        "CREATE FUNCTION mcp.become(name text) RETURNS text LANGUAGE plpgsql STABLE AS $$ "
        "BEGIN PERFORM set_config('role', name, false); PERFORM set_config('portico.caller', 'root', false); "
        "RETURN current_user; END $$"
    )
    pg.register("become", "become", "F", "name CV")
    provider = RegistryProvider(pg.spec(roles={"alice": "own_role_1", "bob": "own_role_2"}))
    for _ in range(8):
        await ask(provider, "become", ALICE, name=OWNER)
        row = (await ask(provider, "who", BOB))["rows"][0]
        assert (row[0], row[1]) == ("own_role_2", "bob")
    await provider.aclose()


@pytest.mark.requirement("P-REGISTRY-IDENTITY")
async def test_writing_tools_write_as_their_caller(pg: Shop, roles: dict[str, str]) -> None:
    pg.run(
        "CREATE TABLE mcp.log (who text)",
        "GRANT INSERT ON mcp.log TO own_role_1",
        "CREATE PROCEDURE mcp.sign() LANGUAGE sql AS 'INSERT INTO mcp.log VALUES (current_user)'",
    )
    pg.register("sign", "sign", "M", Writes="Y")
    provider = RegistryProvider(pg.spec(writes=True, roles={"alice": "own_role_1", "bob": "own_role_2"}))
    await ask(provider, "sign", ALICE)
    with pytest.raises(CallError):
        await ask(provider, "sign", BOB)
    assert pg.rows("SELECT who FROM mcp.log") == [("own_role_1",)]
    await provider.aclose()
