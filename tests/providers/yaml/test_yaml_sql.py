"""Tools of SQL: values are bound, names are looked up, and the database stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anyio import fail_after
from attacks import INJECTIONS, WRONG_TYPES

from portico.domain.call import Call, Outcome
from portico.domain.tool import Effect
from portico.errors import InvalidArguments
from portico.providers.python import LocalProvider
from portico.providers.sql import DatabaseSource
from portico.providers.yaml import LoadedYaml
from portico.testing import AGENT, FakeApplication

Load = Callable[..., LoadedYaml]
Provide = Callable[..., LocalProvider]


async def call(application: FakeApplication, name: str, **arguments: Any) -> Any:
    with fail_after(30):
        return await application.gateway.call(AGENT, Call(tool=name, arguments=arguments))


async def ask(provider: LocalProvider, tool: str, /, **arguments: Any) -> Any:
    """Past the gateway's own check of the schema."""
    with fail_after(30):
        return await provider.call(tool, arguments, meta={}, on_progress=None)


@pytest.mark.requirement("S0-42", "S0-44", "S0-54", "S0-55", "P-YAML-TOOLS")
async def test_a_sql_tool_is_found_checked_and_called_like_any_other(sales_house: FakeApplication) -> None:
    tools = sales_house.gateway.snapshot.tools
    found = next(tool for tool in tools.values() if tool.id.name == "base_topCustomers")
    assert (found.category, found.effect) == ("base", Effect.READ)
    assert found.properties["limit"] == {"type": "integer", "description": "how many", "default": 10}
    assert found.required == ()
    result = await call(sales_house, "base_topCustomers", limit=2)
    assert result.structured == {
        "columns": ["name", "sales"],
        "rows": [["Ada", 30], ["Bob", 20]],
        "row_count": 2,
        "truncated": False,
    }
    with pytest.raises(InvalidArguments, match="unknown: limits; did you mean limit"):
        await call(sales_house, "base_topCustomers", limits=2)
    assert [entry.outcome for entry in sales_house.invocations] == [Outcome.DONE, Outcome.INVALID]


async def test_an_identifier_is_a_name_that_the_database_has(sales_house: FakeApplication) -> None:
    assert (await call(sales_house, "base_topCustomers", table="suppliers")).structured["rows"] == [["Nut & Bolt", 7]]
    assert (await call(sales_house, "base_topCustomers", table="SUPPLIERS")).structured["rows"] == [["Nut & Bolt", 7]]
    with pytest.raises(InvalidArguments, match="no table is called 'suppliars'; did you mean: suppliers"):
        await call(sales_house, "base_topCustomers", table="suppliars")
    assert sales_house.invocations[-1].outcome is Outcome.INVALID


@pytest.mark.parametrize(("column", "value"), [("a b", 1), ("SELECT", "x")])
async def test_names_with_quotes_and_spaces_are_quoted(
    sales_house: FakeApplication, column: str, value: object
) -> None:
    result = await call(sales_house, "base_column", table='odd "table', column=column)
    assert result.structured["columns"] == [column]
    assert result.structured["rows"] == [[value]]


async def test_signs_that_mean_something_to_drivers_are_letters_in_a_name(sales_house: FakeApplication) -> None:
    result = await call(sales_house, "base_column", table="ten %s: {table}", column="share")
    assert result.structured["rows"] == [[10]]


async def test_a_column_is_looked_up_in_its_own_table(sales_house: FakeApplication) -> None:
    with pytest.raises(InvalidArguments, match="no column of 'customers' is called 'region'"):
        await call(sales_house, "base_column", table="customers", column="region")


@pytest.mark.requirement("T66")
async def test_five_hundred_injections_into_a_value_find_nothing_and_change_nothing(
    sales_house: FakeApplication, dump: Callable[[], Any]
) -> None:
    before = dump()
    provider: Any = sales_house.admin.providers["local"]
    assert len(INJECTIONS) >= 500
    for text in INJECTIONS:
        result = await ask(provider, "base_byName", name=text)
        assert result["structuredContent"]["rows"] == [], text
    assert (await ask(provider, "base_byName", name="Eve; --"))["structuredContent"]["rows"] == [["Eve; --", 10]]
    assert dump() == before


