"""The packaged tools as an agent meets them: found by words, documented, called, and free of any protocol."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from portico.domain.call import Call, Caller
from portico.errors import CallError
from portico.gateway import Gateway
from portico.providers.database_tools import MODULES, demo_database
from portico.providers.database_tools import queries_and_tables as tables
from portico.providers.local_sources import connections_of
from portico.providers.python.functions import LocalTool, define, make_tool
from portico.providers.python.loading import load_tools
from portico.providers.python.provider import LocalProvider
from portico.providers.sql import DatabaseSource
from portico.surfaces.search import build_keyword_index, summary
from portico.wiring import Parts, assemble

CATEGORIES = {"base": 6, "qlty": 6, "sec": 3, "plot": 4, "rag": 1, "sql_opt": 1}


@pytest.fixture
def gateway(shop: DatabaseSource, tmp_path: Path) -> Gateway:
    """A house that offers all packaged tools over the shop."""
    loaded = load_tools(MODULES, tmp_path)
    assert loaded.problems == ()
    return offering(loaded.tools, shop)


def offering(tools: Iterable[LocalTool], shop: DatabaseSource) -> Gateway:
    """The gateway of a house with these tools."""
    provider = LocalProvider(inject=connections_of(shop))
    provider.take(tools)
    assert provider.problems == []
    providers = {provider.server: provider}
    application = assemble(Parts(providers={**providers}))
    application.gateway.publisher.accept([(provider.offering(), "local") for provider in providers.values()])
    return application.gateway


def scores(gateway: Gateway, text: str) -> dict[str, float]:
    snapshot = gateway.snapshot
    found = build_keyword_index(snapshot, None).query(text, within=snapshot.tools.keys(), limit=100)
    return {hit.tool.id.name: hit.score for hit in found.hits}


async def call(gateway: Gateway, name: str, **arguments: Any) -> Any:
    return await gateway.call(Caller(name="ana"), Call(tool=name, arguments=arguments))


@pytest.mark.requirement("S0-25")
def test_the_first_search_of_a_newcomer_finds_the_documented_tools(gateway: Gateway):
    found = scores(gateway, "table list")
    assert next(iter(found.items())) == ("base_tableList", 120)
    assert found["base_tableDDL"] == max(score for name, score in found.items() if name != "base_tableList") == 100


@pytest.mark.requirement("S0-25", "S0-E1")
def test_the_documented_sample_comes_out_of_the_packaged_docstrings(shop: DatabaseSource):
    two = offering(map(make_tool, (tables.handle_base_tableList, tables.handle_base_tableDDL)), shop)
    assert list(scores(two, "table list").items()) == [("base_tableList", 120), ("base_tableDDL", 100)]


@pytest.mark.requirement("S0-40", "S0-15", "S0-20")
def test_the_core_tool_is_documented_as_promised(gateway: Gateway):
    tool = next(tool for id, tool in gateway.snapshot.tools.items() if id.name == "base_readQuery")
    assert summary(tool) == "Execute a SQL query via SQLAlchemy, bind parameters if provided."
    assert tool.properties["sql"]["description"] == "SQL text, with optional bind-parameter placeholders"


@pytest.mark.requirement("S0-16", "S0-48", "S0-54", "S0-55", "S0-58", "S0-59", "S0-61", "S0-62", "S0-63")
def test_every_tool_stands_on_its_shelf_reads_only_and_hides_its_connection(gateway: Gateway):
    counted: dict[str, int] = {}
    for tool in gateway.snapshot.tools.values():
        counted[tool.category] = counted.get(tool.category, 0) + 1
        assert "conn" not in tool.properties
        assert tool.definition["annotations"]["readOnlyHint"] is True
        assert all(part.get("description") for part in tool.properties.values()), tool.id.name
    assert counted == CATEGORIES


@pytest.mark.requirement("S0-41", "S0-44", "S0-27", "S0-E9")
async def test_tools_are_called_through_the_gateway_for_their_caller(gateway: Gateway, shop: DatabaseSource):
    listed = await call(gateway, "base_tableList")
    assert "customers" in listed.text
    with pytest.raises(CallError, match="sql"):
        await call(gateway, "base_readQuery")
    image = await call(gateway, "plot_bar_chart", labels="name", columns=["price"], table_name="products")
    assert image.content[0]["type"] == "image"
    if shop.dialect == "postgresql":
        who = await call(gateway, "base_readQuery", sql="SELECT current_setting('portico.caller')")
        assert who.structured["rows"] == [["ana"]]


@pytest.mark.requirement("S0-49", "S0-52", "S0-53")
def test_the_tools_work_in_a_script_with_no_mcp(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from portico.providers.database_tools.demo_database import demo_url\n"
        "from portico.providers.database_tools.queries_and_tables import handle_base_tableList\n"
        "from portico.providers.sql import DatabaseSource\n"
        f"source = DatabaseSource(demo_url(Path({str(tmp_path)!r})))\n"
        "with source.reading() as conn: print(len(handle_base_tableList(conn)['tables']))\n"
        "assert not {'mcp', 'mcp_types', 'starlette', 'fastapi'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "6\n"


def test_the_demo_is_the_same_for_everybody_and_made_once(tmp_path: Path):
    url = demo_database.demo_url(tmp_path / "a")
    assert demo_database.demo_url(tmp_path / "a") == url
    demo_database.demo_url(tmp_path / "b")
    first, second = ((tmp_path / name / "demo.db").read_bytes() for name in "ab")
    assert first == second
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["demo.db"]
    tables = demo_database._tables(random.Random(7))
    assert any(None in row for row in tables["customers"])


def test_a_folder_with_odd_letters_holds_the_demo_too(tmp_path: Path):
    source = DatabaseSource(demo_database.demo_url(tmp_path / "50% of? it #1"))
    with source.reading() as conn:
        assert conn.tables()
    source.close()


def test_a_definition_needs_no_database():
    assert define(tables.handle_base_readQuery)["inputSchema"]["required"] == ["sql"]


def test_the_former_name_of_the_modules_still_leads_to_them():
    code = (
        "from portico.packaged import MODULES, base, plots\n"
        "from portico.packaged.base import handle_base_readQuery\n"
        "import portico.packaged.quality, portico.packaged.tuning, portico.packaged.demo\n"
        "from portico.providers.database_tools import queries_and_tables as tables\n"
        "assert base is tables and base.handle_base_readQuery is handle_base_readQuery"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
