"""Cubes: the model chooses among what is declared, and writes no SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anyio import fail_after
from attacks import INJECTIONS

from portico.domain.call import Call
from portico.errors import InvalidArguments, UpstreamError
from portico.providers.sql import DatabaseSource
from portico.providers.yaml import LoadedYaml
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.testing import AGENT, FakeApplication

Load = Callable[..., LoadedYaml]


async def cube(application: FakeApplication, **arguments: Any) -> Any:
    with fail_after(30):
        result = await application.gateway.call(AGENT, Call(tool="sales_cube", arguments=arguments))
    return result.structured if not result.is_error else result.text


async def told(application: FakeApplication, **arguments: Any) -> str:
    """What is said of a question that cannot be answered."""
    with pytest.raises(InvalidArguments) as caught:
        await cube(application, **arguments)
    return str(caught.value)


async def ask(application: FakeApplication, **arguments: Any) -> Any:
    """Past the gateway's own check of the schema."""
    with fail_after(30):
        return await application.admin.providers["local"].call("sales_cube", arguments, meta={}, on_progress=None)


@pytest.mark.requirement("P-YAML-TOOLS")
async def test_measures_are_worked_out_for_each_combination_of_dimensions(sales_house: FakeApplication) -> None:
    by_total = [{"by": "total", "direction": "desc"}]
    found = await cube(sales_house, measures=["total", "n"], dimensions=["region"], order_by=by_total)
    assert found["columns"] == ["region", "total", "n"]
    assert found["rows"] == [["north", 30, 2], ["south", 5, 1], ["it's", 2, 1], [None, 1, 1]]
    both = await cube(sales_house, measures=["total"], dimensions=["region", "month"], order_by=by_total, limit=1)
    assert both["rows"] == [["north", "2026-02-01", 20]]
    assert both["truncated"]
    assert both["next"] == "only the first 1 rows are shown. Raise `limit`, add filters, or choose fewer dimensions"
    assert (await cube(sales_house, measures=["n"]))["rows"] == [[5]]
    assert len((await cube(sales_house, dimensions=["month"]))["rows"]) == 2


@pytest.mark.parametrize(
    ("op", "value", "n"),
    [
        ("=", "north", 2),
        ("!=", "north", 2),
        ("<", "north", 1),
        ("<=", "north", 3),
        (">", "north", 1),
        (">=", "north", 3),
        ("in", ["north", "south"], 3),
        ("in", ["it's"], 1),
        ("between", ["n", "o"], 2),
        ("is_null", None, 1),
        ("is_null", True, 1),
        ("is_null", False, 4),
        ("like", "%th", 3),
        ("=", "it's", 1),
    ],
)
async def test_each_comparison_filters_by_a_bound_value(
    sales_house: FakeApplication, op: str, value: Any, n: int
) -> None:
    wanted = {"dimension": "region", "op": op, **({} if value is None else {"value": value})}
    assert (await cube(sales_house, measures=["n"], filters=[wanted]))["rows"] == [[n]]


async def test_comments_and_expressions_of_every_kind_can_be_declared(
    load: Load, make_test_app: Callable[..., FakeApplication], source: DatabaseSource
) -> None:
    text = """
sales_cube:
  type: cube
  description: d
  sql: |
    SELECT region, amount -- nothing but this
    FROM sales;
  dimensions:
    size: {expression: "CASE WHEN amount > 4 THEN 'large' ELSE 'small' END -- by units"}
    region:
  measures:
    total: "SUM(amount) /* units */"
"""
    application = make_test_app(load(text), source)
    order = [{"by": "size"}]
    assert (await cube(application, measures=["total"], dimensions=["size"], order_by=order))["rows"] == [
        ["large", 35],
        ["small", 3],
    ]
    filters = [{"dimension": "size", "op": "=", "value": "large"}, {"dimension": "region", "op": "=", "value": "south"}]
    assert (await cube(application, measures=["total"], filters=filters))["rows"] == [[5]]


async def test_all_filters_must_hold(sales_house: FakeApplication) -> None:
    filters = [
        {"dimension": "month", "op": ">=", "value": "2026-02-01"},
        {"dimension": "region", "op": "in", "value": ["north", "south"]},
    ]
    assert (await cube(sales_house, measures=["total"], filters=filters))["rows"] == [[20]]


