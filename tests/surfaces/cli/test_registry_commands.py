"""Commands for registries, over real databases of both engines."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from portico.application import Application
from portico.config import StorageSettings
from portico.domain.server import DatabaseSpec
from portico.surfaces.cli.app import app
from portico.surfaces.cli.context import CliContext, Exit, Options
from portico.wiring import open_app
from tests.registries import Shop, settings_for


class Office:
    """A command line with one database in its config."""

    def __init__(self, folder: Path, *specs: DatabaseSpec) -> None:
        self._settings = settings_for(folder, *specs, storage=StorageSettings())

    def run(self, *arguments: str) -> Any:
        cli_context = CliContext(open_app=self._open, serve=_no, demo=_no, version="0", surface_tokens=lambda *_: 0)
        return CliRunner().invoke(app, ["registry", *arguments], obj=Options(cli_context=cli_context))

    def call(self, *arguments: str) -> Any:
        cli_context = CliContext(open_app=self._open, serve=_no, demo=_no, version="0", surface_tokens=lambda *_: 0)
        return CliRunner().invoke(app, ["call", *arguments], obj=Options(cli_context=cli_context))

    def json(self, *arguments: str, ends: int = 0) -> Any:
        ended = self.run(*arguments, "--json")
        assert ended.exit_code == ends, ended.output
        return json.loads(ended.stdout)

    def _open(self, config: str | None) -> AbstractAsyncContextManager[Application]:
        return open_app(self._settings)


def _no(*arguments: object, **options: object) -> None:
    raise AssertionError("nobody asks for it")


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """An empty database of each engine."""
    if request.param == "sqlite":
        return Shop(f"sqlite:///{tmp_path}/shop.db", tmp_path / "shop.db")
    return Shop(request.getfixturevalue("postgres_url"))


@pytest.fixture
def office(shop: Shop, tmp_path: Path) -> Office:
    made = Office(tmp_path, shop.spec())
    assert made.run("init", "warehouse").exit_code == 0
    return made


@pytest.mark.requirement("S4-25", "S4-11")
def test_init_makes_a_registry_that_loads_and_can_be_run_again(shop: Shop, tmp_path: Path) -> None:
    office = Office(tmp_path, shop.spec())
    ended = office.run("init", shop.url)
    assert "The registry is there. It holds sample tools." in ended.stdout
    assert office.json("init", "warehouse") == {"registry": "mcp", "samples": True}
    (checked,) = office.json("check", ends=Exit.OK)
    assert {"sample_sales", "sample_sales_by_region"} <= checked["statements"].keys()
    printed = office.run("init", shop.url, "--print", "--no-samples")
    assert "CREATE VIEW" in printed.stdout or "CREATE OR REPLACE VIEW" in printed.stdout
    assert "sample_sales" not in printed.stdout


@pytest.mark.requirement("S4-53")
def test_check_shows_statements_with_their_binds_and_each_row_that_does_not_load(office: Office, shop: Shop) -> None:
    shop.register("gone", "nothing", "T", "a CV?")
    ended = office.run("check")
    assert ended.exit_code == Exit.FAILED
    assert f'FROM "{shop.home}"."sample_sales" LIMIT :p1' in ended.stdout
    assert ":p1 = limit" in ended.stdout
    assert "does not load: mcp_list_tools: 'gone' names the table" in ended.stderr
    (checked,) = office.json("check", "warehouse", "--dialect", "teradata", ends=Exit.FAILED)
    assert checked["statements"]["sample_sales"]["sql"].startswith("SELECT TOP")
    assert "gone" in [problem["tool"] for problem in checked["problems"] if not problem["loads"]]


def test_a_tool_is_added_with_what_the_database_knows_granted_and_removed(office: Office, shop: Shop) -> None:
    added = office.json("add", "regions", f"{shop.home}.sample_sales_by_region", "--doc", "By region", "--tags", "a,b")
    assert added["kind"] == "view"
    (checked,) = office.json("check", ends=Exit.OK)
    assert '"region", "sales", "revenue"' in checked["statements"]["regions"]["sql"]
    again = office.run("add", "regions", "sample_sales_by_region", "--kind", "view")
    assert (again.exit_code, "registered already" in again.output) == (Exit.CONFIG, True)
    assert office.json("grant", "regions", "bob")["changed"] is True
    assert office.json("grant", "regions", "bob")["changed"] is False
    assert office.json("grant", "regions", "*", "--revoke")["changed"] is True
    assert shop.rows("SELECT UserName FROM mcp.mcp_user_grants WHERE ToolName = 'regions'") == [("bob",)]
    assert office.json("remove", "regions") == {"removed": "regions"}
    assert office.run("remove", "regions").exit_code == Exit.CONFIG
    assert office.run("grant", "regions", "bob").exit_code == Exit.CONFIG
    for table in ("mcp_tools", "mcp_tool_params", "mcp_user_grants"):
        assert shop.rows(f"SELECT count(*) FROM mcp.{table} WHERE ToolName = 'regions'") == [(0,)]


def test_functions_and_procedures_bring_their_parameters(postgres_url: str, tmp_path: Path) -> None:
    shop = Shop(postgres_url)
    office = Office(tmp_path, shop.spec(writes=True))
    office.run("init", "warehouse")
    assert office.json("add", "revenue", "mcp.sample_revenue") == {
        "added": "revenue",
        "kind": "function",
        "parameters": 2,
    }
    renamed = office.json("add", "rename", "mcp.sample_rename_product", "--writes", "--database-user", "PUBLIC")
    assert renamed == {"added": "rename", "kind": "macro", "parameters": 2}
    own = office.json("add", "own", "mcp.sample_revenue", "--param", "region:varchar(20)", "--param", "since:date?")
    assert own["parameters"] == 2
    (checked,) = office.json("check")
    assert checked["statements"]["revenue"]["binds"] == {":p1": "region (text, required)", ":p2": "since (date)"}
    assert checked["statements"]["own"]["binds"][":p1"] == "region (varchar, required)"
    assert "CALL" in checked["statements"]["rename"]["sql"]
    assert office.json("grant", "own", "someone", "--database-user")["changed"] is True


@pytest.mark.requirement("S4-P2", "P-REGISTRY-REFRESH")
def test_refresh_reads_the_registry_again(office: Office, shop: Shop) -> None:
    before = office.json("refresh")["warehouse"]
    shop.register("fresh", "sample_sales", "T", "region CV?")
    assert office.json("refresh", "warehouse") == {"warehouse": before + 1}
    assert office.run("refresh").stdout == f"warehouse: {before + 1} tools\n"


@pytest.mark.parametrize("arguments", [["check"], ["refresh"], ["remove", "x"], ["init", "warehouse"]])
def test_without_a_database_the_config_is_asked_for(tmp_path: Path, arguments: list[str]) -> None:
    ended = Office(tmp_path).run(*arguments)
    assert ended.exit_code == Exit.CONFIG
    assert "no database with a registry is configured" in ended.output


def test_what_cannot_be_done_is_said_in_one_line_without_a_secret(tmp_path: Path) -> None:
    office = Office(tmp_path, Shop("postgresql://u:hunter2@127.0.0.1:1/d").spec())
    for arguments in (["init", "warehouse"], ["check"], ["refresh"], ["add", "a", "b"], ["init", "nonsense://x"]):
        ended = office.run(*arguments)
        assert ended.exit_code in (Exit.CONFIG, Exit.UPSTREAM), ended.output
        assert "hunter2" not in ended.output
        assert "Traceback" not in ended.output
    assert office.run("check", "other").exit_code == Exit.UNKNOWN
    sqlite = f"sqlite:///{tmp_path}/x.db"
    for arguments in (
        ["add", "a b", "c", "--database", sqlite],
        ["add", "a", "b;c", "--database", sqlite],
        ["add", "a", "b", "--param", "no_type", "--database", sqlite],
        ["add", "a", "missing", "--database", sqlite],
        ["grant", "a", "b", "--database-user", "--database", sqlite],
        ["init", "postgresql://h/d", "--schema", 'm"cp', "--print"],
    ):
        ended = office.run(*arguments)
        assert ended.exit_code == Exit.CONFIG, ended.output
    two = Office(tmp_path, Shop(sqlite).spec(name="one"), Shop(sqlite).spec(name="two"))
    assert "several databases" in two.run("remove", "x").output


def test_odd_input_is_refused_with_a_reason_and_changes_nothing(office: Office) -> None:
    before = office.run("check").output
    for arguments, reason in (
        (["add", "execute_tool", "sample_sales"], "one of the gateway's own tools"),
        (["add", "fresh", "sample_sales", "--user", " "], "a user needs a name"),
        (["add", "fresh", "sample_sales", "--doc", "a\udcff"], "letters that no database takes"),
        (["grant", "sample_sales", ""], "a user needs a name"),
        (["grant", "sample_sales", "b\udcffb"], "letters that no database takes"),
        (["remove", "a\udcff"], "letters that no database takes"),
    ):
        ended = office.run(*arguments)
        assert ended.exit_code == Exit.CONFIG, ended.output
        assert reason in ended.output
    assert office.run("check").output == before


def test_only_init_makes_a_file(tmp_path: Path) -> None:
    office, typo = Office(tmp_path), tmp_path / "typo.db"
    for arguments in (["remove", "a"], ["grant", "a", "b"], ["add", "a", "b"]):
        assert office.run(*arguments, "--database", f"sqlite:///{typo}").exit_code == Exit.CONFIG
    assert not typo.exists()
    assert office.run("init", f"sqlite:///{typo}").exit_code == 0
    assert typo.exists()


def test_statements_are_shown_in_teradatas_sql_without_its_driver(office: Office) -> None:
    assert find_spec("teradatasql") is None
    (found,) = json.loads(office.run("check", "--dialect", "teradata", "--json").stdout)
    assert found["statements"]["sample_sales_by_region"]["sql"].startswith('SELECT TOP 1000 "region"')


@pytest.mark.requirement("P-REGISTRY-ROWS")
def test_one_registry_that_cannot_be_read_keeps_nobody_from_the_others(shop: Shop, tmp_path: Path) -> None:
    away = Shop("postgresql://u:hunter2@127.0.0.1:1/d").spec(name="away")
    office = Office(tmp_path, away, shop.spec())
    assert office.run("init", "warehouse").exit_code == 0
    ended = office.run("check")
    assert ended.exit_code == Exit.UPSTREAM
    assert "away: cannot be read: " in ended.stderr
    assert "warehouse: " in ended.stdout
    found = {one["database"]: one for one in office.json("check", ends=Exit.UPSTREAM)}
    assert (found["away"]["error"], "sample_sales" in found["warehouse"]["statements"]) == ("upstream_gone", True)
    counts = office.json("refresh", ends=Exit.UPSTREAM)
    assert counts["warehouse"] >= 2
    assert counts["away"]["error"] == "upstream_gone"
    assert office.run("check", "warehouse").exit_code == 0


@pytest.mark.requirement("P-REGISTRY-REFRESH")
def test_a_tool_that_was_added_is_called_by_the_next_command(office: Office, shop: Shop) -> None:
    assert office.json("refresh")["warehouse"] >= 2, "what there was is remembered"
    office.json("add", "regions", f"{shop.home}.sample_sales_by_region", "--doc", "By region")
    called = office.call("regions", "--json")
    assert called.exit_code == 0, called.output
    assert "north" in called.stdout
    office.json("remove", "regions")
    assert office.call("regions").exit_code == Exit.UNKNOWN


def test_a_tool_that_was_added_and_is_not_offered_is_told_at_once(office: Office, shop: Shop) -> None:
    ended = office.run("add", "nowhere", "missing_table", "--kind", "table")
    assert ended.exit_code == 0
    assert "nowhere is not offered: mcp_list_tools: 'nowhere' names the table" in ended.stderr


def test_what_the_config_keeps_back_is_no_failure(postgres_url: str, tmp_path: Path) -> None:
    office = Office(tmp_path, Shop(postgres_url).spec())
    office.run("init", "warehouse")
    ended = office.run("check")
    assert ended.exit_code == 0
    assert "and the config keeps 1 back" in ended.stdout
    assert "kept back: mcp_list_tools: 'sample_rename_product' writes" in ended.stdout


def test_the_sql_of_a_registry_is_printed_for_a_database_without_its_driver(tmp_path: Path) -> None:
    assert find_spec("teradatasqlalchemy") is None
    office = Office(tmp_path)
    for url in ("teradatasql://user:pass@host/database", "teradata://user@host"):
        printed = office.run("init", url, "--schema", "tools", "--print")
        assert printed.exit_code == 0, printed.output
        assert 'REPLACE VIEW "tools".mcp_list_tools AS' in printed.stdout
    made = office.run("init", "teradatasql://user:pass@host/database")
    assert (made.exit_code, "pip install teradatasqlalchemy" in made.output) == (Exit.CONFIG, True)


def test_teradata_is_shown_what_the_code_writes(postgres_url: str, tmp_path: Path) -> None:
    shop = Shop(postgres_url)
    office = Office(tmp_path, shop.spec(writes=True))
    office.run("init", "warehouse")
    (found,) = office.json("check", "--dialect", "teradata")
    renamed = found["statements"]["sample_rename_product"]
    assert renamed["sql"] == "EXEC \"mcp\".\"sample_rename_product\"('old_name', 'new_name')"
    assert renamed["binds"]["1"] == "old_name (varchar, required), written out as 'old_name'"
    assert found["statements"]["sample_revenue"]["sql"] == (
        'SELECT "mcp"."sample_revenue"(:p1, CAST(:p2 AS DATE FORMAT \'YYYY-MM-DD\')) AS "result"'
    )
