"""The budgeter: never over the budget, the last card gives way first, nothing is dropped in silence."""

from __future__ import annotations

import re
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue import FLEET_VARIABLE, generate, load_fleet

from portico.domain.search_answers import Budget, Disclosure, Level, Query
from portico.gateway import DESCRIBE_LIMIT, EXACT_TOKENS
from portico.protocols import TokenCounter
from portico.rendering.budget import TokenEstimate, Variants, balance, fill, fit
from portico.rendering.cards import card as card_of
from portico.testing import AGENT, FakeApplication, definition, make_test_app

COUNTER = TokenEstimate()


class Letters:
    """Counts letters, so that a test can reckon."""

    name = "letters"

    def count(self, text: str) -> int:
        """Letters of a text."""
        return len(text)


class Moody:
    """Counts a whole as more or less than its parts, as exact counters do now and then, but far worse."""

    name = "moody"

    def count(self, text: str) -> int:
        """More or less the length of a text."""
        return len(text) * (2 + crc32(text.encode(errors="replace")) % 3) // 3


COUNTERS: list[TokenCounter] = [COUNTER, Letters(), Moody()]


def card(number: int, words: int = 40) -> Variants:
    handle = f"server.tool{number}"
    return Variants(
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
    assert found.counter == "estimate"


@pytest.mark.requirement("P-BUDGET-LAST-FIRST")
def test_the_last_card_gives_way_first() -> None:
    found = fit([card(1), card(2), card(3)], tokens=115, counter=COUNTER)
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


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
def test_a_budget_without_room_around_a_handle_shows_handles_and_the_count_alone() -> None:
    cards, tail = [card(n) for n in range(3)], "9 more: " + "how to get them " * 4
    found = fit(cards, tokens=33, counter=Letters(), head="head", tail=tail, total=12)
    assert found.text == "server.tool0\n(11 more withheld)"
    assert (found.shown, found.total, found.next) == (1, 12, tail)


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@pytest.mark.parametrize(("tokens", "text"), [(29, "(3 withheld)"), (12, "(3 withheld)"), (11, ""), (0, ""), (-7, "")])
def test_a_budget_below_one_handle_gives_the_count_and_one_below_that_nothing(tokens: int, text: str) -> None:
    found = fit([card(n, 100) for n in range(3)], tokens=tokens, counter=Letters(), head="a head", tail="a tail " * 3)
    assert (found.text, found.tokens, found.shown, found.total) == (text, len(text), 0, 3)
    assert found.truncated


def test_a_step_that_saves_nothing_is_passed_over() -> None:
    texts = ((Level.FULL, "x" * 20), (Level.PARAMETERS, "y" * 30), (Level.NAME, "z" * 5))
    found = fit([Variants(handle="z", texts=texts)] * 2, tokens=27, counter=Letters())
    assert [c.level for c in found.cards] == [Level.FULL, Level.NAME]


def test_no_cards_are_no_trouble() -> None:
    assert fit([], tokens=10, counter=COUNTER, head="nothing here").text == "nothing here"
    assert fit([], tokens=1, counter=COUNTER, head="nothing here").text == ""


@st.composite
def variants(draw: st.DrawFn) -> Variants:
    handle = draw(st.text(min_size=1, max_size=30))
    levels = sorted(draw(st.lists(st.sampled_from(Level), max_size=5)), reverse=True)
    texts = [(level, draw(st.text(max_size=120))) for level in levels]
    return Variants(handle=handle, texts=(*texts, (Level.NAME, handle)))


def check(found: Disclosure, cards: list[Variants], tokens: int, counter: TokenCounter) -> None:
    """What holds for every answer."""
    assert found.tokens == counter.count(found.text) <= max(tokens, 0)
    assert found.shown == len(found.cards) <= found.total
    assert found.truncated == (found.shown < found.total)
    assert [c.handle for c in found.cards] == [c.handle for c in cards[: found.shown]]
    place = 0
    for shown, whole in zip(found.cards, cards, strict=False):
        assert (shown.level, shown.text) in list(whole.texts)
        place = found.text.index(shown.text, place) + len(shown.text)
    if found.shown < len(cards) and found.text:
        assert re.search(r"\(\d+ (more )?withheld\)", found.text)


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=400)
@given(
    st.lists(variants(), max_size=12),
    st.integers(-3, 500),
    st.text(max_size=30),
    st.sampled_from(["", "5 more: search", "x" * 200]),
    st.sampled_from(["\n", "\n\n"]),
    st.sampled_from(COUNTERS),
)
def test_an_answer_is_never_over_its_budget_whatever_counts(
    cards: list[Variants], tokens: int, head: str, tail: str, separator: str, counter: TokenCounter
) -> None:
    found = fit(cards, tokens=tokens, counter=counter, head=head, tail=tail, separator=separator)
    check(found, cards, tokens, counter)
    assert found.total == len(cards)
    lowest = separator.join(part for part in (head, *(c.texts[-1][1] for c in cards), tail) if part)
    if counter.count(lowest) <= tokens:
        assert found.shown == len(cards)
        assert found.text.startswith(head)
        assert found.text.endswith(tail)


