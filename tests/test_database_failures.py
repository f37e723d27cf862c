"""What a database fails at counts as a failure of the tool; only what the caller wrote is the caller's mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from portico.application import Application
from portico.config import LocalSettings, load_settings
from portico.domain.call import Call
from portico.errors import CallError, InvalidArguments, UpstreamError
from portico.wiring import open_app
from tests.registries import ALICE, postgres_shop, registry_house, settings_for

pytestmark = pytest.mark.anyio

YAML = """
broken:
  type: tool
  sql: SELECT nothing_like_it FROM nowhere
divided:
  type: tool
  sql: SELECT 1 / :n AS result
  parameters: {n: {type: integer, description: By what}}
aged:
  type: tool
  sql: SELECT CAST(:day AS date) AS day
  parameters: {day: {type: string, description: A day}}
jumbled:
  type: tool
  sql: SELECT json_extract(:json, '$.a') AS found
  parameters: {json: {type: string, description: JSON}}
"""
PYTHON = '''
def handle_count_nothing(conn):
    """Counts what is not there."""
    return conn.rows("SELECT count(*) FROM nowhere").shown()
'''
FUNCTIONS = """
CREATE FUNCTION mcp.ratio(n integer) RETURNS integer LANGUAGE sql STABLE AS $$ SELECT 100 / n $$;
CREATE FUNCTION mcp.raising(n integer) RETURNS integer LANGUAGE plpgsql STABLE
  AS $$ BEGIN RAISE EXCEPTION 'the books are closed'; END $$;
CREATE FUNCTION mcp.inside() RETURNS integer LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN 'x'::integer; END $$;
CREATE TYPE mcp.pair AS (a integer, b text);
CREATE FUNCTION mcp.paired(p mcp.pair) RETURNS integer LANGUAGE sql STABLE AS $$ SELECT p.a $$
"""


async def _error(application: Application, tool: str, arguments: Mapping[str, Any] | None = None) -> CallError:
    with pytest.raises(CallError) as caught:
        await application.gateway.call(ALICE, Call(tool=tool, arguments=arguments or {}))
    return caught.value


async def _counted(application: Application, **expected: tuple[int, int]) -> None:
    """Wait until usage has the calls of these tools that say something about them, and how many of them ended well."""
    found: dict[str, tuple[int, int]] = {}
    with anyio.fail_after(10):
        while found != expected:
            await anyio.sleep(0.01)  # the book is read and written in threads
            found = {id.name: (one.calls, one.done) for id, one in application.gateway.executor.journal.usage().items()}


@pytest.mark.requirement("P-DATABASE-FAILURES")
async def test_what_a_registered_function_fails_at_is_its_own_failure(postgres_url: str, tmp_path: Path):
    shop = postgres_shop(postgres_url)
    shop.run(*FUNCTIONS.split(";\n"))
    for name, param in {"ratio": "n I", "raising": "n I", "inside": "", "paired": "p CV"}.items():
        shop.register(name, name, "F", *([param] if param else []), users="*")
    async with registry_house(tmp_path, shop.spec()) as application:
        for tool, arguments, said in (
            ("ratio", {"n": 0}, "division by zero"),
            ("raising", {"n": 1}, "the books are closed"),
            ("inside", {}, "invalid input syntax"),
        ):
            error = await _error(application, tool, arguments)
            assert (type(error), said in str(error)) == (UpstreamError, True), error
            assert error.code == "upstream_error"
        assert type(await _error(application, "paired", {"p": "no pair"})) is InvalidArguments
        assert (await application.gateway.call(ALICE, Call(tool="ratio", arguments={"n": 4}))).raw[
            "structuredContent"
        ] == {"result": 25}
        await _counted(application, ratio=(2, 1), raising=(1, 0), inside=(1, 0))


@pytest.mark.requirement("P-DATABASE-FAILURES")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_sql_that_the_caller_did_not_write_is_not_the_callers_mistake(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
):
    (tmp_path / "tools.yml").write_text(YAML)
    (tmp_path / "own.py").write_text(PYTHON)
    uri = request.getfixturevalue("postgres_url") if engine == "postgresql" else f"sqlite:///{tmp_path / 'a.db'}"
    (tmp_path / "a.db").touch()
    settings = settings_for(
        tmp_path,
        local=LocalSettings(database_uri=uri, yaml=(str(tmp_path / "tools.yml"),), python=(str(tmp_path / "own.py"),)),
    )
    async with open_app(settings) as application:
        assert type(await _error(application, "broken")) is UpstreamError
        assert type(await _error(application, "count_nothing")) is UpstreamError
        if engine == "postgresql":
            assert type(await _error(application, "divided", {"n": 0})) is UpstreamError
            assert type(await _error(application, "aged", {"day": "someday"})) is InvalidArguments
            await _counted(application, broken=(1, 0), count_nothing=(1, 0), divided=(1, 0))
        else:
            assert type(await _error(application, "jumbled", {"json": "{"})) is UpstreamError
            await _counted(application, broken=(1, 0), count_nothing=(1, 0), jumbled=(1, 0))


@pytest.mark.requirement("P-DATABASE-FAILURES")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_sql_that_the_caller_wrote_is_told_apart_from_its_work(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
):
    if engine == "postgresql":
        uri = request.getfixturevalue("postgres_url")
        with psycopg.connect(uri) as connection:
            connection.execute(b"CREATE TABLE people (id integer)")
    else:
        uri = f"sqlite:///{tmp_path / 'a.db'}"
        (tmp_path / "a.db").touch()
    environ = {"PORTICO_HOME": str(tmp_path), "DATABASE_URI": uri, "MCP_PROFILE": "base"}
    async with open_app(load_settings(None, environ, tmp_path)) as application:
        for sql in ("SELECT nope FROM nowhere", "SELECT FROM WHERE", "SELECT no_such_function(1)"):
            error = await _error(application, "base_readQuery", {"sql": sql})
            assert isinstance(error, InvalidArguments), (sql, error)
        failing = "SELECT 1 / 0" if engine == "postgresql" else "SELECT abs(-9223372036854775808)"
        error = await _error(application, "base_readQuery", {"sql": failing})
        assert isinstance(error, UpstreamError), error
