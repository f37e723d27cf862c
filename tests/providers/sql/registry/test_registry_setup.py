"""The shipped SQL makes a registry in real databases, twice, and its samples can be called."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pytest
import sqlglot
from psycopg.rows import dict_row
from registry_world import BENIGN, INJECTIONS, parameter, registered
from sqlglot import exp
from tests.databases import OWNER

from portico.errors import ConfigError
from portico.providers.sql import DatabaseSource
from portico.providers.sql.registry import ObjectKind, Registration, build_registry_sql, read_rows, statement_template
from portico.providers.sql.registry.registry_admin import setup_script, setup_steps
from portico.providers.sql.sql_values import ValueKind

SEEN = ("mcp_list_tools", "mcp_list_toolParams", "mcp_list_toolUsers")


@pytest.fixture
def shop(postgres_url: str) -> str:
    """A PostgreSQL database with a registry, made twice."""
    with psycopg.connect(postgres_url) as connection:
        for _ in range(2):
            connection.execute(setup_script("postgresql", "mcp").encode())
    return postgres_url


@pytest.fixture
def source(shop: str) -> Iterator[DatabaseSource]:
    """The same for reading."""
    opened = DatabaseSource(shop)
    yield opened
    opened.close()


def registrations(source: DatabaseSource, dialect: str, schema: str = "mcp") -> dict[str, Registration]:
    """What the views hold; there are no problems."""
    with source.reading() as conn:
        tools, params = (conn.rows(f"SELECT * FROM {schema}.{view}").records() for view in SEEN[:2])
    loaded = read_rows(tools, params, dialect)
    assert loaded.problems == ()
    return {one.name: one for one in loaded.registrations}


def answers(source: DatabaseSource, registration: Registration, arguments: dict[str, Any], dialect: str) -> list[Any]:
    """The rows of one call."""
    statement = build_registry_sql(registration, arguments, dialect)
    with source.reading() as conn:
        return [list(row) for row in conn.rows(statement.sql, statement.values, limit=statement.limit).rows]


@pytest.mark.requirement("S4-11", "S4-25", "S4-E3")
def test_the_samples_of_sqlite_load_and_answer(tmp_path):
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        for _ in range(2):
            connection.executescript(setup_script("sqlite", "main"))
    source = DatabaseSource(f"sqlite:///{file}")
    found = registrations(source, "sqlite", "main")
    assert sorted(found) == ["sample_format_date", "sample_sales", "sample_sales_by_region"]
    question = {
        "region": "north",
        "filters": {"amount": {"gt": "120.00"}, "product": {"like": "d%"}},
        "columns": ["id"],
    }
    assert answers(source, found["sample_sales"], question, "sqlite") == [[2]]
    best = {"order_by": [{"column": "revenue", "direction": "desc"}], "limit": 1, "columns": ["region"]}
    assert answers(source, found["sample_sales_by_region"], best, "sqlite") == [["north"]]
    told = {"form": "%d.%m.%Y", "moment": "2026-05-31"}
    assert answers(source, found["sample_format_date"], told, "sqlite") == [["31.05.2026"]]
    with source.reading() as conn:
        users = conn.rows("SELECT * FROM mcp_list_toolUsers").records()
    assert {row["UserName"] for row in users} == {"*"}
    source.close()


@pytest.mark.requirement("S4-11", "S4-25", "S4-34", "S4-E2", "S4-E3")
def test_the_samples_of_postgresql_load_and_answer(source):
    found = registrations(source, "postgresql")
    assert sorted(found) == [
        "sample_best_sales", "sample_rename_product", "sample_revenue", "sample_sales", "sample_sales_by_region",
    ]  # fmt: skip
    assert found["sample_best_sales"].returns_rows
    assert found["sample_rename_product"].writes
    assert answers(source, found["sample_revenue"], {"region": "north"}, "postgresql") == [[600.5]]
    assert answers(source, found["sample_revenue"], {"region": "north", "since": "2026-02-01"}, "postgresql") == [
        [480.5]
    ]
    assert len(answers(source, found["sample_best_sales"], {}, "postgresql")) == 3
    assert answers(source, found["sample_best_sales"], {"how_many": 1}, "postgresql") == [["desk", 480.5]]
    question = {
        "filters": {"sold_on": {"between": ["2026-02-01", "2026-03-31"]}},
        "group_by": ["product"],
        "aggregates": [{"function": "sum", "column": "amount", "as": "total"}],
        "order_by": [{"column": "total", "direction": "desc"}],
        "limit": 2,
    }
    assert answers(source, found["sample_sales"], question, "postgresql") == [["desk", 935.5], ["chair", 210]]


@pytest.mark.requirement("S4-E10")
def test_parameters_with_a_default_are_optional_and_columns_are_not_required(source):
    found = registrations(source, "postgresql")
    assert [one.required for one in found["sample_revenue"].parameters] == [True, False]
    assert [one.required for one in found["sample_rename_product"].parameters] == [True, True]
    assert not [one.name for one in found["sample_sales"].parameters if one.required]


def test_a_table_without_parameters_offers_all_its_columns(source):
    columns = registrations(source, "postgresql")["sample_sales"].parameters
    assert [(one.name, one.type.name) for one in columns] == [
        ("id", "integer"), ("region", "varchar"), ("product", "varchar"), ("amount", "decimal"), ("sold_on", "date"),
    ]  # fmt: skip
    assert (columns[1].length, columns[3].type.precision, columns[3].comment) == (
        20,
        10,
        "The price that was paid, in euros",
    )


def test_a_procedure_runs_where_writing_is_allowed(shop, source):
    found = registrations(source, "postgresql")["sample_rename_product"]
    statement = build_registry_sql(found, {"old_name": "lamp", "new_name": 'it\'s; a "light"'}, "postgresql")
    with psycopg.connect(shop) as connection:
        sql, values = statement.positional()
        connection.execute(sql.replace("?", "%s").encode(), values)
        count = connection.execute("SELECT count(*) FROM mcp.sample_sales WHERE product LIKE 'it''s;%'").fetchone()
    assert count == (3,)


@pytest.mark.requirement("S4-7", "S4-8")
def test_a_tool_is_shown_to_the_database_users_that_it_is_mapped_to(shop):
    with psycopg.connect(shop, row_factory=dict_row) as connection:
        connection.execute("DROP ROLE IF EXISTS registry_reader")
        connection.execute("CREATE ROLE registry_reader")
        connection.execute("DELETE FROM mcp.mcp_tool_users WHERE ToolName <> 'sample_sales'")
        connection.execute("INSERT INTO mcp.mcp_tool_users VALUES ('sample_revenue', 'registry_reader')")
        seen = {}
        for role in (OWNER, "registry_reader"):
            connection.execute(f"SET ROLE {role}".encode())
            seen[role] = {
                view: {row["toolname"] for row in connection.execute(f"SELECT * FROM mcp.{view}".encode())}
                for view in SEEN
            }
            connection.execute("RESET ROLE")
        connection.rollback()
    assert seen[OWNER] == {view: {"sample_sales"} for view in SEEN}
    assert seen["registry_reader"] == {view: {"sample_sales", "sample_revenue"} for view in SEEN}


def test_a_change_is_told_to_whoever_listens(shop):
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("LISTEN portico_registry")
        for table in ("mcp_tool_params", "mcp_tool_users", "mcp_user_grants", "mcp_tools"):
            connection.execute(f"DELETE FROM mcp.{table}".encode())
        told = list(connection.notifies(timeout=5, stop_after=4))
    assert [one.payload for one in told] == ["mcp"] * 4


@pytest.mark.requirement("S4-E1", "T68")
def test_postgresql_takes_every_value_and_gives_it_back_exactly(shop, source):
    with psycopg.connect(shop) as connection:
        echo = "CREATE FUNCTION mcp.echo(x anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE AS 'SELECT x'"
        connection.execute(echo.encode())
    for code in BENIGN.keys() - {"mood", "UT"}:
        found = registered(ObjectKind.FUNCTION, parameter("x", code), database="mcp", object="echo")
        for value in BENIGN[code]:
            [[echoed]] = answers(source, found, {"x": value}, "postgresql")
            assert same(found.parameters[0].type.shape, echoed, value), (code, value, echoed)


def same(shape: ValueKind, echoed: Any, value: Any) -> bool:
    """Whether an answer means the value that was sent; numbers beyond JSON's own come as text."""
    if shape in (ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.FLOAT):
        return Decimal(str(echoed)) == Decimal(str(value))
    if shape is ValueKind.BYTES:
        return bool(echoed == {"base64": value})
    if shape is ValueKind.INTERVAL:
        return str(echoed).startswith("P")
    if shape is ValueKind.TIMESTAMP:
        moments = [datetime.fromisoformat(text) for text in (echoed, value)]
        return moments[0] == moments[1]
    if shape is ValueKind.TIME:
        return time.fromisoformat(echoed) == time.fromisoformat(value)
    return bool(echoed == value)