@pytest.mark.requirement("P-BUDGET-LAST-FIRST")
@settings(max_examples=200)
@given(st.lists(st.integers(4, 60), max_size=20), st.integers(1, 800))
def test_detail_only_falls_along_an_answer_and_with_the_budget(sizes: list[int], tokens: int) -> None:
    cards = [card(number, words) for number, words in enumerate(sizes)]
    found = fit(cards, tokens=tokens, counter=Letters())
    levels = [c.level for c in found.cards]
    assert levels == sorted(levels, reverse=True)
    less = fit(cards, tokens=tokens - 1, counter=Letters())
    assert less.shown <= found.shown
    assert all(smaller.level <= larger.level for smaller, larger in zip(less.cards, found.cards, strict=False))


@pytest.fixture(scope="module", params=COUNTERS, ids=lambda counter: counter.name)
def large(request: pytest.FixtureRequest) -> FakeApplication:
    wide = definition("wide", "word " * 2_000, **{f"parameter{n}": "string" for n in range(400)})
    pins = tuple(f"chat.{raw['name']}" for raw in generate(20, 300)["chat"][:4])
    return make_test_app({**generate(20, 300), "wide": [wide]}, pins=pins, counter=request.param)


queries = st.builds(
    Query,
    text=st.sampled_from(["", "create", "search messages and files", "wide.wide", "wide word", "zzz", "\n", "x" * 500]),
    server=st.sampled_from(["", "", "billing"]),
    limit=st.integers(0, 60),
)


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=80)
@given(queries, st.integers(-2, 900), st.integers(-1, 60))
def test_a_search_stays_within_any_budget_that_is_given(
    large: FakeApplication, query: Query, tokens: int, cards: int
) -> None:
    found = large.gateway.search(AGENT, query, Budget(tokens=tokens, cards=cards))
    assert found.tokens == large.gateway.counter.count(found.text) <= max(tokens, 0)
    assert found.shown == len(found.cards) <= found.total
    assert found.shown <= max(cards, 1) or not query.text.strip()
    assert found.counter == large.gateway.counter.name


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=30)
@given(st.data(), st.integers(-2, 7_000))
def test_descriptions_stay_within_any_budget_that_is_given(
    large: FakeApplication, data: st.DataObject, tokens: int
) -> None:
    known = [tool.handle for tool in large.gateway.view(AGENT).tools]
    names = data.draw(st.lists(st.sampled_from([*known[:20], "wide.wide", "unknown", "x" * 3_000]), max_size=12))
    found = large.gateway.describe(AGENT, ["wide.wide", *names], tokens=tokens)
    wanted = {"wide.wide", *names}
    assert found.tokens == large.gateway.counter.count(found.text) <= max(tokens, 0)
    assert found.shown == len(found.cards) <= DESCRIBE_LIMIT
    assert found.total == len(wanted)


def test_an_exact_name_may_cost_more_only_when_nobody_says_what_it_may_cost(large: FakeApplication) -> None:
    query = Query(text="wide.wide")
    assert large.gateway.search(AGENT, query).tokens <= EXACT_TOKENS
    small = large.gateway.search(AGENT, query, Budget(tokens=40))
    assert small.tokens <= 40
    assert small.cards[0].handle == "wide.wide"


