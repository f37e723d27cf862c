"""What agents see of a registration."""

from __future__ import annotations

import jsonschema_rs
import orjson
import pytest
from registry_world import SALES, parameter, registered

from portico.errors import InvalidArguments
from portico.providers.sql.registry import ObjectKind, build_registry_sql, tool_definition
from portico.providers.sql.table_query import operators_of
from portico.rendering.budget import TokenEstimate


@pytest.mark.requirement("S4-45", "S4-16", "S4-17", "S4-24")
def test_a_definition_says_what_the_registry_says():
    region = parameter("region", "varchar(20)", 1, required=True, comment="Where")
    since = parameter("since", "TS", 2, comment="From when")
    found = registered(ObjectKind.FUNCTION, region, since, docstring="What was sold.", tags=("a", "b"))
    definition = tool_definition(found)
    assert definition["name"] == "tool"
    assert definition["description"] == "What was sold."
    assert definition["inputSchema"] == {
        "type": "object",
        "properties": {
            "region": {"type": "string", "maxLength": 20, "description": "Where"},
            "since": {"type": ["string", "null"], "description": "From when, such as 2026-05-31T12:30:00"},
        },
        "additionalProperties": False,
        "required": ["region"],
    }
    assert definition["annotations"] == {"readOnlyHint": True}
    assert definition["_meta"] == {
        "portico/registry": {"database": "shop", "object": "thing", "kind": "F", "fingerprint": found.fingerprint},
        "tags": ["a", "b"],
    }


def test_what_writes_says_so():
    assert tool_definition(registered(ObjectKind.MACRO, writes=True))["annotations"] == {"readOnlyHint": False}


def test_without_a_docstring_the_object_is_named():
    assert tool_definition(registered(ObjectKind.VIEW, docstring=""))["description"] == "Reads the view shop.thing."


@pytest.mark.requirement("S4-E3")
def test_columns_are_filters_of_their_own_type():
    schema = tool_definition(registered(ObjectKind.TABLE, *SALES))["inputSchema"]
    assert list(schema["properties"]) == [
        "region", "amount", "sold_on", "open", "filters", "columns", "group_by", "aggregates", "order_by", "limit",
    ]  # fmt: skip
    shared = schema["$defs"]
    assert shared["column"]["enum"] == ["region", "amount", "sold_on", "open"]
    assert list(shared["boolean"]["properties"]) == ["in", "is_null"]
    assert shared["date"]["properties"]["between"]["items"] == {"type": "string", "format": "date"}
    assert shared["date"]["additionalProperties"] == {"type": "string", "format": "date"}
    assert all(name in schema["properties"]["filters"]["description"] for name in operators_of(SALES[0].type))


GOOD = [
    {},
    {"region": "north", "limit": 5},
    {"filters": {"amount": {"ge": 5, "lt": "7.5"}, "region": {"in": ["a", "b"], "like": "n%"}, "open": {"eq": True}}},
    {"columns": ["region"], "order_by": [{"column": "amount", "direction": "desc"}]},
    {
        "group_by": ["region"],
        "aggregates": [{"function": "sum", "column": "amount", "as": "total"}, {"function": "count"}],
    },
]
BAD = [
    {"region": 5},
    {"ghost": 1},
    {"filters": {"ghost": {"eq": 1}}},
    {"filters": {"region": "north"}},
    {"filters": {"amount": {"like": "5%"}}},
    {"filters": {"region": {"between": ["a"]}}},
    {"columns": ["ghost"]},
    {"limit": 0},
    {"limit": 1_001},
    {"order_by": ["region"]},
    {"aggregates": [{"function": "median", "column": "amount"}]},
]


@pytest.mark.parametrize("arguments", GOOD)
def test_what_the_schema_offers_becomes_a_statement(arguments):
    found = registered(ObjectKind.TABLE, *SALES)
    assert jsonschema_rs.is_valid(tool_definition(found)["inputSchema"], arguments)
    assert build_registry_sql(found, arguments, "sqlite").sql.startswith("SELECT ")


@pytest.mark.parametrize("arguments", BAD)
def test_what_it_does_not_offer_is_invalid(arguments):
    found = registered(ObjectKind.TABLE, *SALES)
    is_conditions = any(isinstance(one, dict) and "eq" not in one for one in arguments.get("filters", {}).values())
    assert is_conditions or not jsonschema_rs.is_valid(tool_definition(found)["inputSchema"], arguments)
    with pytest.raises(InvalidArguments):
        build_registry_sql(found, arguments, "sqlite")


def test_five_columns_cost_at_most_650_tokens():
    columns = (
        parameter("id", "I", 1),
        parameter("region", "varchar(20)", 2),
        parameter("product", "varchar(40)", 3),
        parameter("amount", "numeric(10,2)", 4, comment="The price that was paid, in euros"),
        parameter("sold_on", "DA", 5),
    )
    found = tool_definition(registered(ObjectKind.TABLE, *columns))
    assert TokenEstimate().count(orjson.dumps(found).decode()) <= 650


@pytest.mark.requirement("S4-23")
def test_a_column_that_must_be_filtered_takes_a_value_or_conditions():
    found = registered(ObjectKind.TABLE, parameter("day", "DA", 1, required=True), parameter("n", "I", 2))
    schema = tool_definition(found)["inputSchema"]
    assert schema["required"] == ["day"]
    for day in ("2026-05-31", {"between": ["2026-01-01", "2026-12-31"]}):
        assert jsonschema_rs.is_valid(schema, {"day": day})
    assert not jsonschema_rs.is_valid(schema, {"filters": {"n": {"eq": 1}}})


def test_a_column_called_like_a_parameter_of_ours_stands_in_the_filters_alone():
    found = registered(ObjectKind.TABLE, parameter("limit", "I", 1, required=True), parameter("filters", "CV", 2))
    schema = tool_definition(found)["inputSchema"]
    assert schema["properties"]["limit"]["maximum"] == 1_000
    assert schema["required"] == ["filters"]
    assert schema["properties"]["filters"]["required"] == ["limit"]
    statement = build_registry_sql(
        found, {"filters": {"limit": {"eq": 3}, "filters": {"eq": "x"}}, "limit": 2}, "sqlite"
    )
    assert statement.sql.endswith('WHERE "limit" = CAST(:p1 AS INTEGER) AND "filters" = CAST(:p2 AS TEXT) LIMIT :p3')


def test_a_table_without_columns_can_only_be_limited():
    schema = tool_definition(registered(ObjectKind.VIEW), most=50)["inputSchema"]
    limit = {"type": "integer", "minimum": 1, "maximum": 50, "default": 50}
    assert schema == {"type": "object", "properties": {"limit": limit}, "additionalProperties": False}


def test_forty_columns_stay_small():
    columns = [parameter(f"column_{n}", code, n) for n, code in enumerate(["CV", "I", "D", "DA"] * 10, 1)]
    assert len(orjson.dumps(tool_definition(registered(ObjectKind.TABLE, *columns))["inputSchema"])) < 8_000
