"""The `capabilities` surface: an inventory first, one schema at a time, and every tool called by its own name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from tests import tana_server
from tests.catalogue import generate
from tests.tana_server import tana_app

from portico.config import load_settings
from portico.config.settings import CapabilitiesSettings, GatewaySettings
from portico.domain.journal_entries import Look, Lookup
from portico.domain.server import Offering, ServerSpec, ToolFilter
from portico.errors import NextCall
from portico.gateway import Gateway
from portico.rendering.budget import TokenEstimate
from portico.results.own_blocks import own_block
from portico.server.run import SURFACES, surface_tokens
from portico.storage.memory import MemoryJournal
from portico.surfaces.capabilities.inventory import STRANGE_CURSOR
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.testing import AGENT, FakeApplication, FakeIndex, FakeProvider, definition, fake_application, make_test_app

ERAS = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}


def surface(application: FakeApplication | None = None, **options: Any) -> Capabilities:
    """The surface as the preset configures it."""
    given: dict[str, Any] = {"prefix": tana_server.PREFIX, "quick_actions": tana_server.QUICK_ACTIONS, **options}
    return Capabilities((application or tana_app()).gateway, **given)


async def ask(shown: Capabilities, name: str, /, **arguments: Any) -> Any:
    """What one of the two tools answers, as data."""
    result = await raw(shown, name, **arguments)
    assert not result.get("isError"), result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


async def raw(shown: Capabilities, name: str, /, **arguments: Any) -> Any:
    """What one of the two tools answers."""
    meta_tool = shown.meta_tool(f"{shown.prefix}{name}")
    assert meta_tool is not None
    return await meta_tool(AGENT, arguments, Envelope())


def looks(application: FakeApplication) -> Sequence[Lookup]:
    return list(cast(MemoryJournal, application.gateway.executor.journal).lookups)


@pytest.mark.requirement("S2-1", "S2-3", "S2-8", "S2-E2")
@pytest.mark.parametrize(("prefix", "names"), [("tana_", list(tana_server.OWN)), ("", ["capabilities", "tool_schema"])])
async def test_two_tools_and_the_pins_are_listed(prefix: str, names: list[str]):
    application = tana_app(pins=("tana_search",))
    assert [tool["name"] for tool in await surface(application, prefix=prefix).tools(AGENT)] == [*names, "tana_search"]


@pytest.mark.requirement("S2-34", "S2-E9")
async def test_the_choices_of_a_category_come_from_the_catalog():
    (first, _) = await surface().tools(AGENT)
    assert first["inputSchema"]["properties"]["category"] == {
        "type": "string",
        "enum": ["query", "explore", "transcript", "mutate", "system"],
        "description": "Filter to specific category",
    }
    assert "required" not in first["inputSchema"]
    other = make_test_app({"github": [definition("row")], "slack": [definition("post")]})
    (first, _) = await surface(other).tools(AGENT)
    assert first["inputSchema"]["properties"]["category"]["enum"] == ["source_control", "communication"]
    (first, _) = await surface(make_test_app({})).tools(AGENT)
    assert "enum" not in first["inputSchema"]["properties"]["category"], "no choice can be made among none"


@pytest.mark.requirement("S2-35")
async def test_the_schema_tool_takes_one_name_that_is_not_empty():
    shown = surface(tana_app(definition("tana_search")))
    (_, second) = await shown.tools(AGENT)
    assert second["inputSchema"] == {
        "type": "object",
        "properties": {
            "tool": {"type": "string", "minLength": 1, "description": 'Tool name (e.g., "tana_search")'},
        },
        "required": ["tool"],
    }
    assert shown.schema_of("tana_tool_schema") == second["inputSchema"]
    assert shown.schema_of("tana_search") is None


@pytest.mark.requirement("S2-1", "S2-3", "S2-4", "S2-5", "S2-6", "S2-39", "S2-42")
@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_goes_the_four_steps(era: str):
    application = tana_app()
    async with Client(SurfaceServer(application.gateway, surface(application), "1"), mode=ERAS[era]) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == list(tana_server.OWN)
        inventory = (await client.call_tool("tana_capabilities", {})).structured_content
        assert inventory is not None
        assert {"name": "tana_tagged", "description": "Find nodes by supertag", "example": "Show all todos"} in (
            inventory["categories"][0]["tools"]
        )
        told = (await client.call_tool("tana_tool_schema", {"tool": "tana_tagged"})).structured_content
        assert told is not None
        assert told["schema"]["required"] == ["tagname"]
        result = await client.call_tool("tana_tagged", {"tagname": "todo"})
        assert not result.is_error
        assert application.provider("tana").calls == [("tana_tagged", {"tagname": "todo"})]


@pytest.mark.requirement("S2-6", "S2-49")
@pytest.mark.parametrize("name", ["tana_stats", "tana.tana_stats", "TANA_STATS", "tana::tana_stats"])
async def test_a_tool_is_called_directly_without_asking_first(name: str):
    application = tana_app()
    async with Client(SurfaceServer(application.gateway, surface(application), "1"), mode="2026-07-28") as client:
        assert not (await client.call_tool(name, {})).is_error
    assert application.provider("tana").calls == [("tana_stats", {})]
    assert [invocation.spelled for invocation in application.invocations] == [name], "through the one executor"


@pytest.mark.requirement("S2-49", "S2-50", "S2-51")
async def test_who_does_not_use_the_surface_sees_no_difference():
    application = tana_app()
    before = [await made(application.gateway).tools(AGENT) for made in (Discover, Static)]
    await ask(surface(application), "capabilities")
    assert [await made(application.gateway).tools(AGENT) for made in (Discover, Static)] == before
    assert not {tool["name"] for listed in before for tool in listed} & set(tana_server.OWN)


@pytest.mark.requirement("S2-48")
def test_the_surface_is_opted_in_to_by_config_or_command_line(tmp_path: Path):
    assert load_settings(None, {}, tmp_path).surface == "discover"
    file = tmp_path / "portico.yaml"
    file.write_text("surface: capabilities\n")
    assert load_settings(str(file), {}, tmp_path).surface == "capabilities"
    assert "capabilities" in SURFACES


@pytest.mark.requirement("S2-36")
@pytest.mark.parametrize("category", ["querry", "misc", 7, ["query"], {"a": 1}])
async def test_a_category_that_does_not_exist_is_refused_with_those_that_do(category: object):
    result = await raw(surface(), "capabilities", category=category)
    assert result["isError"]
    head, what, which, last = result["content"][0]["text"].split("\n")
    assert head == "error invalid_arguments for tana_capabilities; nothing was sent"
    assert what.startswith("- category: no tool stands in ")
    assert all(f"'{name}'" in which for name in tana_server.CATEGORIES)
    assert last.startswith('next: tana_capabilities({"category": ')
    assert result["structuredContent"]["error"]["code"] == "invalid_arguments"


@pytest.mark.parametrize("category", [None, ""])
async def test_no_category_is_all_of_them(category: object):
    assert len((await ask(surface(), "capabilities", category=category))["categories"]) == 5


@pytest.mark.parametrize("cursor", [7, ["5:abcdef"], {"a": 1}, True])
async def test_what_is_no_cursor_is_told(cursor: object):
    answer = await ask(surface(), "capabilities", cursor=cursor)
    assert answer["note"] == STRANGE_CURSOR
    assert len(answer["categories"]) == 5


@pytest.mark.requirement("S2-36")
@pytest.mark.parametrize("arguments", [{}, {"tool": ""}, {"tool": "  "}, {"tool": 7}, {"tool": ["a"]}, {"tool": None}])
async def test_a_schema_of_nothing_is_refused(arguments: dict[str, Any]):
    result = await raw(surface(), "tool_schema", **arguments)
    assert result["isError"]
    assert result["content"][0]["text"] == (
        "error invalid_arguments for tana_tool_schema; nothing was sent\n"
        "- tool: must be the name of one tool, a string that is not empty\n"
        "next: tana_capabilities({})"
    )


@pytest.mark.requirement("S2-37")
async def test_a_tool_that_does_not_exist_is_answered_with_the_nearest_at_most_ten():
    application = make_test_app({"hub": [definition(f"get_row_{n:02}") for n in range(30)]})
    shown = surface(application, prefix="")
    result = await raw(shown, "tool_schema", tool="get_row_99")
    assert result["isError"]
    error = result["structuredContent"]["error"]
    assert (error["code"], error["subject"]) == ("unknown_tool", "get_row_99")
    (near,) = error["details"]
    assert 1 <= near.count("hub.get_row_") <= 10
    assert error["next"].startswith('tool_schema({"tool": "hub__get_row_')
    assert result["content"][0]["text"].startswith(
        "error unknown_tool for get_row_99; nothing was sent\n- did you mean"
    )
    assert result["content"][0]["text"].endswith(f"next: {error['next']}")
    nothing = await raw(shown, "tool_schema", tool="zzz")
    assert nothing["structuredContent"]["error"]["next"] == "capabilities({})"


async def test_a_name_that_several_servers_have_is_told_with_all_of_them():
    shown = surface(make_test_app({"a": [definition("find")], "b": [definition("find")]}))
    result = await raw(shown, "tool_schema", tool="find")
    assert result["structuredContent"]["error"]["details"] == ["2 tools have that name: a.find, b.find"]


async def test_hidden_tools_look_missing():
    spec = ServerSpec(name="hub", transport="stdio", tools=ToolFilter(deny=("secret*",)))
    shown = surface(make_test_app({"hub": [definition("secret_row"), definition("row")]}, specs=[spec]))
    hidden = await raw(shown, "tool_schema", tool="hub__secret_row")
    missing = await raw(shown, "tool_schema", tool="hub__absent_row")
    assert json.dumps(hidden).replace("secret", "absent") == json.dumps(missing)
    assert "secret" not in json.dumps(await ask(shown, "capabilities"))
    assert "1 tools" in shown.instructions(AGENT)


async def test_a_server_that_could_not_be_asked_is_named():
    application = make_test_app({"hub": [definition("row")]})
    application.gateway.refresher.failures["mail"] = "it did not start"
    result = await raw(surface(application), "tool_schema", tool="mail.send")
    assert "- the server 'mail' is not available: it did not start" in result["content"][0]["text"]


async def test_the_name_of_a_tool_may_stand_under_other_keys():
    for key in ("name", "tool_name"):
        assert (await ask(surface(), "tool_schema", **{key: "tana_node"}))["tool"] == "tana_node"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (NextCall("call", {"name": "hub.get_row", "arguments": {"a": "é"}}), 'hub__get-row({"a": "é"})'),
        (NextCall("describe", {"names": ["hub.get_row", "hub.x"]}), 'tana_tool_schema({"tool": "hub__get-row"})'),
        (NextCall("search", {"query": "x"}), "tana_capabilities({})"),
        (NextCall("search", {"query": "", "category": "a"}), 'tana_capabilities({"category": "a"})'),
        (NextCall("list", {"kind": "prompt"}), "tana_capabilities({})"),
    ],
)
def test_the_next_call_is_spelled_in_the_words_of_the_surface(call: NextCall, text: str):
    assert surface(make_test_app({"hub": [definition("get-row")]})).spell(call) == text


async def test_a_wrong_call_is_refused_with_the_tool_s_own_name_as_the_next_call():
    application = tana_app()
    async with Client(SurfaceServer(application.gateway, surface(application), "1"), mode="2026-07-28") as client:
        refused = await client.call_tool("tana_tagged", {"tag": "todo"})
    assert refused.is_error
    assert '\nnext: tana_tagged({"tagname": "...' in refused.content[0].text
    assert application.provider("tana").calls == []


async def test_both_looks_are_written_to_the_journal():
    application = tana_app()
    shown = surface(application)
    await ask(shown, "capabilities")
    await ask(shown, "capabilities", category="query")
    await ask(shown, "tool_schema", tool="tana_node")
    await raw(shown, "tool_schema", tool="tana_nothing")
    assert [(look.look, look.text, look.shown, look.found) for look in looks(application)] == [
        (Look.BROWSE, "", 16, 16),
        (Look.BROWSE, "query", 4, 4),
        (Look.DESCRIBE, "tana_node", 1, 1),
    ]
    assert [look.tokens > 0 for look in looks(application)] == [True] * 3


@pytest.mark.requirement("S2-22", "S2-E4")
async def test_hits_and_misses_of_schemas_are_counted():
    shown = surface()
    for name in ("tana_node", "tana_node", "tana_stats", "tana_node"):
        await ask(shown, "tool_schema", tool=name)
    assert shown.gateway.answers.counts() == {"schema": (2, 2)}


@pytest.mark.requirement("S2-2", "S2-40", "S2-E2")
def test_a_client_reads_less_than_from_a_list_of_every_tool():
    application = tana_app()
    inventory = surface(application).registry.capabilities().tokens
    upfront, static = surface_tokens(application.gateway, "capabilities"), surface_tokens(application.gateway, "static")
    assert inventory < 450
    assert upfront + inventory < static * 0.6
    large = make_test_app(generate(26, 538), index=FakeIndex()).gateway
    assert surface_tokens(large, "capabilities") + 500 < surface_tokens(large, "static") * 0.02


async def test_a_pin_under_the_name_of_a_meta_tool_is_not_listed_twice():
    application = tana_app(definition("tana_capabilities"), pins=("tana_capabilities",))
    shown = surface(application)
    assert [tool["name"] for tool in await shown.tools(AGENT)] == list(tana_server.OWN)
    async with Client(SurfaceServer(application.gateway, shown, "1"), mode="2026-07-28") as client:
        assert (await client.call_tool("tana_capabilities", {})).structured_content is not None
        assert application.provider("tana").calls == []
        await client.call_tool("tana.tana_capabilities", {})
    assert application.provider("tana").calls == [("tana_capabilities", {})], "its handle still reaches it"


@pytest.mark.requirement("S2-E9")
async def test_a_new_category_changes_the_list_and_a_new_tool_in_a_known_one_does_not():
    application = tana_app(*tana_server.DEFINITIONS[:2])
    shown = surface(application)
    before = await shown.tools(AGENT)
    for count, changes in ((3, False), (5, True)):
        offered = Offering(server="tana", tools=tana_server.DEFINITIONS[:count])
        application.gateway.publisher.accept([(offered, "local")])
        assert ((await shown.tools(AGENT))[0] != before[0]) is changes


async def test_servers_that_are_still_starting_are_named_beside_the_inventory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Gateway.wait_until_ready, "__defaults__", (0.0,))  # nobody has 30 s
    async with fake_application({"hub": [definition("row")]}) as application:
        slow = FakeProvider(server="slow", tools=[definition("late")])
        application.admin.providers["slow"] = application.admin.refresher.providers["slow"] = slow
        slow.hold()
        application.admin.refresher.begin("slow")
        with anyio.fail_after(5):
            await slow.arrived()
        result = await raw(surface(application), "capabilities")
        slow.release()
    assert result["content"][1] == own_block("note: still starting: slow")
    assert result["structuredContent"]["categories"][0]["tools"] == [{"name": "hub__row"}]


async def test_the_list_waits_for_servers_that_are_asked_for_the_first_time():
    async with fake_application({"github": [definition("row")]}) as application:
        slow = FakeProvider(server="slack", tools=[definition("post")])
        application.admin.providers["slack"] = application.admin.refresher.providers["slack"] = slow
        slow.hold()
        application.admin.refresher.begin("slack")
        listed: list[Any] = []

        async def ask() -> None:
            listed.extend(await surface(application).tools(AGENT))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await slow.arrived()
                await anyio.wait_all_tasks_blocked()
                assert listed == [], "a choice that is missing now would be refused by the client later"
                slow.release()
    assert listed[0]["inputSchema"]["properties"]["category"]["enum"] == ["source_control", "communication"]


@pytest.mark.requirement("S0-80", "S2-40")
async def test_every_surface_tells_what_the_one_definition_says():
    application = tana_app()
    for words in ("Count nodes", "Count leaves"):
        offered = Offering(server="tana", tools=(definition("tana_stats", words, days="integer"),))
        application.gateway.publisher.accept([(offered, "local")])
        (static,) = await Static(application.gateway).tools(AGENT)
        shown = surface(application)
        ((told,),) = [
            [tool for tool in category["tools"] if tool["name"] == "tana_stats"]
            for category in (await ask(shown, "capabilities"))["categories"]
            if category["name"] == "explore"
        ]
        schema = (await ask(shown, "tool_schema", tool="tana_stats"))["schema"]
        search = Search(application.gateway).meta_tool("search_tool")
        assert search is not None
        exact = (await search(AGENT, {"query": "tana_stats"}, Envelope()))["structuredContent"]["tool"]
        assert static["description"] == told["description"] == exact["full_documentation"] == words
        assert static["inputSchema"] == schema
        assert list(schema["properties"]) == list(exact["parameters"]) == ["days"]


def test_instructions_name_the_categories_within_512_characters():
    many = {f"s.t{n}": f"category_{n}" for n in range(300)}
    houses = [
        make_test_app({}),
        tana_app(),
        make_test_app({"s": [definition(f"t{n}") for n in range(300)]}, explicit_categories=many),
        make_test_app({"s": [definition("t")]}, explicit_categories={"s.t": "x" * 600}),
    ]
    for application in houses:
        for prefix in ("", "p" * 32):
            text = surface(application, prefix=prefix).instructions(AGENT)
            assert len(text) <= 512
            assert f"{prefix}capabilities" in text
            assert f"{prefix}tool_schema" in text
    assert "Categories: query, explore, transcript, mutate, system." in surface().instructions(AGENT)


def settings_of(folder: Path, text: str) -> GatewaySettings:
    (folder / "portico.yaml").write_text(text)
    return load_settings(str(folder / "portico.yaml"), {"SHOP": "shop_"}, folder)


@pytest.mark.requirement("S2-8")
def test_the_config_chooses_prefix_quick_actions_and_budget(tmp_path: Path):
    text = 'capabilities: {prefix: "${SHOP}", quick_actions: ["find: a thing", " "], budget: 900}\n'
    found = settings_of(tmp_path, text)
    assert found.problems == ()
    assert found.capabilities == CapabilitiesSettings(prefix="shop_", quick_actions=("find: a thing",), budget=900)
    made = SURFACES["capabilities"](cast(Any, tana_app()), found)
    assert isinstance(made, Capabilities)
    assert (made.prefix, made.quick_actions, made.budget) == ("shop_", ("find: a thing",), 900)


@pytest.mark.parametrize(
    ("written", "where", "problem"),
    [
        ("capabilities: 7", "capabilities", "this must be a table"),
        ("capabilities: {prefx: a}", "capabilities.prefx", "Did you mean 'prefix'?"),
        ("capabilities: {prefix: a b}", "capabilities.prefix", "this cannot stand before a name"),
        (f"capabilities: {{prefix: {'x' * 33}}}", "capabilities.prefix", "this cannot stand before a name"),
        ("capabilities: {prefix: [a]}", "capabilities.prefix", "this cannot stand before a name"),
        ("capabilities: {quick_actions: find}", "capabilities.quick_actions", "this must be a list"),
        ("capabilities: {budget: 99}", "capabilities.budget", "Write a whole number from 100 to 1000000."),
    ],
)
def test_what_the_config_gets_wrong_is_named_and_the_default_is_in_force(
    tmp_path: Path, written: str, where: str, problem: str
):
    found = settings_of(tmp_path, f"surface: capabilities\n{written}\n")
    (told,) = found.problems
    assert str(told).startswith(f"{tmp_path / 'portico.yaml'}:2: {where}: ")
    assert problem in str(told)
    assert found.capabilities == CapabilitiesSettings()
    assert found.surface == "capabilities"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just("[" * 10_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["category", "cursor", "tool", "name", "tool_name", "arguments"]


@settings(max_examples=150)
@given(st.sampled_from(["capabilities", "tool_schema"]), st.dictionaries(st.sampled_from(KEYS), json_values))
def test_any_arguments_get_an_answer_within_reason(name: str, arguments: dict[str, Any]):
    shown = surface()
    result = anyio.run(lambda: raw(shown, name, **arguments))
    assert result["content"][0]["text"]
    assert TokenEstimate().count(result["content"][0]["text"]) <= 2_000
