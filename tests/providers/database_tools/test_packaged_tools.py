"""Every packaged tool on both engines: what it answers, and what it says when asked wrongly."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from statistics import fmean, median, pstdev, quantiles, stdev

import pytest
from PIL import Image
from tests.databases import OWNER

from portico.errors import CallError, InvalidArguments
from portico.providers.database_tools import charts, data_quality, text_search
from portico.providers.database_tools import queries_and_tables as tables
from portico.providers.database_tools import users_and_roles as permissions
from portico.providers.database_tools.demo_database import demo_url
from portico.providers.sql import DatabaseSource, ReadConnection

PRICES = [9.5, 48.0, 32.9, 79.0, 6.2, 54.0, 139.0, 18.5, 24.0, 39.9]
TABLES = ["articles", "customers", "monthly_sales", "order_items", "orders", "products"]


@pytest.mark.requirement("S0-43", "S0-48", "S0-49", "S0-55")
def test_a_query_is_answered_with_columns_and_rows(conn: ReadConnection):
    found = tables.handle_base_readQuery(
        conn, "SELECT id, name FROM products WHERE price < :most ORDER BY id", {"most": 10}
    )
    assert found == {
        "columns": ["id", "name"],
        "rows": [[1, "Espresso cup"], [5, "Notebook"]],
        "row_count": 2,
        "truncated": False,
    }
    cut = tables.handle_base_readQuery(conn, "SELECT * FROM orders", max_rows=3)
    assert (cut["row_count"], cut["truncated"]) == (3, True)
    assert "next" in cut
    with pytest.raises(CallError):
        tables.handle_base_readQuery(conn, "DELETE FROM orders")


@pytest.mark.requirement("S0-27", "S0-55")
def test_tables_are_listed_with_their_kind(conn: ReadConnection):
    found = tables.handle_base_tableList(conn)["tables"]
    assert [table["name"] for table in found] == TABLES
    assert {table["name"]: table["kind"] for table in found}["monthly_sales"] == "view"
    (name,) = tables.handle_base_databaseList(conn)["databases"]
    assert tables.handle_base_tableList(conn, name)["tables"] == found
    with pytest.raises(InvalidArguments, match="no schema is called 'nowhere'"):
        tables.handle_base_tableList(conn, "nowhere")


@pytest.mark.requirement("S0-27")
def test_the_name_of_the_demo_means_its_only_schema(tmp_path):
    source = DatabaseSource(demo_url(tmp_path))
    with source.reading() as conn:
        assert [table["name"] for table in tables.handle_base_tableList(conn, "demo")["tables"]] == TABLES
    source.close()


@pytest.mark.requirement("S0-55")
def test_a_table_and_a_view_are_described(conn: ReadConnection):
    ddl = tables.handle_base_tableDDL(conn, "ORDERS")["ddl"]
    assert "CREATE TABLE orders" in ddl
    assert "orders_by_customer" in ddl
    assert "CREATE VIEW" in tables.handle_base_tableDDL(conn, "monthly_sales")["ddl"]
    columns = {c["name"]: c for c in tables.handle_base_columnDescription(conn, "products")["columns"]}
    assert columns["id"]["primary_key"]
    assert not columns["price"]["nullable"]
    assert columns["price"]["type"] == "NUMERIC(10, 2)"
    shown = tables.handle_base_tablePreview(conn, "customers", rows=2)
    assert shown["columns"] == ["id", "name", "city", "email", "joined"]
    assert len(shown["rows"]) == 2
    with pytest.raises(InvalidArguments, match="did you mean: customers"):
        tables.handle_base_tablePreview(conn, "custmers")


@pytest.mark.requirement("S0-58")
def test_missing_negative_and_distinct_values_are_counted(conn: ReadConnection):
    missing = {c["column"]: c for c in data_quality.handle_qlty_missingValues(conn, "products")["columns"]}
    assert missing["description"] == {"column": "description", "missing": 3, "percent": 30.0}
    negative = data_quality.handle_qlty_negativeValues(conn, "products")
    assert negative["columns"] == [{"column": name, "negative": 0} for name in ("id", "price", "stock")]
    shelves = data_quality.handle_qlty_distinctCategories(conn, "products", "category")
    assert shelves["distinct"] == 3
    assert shelves["values"][0] == {"value": "outdoor", "count": 4}
    summary = {c["column"]: c for c in data_quality.handle_qlty_columnSummary(conn, "products")["columns"]}
    assert (summary["price"]["min"], summary["price"]["max"], summary["price"]["distinct"]) == (6.2, 139, 10)


@pytest.mark.requirement("S0-58")
def test_statistics_are_those_that_python_works_out(conn: ReadConnection):
    found = data_quality.handle_qlty_univariateStatistics(conn, "products", "price")
    first, middle, third = quantiles(PRICES, method="inclusive")
    assert found["count"] == 10
    assert found["mean"] == pytest.approx(fmean(PRICES))
    assert found["stddev_population"] == pytest.approx(pstdev(PRICES))
    assert found["stddev_sample"] == pytest.approx(stdev(PRICES))
    assert [found["q1"], found["median"], found["q3"]] == pytest.approx([first, middle, third])
    assert middle == median(PRICES)
    brief = data_quality.handle_qlty_standardDeviation(conn, "products", "price")
    assert brief["stddev_sample"] == found["stddev_sample"]
    with pytest.raises(InvalidArguments, match="numeric columns of 'products': id, price, stock"):
        data_quality.handle_qlty_univariateStatistics(conn, "products", "name")


@pytest.mark.requirement("S0-59")
def test_roles_and_grants_are_told_where_there_are_some(conn: ReadConnection):
    answers = [
        permissions.handle_sec_userRoles(conn),
        permissions.handle_sec_rolePermissions(conn, OWNER),
        permissions.handle_sec_userDbPermissions(conn, OWNER),
    ]
    if conn.dialect == "sqlite":
        assert all(answer["supported"] is False and "no users" in answer["reason"] for answer in answers)
        return
    roles, granted, effective = answers
    assert {"role": "postgres", "superuser": True}.items() <= next(
        r for r in roles["roles"] if r["role"] == "postgres"
    ).items()
    assert {"schema": "public", "object": "orders", "privilege": "DELETE", "grantable": False} in granted["permissions"]
    assert {"schema": "public", "object": "orders", "privilege": "SELECT"} in effective["permissions"]
    with pytest.raises(InvalidArguments, match=r"no user or role is called 'postgre'; there are: .*postgres"):
        permissions.handle_sec_userRoles(conn, "postgre")


@pytest.mark.requirement("S0-62")
def test_texts_are_found_by_a_question_and_the_method_is_named(conn: ReadConnection):
    found = text_search.handle_rag_searchText(conn, "How long is the warranty of a lamp?", "articles")
    assert found["method"] == {"sqlite": "fts5", "postgresql": "tsvector"}[conn.dialect]
    assert found["hits"][0]["title"] == "Warranty"
    scores = [hit["score"] for hit in found["hits"]]
    assert all(first >= second for first, second in pairwise(scores))
    plain = text_search.handle_rag_searchText(conn, "keeps water cold", "products", ["description"], limit=1)
    assert plain["method"] == {"sqlite": "like", "postgresql": "tsvector"}[conn.dialect]
    assert [hit["name"] for hit in plain["hits"]] == ["Water bottle"]
    with pytest.raises(InvalidArguments, match="no words"):
        text_search.handle_rag_searchText(conn, "?!", "articles")
    with pytest.raises(InvalidArguments, match="no text column"):
        text_search.handle_rag_searchText(conn, "water", "order_items")


@pytest.mark.parametrize(
    "question", ["'; DROP TABLE orders; --", '"quoted" OR NEAR(', "50% off_100", "{title} : body*", "ünï cödé"]
)
def test_any_question_may_be_asked(conn: ReadConnection, question: str):
    for table in ("articles", "products"):
        assert isinstance(text_search.handle_rag_searchText(conn, question, table)["hits"], list)


@pytest.mark.requirement("S0-63")
def test_a_plan_is_explained_in_lines(conn: ReadConnection):
    sql = "SELECT * FROM orders WHERE customer_id = :who"
    found = tables.handle_sql_opt_explain(conn, sql, {"who": 3})
    assert found["dialect"] == conn.dialect
    assert "orders" in " ".join(found["plan"])


CHARTS = [
    (
        charts.handle_plot_line_chart,
        {"labels": "month", "columns": ["revenue", "orders"], "table_name": "monthly_sales"},
    ),
    (charts.handle_plot_bar_chart, {"labels": "name", "columns": ["price", "stock"], "table_name": "products"}),
    (
        charts.handle_plot_pie_chart,
        {"labels": "category", "column": "n", "sql": "SELECT category, count(*) AS n FROM products GROUP BY category"},
    ),
    (charts.handle_plot_histogram, {"column": "price", "table_name": "products", "bins": 5, "title": "Prices"}),
]


@pytest.mark.requirement("S0-61")
@pytest.mark.parametrize(("draw", "arguments"), CHARTS)
def test_a_chart_is_a_real_image_with_a_line_of_text(conn: ReadConnection, draw, arguments):
    image, text = draw(conn, **arguments)["content"]
    png = base64.b64decode(image["data"], validate=True)
    assert (image["type"], image["mimeType"], text["type"]) == ("image", "image/png", "text")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(io.BytesIO(png)) as drawn:
        drawn.load()
        assert drawn.size == (960, 560)
        colours = {colour for _, colour in drawn.convert("RGB").getcolors(100_000) or ()}
    assert (0x33, 0x66, 0xCC) in colours, "the first series is drawn"
    assert "values from" in text["text"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS x, 5 AS y",
        "SELECT 1 AS x, NULL AS y",
        "SELECT NULL AS x, 0 AS y",
        "SELECT 'line' AS x, -3.5 AS y UNION ALL SELECT 'é', 1e300",
        "SELECT 1 AS x, 1e-300 AS y UNION ALL SELECT 2, 2e-300",
    ],
)
def test_a_chart_of_odd_values_is_still_drawn(conn: ReadConnection, sql: str):
    for draw in (charts.handle_plot_line_chart, charts.handle_plot_bar_chart):
        assert draw(conn, "x", ["y"], sql=sql)["content"][0]["type"] == "image"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"columns": ["price"]}, "either table_name or sql"),
        ({"columns": ["price"], "table_name": "products", "sql": "SELECT 1"}, "either table_name or sql"),
        ({"columns": [], "table_name": "products"}, "draw 1 to 8"),
        ({"columns": ["nothing"], "table_name": "products"}, "no column"),
        ({"columns": ["nothing"], "sql": "SELECT name, price FROM products"}, "they have: name, price"),
        ({"columns": ["category"], "table_name": "products"}, "is no number"),
        ({"columns": ["price"], "sql": "SELECT name, price FROM products WHERE 1 = 0"}, "no rows"),
        ({"columns": ["v"], "sql": "SELECT 'a' AS name, 1e308 AS v"}, "no axis can show"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_told_with_what_to_do(conn: ReadConnection, arguments, says):
    with pytest.raises(InvalidArguments, match=says):
        charts.handle_plot_bar_chart(conn, "name", **arguments)


def test_a_pie_of_too_much_or_below_nothing_is_refused(conn: ReadConnection):
    with pytest.raises(InvalidArguments, match="cannot be told apart"):
        charts.handle_plot_pie_chart(conn, "id", "id", table_name="customers")
    with pytest.raises(InvalidArguments, match="draw bars instead"):
        charts.handle_plot_pie_chart(conn, "x", "y", sql="SELECT 1 AS x, -1 AS y")
