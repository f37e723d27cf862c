"""The surface and the order of its answers are chosen by the file, and by the switch in the environment."""

from __future__ import annotations

import pytest

from tests.config.conftest import Home


def test_the_file_chooses_the_surface_and_the_order(home: Home):
    settings = home.load(home.write("portico.yaml", "surface: search\nsearch: {order: meaning}\n"))
    assert (settings.surface, settings.search.order) == ("search", "meaning")
    assert settings.problems == ()
    assert home.load().search.order == "keywords"


@pytest.mark.requirement("P-LEARNED-OFF")
def test_learning_is_on_unless_the_file_says_otherwise(home: Home):
    assert home.load().search.learning
    assert not home.load(home.write("portico.yaml", "search: {learning: false}\n")).search.learning
    odd = home.load(home.write("portico.yaml", "search: {learning: perhaps}\n"))
    assert odd.search.learning
    assert [problem.where for problem in odd.problems] == ["search.learning"]


@pytest.mark.parametrize(
    ("order", "fix"), [("meanin", "Did you mean 'meaning'?"), ("7", "Use one of: keywords, meaning.")]
)
def test_an_order_that_is_not_known_is_named_and_the_default_is_in_force(home: Home, order: str, fix: str):
    settings = home.load(home.write("portico.yaml", f"search: {{order: {order}}}\n"))
    assert settings.search.order == "keywords"
    (problem,) = settings.problems
    assert (problem.where, problem.fix) == ("search.order", fix)


@pytest.mark.requirement("S0-6")
@pytest.mark.parametrize(
    ("value", "surface"),
    [("true", "search"), ("TRUE", "search"), ("1", "search"), ("false", "static"), ("0", "static"), ("", "discover")],
)
def test_the_switch_in_the_environment_chooses_the_surface(home: Home, value: str, surface: str):
    home.environ["PROGRESSIVE_DISCLOSURE"] = value
    assert home.load().surface == surface
    assert home.load(home.write("portico.yaml", "surface: discover\n")).surface == surface, "it is nearer than the file"


def test_a_switch_that_says_neither_is_named(home: Home):
    home.environ["PROGRESSIVE_DISCLOSURE"] = "maybe"
    settings = home.load()
    assert settings.surface == "discover"
    assert [problem.where for problem in settings.problems] == ["PROGRESSIVE_DISCLOSURE"]