@pytest.mark.requirement("S4-E1")
def test_injections_find_nothing_and_change_nothing_in_real_databases(source):
    table = registered(ObjectKind.TABLE, parameter("product", "text"), database="mcp", object="sample_sales")
    with source.reading() as conn:
        for text in INJECTIONS:
            statement = build_registry_sql(table, {"filters": {"product": {"eq": text}}}, "postgresql")
            assert conn.rows(statement.sql, statement.values).rows == ()
    assert len(answers(source, table, {}, "postgresql")) == 6


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "teradata"])
def test_samples_can_be_left_out(dialect):
    assert "sample" not in setup_script(dialect, "mcp", samples=False).lower()
    assert len(setup_steps(dialect, "mcp", samples=False)) < len(setup_steps(dialect, "mcp"))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_the_steps_do_the_same_one_by_one(dialect, postgres_url):
    if dialect == "sqlite":
        with closing(sqlite3.connect(":memory:")) as memory:
            for step in setup_steps("sqlite", "main") * 2:
                memory.execute(step)
            assert memory.execute("SELECT count(*) FROM mcp_list_tools").fetchone() == (3,)
        return
    with psycopg.connect(postgres_url) as connection:
        for step in setup_steps("postgresql", "mcp") * 2:
            connection.execute(step.encode(), prepare=False)
        assert connection.execute("SELECT count(*) FROM mcp.mcp_list_tools").fetchone() == (5,)


