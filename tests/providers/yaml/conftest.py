"""A small business in each kind of database, and houses that offer what a YAML file says of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from portico.domain.tool import ToolId
from portico.providers.local_sources import connections_of
from portico.providers.python import LocalProvider
from portico.providers.sql import DatabaseSource
from portico.providers.yaml import LoadedYaml, load_yaml
from portico.testing import FakeApplication
from portico.wiring import Parts, assemble

TABLES = """
CREATE TABLE customers (name TEXT, sales INTEGER);
INSERT INTO customers VALUES ('Ada', 30), ('Bob', 20), ('Eve; --', 10);
CREATE TABLE suppliers (name TEXT, sales INTEGER);
INSERT INTO suppliers VALUES ('Nut & Bolt', 7);
CREATE TABLE "odd ""table" ("a b" INTEGER, "SELECT" TEXT);
INSERT INTO "odd ""table" VALUES (1, 'x');
CREATE TABLE "ten %s: {table}" (share INTEGER);
INSERT INTO "ten %s: {table}" VALUES (10);
CREATE TABLE sales (region TEXT, month DATE, amount INTEGER);
INSERT INTO sales VALUES ('north', '2026-01-01', 10), ('north', '2026-02-01', 20), ('south', '2026-01-01', 5),
  (NULL, '2026-02-01', 1), ('it''s', '2026-02-01', 2);
"""

SALES = """
base_topCustomers:
  type: tool
  description: The customers with the highest sales
  parameters:
    limit: {type: integer, description: how many, default: 10}
    table: {type: identifier, default: customers}
  sql: "SELECT name, sales FROM {table} ORDER BY sales DESC LIMIT :limit"

base_byName:
  type: tool
  description: One customer by name
  parameters: {name: {type: string}}
  sql: SELECT name, sales FROM customers WHERE name = :name

base_column:
  type: tool
  description: One column of one table
  parameters:
    table: {type: identifier}
    column: {type: identifier, of: table}
  sql: SELECT {column} FROM {table}

sales_cube:
  type: cube
  description: Sales by region and month
  category: sales
  sql: "SELECT region, month, amount FROM sales; -- all of them"
  dimensions:
    region: {expression: region, description: Where it was sold}
    month: {type: date}
  measures:
    total: {expression: "SUM(amount)", description: Units sold}
    n: COUNT(*)
"""


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    file = tmp_path / "business.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(TABLES)
    return file


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The business in each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('sqlite_file')}"
    found = str(request.getfixturevalue("postgres_url"))
    with psycopg.connect(found) as connection:
        connection.execute(TABLES.encode())
    return found


@pytest.fixture
def source(url: str) -> Iterator[DatabaseSource]:
    opened = DatabaseSource(url)
    yield opened
    opened.close()


@pytest.fixture
def dump(url: str) -> Callable[[], Any]:
    """Everything that the database holds: of a file each byte, of a server every table with its rows."""
    if url.startswith("sqlite"):
        return lambda: Path(url.removeprefix("sqlite:///")).read_bytes()

    def rows() -> Any:
        with psycopg.connect(url) as connection:
            listed = connection.execute("SELECT relname, relkind, xmin::text FROM pg_class ORDER BY oid").fetchall()
            tables = ("customers", "suppliers", '"odd ""table"', "sales")
            return listed, [connection.execute(f"SELECT ctid, xmin, * FROM {t}", ()).fetchall() for t in tables]

    return rows


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedYaml]:
    """Write a file and load it."""

    def written(text: str, name: str = "tools.yml", **options: Any) -> LoadedYaml:
        folder = tmp_path / "yaml"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        return load_yaml([name], folder, packaged=False, **options)

    return written


def offering(loaded: LoadedYaml, source: DatabaseSource | None = None) -> LocalProvider:
    """A provider that offers all of it."""
    provider = LocalProvider(inject=connections_of(source) if source else {})
    provider.take(loaded.tools)
    loaded.install(provider)
    return provider


def house_of(loaded: LoadedYaml, source: DatabaseSource | None = None) -> FakeApplication:
    """A house whose local server offers all of it."""
    provider = offering(loaded, source)
    application = assemble(Parts(providers={provider.server: provider}))
    for name, category in provider.categories.items():
        application.gateway.publisher.shelve(ToolId(provider.server, name), category)
    application.gateway.publisher.accept([(provider.offering(), provider.source)])
    return FakeApplication(application.gateway, application.admin)


@pytest.fixture
def make_test_app() -> Callable[..., FakeApplication]:
    return house_of


@pytest.fixture
def provide() -> Callable[..., LocalProvider]:
    return offering


@pytest.fixture
def sales_house(load: Callable[..., LoadedYaml], source: DatabaseSource) -> FakeApplication:
    """The business behind a gateway."""
    loaded = load(SALES)
    assert loaded.problems == ()
    return house_of(loaded, source)
