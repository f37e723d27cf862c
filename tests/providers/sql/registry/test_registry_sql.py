"""The exact statement of every kind in every dialect."""

from __future__ import annotations

import pytest
from registry_world import SALES, parameter, registered

from portico.errors import ConfigError, InvalidArguments, InvalidDefinition
from portico.providers.sql.registry import ObjectKind, Returns, build_registry_sql, statement_template

ARGUMENTS = (parameter("n", "I", 1, required=True), parameter("day", "DA", 2), parameter("note", "CV", 3))
GIVEN = {"note": "x", "n": 5, "day": "2026-05-31"}


def test_a_statement_tells_what_to_send_and_what_comes_back():
    statement = build_registry_sql(registered(ObjectKind.FUNCTION, *ARGUMENTS), GIVEN, "postgresql")
    assert statement.values == {"p1": 5, "p2": "2026-05-31", "p3": "x"}
    assert (statement.returns, statement.limit) == (Returns.VALUE, None)
    assert build_registry_sql(registered(ObjectKind.MACRO), {}, "postgresql").returns is Returns.ANYTHING
    listed = build_registry_sql(registered(ObjectKind.TABLE), {"limit": 7}, "postgresql")
    assert (listed.returns, listed.limit, listed.values) == (Returns.ROWS, 7, {"p1": 8})


@pytest.mark.requirement("S4-33", "S4-34", "S4-36", "S4-37", "S4-E1", "S4-E2")
@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (
            "postgresql",
            'SELECT * FROM "shop"."thing"(CAST(:p1 AS integer), CAST(:p2 AS date), CAST(:p3 AS text)) AS "result"',
        ),
        (
            "teradata",
            'SELECT "shop"."thing"(CAST(:p1 AS INTEGER), CAST(:p2 AS DATE FORMAT \'YYYY-MM-DD\'), :p3) AS "result"',
        ),
    ],
)
def test_a_function_is_called_with_binds_in_the_order_of_positions(dialect, sql):
    statement = build_registry_sql(registered(ObjectKind.FUNCTION, *ARGUMENTS), GIVEN, dialect)
    assert statement.sql == sql
    assert statement.positional() == (
        sql.replace(":p1", "?").replace(":p2", "?").replace(":p3", "?"),
        (5, "2026-05-31", "x"),
    )
    assert statement_template(registered(ObjectKind.FUNCTION, *ARGUMENTS), dialect) == sql


@pytest.mark.requirement("S4-34", "S4-E2")
def test_a_function_that_returns_a_table_is_read_from():
    found = registered(ObjectKind.FUNCTION, parameter("n", "I"), returns_rows=True)
    assert build_registry_sql(found, {"n": 1}, "postgresql").sql == (
        'SELECT * FROM "shop"."thing"(CAST(:p1 AS integer)) AS "result"'
    )
    statement = build_registry_sql(found, {"n": 1}, "teradata")
    assert statement.sql == 'SELECT * FROM TABLE("shop"."thing"(CAST(:p1 AS INTEGER))) AS "t"'
    assert statement.returns is Returns.ROWS


@pytest.mark.requirement("S4-35", "S4-36", "S4-37")
def test_a_macro_is_run_with_literals_on_teradata():
    found = registered(ObjectKind.MACRO, *ARGUMENTS)
    statement = build_registry_sql(found, {**GIVEN, "note": "it's"}, "teradata")
    assert statement.sql == "EXEC \"shop\".\"thing\"(5, DATE '2026-05-31', 'it''s')"
    assert statement.positional() == (statement.sql, ())
    assert build_registry_sql(found, {"n": -5}, "teradata").sql == 'EXEC "shop"."thing"(-5, NULL, NULL)'
    assert build_registry_sql(registered(ObjectKind.MACRO), {}, "teradata").sql == 'EXEC "shop"."thing"'
    assert statement_template(found, "teradata") == "EXEC \"shop\".\"thing\"(1, DATE '2026-01-31', 'note')"


