"""The budgeter: never over the budget, the last card gives way first, nothing is dropped in silence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.discovery.budgets import Rungs, fit
from portico.discovery.tokens import TokenEstimate
from portico.domain.disclosure import Level

COUNTER = TokenEstimate()


def card(number: int, words: int = 40) -> Rungs:
    handle = f"server.tool{number}"
    return Rungs(
        handle=handle,
        texts=(
            (Level.FULL, f"{handle} " + "word " * words),
            (Level.PARAMETERS, f"{handle} " + "word " * (words // 4)),
            (Level.NAME, handle),
        ),
    )


def test_everything_is_shown_whole_when_it_fits() -> None:
    found = fit([card(1), card(2)], tokens=1_000, counter=COUNTER, head="head", tail="tail")
    assert [c.level for c in found.cards] == [Level.FULL, Level.FULL]
    assert (found.shown, found.total, found.truncated, found.next) == (2, 2, False, "tail")
    assert found.text.startswith("head\nserver.tool1 word")
    assert found.text.endswith("\ntail")


@pytest.mark.requirement("P-BUDGET-LAST-FIRST")
def test_the_last_card_gives_way_first() -> None:
    found = fit([card(1), card(2), card(3)], tokens=110, counter=COUNTER)
    assert [c.level for c in found.cards] == [Level.FULL, Level.FULL, Level.PARAMETERS]
    assert fit([card(1), card(2)], tokens=36, counter=COUNTER).cards[0].level is Level.PARAMETERS


@pytest.mark.requirement("P-BUDGET-NAMES")
def test_when_only_names_fit_all_names_are_shown() -> None:
    found = fit([card(n) for n in range(8)], tokens=60, counter=COUNTER)
    assert found.shown == 8
    assert [c.handle for c in found.cards] == [f"server.tool{n}" for n in range(8)]


@pytest.mark.requirement("P-BUDGET-NAMES")
def test_when_names_do_not_fit_the_rest_is_counted() -> None:
    found = fit([card(n) for n in range(50)], tokens=60, counter=COUNTER)
    assert found.truncated
    assert found.text.endswith(f"({50 - found.shown} more withheld)")


def test_no_cards_are_no_trouble() -> None:
    assert fit([], tokens=10, counter=COUNTER, head="nothing here").text == "nothing here"


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 60), max_size=20),
    st.integers(30, 400),
    st.text(max_size=30),
    st.sampled_from(["", "5 more: search"]),
)
def test_an_answer_is_never_over_its_budget(sizes: list[int], tokens: int, head: str, tail: str) -> None:
    cards = [card(number, words) for number, words in enumerate(sizes)]
    found = fit(cards, tokens=tokens, counter=COUNTER, head=head, tail=tail)
    assert found.tokens <= tokens
    assert found.tokens == COUNTER.count(found.text)
    assert found.shown == len(found.cards)
    levels = [c.level for c in found.cards]
    assert max(levels, default=0) - min(levels, default=0) <= Level.FULL


def test_the_estimate_names_itself_and_grows_with_the_text() -> None:
    assert COUNTER.name == "estimate"
    assert COUNTER.count("") == 0
    assert 0 < COUNTER.count("search tools") < COUNTER.count("search tools " * 10)
