"""The registry: an inventory by category within its budget, schemas on demand, nothing stale, and no MCP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Set
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import tana_server
from tests.catalogue import generate
from tests.sample_tools import sample_app
from tests.tana_server import tana_app

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain import VERSION
from portico.domain.call import Call, Caller
from portico.domain.server import Offering, ServerSpec, ToolFilter
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage_and_tiers import Usage, standing_of
from portico.errors import InvalidArguments
from portico.protocols import TokenCounter
from portico.rendering.budget import ExactTokens, TokenEstimate
from portico.rendering.cache import AnswerCache
from portico.surfaces.capabilities.inventory import STRANGE_CURSOR, ToolRegistry, create_tool_registry
from portico.testing import AGENT, FakeApplication, FakeIndex, definition, make_test_app

COUNTERS = [TokenEstimate(), *([ExactTokens()] if find_spec("splintr") else [])]
"""The exact one is an extra that need not be installed."""


def registry(application: FakeApplication | None = None, **options: Any) -> ToolRegistry:
    """A registry like the one that the surface uses."""
    given = {"prefix": tana_server.PREFIX, "quick_actions": tana_server.QUICK_ACTIONS, "caller": AGENT, **options}
    return create_tool_registry((application or tana_app()).gateway, **given)


def offer(application: FakeApplication, *definitions: Mapping[str, Any]) -> None:
    """Let the server offer this from now on."""
    application.gateway.publisher.accept([(Offering(server=tana_server.SERVER, tools=definitions), "local")])


def names_in(answer: Mapping[str, Any]) -> list[str]:
    """Every tool that an answer names."""
    found = []
    for category in answer["categories"]:
        found += [tool["name"] for tool in category.get("tools", ())] + category.get("names", [])
    return found


@pytest.mark.requirement("S2-16", "S2-18", "S2-19", "S2-20", "S2-21", "S2-29", "S2-38")
def test_an_inventory_has_a_version_categories_with_their_tools_and_quick_actions():
    answer = registry(version="1.2.3").get_capabilities()
    assert list(answer) == ["version", "categories", "quickActions"]
    assert answer["version"] == "1.2.3"
    assert answer["quickActions"] == ["search: find nodes by text", "create: add a node"]
    assert answer["categories"][0] == {
        "name": "query",
        "description": "Find and filter data",
        "tools": [
            {"name": "tana_field_values", "description": "Query values of fields"},
            {
                "name": "tana_search",
                "description": "Full-text search of nodes",
                "example": "Find notes on project plans",
            },
            {"name": "tana_semantic_search", "description": "Find nodes by meaning", "example": "Notes like this idea"},
            {"name": "tana_tagged", "description": "Find nodes by supertag", "example": "Show all todos"},
        ],
    }


@pytest.mark.requirement("S2-20")
def test_the_version_is_that_of_the_gateway():
    assert registry().get_capabilities()["version"] == VERSION


@pytest.mark.requirement("S2-17", "S2-23", "S2-24", "S2-25", "S2-26", "S2-27", "S2-28", "S2-45", "S2-E1")
def test_sixteen_tools_stand_in_their_five_categories_each_in_one():
    answer = registry().get_capabilities()
    found = {category["name"]: [tool["name"] for tool in category["tools"]] for category in answer["categories"]}
    assert list(found) == list(tana_server.CATEGORIES)
    assert {name: set(tools) for name, tools in found.items()} == {n: set(t) for n, t in tana_server.CATEGORIES.items()}
    assert len(names_in(answer)) == len(set(names_in(answer))) == 16


@pytest.mark.requirement("S2-27")
@pytest.mark.parametrize("written", [False, True])
def test_without_a_category_for_them_the_registry_s_own_tools_are_not_among_others(written: bool):
    application = make_test_app({"github": [definition("row")]})
    if written:
        application.gateway.standings.replace_categories({"system": Category(name="system", description="The machine")})
    names = names_in(registry(application).get_capabilities())
    assert names == (["github__row", *tana_server.OWN] if written else ["github__row"])
    assert registry(application).list_tool_names() == ["github__row", *tana_server.OWN]


@pytest.mark.requirement("S2-29")
def test_a_category_filters_the_inventory_whatever_its_case():
    whole = registry().get_capabilities()
    for name in tana_server.CATEGORIES:
        answer = registry().get_capabilities(f" {name.upper()}")
        assert answer["categories"] == [category for category in whole["categories"] if category["name"] == name]
        assert answer.keys() == whole.keys()


@pytest.mark.requirement("S2-36")
def test_a_category_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(InvalidArguments) as refused:
        registry().get_capabilities("transcripts")
    assert refused.value.details == (
        "category: no tool stands in 'transcripts'",
        "categories, nearest first: 'transcript', 'mutate', 'system', 'query', 'explore'",
    )
    assert refused.value.next_call is not None
    assert refused.value.next_call.parameters == {"category": "transcript"}


def test_of_very_many_categories_an_error_names_the_nearest_and_counts_the_rest():
    shelves = {f"s.tool_{n}": f"category_{n}" for n in range(60)}
    application = make_test_app({"s": [definition(f"tool_{n}") for n in range(60)]}, explicit_categories=shelves)
    with pytest.raises(InvalidArguments) as refused:
        registry(application).get_capabilities("category_599")
    listed = refused.value.details[1]
    assert "'category_59'" in listed
    assert listed.endswith(" and 40 more")
    assert "enum" not in registry(application).definitions()[0]["inputSchema"]["properties"]["category"]


@pytest.mark.requirement("S2-30", "S2-E8")
def test_a_schema_comes_with_what_the_tool_returns_and_examples():
    assert registry().get_tool_schema("tana_search") == {
        "tool": "tana_search",
        "schema": tana_server.DEFINITIONS[0]["inputSchema"],
        "returns": tana_server.DEFINITIONS[0]["outputSchema"],
        "examples": [{"query": "..."}],
    }
    assert list(registry().get_tool_schema("tana_stats") or ()) == ["tool", "schema", "examples"]
    assert registry().get_tool_schema("tana_nothing") is None


@pytest.mark.requirement("S2-30", "S2-31")
@pytest.mark.parametrize(
    "name", ["tana_search", "TANA_SEARCH", "tana.tana_search", "tana::tana_search", " tana_search "]
)
def test_every_spelling_means_the_same_tool(name: str):
    found = registry().get_tool_schema(name)
    assert found is not None
    assert found["tool"] == "tana_search"
    assert registry().has_tool(name)


@pytest.mark.requirement("S2-9")
def test_a_schema_is_the_one_that_the_function_s_signature_declares_and_that_calls_are_checked_by():
    application = sample_app()
    found = registry(application).get_tool_schema("base_tableList")
    assert found is not None
    (tool,) = [tool for tool in application.gateway.view(AGENT).tools if tool.listed == "base_tableList"]
    assert found["schema"] == tool.input_schema == tool.definition["inputSchema"]
    assert found["schema"]["required"] == ["database_name"]


@pytest.mark.requirement("S2-31", "S2-E7")
def test_there_is_a_tool_or_there_is_none():
    found = registry()
    assert [found.has_tool(name) for name in ("tana_node", "tana_tool_schema", "tana_nod", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert found.has_tools("tana_node")
    assert not found.has_tools("tana_nod")


@pytest.mark.requirement("S2-32", "S2-33")
def test_every_name_is_listed_once_and_has_a_schema():
    found = registry()
    assert sorted(found.list_tool_names()) == sorted(tana_server.NAMES)
    assert all(found.get_tool_schema(name) for name in found.list_tool_names())


@pytest.mark.requirement("S2-33")
def test_a_registry_without_a_prefix_has_no_tools_of_its_own():
    found = create_tool_registry(tana_app().gateway)
    assert set(found.list_tool_names()) == set(tana_server.NAMES) - set(tana_server.OWN)
    assert found.definitions() == []
    assert not found.has_tool("capabilities")


@pytest.mark.requirement("S2-15")
def test_an_example_is_what_the_definition_says_and_is_never_made_up():
    told = {**definition("a"), "_meta": {"example": "Do it. Then rest."}}
    odd = [{**definition(f"b{n}"), "_meta": {"example": value}} for n, value in enumerate((7, ["x"], "", "\ud7ff\x07"))]
    (category,) = registry(make_test_app({"s": [told, *odd]}), prefix=None).get_capabilities()["categories"]
    assert [tool.get("example") for tool in category["tools"]] == ["Do it. Then rest", None, None, None, None]


@pytest.mark.requirement("S2-10", "S2-22", "S2-38", "S2-56", "S2-E4")
def test_a_schema_is_made_once_and_hits_and_misses_are_counted():
    found = registry()
    first = found.get_tool_schema("tana_search")
    assert (found.cache.counts(), len(found.cache)) == ({"schema": (0, 1)}, 1)
    assert found.get_tool_schema("tana.tana_search") == first
    assert (found.cache.counts(), len(found.cache)) == ({"schema": (1, 1)}, 1)
    assert found.get_tool_schema("tana_nothing") is None
    assert len(found.cache) == 1, "nothing is kept of what is not there"
    found.get_capabilities()
    found.seen_by(Caller(name="another")).get_capabilities()
    assert found.cache.counts()["inventory"] == (1, 1), "who sees the same shares the answer"


@pytest.mark.requirement("S2-56")
def test_the_oldest_answers_make_room():
    found = registry(cache=AnswerCache(entries=2))
    for name in ("tana_node", "tana_stats", "tana_node", "tana_sync", "tana_stats"):
        found.get_tool_schema(name)
    assert (found.cache.counts(), len(found.cache)) == ({"schema": (1, 4)}, 2)


def test_registries_that_share_a_cache_share_no_answer():
    application, cache = tana_app(), AnswerCache()
    one, other = (registry(application, prefix=prefix, cache=cache) for prefix in ("a_", "b_"))
    for found in (one, other, one, other):
        assert f"{found.prefix}capabilities" in names_in(found.get_capabilities())
    assert cache.counts()["inventory"] == (2, 2)


@pytest.mark.requirement("S2-44", "S2-57", "S2-E5", "S2-E6")
def test_a_tool_that_changes_is_told_anew_at_once():
    application = tana_app()
    found = registry(application)
    before = found.get_tool_schema("tana_stats")
    offer(application, {**definition("tana_stats", "Count more", days="integer")})
    after = found.get_tool_schema("tana_stats")
    assert after != before
    assert after is not None
    assert list(after["schema"]["properties"]) == ["days"]
    assert len(found.cache) == 1, "what was made of the last edition is gone"
    assert found.get_tool_schema("tana_search") is None
    assert names_in(found.get_capabilities()) == ["tana_stats", *tana_server.OWN]
    assert len(registry(application).cache) == 0, "a new process begins with nothing"


def test_what_a_caller_does_with_an_answer_changes_nobody_else_s():
    found = registry()
    for answer in (found.get_capabilities(), found.get_tool_schema("tana_search") or {}):
        answer.clear()
    assert found.get_capabilities()["version"]
    assert (found.get_tool_schema("tana_search") or {})["tool"] == "tana_search"


@pytest.mark.requirement("S2-14", "S2-21")
async def test_calls_do_not_change_a_byte_and_an_update_of_tiers_may():
    application = tana_app()
    found = registry(application, quick_actions=())
    before = found.capabilities().text
    for _ in range(3):
        await application.gateway.call(AGENT, Call(tool="tana_sync", arguments={}))
    again = registry(application, quick_actions=())
    assert found.capabilities().text == again.capabilities().text == before
    used = standing_of(Usage(calls=1_000, done=1_000, seconds=1.0, latencies={60: 1_000}), 0.0)
    application.gateway.standings.replace_tiers({ToolId("tana", "tana_sync"): used})
    assert found.get_capabilities()["quickActions"][0] == "sync: update the index"


@pytest.mark.requirement("S2-21")
def test_pins_are_the_first_quick_actions_when_the_config_names_none():
    application = tana_app(pins=("tana_node",))
    actions = registry(application, quick_actions=()).get_capabilities()["quickActions"]
    assert actions[0] == "node: show a node with its children"
    assert len(actions) == 3


DETERMINISTIC = """
from tests.surfaces.mcp.test_inventory import registry
print(registry().capabilities().text, registry().capabilities("query").text, registry().schema("tana_create").text)
"""


@pytest.mark.requirement("S2-14")
def test_every_process_gives_the_same_bytes():
    def run(seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", DETERMINISTIC],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    assert run("1") == run("2")


WITHOUT_MCP = """
import sys
from portico.surfaces.capabilities.inventory import create_tool_registry
from portico.testing import definition, make_test_app
registry = create_tool_registry(make_test_app({"hub": [definition("row", "Reads a row", id="integer")]}).gateway)
assert registry.list_tool_names() == ["hub__row"], registry.list_tool_names()
assert registry.get_tool_schema("row")["schema"]["required"] == ["id"]
assert registry.get_capabilities()["categories"][0]["tools"] == [{"name": "hub__row", "description": "Reads a row"}]
print(sorted(name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types", "starlette", "uvicorn")))
"""


@pytest.mark.requirement("S2-12")
def test_the_registry_works_without_mcp():
    done = subprocess.run([sys.executable, "-c", WITHOUT_MCP], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.requirement("S2-4", "S2-43", "S2-53", "S2-54")
@pytest.mark.parametrize("source", ["local", "upstream"])
@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
def test_the_inventory_of_the_preset_costs_less_than_500_tokens(counter: TokenCounter, source: str):
    answer = registry(tana_app(source=source)).capabilities()
    assert "truncated" not in answer.as_data()
    assert counter.count(answer.text) < 500
    assert (answer.shown, answer.total) == (16, 16)


@pytest.mark.requirement("S2-5", "S2-43", "S2-55")
@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
def test_every_schema_of_the_preset_costs_less_than_300_tokens(counter: TokenCounter):
    costs = {name: counter.count(registry().schema(name).text) for name in tana_server.NAMES}
    assert max(costs, key=lambda name: costs[name]) == "tana_create"
    assert costs["tana_create"] < 300
    assert costs["tana_search"] < 150


@pytest.mark.requirement("S2-E3")
def test_a_smaller_budget_costs_examples_then_words_then_lines_then_names():
    found = [registry(budget=budget).get_capabilities() for budget in (500, 400, 350, 250, 120)]
    kinds = [
        {key for category in answer["categories"] for tool in category.get("tools", ()) for key in tool}
        | {key for category in answer["categories"] for key in category}
        for answer in found
    ]
    assert "example" in kinds[0]
    assert "truncated" not in found[0]
    assert "names" in kinds[3]
    assert "count" in kinds[4]
    for answer in found[2:]:
        assert (answer["truncated"], answer["total"]) == (True, 16)
        assert answer["shown"] == len(names_in(answer))
    assert found[4]["next"] == 'tana_capabilities({"category": "query"})'


@pytest.mark.requirement("S2-E3")
def test_examples_give_way_first():
    whole = registry().capabilities()
    less = registry(budget=whole.tokens - 1).get_capabilities()
    assert less["truncated"] is True
    assert less["shown"] == less["total"] == 16
    told = [tool for category in less["categories"] for tool in category["tools"]]
    assert sum("example" in tool for tool in told) < 5
    full = [tool for category in whole.as_data()["categories"] for tool in category["tools"]]
    assert [tool["description"] for tool in told] == [tool["description"] for tool in full]


@pytest.mark.requirement("S2-53", "S2-E3")
def test_538_tools_stay_within_the_budget_and_every_name_can_be_had():
    application = make_test_app(generate(26, 538), index=FakeIndex())
    found = registry(application, prefix="", quick_actions=())
    whole = found.capabilities()
    assert whole.tokens <= 500
    told = whole.as_data()
    assert (told["truncated"], told["total"]) == (True, 538)
    assert told["shown"] == len(names_in(told)) < 538
    assert [category["name"] for category in told["categories"]] == found.categories(), "none is left out"
    assert all(category.get("count") or category.get("names") for category in told["categories"])
    assert told["next"] == f'capabilities({{"category": "{found.categories()[0]}"}})'
    assert sorted(name for category in found.categories() for name in paged(found, category)) == sorted(
        tool.listed for tool in application.gateway.view(AGENT).tools
    )


def paged(found: ToolRegistry, category: str) -> list[str]:
    """The names of a category, page by page, by the calls that the answers give."""
    names: list[str] = []
    cursor = ""
    while True:
        answer = found.capabilities(category, cursor=cursor)
        assert answer.tokens <= found.budget
        names += names_in(answer.as_data())
        asked = next_of(answer.as_data())
        cursor = asked.get("cursor", "")
        if not cursor:
            assert asked == {} or asked.keys() == {"tool"}
            return names
        assert asked["category"] == category


def next_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the next call."""
    call = answer.get("next", "()")
    found: dict[str, Any] = json.loads(call[call.index("(") + 1 : -1] or "{}")
    return found


@pytest.mark.requirement("S2-E3")
@pytest.mark.parametrize("servers", [10, 26, 100])
def test_what_room_there_is_is_used_for_names(servers: int):
    found = registry(make_test_app(generate(servers, 538), index=FakeIndex()), prefix="", quick_actions=())
    answer = found.capabilities()
    assert 400 < answer.tokens <= 500
    assert answer.shown >= 12


@pytest.mark.requirement("S2-E3")
def test_one_enormous_category_names_some_and_leads_to_the_rest():
    tools = [definition(f"tool_{n:03}", "Does one thing. " * 9) for n in range(900)]
    found = registry(make_test_app({"s": tools}, index=FakeIndex()), prefix="", quick_actions=())
    answer = found.get_capabilities()
    (category,) = answer["categories"]
    assert (len(category["names"]), category["count"]) == (24, 900)
    assert (answer["truncated"], answer["shown"], answer["total"]) == (True, 24, 900)
    assert answer["next"] == 'capabilities({"category": "misc"})'
    assert len(paged(found, "misc")) == 900


@pytest.mark.requirement("S2-E3")
def test_very_many_categories_come_page_by_page():
    shelves = {f"s.tool_{n}": f"category_{n:03}" for n in range(300)}
    tools = [definition(f"tool_{n}", "Does one thing") for n in range(300)]
    found = registry(make_test_app({"s": tools}, explicit_categories=shelves, index=FakeIndex()), prefix="")
    names: list[str] = []
    cursor, pages = "", 0
    while cursor or not pages:
        answer = found.get_capabilities(cursor=cursor)
        names += [category["name"] for category in answer["categories"]]
        cursor, pages = next_of(answer).get("cursor", ""), pages + 1
    assert names == sorted(shelves.values())
    assert pages > 1


def test_a_cursor_of_another_list_starts_at_the_beginning_and_says_so():
    found = registry(make_test_app(generate(3, 300), index=FakeIndex()))
    first = found.get_capabilities(found.categories()[0])
    for cursor in ("5:abcdef", "x", "9" * 5_000, first["next"]):
        answer = found.get_capabilities(found.categories()[0], cursor=cursor)
        assert answer["note"] == STRANGE_CURSOR
        assert names_in(answer)[:5] == names_in(first)[:5]


@pytest.mark.requirement("S2-E3")
def test_an_enormous_schema_is_told_in_part_and_says_so():
    fields = {f"property_number_{n}": {"type": "string", "description": "long words " * 3} for n in range(2_500)}
    huge = {"name": "huge", "description": "Does it.", "inputSchema": {"type": "object", "properties": fields}}
    for count in (60, 150, 400, 2_500):
        some = dict(list(fields.items())[:count])
        raw = {**huge, "inputSchema": {"type": "object", "properties": some}}
        answer = registry(make_test_app({"s": [raw]})).schema("huge")
        assert answer.tokens <= 2_000
        assert answer.as_data()["tool"] == "s__huge"
        assert answer.as_data().get("truncated", False) is (count > 60)
    assert answer.as_data()["total"] == 2_500


def test_hidden_tools_are_not_counted_and_have_no_schema():
    spec = ServerSpec(name="hub", transport="stdio", tools=ToolFilter(deny=("secret*",)))
    application = make_test_app(
        {"hub": [definition("secret_row", "Secret."), definition("row")]},
        specs=[spec],
        explicit_categories={"hub.secret_row": "vault"},
    )
    found = registry(application)
    assert found.categories() == ["misc"]
    assert found.list_tool_names() == ["hub__row", *tana_server.OWN]
    assert found.get_tool_schema("hub__secret_row") is None
    with pytest.raises(InvalidArguments, match="no tool stands in 'vault'"):
        found.get_capabilities("vault")


class OwnServer:
    """A policy by which each caller sees the server of its own name."""

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        return {id for id in snapshot.tools if id.server == caller.name}

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        return None


@pytest.mark.requirement("T17")
def test_callers_who_see_other_tools_never_share_an_answer():
    servers = {"ann": [definition("row")], "bob": [definition("row"), definition("row_2")]}
    application = make_test_app(servers, policy=OwnServer())
    found = registry(application, prefix=None)
    ann, bob = found.seen_by(Caller(name="ann")), found.seen_by(Caller(name="bob"))
    for _ in range(2):
        assert names_in(ann.get_capabilities()) == ["ann__row"]
        assert names_in(bob.get_capabilities()) == ["bob__row", "bob__row_2"]
        assert ann.get_tool_schema("bob__row") is None


def test_a_tool_whose_name_the_registry_takes_is_told_under_its_handle():
    application = tana_app(definition("tana_capabilities", "The server's own"), definition("tana_node"))
    found = registry(application)
    assert "tana.tana_capabilities" in found.list_tool_names()
    schemas = [found.get_tool_schema(name) for name in ("tana_capabilities", "tana.tana_capabilities")]
    assert [list((schema or {})["schema"]["properties"]) for schema in schemas] == [["category", "cursor"], []]


TEXTS = st.sampled_from(["", "word " * 40, "😀" * 50, "漢字。" * 30, '"\\"' * 30, "A. B. C.", "x" * 3_000])
NAMES = st.sampled_from(["a", "get_row", "é" * 30, "x" * 500, "a b", '"quoted"', "7", "..", "名前"])


@settings(max_examples=40)
@given(
    names=st.lists(st.tuples(NAMES, st.integers(0, 40)), max_size=40, unique=True),
    texts=st.lists(TEXTS, min_size=1, max_size=3),
    shelves=st.lists(st.sampled_from(["query", "files", "C" * 64, "漢" * 60, "a b", '"']), min_size=1, max_size=6),
    budget=st.integers(100, 900),
)
def test_no_catalogue_makes_an_answer_cost_more_than_it_may(
    names: list[tuple[str, int]], texts: list[str], shelves: list[str], budget: int
):
    tools = [
        {**definition(f"{name}{number}", texts[n % len(texts)]), "_meta": {"example": texts[-1]}}
        for n, (name, number) in enumerate(names)
    ]
    placed = {f"s.{tool['name']}": shelves[n % len(shelves)] for n, tool in enumerate(tools)}
    application = make_test_app({"s": tools}, explicit_categories=placed, index=FakeIndex())
    found = registry(application, budget=budget, quick_actions=texts)
    whole = found.capabilities()
    assert whole.tokens <= budget
    told = whole.as_data()
    assert told.get("shown", whole.total) == len(names_in(told)) == whole.shown
    for category in found.categories():
        assert found.capabilities(category).tokens <= budget
        assert found.get_capabilities(category)["categories"][0]["name"] == category
