"""Did you mean."""

from __future__ import annotations

from portico.domain.suggestions import did_you_mean, nearest_names


def test_the_nearest_name_comes_first():
    assert nearest_names("create_isue", ["close_issue", "create_issue", "weather"])[0] == "create_issue"


def test_upper_and_lower_case_are_alike_and_the_known_spelling_is_shown():
    assert nearest_names("TABLELIST", ["tableList"]) == ["tableList"]


def test_a_name_that_is_like_nothing_has_no_suggestion():
    assert nearest_names("zzzz", ["create_issue"]) == []
    assert did_you_mean("zzzz", ["create_issue"]) == ""


def test_the_question_names_what_may_be_meant():
    assert did_you_mean("serach", ["search", "list"]) == "did you mean 'search'?"


def test_of_a_huge_name_only_the_beginning_is_compared():
    assert nearest_names("search" + "x" * 10_000_000, ["search" + "x" * 94]) == ["search" + "x" * 94]
