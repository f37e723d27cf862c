"""Explained scores add up in what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.search_answers import Hit
from portico.surfaces.cli.tool_commands import explanation
from portico.testing import definition, tool

TOOL = tool(definition("x"))


@pytest.mark.requirement("P-EXPLAIN")
def test_scores_and_parts_stand_in_one_column() -> None:
    hits = [
        Hit(tool=TOOL, score=1104.0349, why={"word issu": 2.3349, "exact name": 1_100.0, "usage": 1.7}),
        Hit(tool=TOOL, score=0.3333, why={"word a": 0.1111, "word b": 0.1111, "word c": 0.1111}),
    ]
    assert explanation(hits).split("\n") == [
        "1,104.03  fake.x",
        "1,100.00    exact name",
        "    2.33    word issu",
        "    1.70    usage",
        "    0.33  fake.x",
        "    0.11    word a",
        "    0.11    word b",
        "    0.11    word c",
    ]


@pytest.mark.requirement("P-EXPLAIN")
@given(st.dictionaries(st.text("abc", min_size=1), st.floats(0, 500), min_size=1, max_size=12))
def test_the_parts_that_are_shown_add_up_to_the_score_that_is_shown(why: dict[str, float]) -> None:
    hit = Hit(tool=TOOL, score=round(sum(why.values()), 4), why=why)
    score, *parts = (round(100 * float(line.split()[0].replace(",", ""))) for line in explanation([hit]).split("\n"))
    assert sum(parts) == score
    assert len(parts) == len(why)