async def test_injections_into_an_identifier_are_names_that_nobody_has(
    sales_house: FakeApplication, dump: Callable[[], Any]
) -> None:
    before = dump()
    provider: Any = sales_house.admin.providers["local"]
    for text in [*INJECTIONS[::5], "customers; --", 'customers"', "customers WHERE 1=1", "", ".", "a.b.c"]:
        with pytest.raises(InvalidArguments, match="is called"):
            await ask(provider, "base_topCustomers", table=text)
        with pytest.raises(InvalidArguments):
            await ask(provider, "base_column", table="customers", column=text)
    assert dump() == before


@pytest.mark.requirement("T67")
@pytest.mark.parametrize("value", [*WRONG_TYPES, *INJECTIONS[::50]], ids=lambda value: repr(value)[:30])
async def test_a_value_of_another_type_is_refused_before_anything_is_sent(
    load: Load, provide: Provide, value: object
) -> None:
    text = "t: {type: tool, description: d, parameters: {n: {type: integer}}, sql: 'SELECT :n'}"
    provider = provide(load(text), Unreachable())
    with pytest.raises(InvalidArguments, match="n: must"):
        await ask(provider, "t", n=value)


class Unreachable:
    """A source that nobody may open."""

    def reading(self, caller: object) -> Any:
        raise AssertionError("nothing may be sent")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", "2026-02-28", "2026-02-30"),
        ("datetime", "2026-02-28T10:00:00", "yesterday"),
        ("boolean", True, "true"),
        ("number", 1.5, "1.5"),
        ("string", "x", 5),
        ("string", "x", "a\0b"),
        ("string", "x", "\ud800"),
        ("identifier", "x", ["customers"]),
    ],
)
def test_each_type_takes_its_own_values_only(load: Load, kind: str, good: object, bad: object) -> None:
    mark = "{p}" if kind == "identifier" else ":p"
    (tool,) = load(
        f"t: {{type: tool, description: d, parameters: {{p: {{type: {kind}}}}}, sql: 'SELECT {mark}'}}"
    ).tools
    assert tool.read({"p": good}) == ({"p": good}, [])
    assert len(tool.read({"p": bad})[1]) == 1


async def test_an_optional_value_that_is_left_out_is_null(load: Load, provide: Provide, source: DatabaseSource) -> None:
    text = """
t:
  type: tool
  description: d
  parameters: {name: {type: string, required: false}}
  sql: SELECT name FROM customers WHERE CAST(:name AS TEXT) IS NULL OR name = :name ORDER BY name
"""
    provider = provide(load(text), source)
    assert len((await ask(provider, "t"))["structuredContent"]["rows"]) == 3
    assert len((await ask(provider, "t", name="Ada"))["structuredContent"]["rows"]) == 1


async def test_a_list_of_values_is_checked_and_bound_one_by_one(
    load: Load, make_test_app: Any, source: DatabaseSource
) -> None:
    text = """
t:
  type: tool
  description: d
  parameters:
    names: {many: true, description: Which ones, default: [Ada]}
    sales: {type: integer, many: true, enum: [10, 20, 30]}
  sql: SELECT name FROM customers WHERE name IN :names AND sales IN (:sales) ORDER BY name
"""
    application = make_test_app(load(text), source)
    (tool,) = application.gateway.snapshot.tools.values()
    assert tool.properties["sales"]["items"] == {"type": "integer", "enum": [10, 20, 30]}
    assert tool.properties["names"]["default"] == ["Ada"]
    assert tool.required == ("sales",)
    assert (await call(application, "t", sales=[10, 30])).structured["rows"] == [["Ada"]]
    hostile = ["Ada", "Eve; --", "') OR 1=1 --"]
    assert (await call(application, "t", names=hostile, sales=[10, 30])).structured["rows"] == [["Ada"], ["Eve; --"]]
    for wrong in ([], ["x"], [11], 10, [[10]]):
        with pytest.raises(InvalidArguments, match="nothing was sent"):
            await call(application, "t", names=["Ada"], sales=wrong)