@pytest.mark.requirement("S4-37")
@pytest.mark.parametrize(
    ("code", "value", "literal"),
    [
        ("CV", "", "''"), ("CV", "a'b''c", "'a''b''''c'"), ("CV", "? :x -- /*", "'? :x -- /*'"),
        ("I8", -(2**63), str(-(2**63))),
        ("F", 1.5, "1.5E0"), ("F", 1e300, "1E+300"), ("F", -2, "-2.0E0"), ("D", "0.10", "0.10"),
        ("D", 10**20, str(10**20)),
        ("boolean", True, "1"), ("boolean", False, "0"), ("DA", "2026-05-31", "DATE '2026-05-31'"),
        ("AT", "12:30", "TIME '12:30:00.000000'"), ("TZ", "12:30:00Z", "TIME '12:30:00.000000+00:00'"),
        ("TS", "2026-05-31T12:30:00", "TIMESTAMP '2026-05-31 12:30:00.000000'"),
        ("SZ", "2026-05-31T12:30:00.5-05:30", "TIMESTAMP '2026-05-31 12:30:00.500000-05:30'"),
        ("BV", "aGVsbG8=", "'68656C6C6F'XB"), ("JN", {"a": "x'y"}, "'{\"a\": \"x''y\"}'"),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000", "'123e4567-e89b-12d3-a456-426614174000'"),
    ],
)  # fmt: skip
def test_every_type_has_one_literal(code, value, literal):
    found = registered(ObjectKind.MACRO, parameter("x", code))
    assert build_registry_sql(found, {"x": value}, "teradata").sql == f'EXEC "shop"."thing"({literal})'


@pytest.mark.parametrize("value", ["{fn teradata_write_csv(x)}", "{ fn x}", "a {d '2026'}", "{?=call x}"])
def test_a_text_that_the_driver_of_teradata_would_run_is_refused(value):
    with pytest.raises(InvalidArguments, match="takes for a command"):
        build_registry_sql(registered(ObjectKind.MACRO, parameter("x", "CV")), {"x": value}, "teradata")


def test_a_procedure_is_called_on_postgresql():
    statement = build_registry_sql(registered(ObjectKind.MACRO, *ARGUMENTS), GIVEN, "postgresql")
    assert statement.sql == 'CALL "shop"."thing"(CAST(:p1 AS integer), CAST(:p2 AS date), CAST(:p3 AS text))'


@pytest.mark.requirement("S4-37")
def test_what_is_left_out_keeps_its_default_or_is_null():
    found = registered(ObjectKind.FUNCTION, *ARGUMENTS)
    given = {"n": 5, "day": None, "note": "x"}
    assert build_registry_sql(found, {"n": 5}, "postgresql").sql == (
        'SELECT * FROM "shop"."thing"(CAST(:p1 AS integer)) AS "result"'
    )
    assert build_registry_sql(found, given, "postgresql").sql == (
        'SELECT * FROM "shop"."thing"(CAST(:p1 AS integer), "note" => CAST(:p2 AS text)) AS "result"'
    )
    bare = registered(ObjectKind.FUNCTION, ARGUMENTS[0], parameter("day", "DA", 2, has_default=False), ARGUMENTS[2])
    assert build_registry_sql(bare, given, "postgresql").sql == (
        'SELECT * FROM "shop"."thing"(CAST(:p1 AS integer), CAST(NULL AS date), CAST(:p2 AS text)) AS "result"'
    )
    assert build_registry_sql(found, given, "teradata").sql == (
        'SELECT "shop"."thing"(CAST(:p1 AS INTEGER), CAST(NULL AS DATE FORMAT \'YYYY-MM-DD\'), :p2) AS "result"'
    )


def test_sqlite_calls_its_own_functions_and_no_others():
    found = registered(ObjectKind.FUNCTION, parameter("x", "CV", 1), parameter("y", "I", 2), object="substr")
    assert build_registry_sql(found, {"x": "abc", "y": 2}, "sqlite").sql == (
        'SELECT "substr"(CAST(:p1 AS TEXT), CAST(:p2 AS INTEGER)) AS "result"'
    )
    assert build_registry_sql(found, {"x": "abc"}, "sqlite").sql == 'SELECT "substr"(CAST(:p1 AS TEXT)) AS "result"'
    for name in ("load_extension", "thing", "randomblob", "readfile", "printf"):
        with pytest.raises(InvalidDefinition, match="register a view"):
            statement_template(registered(ObjectKind.FUNCTION, object=name), "sqlite")
    with pytest.raises(InvalidDefinition, match="no macros and no procedures"):
        statement_template(registered(ObjectKind.MACRO), "sqlite")


QUESTION = {
    "region": "north",
    "filters": {
        "amount": {"ge": 5, "ne": "7.50"},
        "sold_on": {"between": ["2026-01-01", "2026-12-31"]},
        "region": {"in": ["a", "b"], "like": "n\\%%"},
        "open": {"is_null": False},
    },
    "columns": ["amount", "region"],
    "order_by": [{"column": "sold_on", "direction": "desc"}, {"column": "region"}],
    "limit": 10,
}


