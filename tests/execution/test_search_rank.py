"""What a search has shown is remembered until the tool is called."""

from __future__ import annotations

import pytest

from portico.domain.call import Caller
from portico.domain.tool import ToolId
from portico.execution import executor as search_rank
from portico.execution.executor import SearchRank

ME, OTHER = Caller(name="me"), Caller(name="other")
A, B, C = (ToolId("s", name) for name in "abc")


def test_a_tool_has_the_place_at_which_it_was_shown_once() -> None:
    search_rank = SearchRank()
    search_rank.remember(ME, [A, B])
    assert (search_rank.take(ME, B).place, search_rank.take(ME, B).place) == (2, 0)
    assert (search_rank.take(ME, A).place, search_rank.take(ME, C).place) == (1, 0)


def test_a_later_page_goes_on_counting_and_a_later_search_counts() -> None:
    search_rank = SearchRank()
    search_rank.remember(ME, [A, B])
    search_rank.remember(ME, [C], start=6)
    search_rank.remember(ME, [B])
    assert [search_rank.take(ME, tool).place for tool in (A, B, C)] == [1, 1, 6]


def test_callers_do_not_walk_in_each_others_steps() -> None:
    search_rank = SearchRank()
    search_rank.remember(ME, [A])
    assert (search_rank.take(OTHER, A).place, search_rank.take(ME, A).place) == (0, 1)


def test_a_search_of_long_ago_is_forgotten() -> None:
    now = [0.0]
    search_rank = SearchRank(clock=lambda: now[0])
    search_rank.remember(ME, [A])
    now[0] = 3_600.0
    assert search_rank.take(ME, A).place == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_rank, "TOOLS_KEPT", 3)
    monkeypatch.setattr(search_rank, "CALLERS_KEPT", 2)
    kept = SearchRank()
    kept.remember(ME, [ToolId("s", str(n)) for n in range(10)])
    assert [kept.take(ME, ToolId("s", str(n))).place for n in range(10)] == [0] * 7 + [8, 9, 10]
    kept.remember(ME, [A])
    for name in ("x", "y"):
        kept.remember(Caller(name=name), [A])
    assert (kept.take(ME, A).place, kept.take(Caller(name="y"), A).place) == (0, 1)
