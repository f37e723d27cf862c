"""`create_mcp_app`: Portico inside a program, static or progressive, over one application and one executor."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.lowlevel import Server
from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, QUIET, text_of

from portico import Catalog, PorticoError, Settings, create_mcp_app
from portico.errors import ConfigError
from portico.server.embedded import App, settings_of

TOOLS = '''
def handle_base_readQuery(sql: str, limit: int = 10) -> dict:
    """Run a query.

    Arguments:
      sql - SQL text
      limit - how many rows
    """
    return {"sql": sql, "limit": limit}


def handle_base_tableList(database_name: str) -> str:
    """Lists all tables in a database.

    Arguments:
      database_name - the database
    """
    return f"tables of {database_name}"


def handle_dba_broken() -> None:
    """Always fails."""
    raise RuntimeError("it is broken")
'''
NAMES = ["base_readQuery", "base_tableList", "dba_broken"]
PROXIES = ["search_tool", "execute_tool", "base_readQuery"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with tools in it, and no settings of the machine."""
    (tmp_path / "tools.py").write_text(TOOLS)
    for variable in ("PORTICO_CONFIG", "MCP_PROFILE", "PROFILE", "DATABASE_URI", "PROGRESSIVE_DISCLOSURE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def app(**settings: Any) -> App:
    return create_mcp_app(Settings(**{"python": ["tools.py"], "pins": ["base_readQuery"], **settings}))[0]


async def listed(connected: Client) -> list[str]:
    return [tool.name for tool in (await connected.list_tools()).tools]


@pytest.mark.requirement("S0-8")
def test_a_program_gets_a_server_and_a_logger():
    mcp, logger = create_mcp_app(Settings())
    assert isinstance(mcp, Server)
    assert logger is logging.getLogger("portico")
    assert isinstance(create_mcp_app()[0], Server)


@pytest.mark.requirement("S0-7", "S0-9", "S0-47", "S0-66", "S0-67", "S0-70")
@pytest.mark.parametrize("era", ERAS)
async def test_static_is_the_default_and_progressive_is_a_switch(era: str):
    for settings, names in (
        ({}, NAMES),
        ({"progressive_disclosure": False}, NAMES),
        ({"progressive_disclosure": True}, PROXIES),
        ({"surface": "search"}, PROXIES),
    ):
        async with Client(app(**settings), mode=ERAS[era]) as connected:
            assert await listed(connected) == names


@pytest.mark.requirement("S0-42", "S0-50", "S0-51", "S0-82", "S0-83")
@pytest.mark.parametrize("era", ERAS)
async def test_both_modes_run_the_same_functions_the_same_way(era: str):
    asked: list[tuple[str, dict[str, Any]]] = [
        ("base_readQuery", {"sql": "SELECT 1"}),
        ("base_readQuery", {"sql": "SELECT 1", "limit": "5"}),
        ("base_tableList", {"database_name": "demo"}),
        ("dba_broken", {}),
    ]
    async with (
        Client(app(), mode=ERAS[era]) as static,
        Client(app(progressive_disclosure=True), mode=ERAS[era]) as progressive,
    ):
        for name, arguments in asked:
            there = await static.call_tool(name, arguments)
            executed = await progressive.call_tool("execute_tool", {"tool_name": name, "arguments": arguments})
            direct = await progressive.call_tool(name, arguments)
            assert there.model_dump() == executed.model_dump() == direct.model_dump()
        wrong = {"name": "base_tableList", "arguments": {"database": "demo"}}
        refused = await static.call_tool(wrong["name"], wrong["arguments"])
        likewise = await progressive.call_tool("execute_tool", {"tool_name": wrong["name"], **wrong})
        assert refused.is_error
        assert text_of(refused).partition("\nnext:")[0] == text_of(likewise).partition("\nnext:")[0]


@pytest.mark.requirement("S0-3", "S0-27", "S0-43")
@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_finds_and_runs_a_tool_in_memory(era: str):
    async with Client(app(progressive_disclosure=True), mode=ERAS[era]) as connected:
        found = (await connected.call_tool("search_tool", {"query": "table"})).structured_content
        assert found["tools"][0]["name"] == "base_tableList"
        told = (await connected.call_tool("search_tool", {"query": "base_tableList"})).structured_content
        assert told["tool"]["parameters"].keys() == {"database_name"}
        call = {"tool_name": "base_tableList", "arguments": {"database_name": "demo"}}
        assert text_of(await connected.call_tool("execute_tool", call)) == "tables of demo"
        assert (await connected.call_tool("base_readQuery", {"sql": "x"})).structured_content == {
            "sql": "x",
            "limit": 10,
        }


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("P-APP")
async def test_one_app_serves_clients_at_once_and_one_after_the_other(era: str):
    mcp = app()
    for _ in range(2):
        async with Client(mcp, mode=ERAS[era]) as first:
            assert await listed(first) == NAMES
            async with Client(mcp, mode=ERAS[era]) as second:
                assert await listed(second) == NAMES
            assert await listed(first) == NAMES


async def test_clients_of_other_tasks_share_the_application():
    mcp, done = app(), anyio.Event()
    opened: list[str] = []

    async def visit(name: str) -> None:
        async with Client(mcp, mode="2026-07-28") as connected:
            opened.append(name)
            assert await listed(connected) == NAMES
            if len(opened) == 3:
                done.set()
            await done.wait()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(visit, name)
    assert sorted(opened) == ["a", "b", "c"]


@pytest.mark.parametrize("era", ERAS)
async def test_servers_are_started_with_the_app_and_stopped_with_it(folder: Path, era: str):
    entry = serving(folder / "tools.json", [definition("echo", text="string")])
    async with Client(app(servers={"hub": entry}), mode=ERAS[era]) as connected:
        assert sorted(await listed(connected)) == sorted([*NAMES, "hub__echo"])
        result = await connected.call_tool("hub.echo", {"text": "x"})
        assert json.loads(text_of(result)) == {"tool": "echo", "arguments": {"text": "x"}}


async def test_a_config_file_is_the_ground_and_the_program_comes_on_top(folder: Path):
    (folder / "etc").mkdir()
    (folder / "etc" / "own.py").write_text('def handle_own() -> str:\n    """Mine."""\n    return "own"\n')
    config = folder / "etc" / "portico.yaml"
    config.write_text("surface: search\nstore: memory\npython: [own.py]\npins: [own]\nservers: {a: {command: x}}\n")
    found = settings_of(Settings(config=config, python=["tools.py"], servers={"b": {"command": "y"}}))
    assert found.surface == "static", "a program says what it wants"
    assert [spec.name for spec in found.servers] == ["a", "b"]
    assert (found.catalog.pins, found.storage.store) == (("own",), "memory")
    async with Client(app(config=config, servers={"a": {"command": "x", "enabled": False}}, pins=[])) as connected:
        assert await listed(connected) == [*NAMES, "own"]


def test_without_a_config_no_file_is_read_and_nothing_is_remembered(folder: Path):
    (folder / "portico.yaml").write_text("surface: discover\npins: [x]\n")
    found = settings_of(Settings())
    assert (found.surface, found.catalog.pins, found.storage.store, found.home.file) == ("static", (), "memory", None)
    assert settings_of(Settings(store="sqlite")).storage.store == "sqlite"


@pytest.mark.requirement("S0-43", "S0-67")
@pytest.mark.parametrize("profile", ["base", "all"])
async def test_a_packaged_profile_lists_three_tools(folder: Path, profile: str):
    mcp, _ = create_mcp_app(Settings(progressive_disclosure=True, profile=profile))
    async with Client(mcp) as connected:
        assert await listed(connected) == ["search_tool", "execute_tool", "base_readQuery"]
        rows = await connected.call_tool("base_readQuery", {"sql": "SELECT 1 AS one"})
        assert not rows.is_error
    static, _ = create_mcp_app(Settings(profile=profile))
    async with Client(static) as connected:
        assert (await listed(connected)).count("base_readQuery") == 1


async def test_a_profile_narrows_an_app(folder: Path):
    (folder / "profiles.yml").write_text('mine: {tool: ["^base_table"], surface: search, pins: [base_tableList]}\n')
    async with Client(app(profile="mine", pins=[])) as connected:
        assert await listed(connected) == ["search_tool", "execute_tool", "base_tableList"]
        call = {"tool_name": "base_readQuery", "arguments": {"sql": "x"}}
        assert "unknown_tool" in text_of(await connected.call_tool("execute_tool", call))


def handle_base_shout(text: str) -> str:
    """Says something loudly."""
    return text.upper()


def handle_base_tables(conn) -> int:
    """Counts tables."""
    return len(conn.tables())


@pytest.mark.requirement("P-LIBRARY-APP", "S0-50")
@pytest.mark.parametrize("progressive", [False, True])
async def test_an_app_offers_what_a_catalog_has(folder: Path, progressive: bool):
    catalog = Catalog()
    catalog.register_tool(handle_base_shout, category="loud")
    catalog.add_tools(
        "shop", [definition("buy", "Buys something", item="string")], call=lambda name, given: given["item"]
    )
    mcp, _ = create_mcp_app(Settings(progressive_disclosure=progressive, python=["tools.py"]), catalog=catalog)
    async with Client(mcp) as connected:
        names = await listed(connected)
        assert {"base_shout", "shop__buy", "base_tableList"} <= set(names) or names == PROXIES[:2]
        assert text_of(await connected.call_tool("base_shout", {"text": "hey"})) == "HEY"
        assert text_of(await connected.call_tool("shop__buy", {"item": "tea"})) == "tea"
        assert "tables of demo" in text_of(await connected.call_tool("base_tableList", {"database_name": "demo"}))


@pytest.mark.requirement("P-LIBRARY-APP")
async def test_functions_join_an_app_before_and_after_its_clients(folder: Path):
    mcp = create_mcp_app(Settings())[0]
    assert mcp.add_tool(handle_base_shout) == "_local.base_shout"
    changed = anyio.Event()

    async def listen(message: Any) -> None:
        if "list_changed" in getattr(message, "method", ""):
            changed.set()

    async with Client(mcp, mode="legacy", message_handler=listen) as connected:
        assert await listed(connected) == ["base_shout"]
        mcp.register_tool(handle_base_shout, name="shout_again", category="loud")
        with anyio.fail_after(5):
            await changed.wait()
        assert await listed(connected) == ["base_shout", "shout_again"]
        mcp.catalog.unregister("base_shout")
        assert await listed(connected) == ["shout_again"]
    async with Client(mcp) as connected:
        assert await listed(connected) == ["shout_again"]


@pytest.mark.requirement("P-LIBRARY-APP")
async def test_functions_of_an_app_read_the_database_of_the_packaged_tools(folder: Path):
    mcp = create_mcp_app(Settings(profile="base"))[0]
    mcp.add_tool(handle_base_tables)
    async with Client(mcp) as connected:
        found = await connected.call_tool("base_tables", {})
        assert found.structured_content["result"] > 3


async def test_two_servers_of_one_name_are_refused(folder: Path):
    shop = {"shop": serving(folder / "shop.json", [definition("buy")])}
    catalog = Catalog()
    catalog.add_tools("shop", [definition("sell")], call=lambda name, given: name)
    with pytest.raises(ConfigError, match="'shop', which the settings have too"):
        create_mcp_app(Settings(servers=shop), catalog=catalog)
    with pytest.raises(ConfigError, match="'shop', which the settings have too"):
        create_mcp_app(Settings(servers=shop))[0].add_tool(handle_base_shout, server="shop")


async def test_a_function_that_takes_a_settings_place_is_named(folder: Path, caplog: pytest.LogCaptureFixture):
    mcp = create_mcp_app(Settings(python=["tools.py"]))[0]
    mcp.add_tool(handle_base_shout, name="base_readQuery")
    async with Client(mcp) as connected:
        assert text_of(await connected.call_tool("base_readQuery", {"text": "hey"})) == "HEY"
    assert "'base_readQuery' takes the place of the settings' function" in caplog.text


async def test_hooks_of_a_file_stand_around_the_calls_of_an_app(folder: Path):
    (folder / "guard.py").write_text(
        "from portico.errors import Refused\n"
        "def on_call(caller, tool, arguments):\n"
        "    if tool.id.name.startswith('dba_'):\n"
        "        raise Refused('ask Ana first')\n"
        "    if 'limit' in arguments:\n"
        "        return {**arguments, 'limit': min(arguments['limit'], 100)}\n"
    )
    async with Client(app(hooks=["guard.py"]), mode="2026-07-28") as connected:
        refused = await connected.call_tool("dba_broken", {})
        assert refused.is_error
        assert text_of(refused) == "error refused for _local.dba_broken; nothing was sent\n- ask Ana first"
        capped = await connected.call_tool("base_readQuery", {"sql": "x", "limit": 5000})
        assert capped.structured_content["limit"] == 100


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"surface": "serch"}, "Settings: surface: there is no surface 'serch'. Choose one of: discover, static"),
        ({"profile": "bas"}, "there is no profile 'bas'. Did you mean 'base'?"),
        ({"config": "nowhere.yaml"}, "there is no such file"),
        ({"store": "mysql://x"}, "this store is not known"),
        ({"servers": {"a": {"command": object()}}}, "Settings: this cannot stand in a config"),
        ({"servers": {"a": 5}}, "Settings: this cannot stand in a config"),
        ({"servers": ["a"]}, "Settings: this cannot stand in a config"),
        ({"python": None}, "Settings: this cannot stand in a config"),
        ({"progressive_disclosure": "false"}, "progressive_disclosure: this must be a truth value, not 'false'"),
    ],
)
def test_what_cannot_be_used_is_said_at_once(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigError) as caught:
        create_mcp_app(Settings(**settings))
    assert said in str(caught.value)


