"""Tools of a real server that the config overrides, for real clients of both eras and for operators."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.timeout(90), pytest.mark.requirement("P-OVERRIDES")]

SECRET = "inner-project-4711"
CREATE = definition("create_issue", "Create an issue", title="string", project="string", priority="integer")
TOOLS = [CREATE, definition("delete_all", "Delete everything"), definition("sleep", "Wait"), definition("list_all")]
OVERRIDES: dict[str, Any] = {
    "create_issue": {
        "name": "open_ticket",
        "description": "Ask the helpdesk for assistance",
        "defaults": {"priority": 3},
        "hidden": {"project": "${PROJECT_OF_TRACKER}"},
    },
    "delete_all": {"enabled": False},
    "sleep": {"timeout": 0.5},
}


def home_with(home: Path, overrides: dict[str, Any]) -> Path:
    entry = serving(home / "tools.json", TOOLS)
    write_config(home, {"tracker": {**entry, "overrides": overrides}})
    return home


@pytest.fixture(scope="module", autouse=True)
def secret() -> Iterator[None]:
    os.environ["PROJECT_OF_TRACKER"] = SECRET
    yield
    del os.environ["PROJECT_OF_TRACKER"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(home_with(tmp_path_factory.mktemp("overrides"), OVERRIDES)) as found:
        yield found


@pytest.mark.anyio
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_lists_finds_and_calls_a_tool_as_it_is_overridden(
    running: Gateway, tmp_path: Path, era: str, transport: str
):
    literal = {**OVERRIDES["create_issue"], "hidden": {"project": SECRET}}  # clients over stdio pass few variables on
    home = home_with(tmp_path, {**OVERRIDES, "create_issue": literal}) if transport == "stdio" else None
    async with client(transport, era, surface="static", running=running, home=home) as connected:
        listed = {tool.name: tool for tool in (await connected.list_tools()).tools}
        assert listed.keys() == {"tracker__open_ticket", "tracker__sleep", "tracker__list_all"}
        ticket = listed["tracker__open_ticket"]
        assert ticket.description == "Ask the helpdesk for assistance"
        assert ticket.input_schema["required"] == ["title"]
        assert ticket.input_schema["properties"] == {
            "title": {"type": "string"},
            "priority": {"type": "integer", "default": 3},
        }
        called = json.loads(text_of(await connected.call_tool("tracker__open_ticket", {"title": "t"})))
        assert called == {"tool": "create_issue", "arguments": {"title": "t", "priority": 3, "project": SECRET}}
        named = await connected.call_tool("tracker__open_ticket", {"title": "t", "project": "mine"})
        assert named.is_error
        assert "unknown: project" in text_of(named)
        assert SECRET not in text_of(named)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_search_and_scripts_know_the_tool_as_it_is_overridden(running: Gateway, era: str):
    async with client("http", era, surface="discover", running=running) as connected:
        found = text_of(await connected.call_tool("search_tools", {"query": "helpdesk assistance"}))
        assert "tracker.open_ticket(title, priority=3) [write] Ask the helpdesk" in found
        card = text_of(await connected.call_tool("describe_tools", {"names": ["tracker.open_ticket"]}))
        assert '"project"' not in card
        assert SECRET not in found + card
        for spelling in ("tracker.delete_all", "tracker__delete_all", "delete_all"):
            gone = await connected.call_tool("call_tool", {"name": spelling, "arguments": {}})
            assert text_of(gone).startswith("error unknown_tool"), "switched off is as good as missing"
        every = text_of(await connected.call_tool("search_tools", {"query": "delete everything", "server": "tracker"}))
        assert "delete_all" not in every
        script = "return tracker.open_ticket({title='s'}):await()"
        assert SECRET in text_of(await connected.call_tool("run_script", {"script": script}))


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_has_a_timeout_of_its_own(running: Gateway, era: str):
    async with client("http", era, surface="static", running=running) as connected:
        late = text_of(await connected.call_tool("tracker__sleep", {}))
        assert "no answer and no progress for 0.5 s" in late
        assert "raise `timeout` in the override of 'sleep'" in late


@pytest.mark.anyio
async def test_tools_of_a_server_over_http_are_overridden_too(running: Gateway, tmp_path: Path):
    overrides = {
        "tracker__open_ticket": {"name": "ask", "hidden": {"title": "fixed"}},
        "tracker__sleep": {"timeout": 0.3},
    }
    entry = {"url": running.path("static"), "overrides": overrides}
    write_config(tmp_path, {"remote": entry})
    with gateway(tmp_path) as second:
        async with client("http", "2026-07-28", surface="static", running=second) as connected:
            listed = {tool.name: tool for tool in (await connected.list_tools()).tools}
            assert listed["remote__ask"].input_schema["properties"].keys() == {"priority"}
            called = json.loads(text_of(await connected.call_tool("remote__ask", {"priority": 1})))
            assert called["arguments"] == {"title": "fixed", "priority": 1, "project": SECRET}
            late = text_of(await connected.call_tool("remote__tracker__sleep", {}))
            assert "no answer and no progress for 0.3 s" in late


def test_operators_see_the_original_and_never_a_hidden_value(tmp_path: Path):
    home = home_with(tmp_path, OVERRIDES)
    shown = portico(home, "describe", "--original", "tracker.open_ticket", "tracker.delete_all")
    assert shown.returncode == 0, shown.stderr
    assert "## tracker.create_issue" in shown.stdout
    assert '"project":{"type":"string"}' in shown.stdout
    assert "overridden in servers.tracker.overrides.create_issue: name, description" in shown.stdout
    assert "## tracker.delete_all" in shown.stdout
    original = json.loads(portico(home, "describe", "--original", "--json", "tracker.open_ticket").stdout)[0]
    assert original["inputSchema"] == CREATE["inputSchema"]
    assert original["overridden"] == ["name", "description", "defaults.priority", "hidden.project"]
    commands = ["list tracker", "list tracker --json", "describe tracker.open_ticket --json", "doctor", "doctor --json"]
    for command in (*commands, "describe --original tracker.open_ticket", "search helpdesk --json"):
        done = portico(home, *command.split())
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert portico(home, "call", "tracker.delete_all").returncode == 4


def test_doctor_tells_of_a_change_upstream_until_the_override_is_written_anew(tmp_path: Path):
    home = home_with(tmp_path, OVERRIDES)
    assert "has changed" not in portico(home, "doctor").stdout
    changed = {**CREATE, "description": "Creates something else"}
    (home / "tools.json").write_text(json.dumps([changed, *TOOLS[1:]]))
    for time in ("first", "later"):
        done = portico(home, "doctor")
        assert done.returncode == 0, "it is no fault of the config"
        assert "create_issue: its definition has changed since its override was written" in done.stdout, time
        assert ("has changed the definition of create_issue" in done.stderr) is (time == "first"), "logged once"
    assert json.loads(portico(home, "doctor", "--json").stdout)[0]["changed"] == ["create_issue"]
    override = {**OVERRIDES["create_issue"], "x-checked": "today"}
    write_config(home, {"tracker": {**_entry(home), "overrides": {**OVERRIDES, "create_issue": override}}})
    assert "has changed" not in portico(home, "doctor").stdout


def test_doctor_names_what_cannot_hold_and_the_server_goes_on(tmp_path: Path):
    overrides = {
        "creat_issue": {"title": "x"},
        "create_issue": {"name": "list_all", "defaults": {"priorty": 1}},
        "list_all": {"hidden": {"nothing": SECRET}},
    }
    done = portico(home_with(tmp_path, overrides), "doctor")
    assert done.returncode == 3
    for said in (
        "overrides.creat_issue: the server offers no such tool. Did you mean 'create_issue'",
        "overrides.create_issue.defaults.priorty: the tool has no such parameter. Did you mean 'priority'?",
        "overrides.list_all.hidden.nothing: the tool has no such parameter.",
        "refused list_all: its override hides a parameter that cannot be set",
        "ok  tracker: 3 tools",
    ):
        assert said in done.stdout
    assert SECRET not in done.stdout + done.stderr
    called = portico(tmp_path, "call", "tracker.list_all", "title=t", "project=p", "priority=1")
    assert json.loads(called.stdout)["tool"] == "create_issue", "what is left out leaves its name to others"


def test_rest_tells_agents_of_the_overridden_tool_and_operators_that_it_is(running: Gateway):
    base = running.url.removesuffix("/mcp")
    with httpx2.Client(base_url=base) as http:
        shown = http.get("/api/v1/tools/tracker/open_ticket")
        assert shown.status_code == 200
        assert "Ask the helpdesk" in shown.text
        assert shown.json()["parameters"]["properties"].keys() == {"title", "priority"}
        assert http.get("/api/v1/tools/tracker/delete_all").status_code == 404
        (found,) = http.get("/api/v1/servers").json()["servers"]
        assert (found["overridden"], found["changed"]) == (["create_issue", "delete_all", "sleep"], [])
        assert found["override_problems"] == 0
        everything = shown.text + http.get("/api/v1/servers").text + http.get("/api/v1/tools/search?q=helpdesk").text
        assert SECRET not in everything


def test_no_log_line_and_no_row_of_the_store_has_a_hidden_value(running: Gateway):
    assert SECRET not in "".join(running.said)
    for file in running.home.glob("portico.db*"):
        assert SECRET.encode() not in file.read_bytes(), file.name


def _entry(home: Path) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((home / "portico.yaml").read_text())["servers"]["tracker"]
    return entry
