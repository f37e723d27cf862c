"""The `search` surface: the query alone decides how much is told, and every tool runs as on the other surfaces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from tests.catalogue import generate
from tests.sample_tools import ALL, TWO, handle_base_readQuery, reports, sample_app

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.call import Caller
from portico.domain.search_answers import Findings, Hit
from portico.domain.server import ServerSpec, ToolFilter
from portico.domain.tool import Tool, ToolId
from portico.errors import NextCall
from portico.server.run import surface_tokens
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import DEFINITIONS, Search
from portico.surfaces.static import Static
from portico.testing import AGENT, FakeApplication, definition, make_test_app

ERAS = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
PINS = ("base_readQuery",)


async def ask(
    application: FakeApplication, query: object = "", *, caller: Caller = AGENT, order: str = "keywords", **rest: Any
) -> Any:
    """What `search_tool` answers, as data."""
    search = Search(application.gateway, order).meta_tool("search_tool")
    assert search is not None
    result = await search(caller, {"query": query, **rest}, Envelope())
    assert not result.get("isError"), result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


async def execute(application: FakeApplication, arguments: dict[str, Any]) -> Any:
    """What `execute_tool` answers."""
    run = Search(application.gateway).meta_tool("execute_tool")
    assert run is not None
    return await run(AGENT, arguments, Envelope())


def connected(application: FakeApplication, surface: Any, era: str) -> Client:
    """A real client of one surface."""
    return Client(SurfaceServer(application.gateway, surface(application.gateway), "1"), mode=ERAS[era])


@pytest.mark.requirement("S0-11", "S0-12", "S0-13", "S0-14", "S0-15", "S0-16", "S0-22", "S0-26", "S0-75", "S0-E6")
async def test_an_exact_name_gives_the_documented_answer() -> None:
    assert await ask(sample_app(), "base_readQuery") == {
        "match_type": "exact",
        "tool": {
            "name": "base_readQuery",
            "category": "base",
            "description": "Execute a SQL query via SQLAlchemy, bind parameters if provided.",
            "full_documentation": (
                "Execute a SQL query via SQLAlchemy, bind parameters if provided.\n\n"
                "Arguments:\n  sql - SQL text, with optional bind-parameter placeholders"
            ),
            "parameters": {
                "sql": {
                    "type": "str",
                    "required": False,
                    "default": "None",
                    "default_json": None,
                    "description": "SQL text, with optional bind-parameter placeholders",
                }
            },
        },
    }


@pytest.mark.requirement("S0-10", "S0-12", "S0-21")
@pytest.mark.parametrize("query", ["base_readQuery", "BASE_READQUERY", "base_readquery", " base_readQuery\n"])
async def test_an_exact_name_is_found_in_any_case_and_told_in_its_own(query: str) -> None:
    answer = await ask(sample_app(), query)
    assert answer["match_type"] == "exact"
    assert answer["tool"]["name"] == "base_readQuery"


@pytest.mark.requirement("S0-10")
@pytest.mark.parametrize("query", ["hub__get-row", "hub.get_row", "hub::get-row", "/hub/get-row", "get-row", "GET-ROW"])
async def test_every_spelling_of_a_server_s_tool_is_an_exact_name(query: str) -> None:
    answer = await ask(make_test_app({"hub": [definition("get-row", "Gets it.")]}), query)
    assert answer["tool"]["name"] == "hub__get-row", "the listed name, which can be called as it is"


async def test_a_name_that_several_servers_have_is_a_keyword() -> None:
    application = make_test_app({"a": [definition("find"), definition("other")], "b": [definition("find")]})
    answer = await ask(application, "find")
    assert [(hit["name"], hit["score"]) for hit in answer["tools"]] == [("a__find", 200), ("b__find", 200)]


@pytest.mark.requirement("S0-23", "S0-24", "S0-25", "S0-26", "S0-E1", "S0-E6")
async def test_keywords_give_the_documented_answer() -> None:
    assert await ask(sample_app(*TWO), "table list") == {
        "match_type": "approximate",
        "results_count": 2,
        "tools": [
            {
                "name": "base_tableList",
                "category": "base",
                "summary": "Lists all tables in a database.",
                "score": 120,
            },
            {
                "name": "base_tableDDL",
                "category": "base",
                "summary": "Displays the DDL definition of a table via SQLAlchemy...",
                "score": 100,
            },
        ],
    }


@pytest.mark.requirement("S0-36")
async def test_ten_tools_are_told_unless_the_limit_says_otherwise() -> None:
    application = make_test_app({"s": [definition(f"row_{n:02}") for n in range(30)]})
    assert (await ask(application, "row"))["results_count"] == 10
    assert (await ask(application, "row", limit=3))["results_count"] == 3
    assert (await ask(application, "row", limit="25"))["results_count"] == 25
    assert (await ask(application, "row", limit=10**9))["results_count"] == 30
    assert (await ask(application, "row", limit=0))["results_count"] == 1
    assert await ask(application, "nothing like it") == {"match_type": "approximate", "results_count": 0, "tools": []}


@pytest.mark.requirement("S0-E3")
async def test_no_query_gives_all_names_page_by_page() -> None:
    assert await ask(sample_app(*TWO)) == {
        "match_type": "list_all",
        "total_count": 2,
        "tools": ["base_tableDDL", "base_tableList"],
    }
    application = make_test_app({f"s{n}": [definition(f"t{m}") for m in range(50)] for n in range(5)})
    names: list[str] = []
    pages = 0
    cursor = ""
    while pages == 0 or cursor:
        page = await ask(application, " ", limit=60, cursor=cursor)
        assert page["total_count"] == 250
        names += page["tools"]
        cursor, pages = page.get("next_cursor", ""), pages + 1
    assert names == sorted(tool.listed for tool in application.gateway.view(AGENT).tools)
    assert pages == 5
    assert len((await ask(application))["tools"]) == 100


@pytest.mark.requirement("S0-47", "S0-67")
async def test_exactly_three_tools_are_listed() -> None:
    application = sample_app(*ALL, pins=PINS)
    assert [tool["name"] for tool in await Search(application.gateway).tools(AGENT)] == [
        "search_tool",
        "execute_tool",
        "base_readQuery",
    ]
    assert Search(application.gateway).meta_tool("base_readQuery") is None


@pytest.mark.requirement("S0-47", "S0-67")
@pytest.mark.parametrize("surface", [Search, Discover, Capabilities])
async def test_a_tool_that_is_pinned_under_two_spellings_is_listed_once(surface: Any) -> None:
    application = sample_app(*ALL, pins=("base_readQuery", "local.base_readQuery", "BASE_READQUERY", "base_tableDDL"))
    names = [tool["name"] for tool in await surface(application.gateway).tools(AGENT)]
    assert names[-2:] == ["base_readQuery", "base_tableDDL"]
    assert len(names) == len(set(names))


@pytest.mark.requirement("S0-1", "S0-66", "S0-67", "S0-72")
async def test_of_120_functions_three_are_listed_at_a_hundredth_of_the_cost() -> None:
    application = sample_app(handle_base_readQuery, *reports(119), pins=PINS)
    assert len(await Static(application.gateway).tools(AGENT)) == 120
    assert [tool["name"] for tool in await Search(application.gateway).tools(AGENT)] == [
        "search_tool",
        "execute_tool",
        "base_readQuery",
    ]
    assert surface_tokens(application.gateway, "search") <= 0.01 * surface_tokens(application.gateway, "static")


@pytest.mark.requirement("S0-66")
async def test_static_lists_every_tool_on_its_own() -> None:
    application = sample_app(*ALL, pins=PINS)
    names = {tool["name"] for tool in await Static(application.gateway).tools(AGENT)}
    assert names == {"base_readQuery", "base_tableList", "base_tableDDL", "dba_userSqlList", "sql_opt_explain"}


@pytest.mark.requirement("S0-27", "S0-41", "S0-42", "S0-43", "S0-67", "S0-73", "S0-E8")
@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_walks_the_documented_way(era: str) -> None:
    application = sample_app(*ALL, pins=PINS)
    async with connected(application, Search, era) as client, connected(application, Static, era) as static:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "search_tool",
            "execute_tool",
            "base_readQuery",
        ]
        hits = (await client.call_tool("search_tool", {"query": "table"})).structured_content
        assert hits is not None
        assert hits["match_type"] == "approximate"
        assert "base_tableList" in [hit["name"] for hit in hits["tools"]]
        named = (await client.call_tool("search_tool", {"query": "base_tableList"})).structured_content
        assert named is not None
        assert named["tool"]["parameters"].keys() == {"database_name"}
        arguments = {"database_name": "demo"}
        found = await client.call_tool("execute_tool", {"tool_name": "base_tableList", "arguments": arguments})
        assert found.structured_content == {"status": "success", "tables": ["demo.orders"]}
        assert _told(found) == _told(await static.call_tool("base_tableList", arguments)), "as in static mode"
        assert _told(found) == _told(await client.call_tool("base_tableList", arguments)), "listed or not"
        sql = {"sql": "SELECT * FROM dbc.tables SAMPLE 5"}
        assert (await client.call_tool("base_readQuery", sql)).structured_content == {"status": "success", **sql}


def _told(result: Any) -> Any:
    return result.model_dump(exclude={"meta"})


@pytest.mark.requirement("S0-44")
async def test_arguments_are_checked_before_anything_runs() -> None:
    application = make_test_app({"hub": [definition("add-label", issue="integer", label="string")]})
    refused = await execute(application, {"tool_name": "hub__add-label", "arguments": {"issue": 7, "lable": "bug"}})
    assert refused == {
        "isError": True,
        "content": [
            {
                "type": "text",
                "text": (
                    "error invalid_arguments for hub.add_label; nothing was sent\n"
                    "- missing: label (string)\n"
                    "- unknown: lable; did you mean label (string)?\n"
                    'next: execute_tool({"tool_name": "hub__add-label", "arguments": {"issue": 7, "label": "..."}})'
                ),
                "_meta": {"portico/origin": "gateway"},
            }
        ],
    }
    assert application.provider("hub").calls == []


@pytest.mark.requirement("S0-41", "S0-42")
async def test_a_result_is_the_tool_s_own() -> None:
    application = make_test_app({"hub": [definition("get", id="integer")]})
    own = {"content": [{"type": "image", "data": "", "mimeType": "x"}], "isError": True, "_meta": {"a": 1}}
    application.provider("hub").returns("get", own)
    assert await execute(application, {"tool_name": "hub__get", "arguments": {"id": 1}}) == own
    malformed = await execute(application, {"name": "HUB.get", "arguments": '{"id": "1"}'})
    assert malformed["content"][-1]["text"] == (
        '[portico]\nnote: read `arguments` from a JSON string\nnote: id: took "1" as 1'
    )
    assert application.provider("hub").calls == [("get", {"id": 1})] * 2, "malformed or not"
    assert [i.tool for i in application.invocations] == [ToolId("hub", "get")] * 2, "through the one executor"


async def test_the_tool_s_name_stands_under_tool_name_whatever_stands_beside_it() -> None:
    application = make_test_app({"hub": [definition("add-label", name="string")]})
    await execute(application, {"tool_name": "hub__add-label", "name": "bug"})
    assert application.provider("hub").calls == [("add-label", {"name": "bug"})]


async def test_what_a_function_raises_is_a_result_that_says_so() -> None:
    failed = await execute(sample_app(), {"tool_name": "sql_opt_explain", "arguments": {"sql": "x"}})
    assert failed["isError"]
    assert failed["content"][0]["text"] == "ValueError: cannot explain 'x'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {},
            "error invalid_arguments for execute_tool; nothing was sent\n- missing: tool_name (string)\nnext: execute_",
        ),
        ({"tool_name": 7, "arguments": {}}, "error invalid_arguments for execute_tool; nothing was sent\n- missing: "),
        (
            {"tool_name": "base_tablelists", "arguments": {}},
            "error unknown_tool for base_tablelists; nothing was sent\n- did you mean: _local.base_tableList",
        ),
        (
            {"tool_name": "zzz", "arguments": {}},
            "error unknown_tool for zzz; nothing was sent\n- no tool has that name",
        ),
    ],
)
async def test_a_call_that_cannot_be_made_names_the_next_one(arguments: dict[str, Any], text: str) -> None:
    refused = await execute(sample_app(), arguments)
    assert refused["isError"]
    assert refused["content"][0]["text"].startswith(text)
    assert "\nnext: " in refused["content"][0]["text"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            NextCall("call", {"name": "hub.get_row", "arguments": {"a": "é"}}),
            'execute_tool({"tool_name": "hub__get-row", "arguments": {"a": "é"}})',
        ),
        (NextCall("describe", {"names": ["hub.get_row", "hub.x"]}), 'search_tool({"query": "hub__get-row"})'),
        (NextCall("search", {"query": "x"}), 'search_tool({"query": "x"})'),
        (NextCall("list", {"kind": "prompt"}), 'search_tool({"query": ""})'),
    ],
)
def test_the_next_call_is_spelled_in_the_words_of_the_surface(call: NextCall, text: str) -> None:
    assert Search(make_test_app({"hub": [definition("get-row")]}).gateway).spell(call) == text


async def test_hidden_tools_stay_hidden_in_every_mode() -> None:
    spec = ServerSpec(name="hub", transport="stdio", tools=ToolFilter(deny=("secret*",)))
    application = make_test_app({"hub": [definition("secret_row", "Secret."), definition("row")]}, specs=[spec])
    assert await ask(application) == {"match_type": "list_all", "total_count": 1, "tools": ["hub__row"]}
    for query in ("secret_row", "hub__secret_row", "hub.secret_row", "secret"):
        assert await ask(application, query) == await ask(application, query.replace("secret", "absent"))
    for query in ("row secret", "secret_row columns row"):
        assert [hit["name"] for hit in (await ask(application, query))["tools"]] == ["hub__row"]
        assert [hit["name"] for hit in (await ask(application, query, order="meaning"))["tools"]] in (["hub__row"], [])
    refused = await execute(application, {"tool_name": "hub__secret_row", "arguments": {}})
    missing = await execute(application, {"tool_name": "hub__absent_row", "arguments": {}})
    assert refused["content"][0]["text"].replace("secret", "absent") == missing["content"][0]["text"]


@dataclass
class OwnServer:
    """A policy by which each caller sees the server of its own name."""

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        return {id for id in snapshot.tools if id.server == caller.name}

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        return None


@pytest.mark.requirement("T17")
async def test_tools_of_other_callers_are_never_counted() -> None:
    servers = {"ann": [definition("row")], "bob": [definition("row"), definition("row_2")]}
    application = make_test_app(servers, policy=OwnServer())
    ann = Caller(name="ann")
    assert await ask(application, caller=ann) == {"match_type": "list_all", "total_count": 1, "tools": ["ann__row"]}
    assert (await ask(application, "row", caller=ann))["match_type"] == "exact", "bob's makes it no less unique"
    assert (await ask(application, "row columns", caller=ann))["results_count"] == 1
    assert (await ask(application, "row_2", caller=ann))["match_type"] == "approximate"
    assert (await ask(application, caller=Caller(name="bob")))["total_count"] == 2


async def test_the_order_may_be_that_of_the_index_and_the_scores_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    application = sample_app()
    tools = {tool.listed: tool for tool in application.gateway.view(AGENT).tools}
    ranked = [Hit(tool=tools[name], score=0.5) for name in ("sql_opt_explain", "base_tableDDL", "base_tableList")]
    found = Findings(hits=tuple(ranked), fits=True)
    monkeypatch.setattr(type(application.gateway), "hits", lambda self, caller, query: found)
    answer = await ask(application, "table list", order="meaning", limit=3)
    assert [(hit["name"], hit["score"]) for hit in answer["tools"]] == [
        ("sql_opt_explain", 0),
        ("base_tableDDL", 100),
        ("base_tableList", 120),
    ]
    assert (await ask(application, "table list", order="meaning", limit=1))["results_count"] == 1
    monkeypatch.setattr(type(application.gateway), "hits", lambda self, caller, query: Findings(hits=tuple(ranked)))
    assert (await ask(application, "table list", order="meaning"))["tools"] == [], "the nearest are no answer"


async def test_a_new_snapshot_is_searched_at_once() -> None:
    application = make_test_app({"hub": [definition("row")]})
    search = Search(application.gateway).meta_tool("search_tool")
    assert search is not None
    before = await search(AGENT, {"query": "row or column"}, Envelope())
    application.gateway.publisher.withdraw("hub")
    after = await search(AGENT, {"query": "row or column"}, Envelope())
    assert [r["structuredContent"]["results_count"] for r in (before, after)] == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"query": {"a": 1}}, ["- query: must be a string"]),
        ({"query": True}, ["- query: must be a string"]),
        ({"arguments": {"query": "x"}}, ["- missing: query (string); unknown: arguments"]),
        ({"keywords": "x", "limit": 5, "y" * 99: 1}, [f"- missing: query (string); unknown: keywords, {'y' * 40}"]),
        ({"query": "x", "limit": "many"}, ["- limit: must be a whole number from 1 to 1000"]),
        ({"query": "x", "limit": 2.5}, ["- limit: must be a whole number from 1 to 1000"]),
        ({"query": "x", "limit": 10**400}, ["- limit: must be a whole number from 1 to 1000"]),
        (
            {"query": [1], "limit": {}, "cursor": []},
            ["- query: must be a string", "- limit: must be a whole number from 1 to 1000"],
        ),
    ],
)
async def test_what_cannot_be_read_is_named(arguments: dict[str, Any], lines: list[str]) -> None:
    search = Search(sample_app().gateway).meta_tool("search_tool")
    assert search is not None
    result = await search(AGENT, arguments, Envelope())
    assert result["isError"]
    head, *details, last = result["content"][0]["text"].split("\n")
    assert head == "error invalid_arguments for search_tool; nothing was sent"
    assert details == lines
    assert last.startswith('next: search_tool({"query": ')


async def test_a_query_under_a_shorter_name_is_understood_and_none_at_all_lists_every_tool() -> None:
    search = Search(sample_app().gateway).meta_tool("search_tool")
    assert search is not None
    for arguments, kind in (({"q": "table list"}, "approximate"), ({}, "list_all"), ({"limit": 5}, "list_all")):
        assert (await search(AGENT, arguments, Envelope()))["structuredContent"]["match_type"] == kind


STRANGE = [
    "x" * 100_000,
    "table " * 20_000,
    "!@#$%^&*()",
    "создать таблицу",
    "创建表",
    "🧨",
    "\x00",
    "\ud800",
    "' OR 1=1 --",
]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("query", STRANGE)
async def test_strange_queries_are_answered(query: str) -> None:
    answer = await ask(sample_app(), query)
    assert answer.keys() == {"match_type", "results_count", "tools"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just("[" * 10_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["query", "limit", "cursor", "tool_name", "name", "arguments", "args"]


@settings(max_examples=150)
@given(st.sampled_from(["search_tool", "execute_tool"]), st.dictionaries(st.sampled_from(KEYS), json_values))
async def test_any_arguments_of_a_meta_tool_get_an_answer(name: str, arguments: dict[str, Any]) -> None:
    meta_tool = Search(sample_app(*TWO).gateway).meta_tool(name)
    assert meta_tool is not None
    result = await meta_tool(AGENT, arguments, Envelope())
    assert result["content"][0]["text"]


@pytest.mark.requirement("S0-72")
def test_a_client_reads_about_99_percent_less_than_in_static_mode() -> None:
    saved = {}
    for size in (120, 1_000, 2_000):
        gateway = make_test_app(generate(size // 20, size)).gateway
        saved[size] = 1 - surface_tokens(gateway, "search") / surface_tokens(gateway, "static")
    assert round(saved[120], 2) >= 0.99
    assert saved[1_000] > 0.995
    assert saved[2_000] > 0.998


@pytest.mark.requirement("S0-76")
async def test_two_thousand_tools_make_no_answer_longer() -> None:
    application = make_test_app(generate(100, 2_000))
    count = application.gateway.counter.count
    assert surface_tokens(application.gateway, "search") <= 350
    assert count(json.dumps(await ask(application, "create issue"))) <= 1_000
    assert count(json.dumps(await ask(application))) <= 1_200


def test_instructions_name_the_servers_within_512_characters() -> None:
    for servers in ([], ["github"], [f"server{n}" for n in range(300)], ["x" * 600]):
        text = Search(make_test_app({name: [definition("x")] for name in servers}).gateway).instructions(AGENT)
        assert len(text) <= 512
        assert "search_tool" in text
        assert "execute_tool" in text
    assert "Servers: github." in Search(make_test_app({"github": [definition("x")]}).gateway).instructions(AGENT)


def test_the_meta_tools_are_marked_and_have_schemas() -> None:
    search = Search(make_test_app({}).gateway)
    for tool in DEFINITIONS:
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] == "search_tool")
        assert search.schema_of(tool["name"]) is tool["inputSchema"]
    assert search.schema_of("x") is None