def test_a_tool_that_needs_a_database_is_not_offered_without_one(load: Load, provide: Provide) -> None:
    provider = provide(load("t: {type: tool, description: d, sql: SELECT 1}"))
    assert provider.offering().tools == ()
    (problem,) = provider.problems
    assert "'t' cannot be called: its SQL needs a database" in str(problem)
    assert problem.line == 1


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("sql: 'SELECT 1; SELECT 2'", "it is more than one statement. Call once for each"),
        ("sql: DROP TABLE customers", "this database is only read: it begins with 'DROP'"),
        ("sql: ''", "the SQL cannot be used: it is empty"),
        ('sql: "SELECT \'a"', "is never closed. Close it"),
        ("sql: 'SELECT :a'", "no parameter is declared for :a. Declare it under `parameters`"),
        ("sql: 'SELECT {a}', parameters: {a: {type: string}}", "{a} is a value, and values are never written into SQL"),
        ("sql: \"SELECT '{a}'\", parameters: {a: {type: identifier}}", "{a} stands within quotes"),
        ("sql: 'SELECT {a}', parameters: {a: {type: identifier, required: false}}", "an identifier cannot be left out"),
        ("sql: 'SELECT :a', parameters: {a: {type: list}}", "there is no type 'list'. Use one of string, integer"),
        ("sql: 'SELECT :a', parameters: {a: {type: integer, default: x}}", "the default 'x' does not fit"),
        ("sql: 'SELECT :a', parameters: {a: {enum: [x], default: y}}", "must be one of 'x'"),
        ("sql: 'SELECT :a', parameters: {a b: {}}", "a parameter cannot be called 'a b'"),
        ("sql: 'SELECT :a', parameters: {a: {}, a: {}}", "'a' is there twice"),
        ("sql: 'SELECT {a}', parameters: {a: {type: identifier, of: b}, b: {}}", "which is no table"),
        ("sql: [SELECT 1]", "'sql' is a list, not a text"),
        ("sql: 'SELECT * FROM tbl_{a}', parameters: {a: {type: identifier}}", "{a} is glued to 'tbl_'"),
        ("sql: 'SELECT * FROM {a}x', parameters: {a: {type: identifier}}", "{a} is glued to 'x'"),
        ("sql: 'SELECT {a}{a}', parameters: {a: {type: identifier}}", "{a} is glued to 'a'"),
        ("sql: 'SELECT * FROM :a', parameters: {a: {type: identifier}}", "'a' is an identifier. Write {a}"),
        ("sql: 'SELECT :a', parameters: {a: {type: date, default: 20260531}}", "must be a date such as 2026-05-31"),
        ("sql: 'SELECT :a', parameters: {a: {type: integer, minimum: 2, maximum: 1}}", "lies above `maximum`"),
        ("sql: 'SELECT :a', parameters: {a: {many: true}}", ":a takes a list, which fits behind IN alone"),
        ("sql: 'SELECT 1 IN :a', parameters: {a: {many: true, required: false}}", "values that are always there"),
        ("sql: 'SELECT {a}', parameters: {a: {many: true, type: identifier}}", "values that are always there"),
        ("sql: 'SELECT 1 IN :a', parameters: {a: {many: true, default: [[1]]}}", "the default is a list"),
    ],
)
@pytest.mark.requirement("P-YAML-ERRORS")
def test_sql_that_cannot_be_used_is_named_with_file_line_and_what_to_do(load: Load, entry: str, said: str) -> None:
    loaded = load(
        f"good: {{type: tool, description: d, sql: SELECT 1}}\n\nbad: {{type: tool, description: d, {entry}}}"
    )
    assert [tool.name for tool in loaded.tools] == ["good"]
    (problem,) = loaded.problems
    assert said in str(problem)
    assert "tools.yml:3: bad" in str(problem)
    assert problem.fix


def test_what_an_author_may_have_forgotten_is_noted_and_the_tool_is_offered(load: Load) -> None:
    loaded = load("t:\n  type: tool\n  parameters: {a: {}}\n  sql: SELECT 1\n  categry: x")
    assert [tool.name for tool in loaded.tools] == ["t"]
    said = "\n".join(map(str, loaded.problems))
    assert "its parameter 'a' stands nowhere in its SQL" in said
    assert "it has no description" in said
    assert "tools.yml:5: t: it is offered, but the key 'categry' means nothing here. Did you mean 'category'?" in said


@pytest.mark.parametrize(
    "sql", ["SELECT '{x}' AS a", "SELECT 1 AS a /* {x} */", 'SELECT 1 AS "{x}"', "SELECT '{\"k\": 1}'"]
)
def test_other_braces_are_letters(load: Load, provide: Provide, source: DatabaseSource, sql: str) -> None:
    loaded = load(f"t:\n  type: tool\n  description: d\n  sql: |\n    {sql}\n")
    (tool,) = loaded.tools
    with source.reading() as connection:
        assert tool.function(**{"(connection)": connection})["row_count"] == 1
