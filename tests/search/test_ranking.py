"""Usage orders what words leave open, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.search_answers import Hit
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import Usage
from portico.search.groups_and_doubt import USAGE_SHARE, settle
from portico.testing import definition, tool

TOOLS: list[Tool] = [tool(definition(f"t{number}")) for number in range(6)]
WELL = Usage(calls=50, done=50, seconds=1.0)


def hits(*scores: float) -> list[Hit]:
    return [Hit(tool=t, score=score, why={"told": score}) for t, score in zip(TOOLS, scores, strict=False)]


def order(found: list[Hit]) -> list[str]:
    return [hit.name for hit in found]


@pytest.mark.requirement("P-USAGE-GENTLE")
def test_of_equals_the_one_that_is_called_often_and_well_comes_first() -> None:
    badly = Usage(calls=50, done=1, seconds=1.0)
    seldom = Usage(calls=2, done=2, seconds=1.0)
    usage = {TOOLS[1].id: badly, TOOLS[2].id: seldom, TOOLS[3].id: WELL}
    assert order(settle(hits(5.0, 5.0, 5.0, 5.0), usage)) == ["t3", "t2", "t1", "t0"]


@pytest.mark.requirement("P-USAGE-GENTLE")
def test_what_is_clearly_better_stays_first() -> None:
    assert order(settle(hits(5.06, 5.0), {TOOLS[1].id: WELL})) == ["t0", "t1"]
    assert order(settle(hits(5.01, 5.0), {TOOLS[1].id: WELL})) == ["t1", "t0"]


@pytest.mark.requirement("P-USAGE-GENTLE")
def test_without_usage_nothing_moves_and_nothing_is_added() -> None:
    found = hits(5.0, 5.0, 0.0)
    assert settle(found, {}) == found
    assert settle(found, {TOOLS[2].id: WELL, TOOLS[0].id: Usage(calls=3)}) == found


@pytest.mark.requirement("P-USAGE-GENTLE", "P-EXPLAIN", "T38")
@given(
    st.lists(st.floats(0.01, 200).map(lambda score: round(score, 4)), max_size=6),
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(1, 10**6), st.floats(0, 1))),
)
def test_no_usage_lifts_a_hit_over_one_that_is_more_than_a_hundredth_better(
    scores: list[float], used: dict[int, tuple[int, float]]
) -> None:
    found = hits(*sorted(scores, reverse=True))
    usage: dict[ToolId, Usage] = {
        TOOLS[n].id: Usage(calls=calls, done=int(calls * share), seconds=1.0) for n, (calls, share) in used.items()
    }
    ordered = settle(found, usage)
    before = {hit.name: hit.score for hit in found}
    for number, hit in enumerate(ordered):
        assert hit.score == pytest.approx(sum(hit.why.values()), abs=1e-3)
        for later in ordered[number + 1 :]:
            assert hit.score >= later.score
            assert before[later.name] <= before[hit.name] * (1 + USAGE_SHARE) + 1e-4
    assert settle(found, usage) == ordered
