"""A registry is read whole, at one moment; what the database does not have is refused row by row."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest
import sqlglot
from tests.databases import OWNER, as_superuser
from tests.registries import Shop

from portico.errors import UpstreamGone
from portico.providers.sql import DatabaseSource
from portico.providers.sql.read_connection import Mode
from portico.providers.sql.registry import ObjectKind, Problem, Registration
from portico.providers.sql.registry.database_objects import (
    COLUMNS,
    OBJECTS,
    DatabaseObject,
    Facts,
    Views,
    group_objects,
)
from portico.providers.sql.registry.load_and_verify import Registered, RegistryLoader, Rules, verify

REPLACED_VIEW = """
CREATE OR REPLACE VIEW mcp.sample_sales_by_region AS
SELECT region, 1::bigint AS sales, 1.0 AS revenue FROM mcp.sample_sales
"""


class Loading:
    """A loader, and what it found last."""

    def __init__(self, shop: Shop, **rules: bool) -> None:
        self._source = DatabaseSource(shop.url, rows=100_000, bytes=50_000_000, mode=Mode.STEADY)
        self.loader = RegistryLoader(self._source, Rules(dialect=shop.dialect, schema="mcp", **rules))
        self.found = Registered()

    def again(self) -> Registered:
        self.found = self.loader.load(self.found)
        return self.found

    def refused(self) -> dict[str, Problem]:
        return {problem.tool: problem for problem in self.again().problems if not problem.loads}

    def close(self) -> None:
        self._source.close()


@pytest.fixture
def loading(any_shop: Shop) -> Iterator[Loading]:
    made = Loading(any_shop)
    yield made
    made.close()


@pytest.mark.requirement("S4-1", "S4-27", "S4-45", "P-REGISTRY-LOADS")
def test_each_row_becomes_a_definition_under_its_name(any_shop: Shop, loading: Loading) -> None:
    any_shop.register("best", "sample_sales_by_region", "V", "region CV?", docstring="What regions sell")
    tools = loading.loader.load_tools()
    assert {"best", "sample_sales", "sample_sales_by_region"} <= tools.keys()
    assert tools["best"]["description"] == "What regions sell"
    assert tools["best"]["inputSchema"]["properties"]["region"]["type"] == "string"
    assert tools["best"]["annotations"] == {"readOnlyHint": True}


@pytest.mark.requirement("S4-P1", "P-REGISTRY-REFRESH")
def test_nothing_new_gives_the_same_object_and_every_change_another(any_shop: Shop, loading: Loading) -> None:
    first = loading.again()
    assert loading.again() is first
    any_shop.register("best", "sample_sales", "T", "region CV?")
    second = loading.again()
    assert second.tools.keys() - first.tools.keys() == {"best"}
    any_shop.run("UPDATE mcp.mcp_tools SET docstring = 'Other words' WHERE ToolName = 'best'")
    third = loading.again()
    assert third.tools["best"].docstring == "Other words"
    any_shop.run("UPDATE mcp.mcp_user_grants SET UserName = 'alice' WHERE ToolName = 'best'")
    assert (loading.again().users or {})["best"] == ("alice",)
    any_shop.forget("best")
    assert loading.again().tools.keys() == first.tools.keys()


@pytest.mark.requirement("P-REGISTRY-REFRESH")
def test_a_glance_at_postgresql_sees_rows_rights_and_objects_change(pg: Shop) -> None:
    pg.register("late", "not_there_yet", "F")
    loading = Loading(pg)
    changes = (
        "UPDATE mcp.mcp_tools SET Tags = 'new' WHERE ToolName = 'sample_sales'",
        "DELETE FROM mcp.mcp_user_grants WHERE ToolName = 'sample_sales'",
        "ALTER TABLE mcp.sample_sales ADD COLUMN note text",
        "ALTER FUNCTION mcp.sample_best_sales(integer) COST 200",
        REPLACED_VIEW,
        "CREATE FUNCTION mcp.not_there_yet() RETURNS integer LANGUAGE sql STABLE AS 'SELECT 1'",
    )
    known = loading.again()
    assert loading.loader.is_same(known)
    for change in changes:
        pg.run(change)
        assert not loading.loader.is_same(known), change
        fresh = loading.again()
        assert fresh is not known, change
        known = fresh
        assert loading.loader.is_same(known), change
    assert "late" in known.tools
    loading.close()


@pytest.mark.requirement("S4-P3", "P-REGISTRY-ROWS", "T69")
def test_what_the_database_does_not_have_is_refused_and_the_rest_loads(any_shop: Shop, loading: Loading) -> None:
    good = loading.again().tools.keys()
    any_shop.register("gone", "no_such_table", "T", "a CV?")
    any_shop.register("no_column", "sample_sales", "T", "regoin CV?")
    any_shop.register("no_function", "no_such_function", "F", "a CV")
    any_shop.register("padded", "sample_sales", "T", "REGION CV?")
    refused = loading.refused()
    assert {"gone", "no_column", "no_function"} <= refused.keys()
    assert "is not in the database" in refused["gone"].reason
    assert refused["no_column"].where == "mcp_list_toolParams"
    assert "Did you mean 'region'?" in refused["no_column"].fix
    assert loading.again().tools.keys() == {*good, "padded"}
    assert [one.name for one in loading.again().tools["padded"].parameters] == ["region"]


@pytest.mark.requirement("S4-P3", "P-REGISTRY-ROWS")
def test_parameters_must_be_as_many_as_the_function_takes(pg: Shop) -> None:
    pg.register("few", "sample_revenue", "F")
    pg.register("many", "sample_revenue", "F", "a CV", "b DA", "c I")
    pg.register("aggregate", "max", "F", "a I", DataBaseName="pg_catalog")
    loading = Loading(pg)
    refused = loading.refused()
    assert refused["few"].reason == "has 0 parameters, and 'sample_revenue' takes 1 to 2"
    assert refused["many"].reason == "has 3 parameters, and 'sample_revenue' takes 1 to 2"
    assert "aggregate" in refused["aggregate"].reason
    loading.close()


@pytest.mark.requirement("P-REGISTRY-ROWS")
def test_what_could_do_more_than_read_is_refused(pg: Shop) -> None:
    pg.register("files", "pg_read_file", "F", "name CV", DataBaseName="pg_catalog")
    pg.register("passwords", "pg_authid", "T", "rolname CV?", DataBaseName="pg_catalog")
    pg.register("renames", "sample_rename_product", "M", "old_name CV", "new_name CV", Writes="Y")
    loading = Loading(pg)
    refused = loading.refused()
    assert "may do more than read" in refused["files"].reason
    assert "passwords" in refused["passwords"].reason
    assert "the config does not let tools of this database write" in refused["renames"].reason
    writing = Loading(pg, writes=True)
    assert "renames" in writing.again().tools
    assert {"files", "passwords"} <= writing.refused().keys()
    loading.close()
    writing.close()


@pytest.mark.requirement("S4-7", "S4-8", "P-REGISTRY-USERS")
def test_a_database_user_sees_the_tools_that_are_mapped_to_it(pg: Shop) -> None:
    for role in ("reader_one", "reader_two"):
        pg.run(f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN")
    pg.register("for_one", "sample_sales", "T", "region CV?")
    pg.run("UPDATE mcp.mcp_tool_users SET DatabaseUser = 'reader_one' WHERE ToolName = 'for_one'")
    seen = {}
    for role in ("reader_one", "reader_two"):
        own = Loading(Shop(pg.url.replace(f"{OWNER}:@", f"{role}:@")))
        seen[role] = own.again().tools.keys()
        own.close()
    assert seen["reader_one"] - seen["reader_two"] == {"for_one"}
    pg.run("DROP OWNED BY reader_one", "DROP OWNED BY reader_two", "DROP ROLE reader_one", "DROP ROLE reader_two")


@pytest.mark.requirement("P-REGISTRY-ROWS")
def test_rights_that_the_user_lacks_are_told_unless_callers_have_roles(pg: Shop) -> None:
    pg.run("DROP ROLE IF EXISTS poor_user", "CREATE ROLE poor_user LOGIN")
    pg.run("REVOKE SELECT ON mcp.sample_sales FROM PUBLIC")
    poor = Shop(pg.url.replace(f"{OWNER}:@", "poor_user:@"))
    alone, with_roles = Loading(poor), Loading(poor, has_roles=True)
    assert "which the database user who asks may not use" in alone.refused()["sample_sales"].reason
    assert "sample_sales" in with_roles.again().tools
    alone.close()
    with_roles.close()
    pg.run("DROP OWNED BY poor_user", "DROP ROLE poor_user")


@pytest.mark.requirement("S4-52")
def test_an_empty_registry_is_told(any_shop: Shop, loading: Loading, caplog: pytest.LogCaptureFixture) -> None:
    for name in list(loading.again().tools):
        any_shop.forget(name)
    with caplog.at_level(logging.WARNING):
        assert loading.again().tools == {}
    assert "No tools found in registry database 'mcp'" in caplog.messages


@pytest.mark.requirement("P-REGISTRY-ROWS")
@pytest.mark.parametrize("view", ["mcp_list_tools", "mcp_list_toolParams"])
def test_a_view_that_is_not_there_fails_the_load_and_says_what_to_do(
    any_shop: Shop, loading: Loading, view: str
) -> None:
    any_shop.run(f"DROP VIEW mcp.{view}" + (" CASCADE" if any_shop.dialect == "postgresql" else ""))
    with pytest.raises(UpstreamGone) as failure:
        loading.again()
    assert "portico registry init" in str(failure.value)
    assert "the registry 'mcp' cannot be read" in str(failure.value)


@pytest.mark.requirement("S4-E4")
def test_a_schema_that_is_not_in_the_database_is_never_part_of_sql(pg: Shop) -> None:
    source = DatabaseSource(pg.url, mode=Mode.STEADY)
    hostile = 'mcp"; DROP TABLE mcp.sample_sales; --'
    with pytest.raises(UpstreamGone, match="no schema is called"):
        RegistryLoader(source, Rules(dialect="postgresql", schema=hostile)).load()
    source.close()
    assert pg.rows("SELECT count(*) FROM mcp.sample_sales") == [(6,)]


def test_a_missing_column_fails_its_rows_alone(any_shop: Shop, loading: Loading) -> None:
    if any_shop.dialect == "postgresql":
        any_shop.run("DROP VIEW mcp.mcp_list_tools CASCADE")
    else:
        any_shop.run("DROP VIEW mcp.mcp_list_tools")
    columns = "ToolName, DataBaseName, TableName, docstring, Tags"
    any_shop.run(f"CREATE VIEW mcp.mcp_list_tools AS SELECT {columns} FROM mcp.mcp_tools")
    if any_shop.dialect == "postgresql":
        any_shop.run("CREATE VIEW mcp.mcp_list_toolParams AS SELECT * FROM mcp.mcp_tool_params")
    assert "the view has no column 'ToolType'" in loading.refused()["sample_sales"].reason


@pytest.mark.requirement("P-REGISTRY-USERS")
def test_rights_are_those_of_the_third_view_and_nobody_is_restricted_without_it(
    any_shop: Shop, loading: Loading
) -> None:
    any_shop.register("private", "sample_sales", "T", "region CV?", users="alice bob")
    any_shop.register("unseen", "sample_sales", "T", "region CV?", users="")
    found = loading.again()
    assert found.users is not None
    shown = [found.users[name] for name in ("private", "unseen", "sample_sales")]
    assert shown == [("alice", "bob"), (), ("*",)]
    assert {p.reason for p in found.problems if p.tool == "unseen"} == {"has no docstring", "may be seen by nobody"}
    any_shop.run("DROP VIEW mcp.mcp_list_toolUsers")
    assert loading.again().users is None


@pytest.mark.requirement("P-REGISTRY-LOADS", "F41")
def test_a_change_in_the_middle_of_a_load_is_seen_whole_or_not_at_all(pg: Shop) -> None:
    loading = Loading(pg)
    source = loading._source
    with source.reading() as conn, psycopg.connect(pg.url) as other:
        before = conn.prepared("SELECT count(*) FROM mcp.mcp_list_tools", {}).rows
        other.execute("DELETE FROM mcp.mcp_tools")
        other.commit()
        assert conn.prepared("SELECT count(*) FROM mcp.mcp_list_tools", {}).rows == before
        assert conn.prepared("SELECT count(*) > 0 FROM mcp.mcp_list_toolParams", {}).rows == ((True,),)
    assert loading.again().tools == {}
    loading.close()


@pytest.mark.requirement("P-REGISTRY-LOADS", "T70")
def test_an_object_in_the_place_of_another_changes_what_an_approval_is_for(pg: Shop) -> None:
    loading = Loading(pg)

    def mark() -> str:
        (one,) = [d for d in loading.again().definitions if d["name"] == "sample_revenue"]
        return str(one["_meta"]["portico/registry"]["server_object"])

    first = mark()
    assert mark() == first
    pg.run(
        "CREATE OR REPLACE FUNCTION mcp.sample_revenue(region text, since date DEFAULT NULL) RETURNS numeric "
        "LANGUAGE sql STABLE AS 'SELECT 0.0'"
    )
    assert mark() != first
    loading.close()


CHANGES = (
    ("sample_revenue", "ALTER FUNCTION mcp.sample_revenue SECURITY DEFINER"),
    ("sample_revenue", "ALTER FUNCTION mcp.sample_revenue OWNER TO another_owner"),
    ("plain", "CREATE OR REPLACE FUNCTION mcp.plain() RETURNS integer STABLE RETURN 2"),
    ("stored", "DROP MATERIALIZED VIEW mcp.stored; CREATE MATERIALIZED VIEW mcp.stored AS SELECT 2 AS region"),
    ("sample_sales_by_region", "ALTER VIEW mcp.sample_sales_by_region SET (security_invoker = true)"),
)
"""What may change about an object while its name and what it takes stay."""


@pytest.mark.requirement("P-REGISTRY-LOADS")
def test_whose_rights_an_object_has_and_every_way_to_write_its_body_are_part_of_it(pg: Shop) -> None:
    pg.run("DROP ROLE IF EXISTS another_owner", "CREATE ROLE another_owner", "GRANT ALL ON SCHEMA mcp TO another_owner")
    pg.run("CREATE FUNCTION mcp.plain() RETURNS integer STABLE RETURN 1")
    pg.run("CREATE MATERIALIZED VIEW mcp.stored AS SELECT 1 AS region")
    pg.register("plain", "plain", "F")
    pg.register("stored", "stored", "V")
    loading = Loading(pg)

    def mark(name: str) -> str:
        (one,) = [d for d in loading.again().definitions if d["name"] == name]
        return str(one["_meta"]["portico/registry"]["server_object"])

    for name, change in CHANGES:
        before = mark(name)
        assert mark(name) == before
        pg.run(change)
        assert mark(name) != before, change
    loading.close()
    pg.run("DROP OWNED BY another_owner CASCADE", "DROP ROLE another_owner")


@pytest.mark.requirement("P-REGISTRY-REFRESH")
def test_a_glance_at_postgresql_sees_a_right_that_comes_with_a_role(pg: Shop) -> None:
    superuser = Shop(as_superuser(pg.url))
    superuser.run("DROP ROLE IF EXISTS some_members", "CREATE ROLE some_members")
    loading = Loading(pg)
    before = loading.again()
    assert loading.loader.is_same(before)
    superuser.run(f"GRANT some_members TO {OWNER}")
    assert not loading.loader.is_same(before)
    loading.close()
    superuser.run("DROP ROLE some_members")


@pytest.mark.requirement("P-REGISTRY-REFRESH")
def test_rows_that_have_not_changed_are_not_read_a_second_time(any_shop: Shop, loading: Loading) -> None:
    any_shop.register("odd", "sample_sales", "T", "region strange?", Tags="a b")
    first = loading.again()
    any_shop.register("another", "sample_sales", "T", "region CV?")
    second = loading.again()
    kept = [spot for spot in first.known if second.known.get(spot) is first.known[spot]]
    assert len(kept) == len(first.known) > 3
    assert [problem for problem in first.problems if problem not in second.problems] == []
    any_shop.run("UPDATE mcp.mcp_tool_params SET ParamType = 'I' WHERE ToolName = 'odd'")
    third = loading.again()
    assert third.tools["odd"] != second.tools["odd"]
    assert not [problem for problem in third.problems if problem.tool == "odd" and "not known" in problem.reason]


def test_names_that_differ_in_case_alone_are_told_apart_by_exact_letters() -> None:
    rows = [
        DatabaseObject(database="d", name=name, kind=ObjectKind.TABLE, columns=("a",)) for name in ("Sales", "SALES")
    ]
    facts, rules = Facts(found=group_objects(rows)), Rules(dialect="postgresql")
    exact = Registration(name="one", database="d", object="SALES", kind=ObjectKind.TABLE)
    vague = Registration(name="two", database="d", object="sales", kind=ObjectKind.TABLE)
    verified = verify([exact, vague], facts, rules)
    assert [one.object for one, _ in verified.tools] == ["SALES"]
    assert "one of several" in verified.problems[0].reason


def test_teradatas_dictionary_is_asked_in_its_own_sql() -> None:
    views = Views(tools='"mcp"."mcp_list_tools"', params="")
    for sql in (OBJECTS, COLUMNS):
        (parsed,) = sqlglot.parse(sql.format(tools=views.tools), read="teradata")
        assert parsed is not None