@pytest.mark.requirement("P-PAGES-COMPLETE")
def test_a_page_without_room_for_a_tool_does_not_skip_it(large: FakeApplication) -> None:
    found = large.gateway.search(AGENT, Query(text="create", limit=5), Budget(tokens=1, cards=5))
    assert (found.text, found.shown, found.truncated) == ("", 0, True)
    assert '"cursor": "0:' in found.next


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
def test_no_answer_about_real_tools_is_over_its_budget() -> None:
    definitions = load_fleet()
    if definitions is None:
        pytest.skip(f"{FLEET_VARIABLE} names no file with the definitions of real servers")
    gateway = make_test_app(definitions).gateway
    handles = [tool.handle for tool in gateway.view(AGENT).tools]
    for number, handle in enumerate(handles[::5]):
        tokens = (10, 60, 200, 500, 800, 2_000, 6_000)[number % 7]
        page = gateway.describe(AGENT, handles[number * 5 :][: 1 + number % 8], tokens=tokens)
        hits = gateway.search(AGENT, Query(text=handle.replace("_", " ")), Budget(tokens=tokens, cards=1 + number % 50))
        assert gateway.counter.count(page.text) <= tokens
        assert gateway.counter.count(hits.text) <= tokens


@pytest.mark.requirement("P-LEVELS")
@pytest.mark.parametrize("level", Level)
def test_tools_can_be_described_at_any_level(large: FakeApplication, level: Level) -> None:
    tools = large.gateway.view(AGENT).tools[:2]
    found = large.gateway.describe(AGENT, [tool.handle for tool in tools], tokens=100_000, level=level)
    assert [(c.level, c.text) for c in found.cards] == [(level, card_of(tool, level).text) for tool in tools]
    assert found.text == "\n\n".join(c.text for c in found.cards)


def test_room_that_is_left_raises_the_cards_in_turns() -> None:
    cards = [card(number) for number in range(4)]
    lowest = [each.card(-1) for each in cards]
    used = sum(len(each.text) + 1 for each in lowest)
    step = len(cards[0].card(1).text) - len(cards[0].card(2).text)
    levels = [
        [each.level for each in fill(cards, lowest, used + room, Letters())]
        for room in (0, step, 4 * step, 4 * step + 1_000)
    ]
    assert levels == [
        [Level.NAME] * 4,
        [Level.PARAMETERS, Level.NAME, Level.NAME, Level.NAME],
        [Level.PARAMETERS] * 4,
        [Level.FULL] * 4,
    ]
    assert fill(cards, (), 1_000, Letters()) == []


@settings(max_examples=100)
@given(st.lists(st.integers(0, 60), max_size=8), st.integers(0, 2_000))
def test_filling_lowers_no_card_and_stays_within_the_room(words: list[int], room: int) -> None:
    cards = [card(number, count) for number, count in enumerate(words)]
    before = fit(balance(cards, room, Letters()), tokens=room, counter=Letters()).cards
    after = fill(cards, before, room, Letters())
    assert [each.handle for each in after] == [each.handle for each in before]
    assert all(len(new.text) >= len(old.text) for new, old in zip(after, before, strict=True))
    cost = sum(len(each.text) + 1 for each in after)
    assert cost <= max(room, sum(len(each.text) + 1 for each in before))


def test_a_step_is_rendered_when_it_is_first_read_and_once() -> None:
    rendered: list[str] = []

    def render(text: str) -> str:
        rendered.append(text)
        return text

    made = Variants(handle="x", texts=[(Level.FULL, lambda: render("full")), (Level.NAME, lambda: render("name"))])
    numbered = made.edit(lambda text: f"1. {text}")
    assert (made.from_step(1).handle, rendered) == ("x", [])
    assert [made.card(-1).text, made.card(1).text, numbered.card(-1).text] == ["name", "name", "1. name"]
    assert rendered == ["name"]
    assert [card.text for card in made.cards] == ["full", "name"]
    assert rendered == ["name", "full"]
