"""Teradata's dialect, through the door that calls go through: golden statements of every kind, read by a parser."""

from __future__ import annotations

from typing import Any

import pytest
import sqlglot
from registry_world import parameter, registered
from sqlglot import exp

from portico.domain.server import DatabaseSpec
from portico.errors import ConfigError
from portico.providers.sql import DatabaseSource
from portico.providers.sql.database_source import read_address
from portico.providers.sql.registry import ObjectKind, Registration, build_registry_sql
from portico.providers.sql.registry.provider import RegistryProvider
from portico.providers.sql.registry.registry_rows import read_rows

TOOLS = [
    {"ToolName": "total", "DataBaseName": "sales", "TableName": "total_f", "ToolType": "F", "docstring": "A sum."},
    {"ToolName": "best", "DataBaseName": "sales", "TableName": "best_f", "ToolType": "F", "ReturnsRows": "Y"},
    {"ToolName": "close", "DataBaseName": "sales", "TableName": "close_m", "ToolType": "M", "docstring": "Closes."},
    {"ToolName": "orders", "DataBaseName": "sales", "TableName": "orders", "ToolType": "T", "docstring": "Orders."},
    {"ToolName": "open", "DataBaseName": "sales", "TableName": "open_orders", "ToolType": "V", "docstring": "Open."},
]
PARAMS = [("region", "CV", 1), ("since", "DA", 2), ("amount", "D", 3)]
GOLDEN: dict[str, tuple[dict[str, Any], str, list[Any]]] = {
    "total": (
        {"region": "it's", "since": "2026-05-31", "amount": "1.25"},
        'SELECT "sales"."total_f"(:p1, CAST(:p2 AS DATE FORMAT \'YYYY-MM-DD\'), CAST(:p3 AS NUMBER)) AS "result"',
        ["it's", "2026-05-31", "1.25"],
    ),
    "best": (
        {"region": "north"},
        (
            'SELECT * FROM TABLE("sales"."best_f"(:p1, CAST(NULL AS DATE FORMAT \'YYYY-MM-DD\'), '
            'CAST(NULL AS NUMBER))) AS "t"'
        ),
        ["north"],
    ),
    "close": (
        {"region": "it's", "since": "2026-05-31", "amount": "1.25"},
        "EXEC \"sales\".\"close_m\"('it''s', DATE '2026-05-31', 1.25)",
        [],
    ),
    "orders": (
        {"region": "north", "filters": {"amount": {"ge": "5"}}, "order_by": [{"column": "since"}], "limit": 7},
        (
            'SELECT TOP 8 "region", "since", "amount" FROM "sales"."orders" WHERE "region" = :p1 AND '
            '"amount" >= CAST(:p2 AS NUMBER) ORDER BY "since" ASC'
        ),
        ["north", "5"],
    ),
    "open": (
        {"group_by": ["region"], "aggregates": [{"function": "sum", "column": "amount", "as": "total"}]},
        'SELECT TOP 101 "region", SUM("amount") AS "total" FROM "sales"."open_orders" GROUP BY "region"',
        [],
    ),
}


def _registrations(dialect: str) -> dict[str, Registration]:
    params = [
        {"ToolName": tool["ToolName"], "ParamName": name, "ParamType": code, "ParamPosition": place}
        for tool in TOOLS
        for name, code, place in PARAMS
    ]
    found = read_rows(TOOLS, [{**one, "ParamRequired": "N"} for one in params], dialect)
    return {one.name: one for one in found.registrations}


@pytest.mark.requirement("S4-33", "S4-34", "S4-35", "S4-36", "S4-37")
@pytest.mark.parametrize("name", list(GOLDEN))
def test_rows_as_the_seed_has_them_become_these_statements(name: str):
    dialect = read_address("teradatasql://user:pass@host/database", needs_driver=False).dialect
    arguments, sql, values = GOLDEN[name]
    statement = build_registry_sql(_registrations(dialect)[name], arguments, dialect)
    assert statement.sql == sql
    assert [str(value) for value in statement.values.values()] == values


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "close"])
def test_statements_are_what_a_parser_of_teradata_reads(name: str):
    arguments, _, _ = GOLDEN[name]
    statement = build_registry_sql(_registrations("teradatasql")[name], arguments, "teradatasql")
    (tree,) = sqlglot.parse(statement.sql, read="teradata")
    assert isinstance(tree, exp.Select)
    assert len(list(tree.find_all(exp.Placeholder))) == len(statement.values)
    is_table = _registrations("teradata")[name].kind in (ObjectKind.TABLE, ObjectKind.VIEW)
    assert (tree.args.get("limit") is not None) == is_table


@pytest.mark.requirement("S4-35")
def test_a_macro_that_says_nothing_of_writing_loads_and_reads():
    assert not _registrations("teradata")["close"].writes


@pytest.mark.parametrize("url", ["teradatasql://user:pass@host/database", "teradata://user@host/?database=x"])
def test_the_url_of_the_seed_is_taken_and_only_the_driver_is_missing(url: str):
    assert read_address(url, needs_driver=False).url.startswith("teradatasql://user")
    for make in (DatabaseSource, lambda url: RegistryProvider(_spec(url))):
        with pytest.raises(ConfigError, match="the driver for 'teradatasql' is not installed") as caught:
            make(url)
        assert caught.value.fix == "Run: pip install teradatasqlalchemy"


def _spec(url: str) -> Any:
    return DatabaseSpec(name="td", url=url)


def test_every_type_is_cast_as_teradata_spells_it():
    spelled = {"I1": "BYTEINT", "I8": "BIGINT", "F": "FLOAT", "TS": "TIMESTAMP(6)", "boolean": "BYTEINT", "JN": "JSON"}
    values = {"I1": 1, "I8": 2, "F": 1.5, "TS": "2026-05-31T12:30:00", "boolean": True, "JN": {}}
    for code, name in spelled.items():
        found = build_registry_sql(
            registered(ObjectKind.FUNCTION, parameter("a", code)), {"a": values[code]}, "teradata"
        )
        assert found.sql == f'SELECT "shop"."thing"(CAST(:p1 AS {name})) AS "result"'
        assert sqlglot.parse_one(found.sql, read="teradata")