async def test_one_file_need_not_stand_in_a_list(folder: Path):
    (folder / "mine.py").write_text('def handle_mine(x: int) -> int:\n    """Mine."""\n    return x\n')
    mcp, _ = create_mcp_app(Settings(python="mine.py"))
    async with Client(mcp, mode="2026-07-28") as connected:
        assert [tool.name for tool in (await connected.list_tools()).tools] == ["mine"]


async def test_a_hook_that_cannot_be_imported_stops_the_app():
    with pytest.raises((PorticoError, BaseExceptionGroup)) as caught:
        async with Client(app(hooks=["nowhere.py"]), mode="2026-07-28"):
            pytest.fail("a guard is missing")
    assert "hooks" in repr(caught.value)


def test_a_server_that_cannot_be_used_is_logged_and_left_out(caplog: pytest.LogCaptureFixture):
    mcp, _ = create_mcp_app(Settings(servers={"a": {"comand": "x"}, "b": {"command": "y"}}))
    assert [spec.name for spec in mcp.settings.servers] == ["b"]
    assert any("Settings: servers.a" in record.getMessage() for record in caplog.records)


def test_importing_portico_loads_neither_the_app_nor_the_sdk():
    code = "import sys, portico; assert 'create_mcp_app' in dir(portico); sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