@pytest.mark.requirement("S4-E3")
@pytest.mark.parametrize("kind", [ObjectKind.TABLE, ObjectKind.VIEW])
@pytest.mark.parametrize(
    ("dialect", "head", "text", "number", "day", "tail"),
    [
        ("postgresql", "SELECT", "CAST({} AS text)", "numeric", "date", " LIMIT :p9"),
        ("sqlite", "SELECT", "CAST({} AS TEXT)", "NUMERIC", "TEXT", " LIMIT :p9"),
        ("teradata", "SELECT TOP 11", "{}", "DECIMAL(10, 2)", "DATE FORMAT 'YYYY-MM-DD'", ""),
    ],
)
def test_a_table_or_view_is_a_parameterised_select(kind, dialect, head, text, number, day, tail):
    statement = build_registry_sql(registered(kind, *SALES), QUESTION, dialect)
    one, six, seven, eight = (text.format(f":p{place}") for place in (1, 6, 7, 8))
    assert statement.sql == (
        f'{head} "amount", "region" FROM "shop"."thing" WHERE "region" = {one} '
        f'AND "amount" >= CAST(:p2 AS {number}) AND "amount" <> CAST(:p3 AS {number}) '
        f'AND "sold_on" BETWEEN CAST(:p4 AS {day}) AND CAST(:p5 AS {day}) '
        f'AND "region" IN ({six}, {seven}) AND "region" LIKE {eight} ESCAPE \'\\\' AND "open" IS NOT NULL '
        f'ORDER BY "sold_on" DESC, "region" ASC{tail}'
    )
    values = ["north", "5", "7.50", "2026-01-01", "2026-12-31", "a", "b", "n\\%%"]
    assert list(statement.values.values()) == values + ([11] if tail else [])


@pytest.mark.requirement("S4-E3")
def test_groups_and_aggregates_are_worked_out_by_the_database():
    question = {
        "group_by": ["region"],
        "aggregates": [
            {"function": "sum", "column": "amount", "as": "total"},
            {"function": "count"},
            {"function": "count_distinct", "column": "sold_on"},
        ],
        "order_by": [{"column": "total", "direction": "desc"}],
    }
    statement = build_registry_sql(registered(ObjectKind.TABLE, *SALES), question, "postgresql")
    assert statement.sql == (
        'SELECT "region", SUM("amount") AS "total", COUNT(*) AS "count", '
        'COUNT(DISTINCT "sold_on") AS "count_distinct_sold_on" FROM "shop"."thing" '
        'GROUP BY "region" ORDER BY "total" DESC LIMIT :p1'
    )
    assert build_registry_sql(registered(ObjectKind.TABLE, *SALES), question, "teradata").sql.startswith(
        "SELECT TOP 101 "
    )


def test_only_registered_columns_are_read():
    assert build_registry_sql(registered(ObjectKind.VIEW, *SALES), {}, "sqlite").sql == (
        'SELECT "region", "amount", "sold_on", "open" FROM "shop"."thing" LIMIT :p1'
    )
    assert build_registry_sql(registered(ObjectKind.VIEW), {}, "sqlite").sql == 'SELECT * FROM "shop"."thing" LIMIT :p1'