@pytest.mark.requirement("S0-44")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"measures": ["profit"]}, "there are: total, n"),
        ({"measures": ["totl"]}, "did you mean 'total'? there are: total, n"),
        ({"dimensions": ["total"]}, "there are: region, month"),
        ({"measures": ["n"], "filters": [{"dimension": "n", "op": "=", "value": 1}]}, "there are: region, month"),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "~", "value": 1}]}, "must be one of =, !="),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "=", "value": None}]}, "use is_null"),
        (
            {"measures": ["n"], "filters": [{"dimension": "region", "op": "=", "value": ["a"]}]},
            "must be text, a number",
        ),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "in", "value": []}]}, "a list of 1 to 500"),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "between", "value": ["a"]}]}, "two values"),
        ({"measures": ["n"], "filters": [{"dimension": "month", "op": "=", "value": "soon"}]}, "must be a date"),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "like", "value": 5}]}, "must be text"),
        ({"measures": ["n"], "filters": [{"dimension": "region", "op": "=", "sql": "1"}]}, "has no field 'sql'"),
        ({"measures": ["n"], "filters": "region = 'north'"}, "must be a list"),
        ({"measures": ["n"], "order_by": [{"by": "1; DROP TABLE sales"}]}, "is not declared"),
        ({"measures": ["n"], "order_by": [{"by": "n", "direction": "desc; --"}]}, "'asc' or 'desc'"),
        ({"measures": ["n"], "limit": 0}, "at least 1"),
        ({"measures": ["n"], "limit": "1; DROP TABLE sales"}, "must be a whole number"),
    ],
)
async def test_what_is_not_declared_is_answered_with_what_is(
    sales_house: FakeApplication, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        await ask(sales_house, **arguments)
    assert said in str(caught.value)
    with pytest.raises(InvalidArguments):
        await cube(sales_house, **arguments)


async def test_what_does_not_fit_together_is_said(sales_house: FakeApplication) -> None:
    assert "choose at least one measure or dimension. measures: total, n" in await told(sales_house)
    ordered = await told(sales_house, measures=["n"], order_by=[{"by": "total"}])
    assert "order_by: 'total' is not among what is chosen: n" in ordered


async def test_injections_into_a_filter_find_nothing_and_change_nothing(
    sales_house: FakeApplication, dump: Callable[[], Any]
) -> None:
    before = dump()
    for text in INJECTIONS:
        filters = [{"dimension": "region", "op": "=", "value": text}]
        result = await ask(sales_house, measures=["n"], filters=filters)
        assert result["structuredContent"]["rows"] == [[0]], text
    listed = [{"dimension": "region", "op": "in", "value": INJECTIONS}]
    assert (await ask(sales_house, measures=["n"], filters=listed))["structuredContent"]["rows"] == [[0]]
    assert dump() == before


async def test_injections_into_a_name_never_reach_the_database(
    sales_house: FakeApplication, dump: Callable[[], Any]
) -> None:
    before = dump()
    for text in INJECTIONS:
        for arguments in (
            {"measures": [text]},
            {"dimensions": [text]},
            {"measures": ["n"], "order_by": [{"by": text}]},
            {"measures": ["n"], "filters": [{"dimension": text, "op": "=", "value": 1}]},
            {"measures": ["n"], "filters": [{"dimension": "region", "op": text, "value": 1}]},
        ):
            with pytest.raises(InvalidArguments):
                await ask(sales_house, **arguments)
    assert dump() == before


@pytest.mark.requirement("S0-3", "S0-67", "S0-80", "S0-E10")
async def test_a_cube_honours_the_surface_like_every_tool(sales_house: FakeApplication) -> None:
    gateway = sales_house.gateway
    assert "sales_cube" in [tool["name"] for tool in await Static(gateway).tools(AGENT)]
    for surface in (Search(gateway), Discover(gateway)):
        assert "sales_cube" not in [tool["name"] for tool in await surface.tools(AGENT)]
    search, execute = Search(gateway).meta_tool("search_tool"), Search(gateway).meta_tool("execute_tool")
    assert search is not None
    assert execute is not None
    found = (await search(AGENT, {"query": "sales by region"}, Envelope()))["structuredContent"]
    assert (found["tools"][0]["name"], found["tools"][0]["category"]) == ("sales_cube", "sales")
    arguments = {"tool_name": "sales_cube", "arguments": {"measures": ["n"]}}
    assert (await execute(AGENT, arguments, Envelope()))["structuredContent"]["rows"] == [[5]]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("sql: SELECT 1", "it has no measure"),
        ("measures: {n: COUNT(*)}", "it has no 'sql'"),
        ("sql: 'SELECT 1; SELECT 2', measures: {n: COUNT(*)}", "more than one statement"),
        ("sql: 'SELECT :a', measures: {n: COUNT(*)}", "the SQL of a cube takes no :values"),
        ("sql: SELECT 1, measures: {n: 'COUNT(*), 2'}", "'n' is more than one expression"),
        ("sql: SELECT 1, measures: {n: '1) FROM secrets --'}", "a closing parenthesis has none to close"),
        ("sql: SELECT 1, measures: {n: '1) FROM (secrets'}", "'n' is more than one expression"),
        ("sql: SELECT 1, measures: {n: '1; DROP TABLE x'}", "more than one statement"),
        ("sql: SELECT 1, measures: {n: ':x'}", "is no expression without :values"),
        ("sql: SELECT 1, measures: {n: ''}, dimensions: {n: a}", "'n' is a dimension and a measure"),
        ("sql: SELECT 1, measures: {'a b': a}", "nothing in 'measures' can be called 'a b'"),
        ("sql: SELECT 1, measures: {a: [b]}", "'a' is a list"),
        ("sql: SELECT 1, measures: [a]", "this is a list, not a table"),
        ("sql: SELECT 1, measures: {a: b}, dimensions: {c: {type: colour}}", "there is no type 'colour'"),
    ],
)
def test_a_cube_that_cannot_be_used_is_named_with_what_to_do(load: Load, entry: str, said: str) -> None:
    loaded = load(f"good: {{type: cube, description: d, sql: SELECT 1, measures: {{n: COUNT(*)}}}}\n"
                  f"bad: {{type: cube, description: d, {entry}}}")  # fmt: skip
    assert [tool.name for tool in loaded.tools] == ["good"]
    (problem,) = loaded.problems
    assert said in str(problem)
    assert (problem.line, bool(problem.fix)) == (2, True)


async def test_an_error_of_the_database_is_the_answer_of_the_cube(
    load: Load, make_test_app: Callable[..., FakeApplication], source: DatabaseSource
) -> None:
    application = make_test_app(
        load("sales_cube: {type: cube, description: d, sql: SELECT 1, measures: {n: SUM(nothing)}}"), source
    )
    with pytest.raises(UpstreamError, match="the database says"):
        await told(application, measures=["n"])


def test_an_array_is_one_expression(load: Load) -> None:
    text = "c: {type: cube, description: d, sql: SELECT 1 AS a, measures: {m: 'ARRAY[1, 2]', n: 'COUNT(*)'}}"
    assert load(text, dialect="postgresql").problems == ()
