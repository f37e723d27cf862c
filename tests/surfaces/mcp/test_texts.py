"""What clients read: meta-tools, instructions, results, and the next call in each surface's own words."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.call import Result
from portico.errors import InvalidArguments, NextCall, Sent, UnknownTool, UpstreamGone
from portico.rendering.budget import TokenEstimate
from portico.results.own_blocks import own_block
from portico.scripting.engine import LuaEngine
from portico.scripting.script_session import ScriptRunner
from portico.server.run import surface_tokens
from portico.surfaces.discover import DEFINITIONS, Discover
from portico.surfaces.mcp.surface import Envelope, error_result, text_result, with_notes
from portico.surfaces.static import Static
from portico.testing import AGENT, FakeApplication, definition, make_test_app

ISSUE = definition("create-issue", "Create an issue.", title="string")


@pytest.fixture
def application() -> FakeApplication:
    return make_test_app({"github": [ISSUE]}, pins=("github.create_issue",))


async def ask(application: FakeApplication, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    meta_tool = Discover(application.gateway).meta_tool(name)
    assert meta_tool is not None
    result = await meta_tool(AGENT, arguments, Envelope())
    return "\n".join(block["text"] for block in result["content"]), bool(result.get("isError"))


@pytest.mark.requirement("P-DISCOVER-LIST")
async def test_discover_lists_its_own_tools_and_the_pins(application: FakeApplication) -> None:
    listed = await Discover(application.gateway).tools(AGENT)
    names = [tool["name"] for tool in listed]
    assert names == ["search_tools", "describe_tools", "call_tool", "read_result", "github__create-issue"]
    for tool in DEFINITIONS:
        assert tool["_meta"] == {"anthropic/alwaysLoad": True}
        assert tool["annotations"]["readOnlyHint"] is (tool["name"] not in ("call_tool", "run_script"))


@pytest.mark.requirement("P-TOKENS-DISCOVER")
def test_discover_costs_less_than_seven_hundred_tokens_with_any_catalog() -> None:
    application = make_test_app({f"server-{number}": [definition("x")] for number in range(300)})
    assert (
        surface_tokens(application.gateway, scripts=ScriptRunner(gateway=application.gateway, engine=LuaEngine()))
        <= 700
    )
    assert surface_tokens(application.gateway, "static") > 5_000


def test_the_list_is_the_same_to_the_byte_whatever_the_catalog_holds() -> None:
    assert orjson.dumps(DEFINITIONS) == orjson.dumps(DEFINITIONS)
    one, two = make_test_app({"a": [definition("x")]}), make_test_app({})
    assert Discover(one.gateway).schema_of("call_tool") is Discover(two.gateway).schema_of("call_tool")
    assert Discover(one.gateway).meta_tool("a__x") is None


@pytest.mark.requirement("P-INSTRUCTIONS")
@pytest.mark.parametrize("servers", [[], ["github"], [f"server{n}" for n in range(300)], ["x" * 600]])
def test_instructions_name_the_servers_within_512_characters(servers: list[str]) -> None:
    application = make_test_app({name: [definition("x")] for name in servers})
    text = Discover(application.gateway).instructions(AGENT)
    assert len(text) <= 512
    assert "search_tools" in text
    if servers and len(servers[0]) < 100:
        assert f"Servers: {servers[0]}" in text
    if len(servers) == 300:
        assert " more." in text
    assert len(Static(application.gateway).instructions(AGENT)) <= 512


async def test_static_lists_every_permitted_tool(application: FakeApplication) -> None:
    (tool,) = await Static(application.gateway).tools(AGENT)
    assert tool == {**ISSUE, "name": "github__create-issue"}
    assert Static(application.gateway).meta_tool("search_tools") is None


@pytest.mark.parametrize(
    ("call", "discover", "static"),
    [
        (
            NextCall("call", {"name": "github.create_issue", "arguments": {"title": "é"}}),
            'call_tool({"name": "github.create_issue", "arguments": {"title": "é"}})',
            'github__create-issue({"title": "é"})',
        ),
        (
            NextCall("describe", {"names": ["github.create_issue"]}),
            'describe_tools({"names": ["github.create_issue"]})',
            "call one of github__create-issue",
        ),
        (NextCall("search", {"query": "x"}), 'search_tools({"query": "x"})', "tools/list"),
        (NextCall("list", {"kind": "prompt"}), 'search_tools({"query": ""})', "tools/list"),
    ],
)
def test_the_next_call_is_spelled_in_the_words_of_the_surface(
    application: FakeApplication, call: NextCall, discover: str, static: str
) -> None:
    assert Discover(application.gateway).spell(call) == discover
    assert Static(application.gateway).spell(call) == static


def test_an_error_is_a_result_that_says_what_failed_and_what_was_sent(application: FakeApplication) -> None:
    error = UnknownTool("x", details=("a", "b"), next_call=NextCall("search", {"query": "y"}))
    assert error_result(error, Discover(application.gateway).spell, ["mended", "mended"]) == text_result(
        'error unknown_tool for x; nothing was sent\n- a\n- b\nnext: search_tools({"query": "y"})\nnote: mended',
        is_error=True,
    )


@pytest.mark.requirement("P-OUTCOME")
def test_an_error_that_may_have_taken_effect_says_so_to_people_and_to_programs(application: FakeApplication) -> None:
    error = UpstreamGone("x", details=("it died",), sent=Sent.UNKNOWN)
    result = error_result(error, Discover(application.gateway).spell)
    assert result["_meta"] == {"portico/outcome": "unknown_outcome"}
    assert result["content"][0]["text"] == (
        "error upstream_gone for x; the call was sent; whether it took effect is unknown\n- it died\n"
        "- unknown_outcome: look whether it took effect before you make it again, unless it only reads"
    )
    for sent in (Sent.NOTHING, Sent.ANSWERED):
        known = error_result(UpstreamGone("x", sent=sent), Discover(application.gateway).spell)
        assert "unknown_outcome" not in str(known)


def test_a_result_is_passed_on_unchanged_unless_something_was_repaired() -> None:
    raw = {"content": [{"type": "image"}], "structuredContent": {"a": 1}, "isError": True, "_meta": {"b": 2}}
    assert with_notes(Result(raw)) == raw
    mended = with_notes(Result(raw, ("one",)), ["two"])
    assert mended == {**raw, "content": [{"type": "image"}, own_block("note: two\nnote: one")]}
    assert len(raw["content"]) == 1  # type: ignore[arg-type]


@pytest.mark.requirement("P-LENIENT")
async def test_a_malformed_call_works_and_says_what_was_put_right(application: FakeApplication) -> None:
    text, is_error = await ask(
        application, "call_tool", {"name": "GITHUB__create_issue", "arguments": '{"title": "x"}'}
    )
    assert not is_error
    assert text.split("\n") == [
        "create-issue was called",
        "[portico]",
        "note: read `arguments` from a JSON string",
        "note: GITHUB__create_issue is spelled github.create_issue here",
    ]


@pytest.mark.requirement("P-ERROR-FORMAT")
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("call_tool", {}, "error invalid_arguments for call_tool; nothing was sent\n- missing: name (string)\nnext: "),
        ("describe_tools", {"names": []}, "error invalid_arguments for describe_tools; nothing was sent\n- missing: "),
        ("describe_tools", {"names": ["no"]}, "error unknown_tool for no; nothing was sent\n- no tool has that name"),
        ("call_tool", {"name": "github.creat_issue"}, "error unknown_tool for github.creat_issue; nothing was sent\n"),
    ],
)
async def test_meta_tools_explain_what_is_missing(
    application: FakeApplication, tool: str, arguments: dict[str, Any], text: str
) -> None:
    answer, is_error = await ask(application, tool, arguments)
    assert answer.startswith(text)
    assert "\nnext: " in answer
    assert is_error


@pytest.mark.parametrize(
    "names",
    [
        ["github.create_issue"],
        "github.create_issue",
        '["github.create_issue"]',
        "github.create_issue, github::create-issue",
        [{"name": "github.create_issue"}],
        "['github.create_issue']",
    ],
)
async def test_names_to_describe_may_be_written_loosely(application: FakeApplication, names: object) -> None:
    answer, is_error = await ask(application, "describe_tools", {"names": names})
    assert answer.startswith("## github.create_issue [write]")
    assert not is_error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just("[" * 100_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["query", "q", "server", "category", "limit", "cursor", "names", "name", "tools", "arguments"]


@settings(max_examples=150)
@given(
    st.sampled_from(["search_tools", "describe_tools", "call_tool"]),
    st.dictionaries(st.sampled_from(KEYS), json_values),
)
async def test_any_arguments_of_a_meta_tool_get_an_answer(name: str, arguments: dict[str, Any]) -> None:
    text, _ = await ask(make_test_app({"github": [ISSUE]}), name, arguments)
    assert text


def test_the_estimate_of_an_error_is_small() -> None:
    error = InvalidArguments("x" * 50, details=("y" * 50,) * 10)
    assert TokenEstimate().count(str(error)) < 200


@pytest.mark.requirement("P-FILTERS", "P-ERROR-FORMAT")
async def test_a_search_in_an_unknown_server_names_those_that_exist_and_the_next_call(
    application: FakeApplication,
) -> None:
    text, is_error = await ask(application, "search_tools", {"query": "issue", "server": "gihub"})
    assert text == (
        "error unknown_filter for server 'gihub'; nothing was sent\n- servers, nearest first: github\n"
        'next: search_tools({"query": "issue", "server": "github"})'
    )
    assert is_error


@pytest.mark.requirement("P-NOTHING-FITS")
async def test_a_search_that_nothing_fits_is_an_answer_and_no_error(application: FakeApplication) -> None:
    text, is_error = await ask(application, "search_tools", {"query": "quantum zebra"})
    assert text.startswith("no tool fits 'quantum zebra'\nnext: ")
    assert not is_error
