"""The walk through the four tiers: what each says, what it costs, and that it never costs more than it may."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import jsonschema_rs
import pytest
from tests.house.source import modules
from tests.hundred_servers import HIGHEST, LOWEST, hundred_servers

from portico.catalog.categories_and_order import Standings
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogPolicy
from portico.config import load_settings
from portico.domain.call import Call, Caller, Invocation, Outcome
from portico.domain.journal_entries import Look
from portico.domain.search_answers import Query, View
from portico.domain.server import Offering, Packaging, ServerLabels, ServerSpec, ToolFilter
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import Standing, Tier, standing_of
from portico.errors import InvalidArguments, NextCall, UnknownFilter, UnknownTool
from portico.rendering.budget import TokenEstimate, equal_share
from portico.rendering.cache import AnswerCache
from portico.storage.memory import MemoryJournal
from portico.testing import AGENT, FakeApplication, FakeIndex, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers
from portico.wiring import build

FIND_SYMBOL: dict[str, Any] = {
    "name": "find_symbol",
    "description": "Find code symbols (classes, functions) by name pattern. Use `depth` to see children too.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name_path_pattern": {"type": "string", "description": "A name or path.", "examples": ["MyClass/run"]},
            "relative_path": {"type": "string", "default": "", "description": "Restricts the search."},
            "kinds": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["class", "function"]}}},
        },
        "required": ["name_path_pattern"],
    },
    "outputSchema": {"type": "object", "description": "list of symbols with locations", "properties": {}},
}
SERVERS = {
    "serena-mcp-server": [
        FIND_SYMBOL,
        definition("find_references", "Find all references to a symbol.", name="string"),
    ],
    "playwright": [definition("browser_snapshot", "Capture accessibility snapshot of web page.")],
    "github": [definition(f"tool_{n:02}", f"Do thing {n}.", owner="string", body="string?") for n in range(45)],
}
SPECS = [
    ServerSpec(name="serena-mcp-server", transport="stdio", labels=ServerLabels(alias="serena")),
    ServerSpec(name="playwright", transport="stdio"),
    ServerSpec(name="github", transport="stdio"),
]


def tiers(
    servers: dict[str, list[dict[str, Any]]] = SERVERS, specs: Sequence[ServerSpec] = SPECS, **parts: Any
) -> tuple[FakeApplication, TierAnswers]:
    application = make_test_app(servers, specs=specs, **parts)
    return application, TierAnswers(gateway=application.gateway, standings=Standings(), cache=AnswerCache())


def called(application: FakeApplication, tool: ToolId, calls: int = 76, done: int = 75, seconds: float = 0.047) -> None:
    """Calls of a tool, as the executor writes them down."""
    for number in range(calls):
        outcome = Outcome.DONE if number < done else Outcome.FAILED
        application.gateway.executor.journal.record(
            Invocation(tool=tool, spelled=tool.name, caller="", surface="", outcome=outcome, seconds=seconds)
        )


def body(view: View) -> dict[str, Any]:
    """The answer, after a look at what it says of itself."""
    found: dict[str, Any] = json.loads(view.body)
    assert found["tokens"] == view.tokens == TokenEstimate().count(view.body.decode())
    return found


def names(view: View) -> list[str]:
    return [entry["tool"] for entry in body(view)["tools"]]


FIND = ToolId("serena-mcp-server", "find_symbol")


@pytest.mark.requirement(
    "S1-10",
    "S1-11",
    "S1-12",
    "S1-13",
    "S1-14",
    "S1-15",
    "S1-16",
    "S1-17",
    "S1-18",
    "S1-20",
    "S1-E7",
    "S1-E8",
    "S1-E21",
)
async def test_the_hot_list_is_as_the_design_shows_it():
    application, tier_answers = tiers()
    called(application, FIND)
    view = await tier_answers.hot(AGENT)
    found = body(view)
    assert list(found)[:2] == ["tier", "tools"]
    assert found["tier"] == "hot"
    assert found["tools"][0] == {
        "tool": "serena::find_symbol",
        "server": "serena-mcp-server",
        "description": "Find code symbols (classes, functions) by name pattern",
        "params": ["name_path_pattern", "relative_path", "kinds"],
        "avg_latency": "47ms",
        "success_rate": "98.7%",
    }
    assert list(found["tools"][0]) == ["tool", "server", "description", "params", "avg_latency", "success_rate"]
    never = next(entry for entry in found["tools"] if entry["server"] == "playwright")
    assert never == {
        "tool": "playwright::browser_snapshot",
        "server": "playwright",
        "description": "Capture accessibility snapshot of web page",
        "params": [],
        "avg_latency": None,
        "success_rate": None,
    }
    assert view.shown[0] == FIND


@pytest.mark.requirement("S1-9", "S1-19", "S1-E10")
async def test_the_hot_list_has_fifteen_tools_before_anything_was_called():
    _, tier_answers = tiers(pins=("github.tool_44",))
    view = await tier_answers.hot(AGENT)
    assert names(view)[:4] == [
        "github::tool_44",
        "serena::find_references",
        "playwright::browser_snapshot",
        "github::tool_00",
    ]
    assert (len(names(view)), view.total) == (15, 48)


@pytest.mark.requirement("S1-4", "S1-9")
async def test_the_hot_list_of_a_hundred_servers_has_fifteen_tools_and_keeps_to_its_tokens():
    _, tier_answers = tiers(hundred_servers(), specs=())
    view = await tier_answers.hot(AGENT)
    assert (len(view.shown), view.truncated) == (15, False)
    assert view.tokens <= 2_000


@pytest.mark.requirement("S1-9")
async def test_a_small_catalog_shows_all_that_it_has():
    _, tier_answers = tiers({"a": [definition("one"), definition("two")]}, specs=())
    assert names(await tier_answers.hot(AGENT)) == ["a::one", "a::two"]


@pytest.mark.requirement("S1-19")
async def test_the_hot_list_follows_what_was_written_down():
    _, tier_answers = tiers()
    tier_answers.standings.replace_tiers({ToolId("github", "tool_30"): Standing(tier=Tier.HOT, score=0.93)})
    assert names(await tier_answers.hot(AGENT))[0] == "github::tool_30"


@pytest.mark.requirement(
    "S1-5",
    "S1-21",
    "S1-22",
    "S1-23",
    "S1-24",
    "S1-25",
    "S1-26",
    "S1-27",
    "S1-28",
    "S1-30",
    "S1-31",
    "S1-E5",
    "S1-E6",
    "S1-E7",
)
async def test_the_overview_has_every_category_also_an_empty_one():
    application, tier_answers = tiers()
    called(application, FIND)
    view = await tier_answers.categories(AGENT)
    found = body(view)
    assert list(found)[:2] == ["tier", "categories"]
    assert found["tier"] == "category_overview"
    assert found["categories"][0] == {
        "category": "code_analysis",
        "display_name": "Code Analysis & Refactoring",
        "description": "Symbols, static analysis, tests and language servers",
        "tool_count": 2,
        "server_count": 1,
        "popular_tools": ["serena::find_symbol", "serena::find_references"],
    }
    counts = {entry["category"]: (entry["tool_count"], entry["server_count"]) for entry in found["categories"]}
    assert counts["source_control"] == (45, 1)
    assert counts["databases"] == (0, 0)
    popular = {entry["category"]: entry["popular_tools"] for entry in found["categories"]}
    assert (popular["source_control"], popular["databases"]) == (["github::tool_00", "github::tool_01"], [])
    assert view.cumulative <= 4_000
    assert (len(counts), "misc" in counts) == (10, False)
    assert not any("tools" in entry for entry in found["categories"])


@pytest.mark.requirement("S1-21", "S1-30", "S1-E6")
async def test_categories_come_from_the_config_the_store_and_the_tools():
    _, tier_answers = tiers(
        {"github": [definition("a")], "odd": [definition("b"), definition("c")], "ends": [definition("d")]},
        specs=(),
        explicit_categories={"odd.b": "seasonal", "nobody.at_all": "empty shelf", "odd.c": "tidy"},
    )
    tier_answers.standings.replace_categories(
        {"tidy": Category(name="tidy", display_name="Tidy!", description="So.", order=1)}
    )
    found = body(await tier_answers.categories(AGENT))["categories"]
    assert found[0]["category"] == "tidy"
    assert [entry["category"] for entry in found][-3:] == ["empty shelf", "seasonal", "misc"]
    assert found[0]["display_name"] == "Tidy!"
    assert found[-2]["display_name"] == "Seasonal"
    assert (found[-1]["tool_count"], found[-3]["tool_count"]) == (1, 0)


@pytest.mark.requirement("S1-29", "S1-39", "S1-E8")
async def test_the_stored_tools_of_a_server_that_is_not_enabled_are_in_no_tier(tmp_path: Path):
    def application(is_enabled: bool) -> TierAnswers:
        config = tmp_path / "portico.yaml"
        server = {"command": "x", "category": "files"}
        servers = {"on": server, "off": {**server, "enabled": is_enabled}}
        config.write_text(json.dumps({"servers": servers}), encoding="utf-8")
        made = build(load_settings(str(config), {"PORTICO_HOME": str(tmp_path)}, tmp_path))
        for name, provider in made.admin.providers.items():
            made.admin.refresher.store.save(Offering(server=name, tools=(definition("t"),)), provider.fingerprint)
        made.admin.refresher.load()
        closing.extend(made.admin.storage.closing)
        return made.tier_answers

    closing: list[Any] = []
    try:
        seen = []
        for tier_answers in (application(is_enabled=True), application(is_enabled=False)):
            counts = {c["category"]: c["tool_count"] for c in body(await tier_answers.categories(AGENT))["categories"]}
            shelf = sorted(names(await tier_answers.category(AGENT, "files")))
            seen.append((sorted(names(await tier_answers.hot(AGENT))), counts["files"], shelf))
        assert seen == [(["off::t", "on::t"], 2, ["off::t", "on::t"]), (["on::t"], 1, ["on::t"])]
        with pytest.raises(UnknownTool):
            await tier_answers.tool(AGENT, "off", "t")
    finally:
        for close in closing:
            close()


@pytest.mark.requirement("S1-E8")
async def test_hidden_tools_are_in_no_tier():
    hidden = [ServerSpec(name="github", transport="stdio", tools=ToolFilter(deny=("*",)))]
    _, tier_answers = tiers(specs=hidden)
    assert not any(name.startswith("github") for name in names(await tier_answers.hot(AGENT)))
    assert {
        entry["category"]: entry["tool_count"] for entry in body(await tier_answers.categories(AGENT))["categories"]
    }["source_control"] == 0
    assert names(await tier_answers.category(AGENT, "source_control")) == []
    with pytest.raises(UnknownTool):
        await tier_answers.tool(AGENT, "github", "tool_01")


@pytest.mark.requirement("S1-32", "S1-33", "S1-34", "S1-35", "S1-36", "S1-37", "S1-38", "S1-63", "S1-E13", "S1-E7")
async def test_the_tools_of_a_category_are_as_the_design_shows_them():
    application, tier_answers = tiers()
    called(application, FIND)
    found = body(await tier_answers.category(AGENT, "code_analysis"))
    assert list(found)[:4] == ["tier", "filter", "tools", "pagination"]
    assert (found["tier"], found["filter"]) == ("tool_summaries", "category=code_analysis")
    assert found["tools"][0] == {
        "tool": "serena::find_symbol",
        "server": "serena-mcp-server",
        "description": "Find code symbols (classes, functions) by name pattern",
        "params": {
            "name_path_pattern": "string (required)",
            "relative_path": "string (optional)",
            "kinds": "object (optional)",
        },
        "returns": "list of symbols with locations",
        "avg_latency": "47ms",
    }
    assert list(found["tools"][0]) == ["tool", "server", "description", "params", "returns", "avg_latency"]
    assert (found["tools"][1]["returns"], found["tools"][1]["avg_latency"]) == (None, None)
    assert found["pagination"] == {"page": 1, "page_size": 20, "total_count": 2, "total_pages": 1}
    assert (found["shown"], found["total"], found["truncated"]) == (2, 2, False)


@pytest.mark.requirement("S1-62", "S1-63", "S1-E13", "S1-E14", "S1-39")
async def test_pages_hold_every_tool_once_best_first():
    _, tier_answers = tiers()
    tier_answers.standings.replace_tiers({ToolId("github", "tool_30"): Standing(tier=Tier.HOT, score=0.93)})
    pages = [await tier_answers.category(AGENT, "source_control", page=page) for page in (1, 2, 3, 4)]
    assert [len(view.shown) for view in pages] == [20, 20, 5, 0]
    every = [name for view in pages for name in names(view)]
    assert every[0] == "github::tool_30"
    assert sorted(every) == every[1:31] + every[:1] + every[31:]
    assert len(set(every)) == 45
    assert [body(view)["pagination"]["total_pages"] for view in pages] == [3] * 4
    path = "/api/v1/tools/category/source_control"
    assert [body(view)["next"] for view in pages] == [
        f"{path}?page=2",
        f"{path}?page=3",
        "/api/v1/tools/{server}/{tool}",
        f"{path}?page=1",
    ]
    large = await tier_answers.category(AGENT, "source_control", page_size=50)
    assert (len(large.shown), large.total) == (45, 45)


@pytest.mark.requirement("S1-E14")
@pytest.mark.parametrize("asked", [{"page": 0}, {"page": -1}, {"page_size": 0}, {"page_size": 51}, {"budget": 49}])
async def test_numbers_that_cannot_be_are_refused(asked: dict[str, int]):
    _, tier_answers = tiers()
    with pytest.raises(InvalidArguments):
        await tier_answers.category(AGENT, "files", **asked)
    with pytest.raises(InvalidArguments):
        await tier_answers.search(AGENT, Query(text="x"), **asked)


async def test_a_category_that_does_not_exist_is_told_with_the_nearest():
    _, tier_answers = tiers()
    with pytest.raises(UnknownFilter, match="nearest first: source_control") as caught:
        await tier_answers.category(AGENT, "source-controll")
    assert caught.value.next_call is not None
    assert caught.value.next_call.parameters == {"query": "", "category": "source_control"}
    assert names(await tier_answers.category(AGENT, "Code_Analysis")) == [
        "serena::find_references",
        "serena::find_symbol",
    ]
    assert names(await tier_answers.category(AGENT, "databases")) == []


async def test_a_category_that_no_other_is_like_is_told_without_guesses():
    _, tier_answers = tiers()
    with pytest.raises(UnknownFilter) as caught:
        await tier_answers.category(AGENT, "§§§§§§")
    assert caught.value.details == ("all of them: /api/v1/tools/categories",)
    assert caught.value.next_call is not None
    assert caught.value.next_call.parameters == {"query": ""}


@pytest.mark.requirement("S1-41", "S1-42", "S1-43", "S1-44", "S1-45", "S1-46", "S1-48")
async def test_one_tool_is_told_with_everything():
    application, tier_answers = tiers()
    called(application, FIND)
    tier_answers.standings.replace_packaging(
        {"serena-mcp-server": Packaging(docker_image="ghcr.io/serena", network_mode="none")}
    )
    found = body(await tier_answers.tool(AGENT, *FIND))
    performance = found["performance"]
    assert (performance.pop("p50_latency_ms"), performance.pop("p95_latency_ms"), performance) == (
        pytest.approx(47, rel=0.06),
        pytest.approx(47, rel=0.06),
        {"avg_latency_ms": 47, "success_rate": 98.7, "total_invocations": 76},
    )
    assert {key: found[key] for key in list(found)[:11] if key != "performance"} == {
        "tier": "full_schema",
        "tool": "serena::find_symbol",
        "server": "serena-mcp-server",
        "description": FIND_SYMBOL["description"],
        "parameters": FIND_SYMBOL["inputSchema"],
        "returns": FIND_SYMBOL["outputSchema"],
        "examples": [
            {
                "query": {"name_path_pattern": "MyClass/run"},
                "description": "The required parameters, with values to be replaced",
            }
        ],
        "server_display_name": "serena-mcp-server",
        "docker_image": "ghcr.io/serena",
        "network_mode": "none",
    }
    assert found["handle"] == "serena.find_symbol"


@pytest.mark.requirement("S1-45")
async def test_examples_of_the_schema_come_before_made_ones():
    told = {**FIND_SYMBOL, "inputSchema": {**FIND_SYMBOL["inputSchema"], "examples": [{"name_path_pattern": "run"}, 7]}}
    _, tier_answers = tiers({"a": [told, definition("bare")]}, specs=())
    given = body(await tier_answers.tool(AGENT, "a", "find_symbol"))["examples"]
    assert given == [{"query": {"name_path_pattern": "run"}, "description": "As the server gives it"}]
    assert body(await tier_answers.tool(AGENT, "a", "bare"))["examples"] == [
        {"query": {}, "description": "Needs no arguments"}
    ]


@pytest.mark.requirement("S1-47", "S1-93")
@pytest.mark.parametrize("server", ["serena-mcp-server", "serena", "SERENA"])
async def test_a_tool_is_found_by_server_and_name(server: str):
    application, tier_answers = tiers()
    view = await tier_answers.tool(AGENT, server, "find_symbol")
    assert view.shown == (FIND,)
    shown = body(view)["tool"]
    assert application.gateway.view(AGENT).find(shown) is not None
    with pytest.raises(UnknownTool, match="find_symbol"):
        await tier_answers.tool(AGENT, "serena", "find_symbl")


@pytest.mark.requirement("S1-47", "S1-E12")
async def test_the_exact_pair_comes_before_every_other_reading():
    _, tier_answers = tiers({"a": [definition("b::c"), definition("x/y")], "a::b": [definition("c")]}, specs=())
    assert (await tier_answers.tool(AGENT, "a", "b::c")).shown == (ToolId("a", "b::c"),)
    assert (await tier_answers.tool(AGENT, "a::b", "c")).shown == (ToolId("a::b", "c"),)
    assert (await tier_answers.tool(AGENT, "a", "x/y")).shown == (ToolId("a", "x/y"),)


@pytest.mark.requirement("S1-47", "S1-13")
async def test_an_alias_that_is_no_identifier_is_shown_as_one_and_understood_as_it_is():
    spec = ServerSpec(name="long-name", transport="stdio", labels=ServerLabels(alias="my-alias"))
    application, tier_answers = tiers({"long-name": [definition("x")]}, specs=[spec])
    for server in ("long-name", "my-alias", "my_alias", "long_name"):
        shown = body(await tier_answers.tool(AGENT, server, "x"))["tool"] if server != "long_name" else "my_alias::x"
        assert shown == "my_alias::x"
    found = application.gateway.view(AGENT).find("my_alias::x")
    assert found is not None
    assert found.id == ToolId("long-name", "x")


@pytest.mark.requirement("S1-92", "S1-94", "S1-34")
async def test_a_search_goes_to_the_summaries_at_once():
    application, tier_answers = tiers()
    called(application, FIND)
    view = await tier_answers.search(AGENT, Query(text="find references to a symbol", max_latency_ms=100))
    found = body(view)
    assert (found["tier"], found["fits"]) == ("tool_summaries", True)
    assert found["filter"] == "max_latency_ms=100&text=find references to a symbol"
    first = found["tools"][0]
    assert first["tool"] == "serena::find_references"
    assert first["score"] == pytest.approx(sum(first["why"].values()), abs=0.001)
    assert found["pagination"]["total_count"] == found["total"] == view.total


@pytest.mark.requirement("S1-92", "S1-32")
async def test_without_words_all_that_pass_the_filters_come_best_first():
    application, tier_answers = tiers()
    called(application, ToolId("github", "tool_20"))
    called(application, ToolId("github", "tool_21"), seconds=0.9)
    view = await tier_answers.search(AGENT, Query(server="github", max_latency_ms=100), page=1, page_size=50)
    assert names(view)[:3] == ["github::tool_20", "github::tool_00", "github::tool_01"]
    assert (view.total, body(view)["filter"]) == (44, "max_latency_ms=100&server=github")
    assert "score" not in body(view)["tools"][0]
    every = await tier_answers.search(AGENT, Query())
    assert (every.total, body(every)["next"]) == (48, "/api/v1/tools/search?page=2")


@pytest.mark.requirement("S1-94")
async def test_a_search_that_nothing_fits_says_so_and_shows_the_nearest():
    index = FakeIndex(scores={f"github.tool_{n:02}": 0.1 for n in range(9)}, fits=False)
    application, tier_answers = tiers(index=index)
    view = await tier_answers.search(AGENT, Query(text="bake a cake"))
    found = body(view)
    assert (found["fits"], found["shown"]) == (False, 3)
    assert found["next"] == "other words for one thing to do, or /api/v1/tools/categories"
    (found,) = cast(MemoryJournal, application.gateway.executor.journal).lookups
    assert (found.look, found.fits, found.text) == (Look.SEARCH, False, "bake a cake")


async def test_a_search_by_a_filter_that_no_tool_has_is_refused():
    _, tier_answers = tiers()
    with pytest.raises(UnknownFilter, match="github"):
        await tier_answers.search(AGENT, Query(server="gitub"))


async def test_long_questions_are_repeated_in_part_only():
    _, tier_answers = tiers()
    found = body(await tier_answers.search(AGENT, Query(text="find symbols " * 200), page_size=1))
    assert len(found["filter"]) < 120
    assert found["next"] == "the same path with ?page=2&page_size=1"


@pytest.mark.requirement("S1-57", "S1-53", "S1-54", "S1-55", "S1-56")
async def test_every_step_says_what_the_walk_has_cost_so_far():
    _, tier_answers = tiers()
    steps = [
        await tier_answers.hot(AGENT),
        await tier_answers.categories(AGENT),
        await tier_answers.category(AGENT, "code_analysis"),
        await tier_answers.tool(AGENT, "serena", "find_symbol"),
    ]
    spent = 0
    for step, limit in zip(steps, (2_000, 4_000, 8_000, 12_000), strict=True):
        spent += step.tokens
        assert step.cumulative == spent
        assert body(step)["budget"] == {"limit": limit, "cumulative": spent, "counter": "estimate"}


@pytest.mark.requirement("S1-57")
async def test_every_look_is_written_to_the_journal_kept_or_not():
    application, tier_answers = tiers()
    caller = Caller(name="ana", surface="rest")
    for _ in range(2):
        await tier_answers.hot(caller)
        await tier_answers.categories(caller)
        await tier_answers.category(caller, "source_control")
        await tier_answers.tool(caller, "github", "tool_01")
    found = list(cast(MemoryJournal, application.gateway.executor.journal).lookups)
    assert [(entry.look, entry.shown, entry.found) for entry in found[:4]] == [
        (Look.BROWSE, 15, 48),
        (Look.BROWSE, 0, 10),
        (Look.BROWSE, 20, 45),
        (Look.DESCRIBE, 1, 1),
    ]
    assert [(entry.look, entry.text, entry.tokens) for entry in found[4:]] == [
        (entry.look, entry.text, entry.tokens) for entry in found[:4]
    ]
    assert {(entry.caller, entry.surface) for entry in found} == {("ana", "rest")}


async def test_only_a_search_with_words_gives_tools_a_place():
    application, tier_answers = tiers()
    search_rank, shown = application.gateway.executor.search_rank, ToolId("github", "tool_02")
    await tier_answers.category(AGENT, "source_control")
    await tier_answers.search(AGENT, Query(server="github"))
    assert search_rank.take(AGENT, shown).place == 0
    found = await tier_answers.search(AGENT, Query(text="find a symbol"), page=2, page_size=1)
    assert search_rank.take(AGENT, found.shown[0]).place == 2


@pytest.mark.requirement("S1-89")
async def test_answers_are_kept_until_something_in_them_changes():
    application, tier_answers = tiers()

    async def ask() -> None:
        await tier_answers.hot(AGENT)
        await tier_answers.categories(AGENT)
        await tier_answers.category(AGENT, "source_control")
        await tier_answers.tool(AGENT, "github", "tool_01")

    for _ in range(10):
        await ask()
    assert tier_answers.cache.counts() == {"hot": (9, 1), "categories": (9, 1), "category": (9, 1), "tool": (9, 1)}
    called(application, ToolId("github", "tool_01"), calls=1)
    assert body(await tier_answers.tool(AGENT, "github", "tool_01"))["performance"]["total_invocations"] == 1
    assert tier_answers.cache.counts()["tool"] == (9, 2)


@pytest.mark.requirement("S1-E2")
async def test_a_new_snapshot_and_new_standings_are_seen_at_once():
    application, tier_answers = tiers()
    await tier_answers.hot(AGENT)
    tier_answers.standings.replace_tiers({ToolId("github", "tool_40"): Standing(tier=Tier.HOT, score=0.99)})
    assert names(await tier_answers.hot(AGENT))[0] == "github::tool_40"
    application.gateway.publisher.withdraw("github")
    assert names(await tier_answers.hot(AGENT))[0] == "serena::find_references"
    assert application.gateway.snapshot.number == 2


@pytest.mark.requirement("T17")
async def test_callers_who_see_different_tools_are_given_different_answers():
    class Choosy(CatalogPolicy):
        def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> frozenset[ToolId]:
            return frozenset(id for id in snapshot.tools if caller.name == "all" or id.server == caller.name)

    _, tier_answers = tiers(policy=Choosy())
    every = await tier_answers.hot(Caller(name="all"))
    some = await tier_answers.hot(Caller(name="playwright"))
    assert (len(every.shown), names(some)) == (15, ["playwright::browser_snapshot"])
    assert names(await tier_answers.hot(Caller(name="all"))) == names(every)


@pytest.mark.requirement("S1-9", "S1-19", "S1-39", "S1-28")
async def test_what_is_used_is_seen_first_also_on_the_day_of_the_first_start():
    application, tier_answers = tiers()
    unused = standing_of(None, 0.0)
    tier_answers.standings.replace_tiers(dict.fromkeys(application.gateway.snapshot.tools, unused))
    for ask in (tier_answers.hot, tier_answers.categories):
        await ask(AGENT)
    await tier_answers.category(AGENT, "source_control")
    called(application, ToolId("github", "tool_33"), calls=1, done=1)
    first = body(await tier_answers.hot(AGENT))["tools"][0]
    assert (first["tool"], first["avg_latency"], first["success_rate"]) == ("github::tool_33", "47ms", "100.0%")
    lines = {line["category"]: line for line in body(await tier_answers.categories(AGENT))["categories"]}
    assert lines["source_control"]["popular_tools"] == ["github::tool_33", "github::tool_00"]
    shelf = body(await tier_answers.category(AGENT, "source_control"))["tools"]
    assert (shelf[0]["tool"], shelf[0]["avg_latency"]) == ("github::tool_33", "47ms")
    assert application.gateway.hot(AGENT)[0].id == ToolId("github", "tool_33")


@pytest.mark.requirement("S1-83", "S1-E17")
async def test_what_has_no_pages_is_not_asked_for_by_pages():
    _, tier_answers = tiers()
    for view in (await tier_answers.hot(AGENT, budget=120), await tier_answers.categories(AGENT, budget=120)):
        says = body(view)["warning"]
        assert says.startswith("Token budget exhausted at ")
        assert says.endswith(". Use a larger budget.")


async def test_an_empty_category_leads_back_to_the_others():
    _, tier_answers = tiers()
    assert body(await tier_answers.category(AGENT, "databases"))["next"] == "/api/v1/tools/categories"
    assert body(await tier_answers.as_resources().category(AGENT, "databases"))["next"] == "catalog://categories"


@pytest.mark.requirement("S1-82", "S1-83", "S1-E18")
async def test_tools_are_loaded_until_the_budget_is_spent():
    _, tier_answers = tiers()
    whole = await tier_answers.load_tools_with_budget(AGENT, "source_control")
    assert (len(whole.shown), whole.truncated) == (45, False)
    some = await tier_answers.load_tools_with_budget(AGENT, "source_control", max_tokens=300)
    found = body(some)
    assert 1 <= len(some.shown) < 45
    assert found["warning"] == (
        f"Token budget exhausted at {len(some.shown)}/45 tools. Use pagination or narrower search."
    )
    assert (found["shown"], found["total"], found["truncated"]) == (len(some.shown), 45, True)
    enough = int(found["next"].rpartition("budget=")[2])
    again = await tier_answers.category(AGENT, "source_control", page_size=50, budget=enough)
    assert (len(again.shown), again.truncated) == (45, False)
    one = await tier_answers.load_tools_with_budget(AGENT, "source_control", max_tokens=50)
    assert len(one.shown) >= 1


@pytest.mark.requirement(
    "S1-1",
    "S1-3",
    "S1-6",
    "S1-7",
    "S1-8",
    "S1-75",
    "S1-76",
    "S1-77",
    "S1-78",
    "S1-79",
    "S1-81",
    "S1-95",
    "S1-E15",
    "S1-E17",
)
async def test_a_hundred_servers_cost_a_twelfth(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    _, tier_answers = tiers(hundred_servers(), specs=())
    every = sum(
        tier_answers.estimate_tokens(json.dumps(d, separators=(",", ":")))
        for tools in hundred_servers().values()
        for d in tools
    )
    assert LOWEST <= every <= HIGHEST
    report = await tier_answers.verify_tier_budget(AGENT)
    assert (report.ok, report.failures, report.counter) == (True, (), "estimate")
    assert len(report.tools) == 10
    concluded = zip(report.rows, (1_500, 3_000, 6_000, 10_000), strict=True)
    assert [row for row, most in concluded if row.cumulative > most] == []
    assert report.rows[-1].cumulative <= 0.08 * every
    assert str(report) in caplog.messages
    answers = [
        await tier_answers.hot(AGENT),
        await tier_answers.categories(AGENT),
        await tier_answers.category(AGENT, report.category),
    ]
    schemas = [await tier_answers.tool(AGENT, *id) for id in report.tools]
    assert [row.tokens for row in report.rows] == [*(a.tokens for a in answers), sum(s.tokens for s in schemas)]
    assert not any(view.truncated for view in (*answers, *schemas))
    fifty = await tier_answers.category(AGENT, report.category, page_size=50)
    assert (30 <= len(fifty.shown) <= 50, fifty.truncated) == (True, False)
    assert fifty.cumulative <= 8_000


@pytest.mark.requirement("S1-2")
async def test_every_tool_of_a_hundred_servers_is_still_found_for_a_twelfth():
    application, tier_answers = tiers(hundred_servers(), specs=())
    tools = application.gateway.snapshot.tools
    report = await tier_answers.verify(AGENT)
    listed = sum(
        tier_answers.estimate_tokens(json.dumps(tool.definition, separators=(",", ":"))) for tool in tools.values()
    )
    assert report.rows[-1].cumulative <= 0.08 * listed
    overview = body(await tier_answers.categories(AGENT))
    assert not overview["truncated"]
    on_pages: list[ToolId] = []
    for line in overview["categories"]:
        for page in range(1, 2 + line["tool_count"] // 50):
            on_pages += (await tier_answers.category(AGENT, line["category"], page=page, page_size=50)).shown
    assert sorted(on_pages) == sorted(tools)
    missed = [
        t.id
        for t in tools.values()
        if application.gateway.search(AGENT, Query(text=t.handle)).cards[0].handle != t.handle
    ]
    assert missed == []


@pytest.mark.requirement("S1-E20", "T28")
async def test_what_servers_write_is_sent_letter_by_letter():
    says = "Sort 📁 folders → newest first, naïvely."
    field = {"type": "string", "description": "📁 → é", "enum": ["→", "📁"]}
    _, tier_answers = tiers({"a": [definition("sort", says, größe=field)]}, specs=())
    told = await tier_answers.tool(AGENT, "a", "sort")
    assert says.encode() in told.body
    assert json.dumps(field, ensure_ascii=False, separators=(",", ":")).encode() in told.body
    for view in (await tier_answers.hot(AGENT), await tier_answers.category(AGENT, "misc")):
        assert says.removesuffix(".").encode() in view.body
        assert '"größe"'.encode() in view.body


@pytest.mark.requirement("S1-E20")
def test_no_text_of_ours_was_decoded_twice():
    def is_broken(letters: str) -> bool:
        for encoding in ("cp1252", "latin-1"):
            try:
                return bool(letters.encode(encoding).decode())
            except UnicodeError:
                continue
        return False

    broken = ["→".encode().decode("cp1252"), "📁".encode().decode("cp1252", "ignore"), "é".encode().decode("latin-1")]
    assert (is_broken(broken[0]), is_broken(broken[2]), is_broken("→…📁é")) == (True, True, False)
    for module in modules():
        assert not [part for part in broken if part in module.text], module.name
        assert not [run for run in re.findall(r"[^\x00-\x7f]+", module.text) if is_broken(run)], module.name


@pytest.mark.requirement("S1-78", "S1-79")
async def test_the_largest_category_and_tools_are_found():
    heavy = definition("heavy", "Word. " * 300, **{f"parameter_{n}": "string" for n in range(90)})
    _, tier_answers = tiers({**SERVERS, "postgres": [heavy, *(definition(f"q{n}") for n in range(10))]}, specs=())
    largest = await tier_answers.get_largest_tools(AGENT)
    assert (len(largest), largest[0].id) == (10, ToolId("postgres", "heavy"))
    assert await tier_answers.get_largest_category(AGENT) == "databases"
    assert await tiers()[1].get_largest_category(AGENT) == "source_control"
    assert await TierAnswers(gateway=make_test_app({}).gateway).get_largest_category(AGENT) == ""


@pytest.mark.requirement("S1-78")
async def test_of_very_many_categories_the_most_expensive_one_is_found():
    cheap = {f"s{s}": [definition(f"tool_{n}", "Does it.") for n in range(6)] for s in range(60)}
    fields = {f"field_{number}": "string" for number in range(30)}
    servers = {**cheap, "wide": [definition(f"wide_{n}", "Does a great deal. " * 9, **fields) for n in range(2)]}
    specs = [
        ServerSpec(name=name, transport="stdio", labels=ServerLabels(category=f"shelf {name}")) for name in servers
    ]
    _, tier_answers = tiers(servers, specs=specs, index=FakeIndex())
    counts = {
        c["category"]: c["tool_count"] for c in body(await tier_answers.categories(AGENT, budget=9_000))["categories"]
    }
    assert (counts["shelf wide"], counts["shelf s7"]) == (2, 6)
    assert await tier_answers.get_largest_category(AGENT) == "shelf wide"
    report = await tier_answers.verify(AGENT)
    assert (report.ok, report.category) == (True, "shelf wide")


@pytest.mark.requirement("S1-36", "S1-E17", "S1-E18")
async def test_the_parameters_of_a_summary_are_an_object_in_every_budget():
    fields = {f"parameter_{n}": "string?" for n in range(60)}
    says = (
        "Does it. Returns what was done, by whom it was done and when it was done, in the order in which it was done."
    )
    _, tier_answers = tiers({"a": [definition("wide", says, key="string", **fields)]}, specs=())
    seen = set()
    for budget in range(50, 1_200, 10):
        (line,) = body(await tier_answers.category(AGENT, "misc", budget=budget))["tools"]
        assert isinstance(line.get("params", {}), dict)
        seen.add((line.get("params", {}).get("key"), tuple(line.get("param_names", ()))[:1], "returns" in line))
    assert seen == {
        ("string (required)", (), True),
        ("string (required)", (), False),
        ("required", (), False),
        (None, ("key",), False),
        (None, (), False),
    }


@pytest.mark.requirement("S1-43", "S1-E17")
async def test_a_schema_that_has_no_room_is_told_as_a_smaller_one_with_what_is_required():
    fields = {f"optional_{n:03}": {"type": "string", "description": "words " * 30} for n in range(60)}
    kind = {"type": "string", "enum": ["bug", "task"]}
    raw = {
        "name": "create",
        "description": "Create it.",
        "inputSchema": {
            "type": "object",
            "properties": {**fields, "title": {"type": "string"}, "kind": {"$ref": "#/$defs/kind"}},
            "required": ["title", "kind"],
            "$defs": {"kind": kind},
        },
    }
    application, tier_answers = tiers({"a": [raw]}, specs=())
    whole = application.gateway.snapshot.tools[ToolId("a", "create")].input_schema
    seen = set()
    for budget in range(150, 1_000, 20):
        found = body(await tier_answers.tool(AGENT, "a", "create", budget=budget))
        if "parameters" not in found:
            assert "params" not in found
            continue
        told = found["parameters"]
        assert jsonschema_rs.validator_for(told).is_valid({"title": "x", "kind": "bug"})
        assert (told["required"], told["properties"]["title"]["type"]) == (["title", "kind"], "string")
        assert found.get("parameter_count", 62) == 62
        assert set(told["properties"]) <= set(whole["properties"])
        seen.add((len(told["properties"]), told["properties"]["kind"].get("enum", ("ref",))[0]))
    assert seen >= {(62, "bug"), (40, "bug"), (2, "bug")}


@pytest.mark.requirement("S1-E17", "S1-7")
async def test_what_a_huge_schema_leaves_of_its_share_is_given_to_the_others():
    huge = definition("huge", "Does all. " * 90, **{f"a_long_parameter_{n}": "string?" for n in range(900)})
    fields = {f"parameter_{n}": {"type": "string", "description": "what it is for " * 4} for n in range(43)}
    issues = [definition(f"create_issue_{n}", "Creates an issue.", **fields) for n in range(4)]
    _, tier_answers = tiers({"tracker": [huge, *issues], "other": [definition(f"t{n}") for n in range(30)]}, specs=())
    report = await tier_answers.verify(AGENT)
    assert report.ok
    assert (await tier_answers.tool(AGENT, "tracker", "huge")).truncated
    sizes = [await tier_answers.tool(AGENT, "tracker", f"create_issue_{n}") for n in range(4)]
    whole = await tier_answers.tool(AGENT, "tracker", "create_issue_1", budget=9_000)
    assert (whole.truncated, [view.truncated for view in sizes]) == (False, [False] * 4)
    level = equal_share([20_000, *[whole.tokens] * 4, *[150] * 5], 12_000 - report.rows[2].cumulative - 200)
    assert level < whole.tokens, "each had to be shortened if the huge one took its whole share"


@pytest.mark.requirement("S1-E17", "S1-7")
async def test_a_schema_that_is_too_large_is_shortened_and_says_how_to_get_it_whole():
    fields = {f"parameter_{n}": {"type": "string", "description": "what it is for " * 20} for n in range(30)}
    tools = [definition(f"wide_{n}", "Does it. " * 100, **fields) for n in range(12)]
    application, tier_answers = tiers({"a": tools}, specs=())
    view = await tier_answers.tool(AGENT, "a", "wide_3")
    found = body(view)
    assert (view.truncated, "examples" in found) == (True, False)
    assert set(found["parameters"]["properties"]) == set(fields)
    assert found["parameters"]["required"] == list(fields)
    assert found["next"].startswith("/api/v1/tools/a/wide_3?budget=")
    whole = await tier_answers.tool(AGENT, "a", "wide_3", budget=int(found["next"].rpartition("=")[2]))
    assert not whole.truncated
    assert body(whole)["parameters"] == application.gateway.snapshot.tools[ToolId("a", "wide_3")].input_schema
    assert (await tier_answers.verify(AGENT)).ok


async def test_an_empty_application_answers_every_tier():
    _, tier_answers = tiers({}, specs=())
    assert names(await tier_answers.hot(AGENT)) == []
    assert len(body(await tier_answers.categories(AGENT))["categories"]) == 10
    assert names(await tier_answers.category(AGENT, "misc")) == []
    assert body(await tier_answers.search(AGENT, Query(text="anything")))["fits"] is False
    assert (await tier_answers.verify(AGENT)).ok


async def test_a_snapshot_that_is_published_meanwhile_does_not_disturb_an_answer():
    def offering(server: str) -> Offering:
        return Offering(server=server, tools=(definition("t", "word " * 500, x="string"),))

    application, tier_answers = tiers({"a": [definition("t")]}, specs=(), pins=("b.t", "c.t"))
    answers: list[list[str]] = []
    reported: list[ToolId] = []

    async def ask() -> None:
        answers.append(names(await tier_answers.hot(AGENT)))

    async def verify() -> None:
        reported.extend((await tier_answers.verify(AGENT)).tools)

    async def publish(server: str) -> None:
        application.gateway.publisher.accept([(offering(server), "upstream")])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(publish, "b")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verify)
            tasks.start_soon(publish, "c")
    assert answers == [["a::t"]]
    assert sorted(reported) == [ToolId("a", "t"), ToolId("b", "t")]
    assert names(await tier_answers.hot(AGENT)) == ["b::t", "c::t", "a::t"]


async def test_what_comes_next_is_spelled_as_the_caller_asks_and_costs_what_it_says():
    _, tier_answers = tiers()
    views = [
        (await each.hot(AGENT), await each.categories(AGENT), await each.category(AGENT, "source_control"))
        for each in (tier_answers, tier_answers.as_resources(), tier_answers)
    ]
    assert [body(view)["next"] for view in views[1]] == [
        "catalog://categories",
        "catalog://category/{name}",
        "catalog://category/source_control?page=2",
    ]
    assert views[0] == views[2]
    assert body(views[0][2])["next"] == "/api/v1/tools/category/source_control?page=2"


async def test_a_quiet_walk_leaves_no_trace():
    application, tier_answers = tiers()
    quiet = tier_answers.as_resources(is_quiet=True)
    await quiet.hot(AGENT)
    await quiet.category(AGENT, "source_control")
    await quiet.tool(AGENT, *FIND)
    assert list(cast(MemoryJournal, application.gateway.executor.journal).lookups) == []
    assert tier_answers.cache.counts() == {}
    assert application.gateway.executor.search_rank.take(AGENT, ToolId("github", "tool_02")).place == 0


@pytest.mark.requirement("S1-E12")
async def test_a_server_that_is_called_like_a_path_goes_by_its_identifier():
    wide = definition("change_case", "Change the case. " * 40, **{f"parameter_{n}": "string" for n in range(90)})
    _, tier_answers = tiers({"category": [wide]}, specs=())
    short = body(await tier_answers.tool(AGENT, "_category", "change_case", budget=200))
    assert short["next"].startswith("/api/v1/tools/_category/change_case?budget=")
    as_resource = body(await tier_answers.as_resources().tool(AGENT, "category", "change_case", budget=200))
    assert as_resource["next"].startswith("catalog://tool/category/change_case?budget=")
    with pytest.raises(UnknownFilter, match="/api/v1/tools/_category/change_case") as caught:
        await tier_answers.category(AGENT, "change_case")
    assert caught.value.next_call == NextCall("describe", {"names": ["_category.change_case"]})
    with pytest.raises(UnknownFilter) as elsewhere:
        await tier_answers.as_resources().category(AGENT, "change_case")
    assert "/api/v1" not in str(elsewhere.value)


@pytest.mark.requirement("S1-E12")
async def test_an_alias_that_is_like_a_path_leads_to_the_server():
    spec = ServerSpec(name="letters", transport="stdio", labels=ServerLabels(alias="category"))
    _, tier_answers = tiers({"letters": [definition("change_case")]}, specs=[spec])
    with pytest.raises(UnknownFilter, match="/api/v1/tools/letters/change_case"):
        await tier_answers.category(AGENT, "change_case")


@pytest.mark.requirement("S1-E17")
async def test_a_huge_tool_is_told_with_as_many_types_as_have_room():
    huge = definition("huge", "Does all.", **{f"a_long_parameter_{n}": "string" for n in range(3_000)})
    _, tier_answers = tiers({"a": [huge]}, specs=())
    found = body(await tier_answers.tool(AGENT, "a", "huge"))
    assert len(found["parameters"]["properties"]) >= 250
    assert found["parameter_count"] == 3_000
    view = await tier_answers.tool(AGENT, "a", "huge", budget=1_000)
    assert view.tokens <= 1_000
    assert len(body(view)["parameters"]["properties"]) >= 20
    assert (await tier_answers.verify(AGENT)).ok


async def test_what_a_tool_was_seen_to_return_is_told_in_both_tiers():
    application, tier_answers = tiers({"a": [definition("weather", "Tells the weather.", city="string")]}, specs=())
    assert body(await tier_answers.tool(AGENT, "a", "weather"))["returns"] is None
    application.provider("a").returns("weather", {"content": [], "structuredContent": {"degrees": 5, "wind": "calm"}})
    await application.gateway.call(AGENT, Call(tool="a.weather", arguments={"city": "Oslo"}))
    told = body(await tier_answers.tool(AGENT, "a", "weather"))["returns"]
    assert set(told["properties"]) == {"degrees", "wind"}
    (listed,) = body(await tier_answers.category(AGENT, "misc"))["tools"]
    assert listed["returns"] == "{degrees: integer, wind: string}"
    assert (await tier_answers.verify(AGENT)).ok


async def test_the_report_of_budgets_spells_tools_with_the_alias_of_their_server():
    spec = ServerSpec(name="long-server-name", transport="stdio", command="x", labels=ServerLabels(alias="short"))
    _, tier_answers = tiers({"long-server-name": [definition("weather")]}, specs=(spec,))
    assert (await tier_answers.verify(AGENT)).as_data()["tools"] == ["short::weather"]
