"""The budgets of the walk hold for any catalogue, however hostile."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.search_answers import Query, View
from portico.testing import AGENT, FakeIndex, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers

LETTERS = st.sampled_from(["a", "Zz", "_", "-", "😀", "漢", "é", "7", "/", "::", ".", '"', "\\", "{", " x"])
NAMES = st.builds(lambda letter, times: (letter * times)[:512].strip() or "n", LETTERS, st.integers(1, 512))
TEXTS = st.builds(
    lambda word, times: (word * times)[:8_000],
    st.sampled_from(["word ", "😀", "漢字", "1,", '"\\"', ". A"]),
    st.integers(0, 8_000),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=10,
)
FIELDS = st.sampled_from(["string", "integer", "object", ["string", "null"], None, 7]).map(lambda kind: {"type": kind})


@st.composite
def definitions(draw: st.DrawFn, name: str) -> dict[str, Any]:
    count = draw(st.sampled_from([0, 1, 3, 12, 400]))
    stem, text = draw(NAMES)[:20], draw(TEXTS)[: 40 if count > 20 else 2_000]
    kinds = [draw(FIELDS) for _ in range(min(count, 4))]
    fields = {f"{stem}{number}": {**kinds[number % 4], "description": text} for number in range(count)}
    schema = {"type": "object", "properties": fields, "required": list(fields)[: draw(st.integers(0, 12))]}
    extra = draw(st.dictionaries(st.sampled_from(["examples", "default", "$defs", "title"]), VALUES, max_size=2))
    found = {"name": name, "description": draw(TEXTS), "inputSchema": {**schema, **extra}}
    if draw(st.booleans()):
        found["outputSchema"] = {"type": "object", "description": draw(TEXTS)[:1_000], "properties": fields}
    return found


@st.composite
def catalogues(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    servers = draw(st.lists(NAMES, max_size=3, unique=True))
    return {
        server: [draw(definitions(name)) for name in draw(st.lists(NAMES, max_size=11, unique=True))]
        for server in servers
    }


def fits(tier_answers: TierAnswers, view: View, tokens: int) -> None:
    found = json.loads(view.body)
    assert found["tokens"] == view.tokens == tier_answers.estimate_tokens(view.body.decode()) <= tokens


async def check_tiers(tier_answers: TierAnswers, budget: int) -> None:
    """Every tier as it is served, and every tier within a budget."""
    hot = await tier_answers.hot(AGENT)
    fits(tier_answers, hot, 2_000)
    categories = await tier_answers.categories(AGENT)
    fits(tier_answers, categories, 4_000 - hot.tokens)
    left = 8_000 - hot.tokens - categories.tokens
    tools = list(tier_answers.gateway.snapshot.tools.values())
    for category in {tool.category for tool in tools}:
        summaries = await tier_answers.category(AGENT, category)
        fits(tier_answers, summaries, left)
        assert summaries.shown
        fits(tier_answers, await tier_answers.category(AGENT, category, page_size=50), left)
    largest = await tier_answers.get_largest_category(AGENT)
    first = (await tier_answers.category(AGENT, largest)).tokens if largest else 0
    schemas = sorted([(await tier_answers.tool(AGENT, *tool.id)).tokens for tool in tools], reverse=True)
    assert hot.tokens + categories.tokens + first + sum(schemas[:10]) <= 12_000
    assert (await tier_answers.verify(AGENT)).ok
    assert bool(hot.shown) is bool(tools)
    for tool in tools[:3]:
        fits(tier_answers, await tier_answers.tool(AGENT, *tool.id, budget=budget), budget)
        fits(tier_answers, await tier_answers.category(AGENT, tool.category, budget=budget), budget)
        query = Query(text=tool.description, server=tool.id.server)
        fits(tier_answers, await tier_answers.search(AGENT, query, budget=budget), budget)
    fits(tier_answers, await tier_answers.hot(AGENT, budget=budget), budget)
    fits(tier_answers, await tier_answers.categories(AGENT, budget=budget), budget)


@pytest.mark.requirement("S1-8", "S1-E16", "S1-E17", "S1-E18", "S1-76", "S1-77", "S1-78", "S1-79")
@settings(max_examples=12)
@given(catalogues(), st.integers(50, 3_000))
def test_no_catalogue_makes_a_tier_cost_more_than_it_may(servers: dict[str, list[dict[str, Any]]], budget: int):
    anyio.run(check_tiers, TierAnswers(gateway=make_test_app(servers).gateway), budget)


@pytest.mark.requirement("S1-8", "S1-E17", "S1-E18")
async def test_ten_thousand_tools_in_three_thousand_categories_keep_to_the_budgets():
    application = make_test_app(
        {f"s{s}": [definition(f"tool_{n}", "word " * 1_600, a="string") for n in range(100)] for s in range(100)},
        index=FakeIndex(),  # what is measured here is no search
        explicit_categories={f"s{s}.tool_{n}": f"category {s} {n}" for s in range(100) for n in range(30)},
    )
    tier_answers = TierAnswers(gateway=application.gateway)
    report = await tier_answers.verify(AGENT)
    assert report.ok
    overview = json.loads((await tier_answers.categories(AGENT)).body)
    assert (overview["truncated"], overview["total"]) == (True, 3_011)
    assert overview["shown"] == len(overview["categories"]) > 100
    assert overview["next"].startswith("/api/v1/tools/categories?budget=")


@pytest.mark.requirement("S1-E17", "S1-E18")
async def test_a_schema_of_two_hundred_thousand_letters_is_told_in_part():
    fields = {f"property_number_{n}": {"type": "string", "description": "long words " * 3} for n in range(2_500)}
    raw = {"name": "huge", "description": "Does it. " * 800, "inputSchema": {"type": "object", "properties": fields}}
    tier_answers = TierAnswers(gateway=make_test_app({"a": [raw, definition("small", "Small.", x="string")]}).gateway)
    found = json.loads((await tier_answers.tool(AGENT, "a", "huge")).body)
    assert (found["truncated"], found["parameter_count"]) == (True, 2_500)
    assert len(found["parameters"]["properties"]) == 40
    small = json.loads((await tier_answers.tool(AGENT, "a", "small")).body)
    assert (small["truncated"], list(small["parameters"]["properties"])) == (False, ["x"])
    shelf = json.loads((await tier_answers.category(AGENT, "misc")).body)
    assert shelf["tools"][1]["params"] == {"x": "string (required)"}
    assert (await tier_answers.verify(AGENT)).ok
