"""The order of tools: by what was written down, or else by usage; the hot list is filled by rank."""

from __future__ import annotations

import pytest

from portico.catalog.categories_and_order import FEW_CALLED, FirstCalls, Order, Standings
from portico.domain.server import Packaging
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage_and_tiers import Standing, Tier, Usage, standing_of
from portico.testing import definition, make_test_app

TOOLS = make_test_app(
    {
        "b": [definition(f"t{number:02}") for number in range(10)],
        "a": [definition(f"t{number:02}") for number in range(10)],
    }
).gateway.snapshot.tools


def at(server: str, number: int) -> Tool:
    return TOOLS[ToolId(server, f"t{number:02}")]


def stands(score: float) -> Standing:
    return Standing(tier=Tier.WARM, score=score)


def order(tiers: dict[ToolId, float] | None = None, usage: dict[ToolId, Usage] | None = None) -> Order:
    return Order(tiers={id: stands(score) for id, score in (tiers or {}).items()}, usage=usage or {}, now=0.0)


def test_what_is_replaced_is_another_revision():
    standings = Standings()
    standings.replace_tiers({at("a", 1).id: stands(0.9)})
    standings.replace_categories({"x": Category(name="x")})
    standings.replace_packaging({"a": Packaging(docker_image="image")})
    assert standings.revision == 3
    assert (list(standings.tiers), list(standings.categories), list(standings.packaging)) == (
        [at("a", 1).id],
        ["x"],
        ["a"],
    )


def test_what_is_replaced_by_the_same_is_no_news():
    standings, told = Standings(), []
    standings.subscribe(lambda: told.append(standings.revision))
    for _ in range(3):
        standings.replace_tiers({at("a", 1).id: stands(0.9)})
        standings.replace_categories({"x": Category(name="x")})
        standings.replace_packaging({"a": Packaging(docker_image="image")})
    assert (standings.revision, told) == (3, [1, 2, 3])


@pytest.mark.requirement("S1-21")
def test_categories_are_known_as_written_down_then_as_shipped_then_by_name():
    shipped = {"files": Category(name="files", order=1), "web": Category(name="web", order=2)}
    standings = Standings()
    assert standings.known(shipped, ["web", "own"]) == {**shipped, "own": Category(name="own")}
    assert standings.known(shipped) == shipped
    written = {"files": Category(name="files", display_name="Mine"), "other": Category(name="other")}
    standings.replace_categories(written)
    assert standings.known(shipped, ["files"]) == {**shipped, **written}
    assert standings.known({}) == written


@pytest.mark.requirement("S1-9", "S1-19", "S1-E10")
def test_the_hot_list_is_full_before_the_first_call():
    hottest = order().hottest(TOOLS.values(), [], ["b", "a"], 15)
    in_turns = [f"{server}::t{n:02}" for n in range(10) for server in "ba"]
    assert [str(tool.id) for tool in hottest] == in_turns[:15]


@pytest.mark.requirement("S1-9", "S1-19", "S1-E10")
def test_pins_come_first_then_scores_then_the_order_of_the_config():
    found = order({at("a", 7).id: 0.5, at("a", 8).id: 0.9}).hottest(
        TOOLS.values(), [at("a", 9), at("b", 9), at("a", 9)], ["a", "b"], 6
    )
    assert [str(tool.id) for tool in found] == ["a::t09", "b::t09", "a::t08", "a::t07", "a::t00", "a::t01"]


@pytest.mark.requirement("S1-E10")
def test_there_are_never_more_than_the_limit():
    assert len(order().hottest(TOOLS.values(), list(TOOLS.values()), [], 15)) == 15


@pytest.mark.requirement("S1-39", "S1-E10")
def test_a_tool_without_a_standing_counts_by_its_usage():
    good = Usage(calls=9_000, done=9_000, seconds=90)
    poor = Usage(calls=9, done=0, seconds=90)
    found = order({at("a", 1).id: 0.5}, {at("a", 2).id: good, at("a", 1).id: good, at("a", 3).id: poor})
    best = found.best_first([at("a", n) for n in range(4)])
    assert [tool.id.name for tool in best] == ["t02", "t01", "t00", "t03"]
    assert found.standing(at("a", 2).id) == Standing(tier=Tier.HOT, score=0.86)


@pytest.mark.requirement("S1-39", "S1-E10")
def test_a_tool_that_was_unused_when_it_was_written_down_counts_by_its_usage():
    used, unused = Usage(calls=1, done=1, seconds=0.05), standing_of(None, 0.0)
    written = {at("a", n).id: unused for n in range(3)} | {at("a", 3).id: stands(0.5)}
    found = Order(tiers=written, usage={at("a", 1).id: used, at("a", 3).id: used}, now=0.0)
    assert found.standing(at("a", 1).id) == standing_of(used, 0.0)
    assert (found.score(at("a", 0).id), found.score(at("a", 3).id)) == (unused.score, 0.5)


def test_first_calls_are_noticed_at_once_while_few_tools_are_in_use():
    now = [0.0]
    calls = FirstCalls(clock=lambda: now[0])
    usage = {tool.id: Usage(calls=1) for tool in TOOLS.values()}
    counts = range(FEW_CALLED + 3)
    noticed = [calls.noticed(dict(list(usage.items())[:count])) for count in counts]
    assert noticed == [*range(FEW_CALLED + 1), FEW_CALLED, FEW_CALLED]
    now[0] = 60.0
    assert calls.noticed(usage) == len(usage)
