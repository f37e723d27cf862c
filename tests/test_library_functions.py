"""Functions in a catalog: what they are given, what they are called, and what happens to a name that is taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from portico import Catalog, RequestContext, tool
from portico.domain.tool import Effect, ToolId
from portico.errors import ConfigError, InvalidArguments, InvalidDefinition, Refused, UpstreamGone
from portico.providers.database_tools.queries_and_tables import handle_base_readQuery
from portico.testing import definition


def run(name: str, arguments: Mapping[str, Any]) -> str:
    return name


def handle_base_count(conn, table: str) -> int:
    """Counts the rows of a table.

    Arguments:
      table - the table
    """
    return int(conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as made:
        made.executescript("CREATE TABLE orders (id); INSERT INTO orders VALUES (1), (2), (3);")
    return file


@pytest.mark.requirement("S0-45", "S0-48", "S0-50", "P-LIBRARY-CONNECTIONS")
@pytest.mark.parametrize("place", ["argument", "environment"])
async def test_the_packaged_functions_read_the_database_of_a_catalog(
    shop: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("DATABASE_URI", f"sqlite:///{shop}" if place == "environment" else "")
    async with Catalog(database=f"sqlite:///{shop}" if place == "argument" else "") as catalog:
        handle = catalog.register_tool(handle_base_readQuery, "base")
        assert catalog.search("execute a query")[0].handle == handle
        assert "conn" not in catalog.describe([handle]).text.replace("connection", "")
        result = await catalog.call("base_readQuery", {"sql": "SELECT count(*) AS n FROM orders"})
        assert result.structured["rows"] == [[3]]
        with pytest.raises(Refused, match="only read"):
            await catalog.call("base_readQuery", {"sql": "DELETE FROM orders"})


@pytest.mark.requirement("P-LIBRARY-CONNECTIONS")
@pytest.mark.parametrize("style", ["connection", "context manager"])
async def test_a_program_gives_connections_of_its_own(shop: Path, style: str) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(shop, check_same_thread=False))
        return opened[-1]

    @contextmanager
    def managed() -> Iterator[sqlite3.Connection]:
        with closing(connect()) as connection:
            yield connection

    catalog = Catalog(connect=connect if style == "connection" else managed)
    catalog.register_tool(handle_base_count)
    assert (await catalog.call("base_count", {"table": "orders"})).structured == {"result": 3}
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


SEED = """
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import text

if TYPE_CHECKING:
    from teradatasql import TeradataConnection

logger = logging.getLogger("seed")


def handle_base_rows(conn: sqlalchemy.Connection, sql: str | None = None, tool_name: str = '', *args, **kwargs):
    '''Runs a query.

    Arguments:
      sql - SQL text, with optional bind-parameter placeholders
    '''
    rows = [list(row) for row in conn.execute(text(sql), kwargs)]
    return {"status": "success", "results": rows, "tool": tool_name or "base_rows"}


def handle_base_names(conn: TeradataConnection, limit: int = 2):
    '''Names tables.'''
    found = conn.exec_driver_sql("SELECT name FROM sqlite_master LIMIT ?", (limit,))
    return [name for name, in found]