PROGRAM = """
import logging, sys
import anyio
from portico import Settings, create_mcp_app

mcp, logger = create_mcp_app(Settings(python=["tools.py"]))
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
anyio.run(mcp.run_stdio) if sys.argv[1] == "stdio" else anyio.run(mcp.run_http, "127.0.0.1", 0)
"""


@pytest.mark.requirement("S0-70", "P-APP")
@pytest.mark.parametrize("era", ERAS)
async def test_a_program_serves_over_stdio(folder: Path, era: str):
    (folder / "program.py").write_text(PROGRAM)
    parameters = StdioServerParameters(
        command=sys.executable, args=["program.py", "stdio"], env={"PORTICO_HOME": str(folder)}, cwd=folder
    )
    async with Client(stdio_client(parameters, errlog=QUIET), mode=ERAS[era]) as connected:
        assert await listed(connected) == NAMES
        assert text_of(await connected.call_tool("base_tableList", {"database_name": "demo"})) == "tables of demo"


@pytest.mark.requirement("S0-70", "P-APP")
async def test_a_program_serves_over_http(folder: Path):
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", "http"]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, cwd=folder, stdin=None, stdout=None) as process:
            assert process.stderr is not None
            said = b""
            while b"serving http://" not in said or not said.endswith(b"\n"):
                said += await process.stderr.receive()
            url = said.decode().partition("serving ")[2].split()[0]
            for era in ERAS.values():
                async with Client(url, mode=era) as connected:
                    assert await listed(connected) == NAMES
            process.terminate()
            assert await process.wait() == 0
