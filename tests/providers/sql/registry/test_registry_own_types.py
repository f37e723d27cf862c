"""Types that a registry declares are compared with those that the function itself takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.registries import ALICE, Shop, called, registry_house

from portico.domain.call import Call
from portico.errors import InvalidArguments
from portico.providers.sql.registry.database_objects import OwnType
from portico.providers.sql.registry.load_and_verify import fit_type
from portico.providers.sql.sql_values import read_type

UUID = "123e4567-e89b-12d3-a456-426614174000"
WORKS: dict[str, tuple[str, str, str, Any, Any]] = {
    "numeric_of_float": ("a numeric", "a F", "SELECT a::text", 1.5, "1.5"),
    "numeric_of_integer": ("a numeric", "a I", "SELECT a::text", 2, "2"),
    "small": ("a smallint", "a I", "SELECT a::text", 3, "3"),
    "small_of_large": ("a smallint", "a I8", "SELECT a::text", 3, "3"),
    "json_of_text": ("a jsonb", "a CV", "SELECT a->>'k'", {"k": "v"}, "v"),
    "json_of_json": ("a jsonb", "a json", "SELECT a->>'k'", {"k": "v"}, "v"),
    "uuid_of_text": ("a uuid", "a CV", "SELECT a::text", UUID, UUID),
    "enum": ("a mcp.mood", "a CV", "SELECT a::text", "sad", "sad"),
    "date_of_text": ("a date", "a CV", "SELECT a::text", "2026-01-31", "2026-01-31"),
    "date_of_moment": ("a date", "a TS", "SELECT a::text", "2026-01-31", "2026-01-31"),
    "switch_of_text": ("a boolean", "a CV", "SELECT a::text", True, "true"),
    "switch_of_byte": ("a boolean", "a I1", "SELECT a::text", False, "false"),
    "domain": ("a mcp.positive", "a I", "SELECT a::text", 5, "5"),
    "array": ("a integer[]", "a CV", "SELECT a[2]::text", "{1,2}", "2"),
    "network": ("a inet", "a CV", "SELECT host(a)", "10.0.0.1/8", "10.0.0.1"),
    "any": ("a anyelement", "a I", "SELECT a::text", 5, "5"),
    "text_of_number": ("a text", "a I", "SELECT a || '!'", 5, "5!"),
    "list": ("VARIADIC a integer[]", "a I", "SELECT array_to_string(a, '+')", [1, 2], "1+2"),
    "list_of_one": ("VARIADIC a text[]", "a CV", "SELECT array_to_string(a, '+')", "x", "x"),
    "interval": ("a interval", "a CV", "SELECT (a * 2)::text", "P1D", "P2D"),
    "bytes": ("a bytea", "a BV", "SELECT encode(a, 'hex')", "AQI=", "0102"),
}
"""Functions by what they take, what is registered, what they do, what is sent, and what comes back."""
CANNOT = {
    "moment_for_number": ("a integer", "a DA", "declares 'a' as 'DA', and 'moment_for_number' takes 'integer'"),
    "number_for_uuid": ("a uuid", "a I", "takes 'uuid'"),
    "switch_for_number": ("a numeric", "a boolean", "takes 'numeric'"),
    "number_for_enum": ("a mcp.mood", "a I", "takes 'mcp.mood'"),
    "number_for_json": ("a jsonb", "a F", "takes 'jsonb'"),
    "inner": ("a internal", "a CV", "no caller can write"),
}


def _register(pg: Shop) -> None:
    pg.run("CREATE TYPE mcp.mood AS ENUM ('sad', 'glad')", "CREATE DOMAIN mcp.positive AS integer CHECK (VALUE > 0)")
    for name, (takes, declared, does, _, _) in WORKS.items():
        pg.run(f'CREATE FUNCTION mcp."{name}"({takes}) RETURNS text LANGUAGE sql STABLE AS $$ {does} $$')
        pg.register(name, name, "F", declared, users="*", docstring="One of many.")


@pytest.mark.requirement("P-REGISTRY-TYPES")
async def test_a_value_reaches_a_function_as_what_it_takes(pg: Shop, tmp_path: Path) -> None:
    _register(pg)
    async with registry_house(tmp_path, pg.spec()) as application:
        for name, (*_, sent, back) in WORKS.items():
            assert await called(application, name, {"a": sent}) == {"result": back}, name


@pytest.mark.requirement("P-REGISTRY-TYPES")
async def test_what_cannot_work_is_refused_with_a_reason_and_loads_when_it_can(pg: Shop, tmp_path: Path) -> None:
    pg.run("CREATE TYPE mcp.mood AS ENUM ('sad', 'glad')")
    for name, (takes, declared, _) in CANNOT.items():
        returns = "internal LANGUAGE internal STABLE AS 'int4recv'" if name == "inner" else None
        made = returns or "text LANGUAGE sql STABLE AS $$ SELECT 'x'::text $$"
        if name != "inner":
            pg.run(f"CREATE FUNCTION mcp.{name}({takes}) RETURNS {made}")
            pg.register(name, name, "F", declared, docstring="One of many.")
    pg.register("inner", "int4recv", "F", "a CV", DataBaseName="pg_catalog", docstring="One of many.")
    pg.run("CREATE FUNCTION mcp.rows() RETURNS SETOF record LANGUAGE sql STABLE AS $$ SELECT 1, 2 $$")
    pg.register("rows", "rows", "F", docstring="One of many.")
    async with registry_house(tmp_path, pg.spec()) as application:
        assert application.registries is not None
        checked = await application.registries.check("warehouse")
        reasons = {problem.tool: problem.reason for problem in checked.problems if not problem.loads}
        for name, (_, _, reason) in CANNOT.items():
            assert reason in reasons[name], name
        assert "nobody says the columns" in reasons["rows"]
        pg.run("UPDATE mcp.mcp_tool_params SET ParamType = 'integer' WHERE ToolName = 'moment_for_number'")
        assert "moment_for_number" in (await application.registries.check("warehouse")).statements


@pytest.mark.requirement("P-REGISTRY-TYPES")
async def test_agents_are_told_and_held_to_the_functions_own_type(pg: Shop, tmp_path: Path) -> None:
    _register(pg)
    async with registry_house(tmp_path, pg.spec()) as application:
        schemas = {id.name: tool.input_schema["properties"] for id, tool in application.gateway.snapshot.tools.items()}
        assert schemas["enum"]["a"]["enum"] == ["sad", "glad"]
        assert schemas["small"]["a"] == {"type": "integer", "minimum": -32768, "maximum": 32767}
        assert schemas["date_of_text"]["a"]["format"] == "date"
        assert schemas["switch_of_byte"]["a"] == {"type": "boolean"}
        assert schemas["list"]["a"]["items"] == {"type": "integer"}
        for name, wrong in {"enum": "mad", "small": 40_000, "switch_of_text": "yes", "list": ["x"]}.items():
            with pytest.raises(InvalidArguments, match="nothing was sent"):
                await application.gateway.call(ALICE, Call(tool=name, arguments={"a": wrong}))


@pytest.mark.requirement("P-REGISTRY-TYPES")
async def test_of_several_forms_the_one_that_fits_best_is_called(pg: Shop, tmp_path: Path) -> None:
    pg.run(
        "CREATE FUNCTION mcp.of(a date) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'date' $$",
        "CREATE FUNCTION mcp.of(a integer) RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'integer' $$",
    )
    pg.register("days", "of", "F", "a DA", users="*")
    pg.register("numbers", "of", "F", "a I", users="*")
    async with registry_house(tmp_path, pg.spec()) as application:
        assert await called(application, "days", {"a": "2026-01-31"}) == {"result": "date"}
        assert await called(application, "numbers", {"a": 1}) == {"result": "integer"}


@pytest.mark.requirement("S4-E8")
async def test_null_keeps_the_default_and_an_empty_list_is_nothing(pg: Shop, tmp_path: Path) -> None:
    pg.run(
        "CREATE FUNCTION mcp.greet(a text, b text DEFAULT 'you') RETURNS text LANGUAGE sql STABLE "
        "AS $$ SELECT a || ' ' || b $$",
        "CREATE FUNCTION mcp.count_of(VARIADIC a integer[]) RETURNS integer LANGUAGE sql STABLE "
        "AS $$ SELECT cardinality(a) $$",
    )
    pg.register("greet", "greet", "F", "a CV", "b CV?", users="*")
    pg.register("many_numbers", "count_of", "F", "a I?", users="*")
    async with registry_house(tmp_path, pg.spec()) as application:
        assert await called(application, "greet", {"a": "hi", "b": None}) == {"result": "hi you"}
        assert await called(application, "greet", {"a": "hi"}) == {"result": "hi you"}
        assert await called(application, "many_numbers", {"a": None}) == {"result": 0}
        assert await called(application, "many_numbers") == {"result": 0}
        with pytest.raises(InvalidArguments):
            await application.gateway.call(ALICE, Call(tool="greet", arguments={"a": None}))


@pytest.mark.parametrize(
    ("declared", "own", "name"),
    [
        ("I", "bigint", "integer"),
        ("I8", "integer", "integer"),
        ("F", "real", "real"),
        ("numeric(10,2)", "numeric", "decimal"),
        ("TS", "timestamp with time zone", "timestamptz"),
        ("varchar(20)", "text", "varchar"),
        ("I", "date", None),
        ("DA", "uuid", None),
        ("boolean", "integer", None),
    ],
)
def test_the_narrower_of_two_types_counts(declared: str, own: str, name: str | None) -> None:
    found = fit_type(read_type(declared), OwnType(name=own, base=own))
    assert (found and found.name) == name
    assert found is None or found.cast == own
