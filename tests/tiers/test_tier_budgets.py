"""The budgets of the tiers, one on top of the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.tool import ToolId
from portico.errors import InvalidArguments
from portico.rendering.budget import equal_share
from portico.tiers.token_budgets import Step, allowance, check_page, raise_level, report, served_cost


@pytest.mark.requirement("S1-8", "S1-3")
def test_limits_are_those_of_the_design():
    assert {step.value: step.limit for step in Step} == {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}


@pytest.mark.requirement("S1-8")
def test_an_answer_may_cost_what_the_ones_before_it_left():
    assert allowance(Step.SUMMARIES, 2_500).tokens == 5_500
    assert allowance(Step.SUMMARIES, 2_500, 300).tokens == 300


@pytest.mark.parametrize("budget", [49, 0, -1])
def test_a_budget_in_which_nothing_fits_is_refused(budget: int):
    with pytest.raises(InvalidArguments, match="at least 50"):
        allowance(Step.HOT, 0, budget)


@pytest.mark.requirement("S1-E14")
@pytest.mark.parametrize(
    ("page", "size", "says"), [(0, 20, "page is"), (-1, 20, "page is"), (1, 0, "page_size is"), (1, 51, "1 to 50")]
)
def test_a_page_that_cannot_be_is_refused(page: int, size: int, says: str):
    with pytest.raises(InvalidArguments, match=says):
        check_page(page, size)


@pytest.mark.requirement("S1-E14")
@pytest.mark.parametrize(("page", "size"), [(1, 1), (1, 50), (10**9, 20)])
def test_any_other_page_may_be_asked_for(page: int, size: int):
    check_page(page, size)


@pytest.mark.requirement("S1-E17")
@pytest.mark.parametrize(
    ("sizes", "room", "level"),
    [
        ([100] * 10, 2_000, 200),
        ([100] * 10, 1_000, 100),
        ([100] * 10, 500, 50),
        ([10, 10, 500], 120, 100),
        ([], 70, 70),
    ],
)
def test_small_ones_stay_whole_and_large_ones_share_the_rest(sizes: list[int], room: int, level: int):
    assert equal_share(sizes, room) == level


@pytest.mark.requirement("S1-E17")
@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=10), st.integers(0, 20_000))
def test_the_level_fits_the_room_and_no_higher_one_does(sizes: list[int], room: int):
    level = equal_share(sizes, room)
    assert sum(min(size, level) for size in sizes) <= room
    if level < max(sizes):
        assert sum(min(size, level + 1) for size in sizes) > room


@pytest.mark.requirement("S1-E17")
def test_what_a_shortened_answer_leaves_over_raises_the_level():
    huge, large = (20_000, 9_000, 60), (1_240, 354)
    assert equal_share([20_000, 1_240, 1_240], 3_600) == 1_200
    level = raise_level(1_200, [huge, large, large], 3_600, 3)
    assert [served_cost(variants, level) for variants in (huge, large)] == [60, 1_240]
    assert raise_level(1_200, [huge, large, large], 2_400, 3) == 1_220, "both of the large ones would be too much"
    assert raise_level(200, [(200,), (100,)], 500) == 200


@pytest.mark.requirement("S1-E17")
@given(
    st.lists(st.lists(st.integers(1, 9_000), min_size=1, max_size=6), min_size=1, max_size=20),
    st.integers(4_000, 9_000),
)
def test_any_ten_answers_fit_the_room_at_the_raise_level(costs_of_all: list[list[int]], room: int):
    low = equal_share(sorted((variants[0] for variants in costs_of_all), reverse=True)[:10], room)
    level = raise_level(low, costs_of_all, room)
    costs = sorted((served_cost(variants, level) for variants in costs_of_all), reverse=True)
    assert level >= low
    assert sum(costs[:10]) <= room


@pytest.mark.requirement("S1-80", "S1-81", "S1-E15")
def test_a_report_names_the_tier_that_does_not_fit():
    good = report([1_500, 1_500, 3_000, 4_000], counter="estimate")
    assert (good.ok, good.failures) == (True, ())
    assert str(good) == "Budget verification: T0=1500, T1=3000, T2=6000, T3=10000"
    bad = report([2_001, 2_000, 3_000, 4_000], counter="estimate", category="files", tools=[ToolId("a", "b")])
    assert bad.failures == ("T0 exceeds budget: 2001 tokens", "T1 exceeds budget: 4001 tokens")
    assert not bad.ok
    assert bad.as_data()["tiers"][0] == {"tier": "T0", "tokens": 2001, "cumulative": 2001, "limit": 2000, "ok": False}
    assert (bad.as_data()["category"], bad.as_data()["tools"], bad.as_data()["ok"]) == ("files", ["a::b"], False)