@pytest.mark.requirement("S4-E4")
@pytest.mark.parametrize("schema", ["", 'a"b', "a b", "a;b", "a" * 200, "é", "a.b", "{x}"])
def test_a_schema_with_a_hostile_name_is_refused(schema):
    with pytest.raises(ConfigError, match="cannot live in"):
        setup_script("postgresql", schema)


@pytest.mark.requirement("S4-25")
def test_the_sql_for_teradata_is_what_teradata_reads():
    steps = setup_steps("teradata", "mcp")
    unread = ("REPLACE MACRO", "REPLACE FUNCTION")  # the parser knows neither
    trees = [sqlglot.parse_one(step, dialect="teradata") for step in steps if not step.startswith(unread)]
    assert not [tree for tree in trees if isinstance(tree, exp.Command)]
    macro = next(step for step in steps if step.startswith("REPLACE MACRO"))
    inner = macro.partition(" AS (")[2].rpartition(";")[0]
    assert isinstance(sqlglot.parse_one(inner, dialect="teradata"), exp.Select)
    views = {tree.this.name: tree.expression.named_selects for tree in trees if tree.args.get("kind") == "VIEW"}
    assert views["mcp_list_tools"][:6] == ["ToolName", "DataBaseName", "TableName", "ToolType", "docstring", "Tags"]
    assert views["mcp_list_toolParams"] == [
        "ToolName", "ParamName", "ParamType", "ParamLength", "ParamPosition", "ParamRequired", "ParamComment",
    ]  # fmt: skip
    assert views["mcp_list_toolUsers"] == ["ToolName", "UserName"]


@pytest.mark.requirement("S4-E2", "S4-35")
def test_statements_for_teradata_are_what_teradata_reads():
    parameters = [parameter(f"p{place}", code, place) for place, code in enumerate(BENIGN, 1)]
    for kind in (ObjectKind.FUNCTION, ObjectKind.TABLE):
        sql = statement_template(registered(kind, *parameters), "teradata")
        assert isinstance(sqlglot.parse_one(sql, dialect="teradata"), exp.Select)
