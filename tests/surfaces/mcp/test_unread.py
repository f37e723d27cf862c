"""Arguments that a meta-tool does not know are named, on every surface; real names of tools need no note."""

from __future__ import annotations

from typing import Any

import pytest

from portico.domain.call import Caller
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.discover import DEFINITIONS, Discover
from portico.surfaces.lua_gateway.surface import GatewaySurface
from portico.surfaces.mcp.client_questions_and_logs import Logs
from portico.surfaces.mcp.server import Tools
from portico.surfaces.search import Search
from portico.testing import FakeApplication, definition, make_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("P-UNREAD-NAMED")]

SERVERS = {
    "github": [definition("create-issue", "Create an issue", title="string"), definition("get_user", "Get a user")],
    "files": [{**definition("read_file", "Read a file"), "annotations": {"readOnlyHint": True}, "tags": ["disk"]}],
}


def application() -> FakeApplication:
    return make_test_app(SERVERS)


async def ask(found: FakeApplication, surface: Any, name: str, /, **arguments: Any) -> str:
    tools = Tools(found.gateway, surface, Caller(surface=surface.name), Logs(found.gateway.executor.running))
    result = await tools.plain_call({"name": name, "arguments": arguments}, "session")
    return "\n".join(block["text"] for block in result["content"])


@pytest.mark.parametrize(
    ("surface", "name", "arguments", "said"),
    [
        (Discover, "search_tools", {"query": "x", "categroy": "y"}, "categroy (did you mean category?); filters are"),
        (Discover, "search_tools", {"query": "x", "zzz": 1}, "unknown and not used: zzz; filters are server, category"),
        (Discover, "describe_tools", {"names": ["get_user"], "nmae": "x"}, "nmae (did you mean name?)"),
        (Discover, "call_tool", {"name": "create-issue", "arguments": {"title": "x"}, "timeout": 5}, "used: timeout"),
        (Discover, "read_result", {"id": "x", "grp": "y"}, "grp (did you mean grep?)"),
        (Search, "search_tool", {"query": "x", "limt": 5}, "limt (did you mean limit?)"),
        (Search, "execute_tool", {"tool_name": "get_user", "arguments": {"a": 1}, "wait": 5}, "not used: wait"),
        (Capabilities, "capabilities", {"categroy": "x"}, "categroy (did you mean category?)"),
        (Capabilities, "tool_schema", {"tool": "get_user", "levl": 1}, "unknown and not used: levl"),
        (lambda g: GatewaySurface(g, None), "list-servers", {"servr": "x"}, "servr (did you mean server?)"),
        (lambda g: GatewaySurface(g, None), "list-server-tools", {"luaServerName": "files", "x": 1}, "not used: x"),
    ],
)
async def test_an_unknown_argument_is_named_with_a_near_one(surface: Any, name: str, arguments: Any, said: str):
    found = application()
    text = await ask(found, surface(found.gateway), name, **arguments)
    assert "[portico]\nnote: unknown and not used: " in text or "\nnote: unknown and not used: " in text
    assert said in text


async def test_filters_that_are_not_listed_are_honoured():
    found = application()
    discover = Discover(found.gateway)
    assert "github" not in await ask(found, discover, "search_tools", query="", read_only=True)
    assert "files.read_file" in await ask(found, discover, "search_tools", query="", tag="disk")
    for filters in ({"max_latency_ms": 100}, {"min_success": 0.5}, {"source": "upstream"}, {"read_only": "true"}):
        text = await ask(found, discover, "search_tools", query="read a file", **filters)
        assert "files.read_file" in text
        assert "not used" not in text


async def test_the_search_surface_honours_them_too():
    found = application()
    search = Search(found.gateway)
    assert "github" not in await ask(found, search, "search_tool", query="", read_only=True)
    assert "get_user" not in await ask(found, search, "search_tool", query="file user", tag="disk")
    assert "unknown_filter" in await ask(found, search, "search_tool", query="file", server="nobody")


@pytest.mark.parametrize(
    "name", ["github.create-issue", "create-issue", "github::create-issue", "github__create-issue"]
)
async def test_a_tool_s_real_name_is_taken_without_a_note(name: str):
    found = application()
    assert await ask(found, Discover(found.gateway), "call_tool", name=name, arguments={"title": "x"}) == (
        "create-issue was called"
    )


async def test_another_case_is_still_told():
    found = application()
    text = await ask(found, Discover(found.gateway), "call_tool", name="GITHUB.create_issue", arguments={"title": "x"})
    assert "note: GITHUB.create_issue is spelled github.create_issue here" in text


def test_the_listed_parameters_stay_within_the_budget():
    counter = make_test_app(SERVERS).gateway.counter
    assert sum(counter.count(str(one)) for one in DEFINITIONS) <= 700
