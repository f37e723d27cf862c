"""Scores are those that a reader adds up by hand, the order is always the same, and any text may be asked."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue import generate
from tests.sample_tools import ALL, TWO, sample_app

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.search_answers import Hit
from portico.gateway import Gateway
from portico.surfaces.search import KeywordIndex, build_keyword_index
from portico.testing import definition, make_test_app


def scores(gateway: Gateway, text: str, limit: int = 100) -> dict[str, float]:
    """The tools that have points, in order."""
    return {hit.tool.listed: hit.score for hit in ask(gateway.snapshot, text, limit)}


def ask(snapshot: CatalogSnapshot, text: str, limit: int = 100) -> list[Hit]:
    return list(build_keyword_index(snapshot, None).query(text, within=snapshot.tools.keys(), limit=limit).hits)


def score(text: str, name: str, description: str = "", *, category: str = "shelf", **parameters: str) -> float:
    """The points of one tool that stands alone."""
    application = make_test_app(
        {"s": [definition(name, description, **parameters)]}, explicit_categories={"s": category} if category else {}
    )
    return sum(scores(application.gateway, text).values())


@pytest.mark.requirement("S0-25", "S0-E1")
def test_the_documented_scores_come_out() -> None:
    gateway = sample_app(*TWO).gateway
    assert list(scores(gateway, "table list").items()) == [("base_tableList", 120), ("base_tableDDL", 100)]
    assert list(scores(gateway, "list, TABLE").items()) == [("base_tableList", 120), ("base_tableDDL", 100)]


@pytest.mark.requirement("S0-28", "S0-E2")
def test_a_token_that_is_a_whole_name_gets_200() -> None:
    assert score("base_tableList columns", "base_tableList") == 200
    assert score("columns BASE_TABLELIST", "base_tableList") == 200
    assert score("s.base_tableList columns", "base_tableList") == 200, "in any of its spellings"
    assert score("columns s__base_tableList", "base_tableList") == 200


@pytest.mark.requirement("S0-29")
def test_a_token_in_the_name_gets_100_once() -> None:
    assert score("table", "base_tableList") == 100
    assert score("table list base", "base_tableList") == 100
    assert score("tab", "base_tableList") == 100
    assert score("chair", "base_tableList") == 0


@pytest.mark.requirement("S0-30")
def test_a_token_that_is_the_category_gets_75() -> None:
    assert score("dba", "x", category="dba") == 75
    assert score("DBA users", "x", category="dba") == 75
    assert score("sql opt", "x", category="sql_opt") == 75, "the whole query counts as well"


@pytest.mark.requirement("S0-31")
def test_a_token_in_the_category_gets_50() -> None:
    assert score("qual", "x", category="quality") == 50
    assert score("sql", "x", category="sql_opt") == 50
    assert score("quality", "x", category="qual") == 0


@pytest.mark.requirement("S0-32")
def test_each_keyword_that_the_name_does_not_have_gets_10() -> None:
    assert score("owner colour", "x", "Who the owner is.") == 10
    assert score("label colour size", "x", "The labels are coloured.") == 20
    assert score("label colour", "x", label_id="string", colour="string") == 20, "parameters have keywords too"
    assert score("labels owner", "get_labels", "The owner.") == 110, "what the name has is not counted twice"
    listed = scores(make_test_app({"github": [definition("x")], "other": [definition("y")]}).gateway, "github stone")
    assert listed == {"github__x": 10}, "the server in a listed name is a keyword of its tools"


@pytest.mark.requirement("S0-33")
def test_a_description_that_has_the_query_gets_20() -> None:
    assert score("rows of a grid", "x", "Shows the rows  of a grid.") == 20 + 2 * 10
    assert score("grid rows", "x", "Shows the rows of a grid.") == 20 + 2 * 10, "in any order"
    assert score("grid row columns", "x", "Shows the rows of a grid.") == 2 * 10, "but all of it"


@pytest.mark.requirement("S0-34")
def test_each_parameter_whose_name_has_the_query_gets_15() -> None:
    assert score("repo", "x", repo_name="string", other="string") == 15 + 10
    assert score("repo", "x", repo_name="string", base_repo="string") == 2 * 15 + 10
    assert score("repo name", "x", repo_name="string") == 15 + 2 * 10
    assert score("repo colour", "x", repo_name="string") == 10, "the whole query, not a part of it"


@pytest.mark.requirement("S0-35")
def test_the_order_is_by_score_and_then_by_name() -> None:
    application = make_test_app({"s": [definition(n) for n in ("b_row", "a_row", "c", "row_x")]})
    assert list(scores(application.gateway, "row").items()) == [("s__a_row", 100), ("s__b_row", 100), ("s__row_x", 100)]
    found = ask(sample_app().gateway.snapshot, "table sql list database")
    assert [(-hit.score, hit.tool.listed) for hit in found] == sorted((-h.score, h.tool.listed) for h in found)


@pytest.mark.requirement("S0-36")
def test_the_limit_keeps_the_best() -> None:
    snapshot = sample_app().gateway.snapshot
    every = ask(snapshot, "table sql")
    assert len(every) > 2
    assert ask(snapshot, "table sql", limit=2) == every[:2]
    assert ask(snapshot, "table sql", limit=0) == []


def test_each_part_of_a_score_can_be_seen() -> None:
    hit = ask(sample_app(*TWO).gateway.snapshot, "base database")[0]
    assert hit.why == {"name": 100, "category": 75, "keywords": 10}
    assert hit.score == 185


@pytest.mark.requirement("S0-74")
def test_keywords_find_the_relevant_tools() -> None:
    gateway = sample_app().gateway
    first = {
        text: next(iter(scores(gateway, text))) for text in ("ddl", "user days", "explain statement", "read query")
    }
    assert first == {
        "ddl": "base_tableDDL",
        "user days": "dba_userSqlList",
        "explain statement": "sql_opt_explain",
        "read query": "base_readQuery",
    }


def test_nothing_outside_the_visible_set_is_found_or_felt() -> None:
    snapshot = sample_app().gateway.snapshot
    index = build_keyword_index(snapshot, None)
    every = index.query("table list", within=snapshot.tools.keys(), limit=100).hits
    some = {id for id in snapshot.tools if id.name != "base_tableList"}
    assert list(index.query("table list", within=some, limit=100).hits) == [h for h in every if h.tool.id in some]
    assert not index.names("base_tableList", within=some)
    assert index.names("BASE_tablelist", within=snapshot.tools.keys())


def test_what_did_not_change_is_not_taken_apart_again() -> None:
    application = make_test_app({"a": [definition("x")], "b": [definition("y")]})
    first = build_keyword_index(application.gateway.snapshot, None)
    application.gateway.publisher.withdraw("b")
    again = build_keyword_index(application.gateway.snapshot, first)
    assert [id(entry) for entry in again.entries] == [id(first.entries[0])]


@pytest.fixture(scope="module")
def snapshot() -> CatalogSnapshot:
    return sample_app(*ALL).gateway.snapshot


@pytest.fixture(scope="module")
def index(snapshot: CatalogSnapshot) -> KeywordIndex:
    return build_keyword_index(snapshot, None)


@settings(max_examples=300)
@given(
    st.text(max_size=80) | st.lists(st.sampled_from("table list SQL a _ base . of é 表 ' \\ -".split())).map(" ".join)
)
def test_any_text_is_accepted_scores_are_positive_and_the_order_never_varies(
    index: KeywordIndex, snapshot: CatalogSnapshot, text: str
) -> None:
    found = index.query(text, within=snapshot.tools.keys(), limit=100).hits
    assert all(hit.score > 0 and hit.score == int(hit.score) == sum(hit.why.values()) for hit in found)
    assert [(-hit.score, hit.tool.listed) for hit in found] == sorted((-h.score, h.tool.listed) for h in found)
    assert build_keyword_index(snapshot, None).query(text, within=snapshot.tools.keys(), limit=100).hits == found


@pytest.mark.parametrize("text", ["a" * 1_000_000, "table " * 20_000, "'" * 100_000, "\ud800", "\x00", "_", "创建问题"])
@pytest.mark.timeout(90)
def test_strange_and_huge_texts_are_answered_soon(index: KeywordIndex, snapshot: CatalogSnapshot, text: str) -> None:
    index.query(text, within=snapshot.tools.keys(), limit=10)


@pytest.mark.requirement("S0-76")
def test_two_thousand_tools_are_searched_within_a_blink() -> None:
    snapshot = make_test_app(generate(100, 2000)).gateway.snapshot
    index = build_keyword_index(snapshot, None)
    spent = []
    for text in ("create issue", "list all open invoices of a customer", "word " * 30):
        started = time.perf_counter()
        index.query(text, within=snapshot.tools.keys(), limit=10)
        spent.append(time.perf_counter() - started)
    assert max(spent) < 0.5, "8 ms where nothing else runs"