WRONG = [
    ({"ghost": 1}, "'ghost' is no parameter"),
    ({"regoin": "x"}, "did you mean 'region'?"),
    ({"region": 5}, "'region' must be text"),
    ({"region": {"eq": "x"}}, "'region' must be text"),
    ({"filters": {"ghost": {"eq": 1}}}, "'filters.ghost' is 'ghost', which is no column here"),
    ({"filters": {"amount": {"like": "x"}}}, "is no condition for 'amount'"),
    ({"filters": {"amount": {"ge": "x"}}}, "'filters.amount.ge' must be a decimal number"),
    ({"filters": {"amount": {"in": []}}}, "'filters.amount.in' must be a list of 1 to 500 items"),
    ({"filters": {"amount": {"between": [1]}}}, "must be a list of 2 items"),
    ({"filters": {"open": {"gt": True}}}, "is no condition for 'open'"),
    ({"filters": {"region": {"like": "x\\"}}}, "write \\\\\\\\ for the sign itself"),
    ({"filters": {"region": {"is_null": "yes"}}}, "must be true or false"),
    ({"filters": []}, "'filters' must be an object"),
    ({"columns": ["ghost"]}, "'columns.0' is 'ghost'"),
    ({"columns": "region"}, "'columns' must be a list"),
    ({"limit": 0}, "'limit' must be a whole number between 1 and 1000"),
    ({"limit": 1_001}, "'limit' must be"),
    ({"limit": True}, "'limit' must be"),
    ({"limit": "5; DROP"}, "'limit' must be"),
    ({"order_by": [{"column": "region; DROP"}]}, "'order_by.0.column' is"),
    ({"order_by": [{"column": "region", "direction": "desc; DROP"}]}, "must be 'asc' or 'desc'"),
    ({"group_by": ["region"], "order_by": [{"column": "amount"}]}, "'order_by.0.column' is 'amount'"),
    ({"aggregates": [{"function": "sum", "column": "region"}]}, "these can: amount"),
    ({"aggregates": [{"function": "sum"}]}, "needs a column"),
    ({"aggregates": [{"function": "pg_sleep", "column": "amount"}]}, "must be one of count"),
    ({"aggregates": [{"function": "sum", "column": "amount", "as": 'x" FROM y --'}]}, "must be a word"),
    ({"aggregates": [{"function": "count"}, {"function": "count"}]}, "two columns 'count'"),
    (
        {
            "filters": {name: {"in": ["1"] * 400} for name in ("region", "amount")}
            | {"sold_on": {"in": ["2026-05-31"] * 400}}
        },
        "'filters' has 1200 values",
    ),
    ({"columns": ["region"], "aggregates": [{"function": "count"}]}, "does not go with aggregates"),
]


@pytest.mark.requirement("S4-E3", "S4-E1")
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_question_that_cannot_be_asked_says_why(arguments, message):
    with pytest.raises(InvalidArguments) as caught:
        build_registry_sql(registered(ObjectKind.TABLE, *SALES), arguments, "postgresql")
    assert message.replace("\\\\\\\\", "\\\\") in str(caught.value)
    assert "nothing was sent" in str(caught.value)


@pytest.mark.requirement("S4-23")
def test_what_is_required_must_be_given():
    with pytest.raises(InvalidArguments, match="'n' is missing"):
        build_registry_sql(registered(ObjectKind.FUNCTION, *ARGUMENTS), {"n": None}, "postgresql")
    with pytest.raises(InvalidArguments, match="unknown: ghost"):
        build_registry_sql(registered(ObjectKind.FUNCTION, *ARGUMENTS), {"n": 1, "ghost": 1}, "postgresql")
    table = registered(ObjectKind.TABLE, parameter("day", "DA", 1, required=True), parameter("n", "I", 2))
    for arguments in ({}, {"day": None}, {"n": 1}, {"filters": {"n": {"eq": 1}}}):
        with pytest.raises(InvalidArguments, match="missing: a filter on day"):
            build_registry_sql(table, arguments, "postgresql")
    for arguments in ({"day": "2026-05-31"}, {"day": {"ge": "2026-05-31"}}, {"filters": {"day": {"is_null": False}}}):
        assert ' WHERE "day" ' in build_registry_sql(table, arguments, "postgresql").sql


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(InvalidArguments) as caught:
        build_registry_sql(
            registered(ObjectKind.FUNCTION, *ARGUMENTS), {"n": "5", "day": "x", "ghost": 1}, "postgresql"
        )
    assert len(caught.value.details) == 3


@pytest.mark.requirement("S4-E4")
def test_a_name_that_the_database_would_shorten_is_refused():
    with pytest.raises(InvalidDefinition, match="63 letters"):
        statement_template(registered(ObjectKind.TABLE, object="x" * 64), "postgresql")
    with pytest.raises(InvalidDefinition, match="63 letters"):
        statement_template(registered(ObjectKind.FUNCTION, parameter("x" * 64, "I")), "postgresql")
    long = registered(ObjectKind.TABLE, parameter("x" * 60, "I"))
    question = {"aggregates": [{"function": "count_distinct", "column": "x" * 60}]}
    assert f'AS "count_distinct_{"x" * 45}"' in build_registry_sql(long, question, "postgresql").sql


def test_other_databases_have_no_registry():
    with pytest.raises(ConfigError, match="postgresql, sqlite and teradata"):
        statement_template(registered(ObjectKind.TABLE), "mysql")
    assert statement_template(registered(ObjectKind.TABLE), "teradatasql") == 'SELECT TOP 1000 * FROM "shop"."thing"'