"""


@pytest.mark.requirement("S0-83", "P-LIBRARY-CONNECTIONS")
async def test_functions_written_for_another_server_work_as_they_are(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "seed_tools.py").write_text(SEED)
    spec = spec_from_file_location("seed_tools", tmp_path / "seed_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    engine = create_engine(f"sqlite:///{shop}")
    catalog = Catalog(connect=engine.connect)
    for function in (module.handle_base_rows, module.handle_base_names):
        catalog.register_tool(function, "base")
    asked = {"sql": "SELECT id FROM orders WHERE id > :least", "least": 1}
    assert (await catalog.call("base_rows", asked)).structured["results"] == [[2], [3]]
    assert (await catalog.call("base_names")).structured == {"result": ["orders"]}
    with pytest.raises(InvalidArguments, match="conn"):
        await catalog.call("base_names", {"conn": "x"})
    engine.dispose()


class Clock:
    def now(self) -> str:
        return "noon"


@pytest.mark.requirement("P-LIBRARY-CONNECTIONS")
async def test_anything_can_be_injected_by_its_type() -> None:
    def tell(clock: Clock, ctx: RequestContext) -> str:
        """Tells the time."""
        return f"{clock.now()} for {ctx.caller.surface}"

    catalog = Catalog(inject={Clock: lambda context: nullcontext(Clock())})
    catalog.register_tool(tell)
    assert (await catalog.call("tell")).text == "noon for library"
    with pytest.raises(InvalidDefinition, match="needs a Clock"):
        Catalog().register_tool(tell)


@pytest.mark.requirement("P-LIBRARY-CONNECTIONS")
async def test_without_a_database_a_function_is_found_and_its_call_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATABASE_URI", raising=False)
    catalog = Catalog()
    catalog.register_tool(handle_base_readQuery)
    assert catalog.search("execute a sql query")[0].name == "base_readQuery"
    with pytest.raises(UpstreamGone, match=r"needs a connection.*Catalog\(database=") as error:
        await catalog.call("base_readQuery", {"sql": "SELECT 1"})
    assert error.value.sent == "nothing was sent"


async def test_a_bad_database_is_said_at_once_and_a_bad_variable_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        Catalog(database="nonsense")
    monkeypatch.setenv("DATABASE_URI", "nonsense")
    catalog = Catalog()
    catalog.register_tool(handle_base_readQuery)
    with pytest.raises(UpstreamGone, match="no URL of a database"):
        await catalog.call("base_readQuery", {"sql": "SELECT 1"})


@pytest.mark.requirement("P-LIBRARY-NAMES")
async def test_a_partial_is_called_after_its_function(shop: Path) -> None:
    catalog = Catalog()
    with closing(sqlite3.connect(shop, check_same_thread=False)) as connection:
        for bound in (partial(handle_base_count, connection), partial(handle_base_count, conn=connection)):
            assert catalog.register_tool(bound, replace=True) == "_local.base_count"
            assert "Counts the rows of a table" in catalog.describe(["base_count"]).text
            result = await catalog.call("base_count", {"table": "orders"})
            assert result.structured == {"result": 3}
        with pytest.raises(InvalidArguments, match="conn"):
            await catalog.call("base_count", {"table": "orders", "conn": "mine"})


def handle_more(conn, **more: int) -> int:
    """Takes more."""
    return sum(more.values())


async def test_what_a_partial_has_bound_cannot_be_passed() -> None:
    catalog = Catalog()
    catalog.register_tool(partial(handle_more, conn=None))
    assert (await catalog.call("more", {"a": 1, "b": 2})).structured == {"result": 3}
    with pytest.raises(InvalidArguments, match="unknown: conn"):
        await catalog.call("more", {"conn": 1})


def handle_power(base: int, exponent: int) -> int:
    """Raises a number."""
    return base**exponent


@pytest.mark.requirement("P-LIBRARY-NAMES")
async def test_a_second_tool_of_a_name_is_an_error_unless_it_is_asked_for() -> None:
    catalog = Catalog()
    catalog.register_tool(partial(handle_power, exponent=2))
    with pytest.raises(
        InvalidDefinition, match=r"'power' already, from .*test_library_functions.py:\d+\. .*replace=True"
    ):
        catalog.register_tool(partial(handle_power, exponent=3))
    assert (await catalog.call("power", {"base": 2})).structured == {"result": 4}
    assert catalog.register_tool(partial(handle_power, exponent=3), name="cube") == "_local.cube"
    catalog.register_tool(handle_power, server="maths")
    catalog.register_tool(handle_power, server="maths")
    catalog.register_tool(partial(handle_power, exponent=4), replace=True)
    assert [(await catalog.call(name, {"base": 2})).structured["result"] for name in ("local::power", "cube")] == [
        16,
        8,
    ]
    assert len(catalog) == 3


async def test_a_definition_does_not_take_the_place_of_a_function_silently() -> None:
    catalog = Catalog()
    catalog.register_tool(handle_power)
    power = definition("power", "Another")
    with pytest.raises(InvalidDefinition, match="'power' already"):
        catalog.add_tools("local", [definition("new"), power], call=run)
    assert len(catalog) == 1
    catalog.add_tools("local", [power], call=run, replace=True)
    with pytest.raises(InvalidDefinition, match="'power' already"):
        catalog.register_tool(handle_power)


def test_a_partial_with_a_name_of_its_own_keeps_it() -> None:
    squared = partial(handle_power, exponent=2)
    squared.__name__ = "handle_square"  # type: ignore[attr-defined]
    assert Catalog().register_tool(squared) == "_local.square"


def test_what_a_decorator_says_holds_for_partials() -> None:
    catalog = Catalog()
    catalog.register_tool(partial(tool("renamed", category="maths", read_only=True)(handle_marked), exponent=2))
    found = catalog.gateway.snapshot.tools[ToolId("local", "renamed")]
    assert (found.category, found.effect) == ("maths", Effect.READ)


def handle_marked(base: int, exponent: int) -> int:
    """Raises a number."""
    return base**exponent
