"""The three answers of a search as data: one tool in full, tools in one line each, or all names."""

from __future__ import annotations

import pytest
from tests.sample_tools import ALL, sample_app

from portico.domain.tool import Tool
from portico.surfaces.search import approximate, build_keyword_index, exact, list_all
from portico.testing import AGENT, FakeApplication, definition, make_test_app


def tools(application: FakeApplication) -> dict[str, Tool]:
    return {tool.listed: tool for tool in application.gateway.view(AGENT).tools}


@pytest.mark.requirement("S0-69", "S0-26", "S0-75")
def test_an_exact_answer_has_everything_and_an_approximate_one_a_line():
    (found,) = [tools(sample_app())["base_tableDDL"]]
    told, line = exact(found), approximate([found], {found.id: 100.0})
    assert told["tool"].keys() == {"name", "category", "description", "full_documentation", "parameters"}
    assert told["tool"]["parameters"].keys() == {"database_name", "table_name"}
    assert told["tool"]["full_documentation"] == found.description
    assert line["tools"] == [
        {"name": "base_tableDDL", "category": "base", "summary": told["tool"]["description"], "score": 100}
    ]


@pytest.mark.requirement("S0-69", "S0-10")
@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("base_tableList", True),
        ("BASE_TABLELIST", True),
        ("_local.base_tableList", True),
        ("base_tableList columns", False),
        ("tableList", False),
        ("table list", False),
        ("", False),
    ],
)
def test_the_whole_query_is_a_name_or_it_is_keywords(text: str, is_name: bool):
    snapshot = sample_app().gateway.snapshot
    assert build_keyword_index(snapshot, None).names(text, within=snapshot.tools.keys()) is is_name


@pytest.mark.requirement("S0-69")
def test_a_name_that_the_caller_may_not_see_is_no_name():
    snapshot = sample_app().gateway.snapshot
    assert not build_keyword_index(snapshot, None).names("base_tableList", within=set())


@pytest.mark.requirement("S0-69", "S0-24", "S0-35")
def test_an_approximate_answer_keeps_the_order_and_scores_are_whole_numbers():
    found = list(tools(sample_app()).values())
    answer = approximate(found[::-1], {found[0].id: 75.0})
    assert answer["results_count"] == len(ALL)
    assert [tool["name"] for tool in answer["tools"]] == [tool.listed for tool in found[::-1]]
    assert [tool["score"] for tool in answer["tools"]] == [0, 0, 0, 0, 75]
    assert all(type(tool["score"]) is int for tool in answer["tools"])
    assert approximate([], {}) == {"match_type": "approximate", "results_count": 0, "tools": []}


@pytest.mark.requirement("S0-69", "S0-E3")
def test_all_names_come_in_pages_that_stay_right_when_the_catalog_changes():
    application = make_test_app({"s": [definition(name) for name in "aceg"]})
    first, shown = list_all(tools(application).values(), limit=2)
    assert [tool.listed for tool in shown] == ["s__a", "s__c"]
    assert first == {"match_type": "list_all", "total_count": 4, "tools": ["s__a", "s__c"], "next_cursor": "s__c"}
    changed = make_test_app({"s": [definition(name) for name in "abdeg"]})  # the cursor's own tool is gone
    last, _ = list_all(tools(changed).values(), limit=9, after=first["next_cursor"])
    assert last == {"match_type": "list_all", "total_count": 5, "tools": ["s__d", "s__e", "s__g"]}
    assert list_all([], limit=1)[0] == {"match_type": "list_all", "total_count": 0, "tools": []}
