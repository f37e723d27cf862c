"""Cards: a tool at one of four levels, and every rung between them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.catalogue import FLEET_VARIABLE, generate, load_fleet

from portico.domain.search_answers import Level
from portico.domain.tool import Tool
from portico.rendering.budget import TokenEstimate
from portico.rendering.cards import card, shorten_schema, variants_of
from portico.testing import definition, make_test_app, tool

RAW = definition(
    "create_issue",
    "Create a new issue in a repository. It takes a while.",
    title={"type": "string", "description": "The title of the issue. One line only.", "examples": ["Crash"]},
    labels={"type": "array", "items": {"type": "string"}, "default": [{"title": "kept"}]},
)
RAW["inputSchema"]["required"] = ["title"]
RAW["outputSchema"] = {"type": "object", "properties": {"number": {"type": "integer"}}}
ISSUE = tool(RAW, server="github")


@pytest.mark.requirement("P-LEVELS")
def test_each_level_shows_more_than_the_one_below() -> None:
    assert card(ISSUE, Level.NAME).text == "github.create_issue"
    assert card(ISSUE, Level.SUMMARY).text == "github.create_issue(~) [write] Create a new issue in a repository"
    assert card(ISSUE, Level.PARAMETERS).text == (
        "github.create_issue(title, labels?: string[]) [write] Create a new issue in a repository"
    )
    whole = card(ISSUE, Level.FULL)
    assert (whole.handle, whole.level) == ("github.create_issue", Level.FULL)
    assert whole.text.split("\n")[:2] == ["## github.create_issue [write]", RAW["description"]]
    lines = dict(line.split(": ", 1) for line in whole.text.split("\n")[2:])
    assert json.loads(lines["parameters"]) == RAW["inputSchema"]
    assert json.loads(lines["returns"]) == RAW["outputSchema"]
    assert lines["example"] == 'call_tool({"name": "github.create_issue", "arguments": {"title": "Crash"}})'


def test_a_tool_without_parameters_says_so_in_its_summary() -> None:
    assert card(tool(definition("ping")), Level.SUMMARY).text == "fake.ping() [write]"


@pytest.mark.requirement("P-LEVELS")
def test_the_variants_go_from_everything_to_the_name() -> None:
    texts = [(card.level, card.text) for card in variants_of(ISSUE, Level.FULL).cards]
    levels = [level for level, _ in texts]
    assert levels == sorted(levels, reverse=True)
    assert set(levels) == set(Level)
    assert "example:" in texts[0][1]
    assert "example:" not in texts[1][1]
    assert '"description":"The title of the issue"' in texts[2][1]
    assert '"description"' not in texts[3][1]
    assert texts[4][1].endswith("Create a new issue in a repository\n(shortened to fit)")
    assert texts[-1] == (Level.NAME, "github.create_issue")


def test_shortened_schemas_keep_names_types_choices_and_quoted_values() -> None:
    schema: dict[str, Any] = {
        "title": "Arguments",
        "description": "All of them.",
        "properties": {
            "title": {"type": "string", "description": "The title. More of it."},
            "description": {"enum": [{"title": "a"}], "default": {"description": "kept"}},
            "properties": {"properties": {"examples": {"const": {"title": 1}, "examples": [1]}}},
        },
        "required": ["title"],
        "dependentRequired": {"title": ["description"]},
        "$defs": {"title": True},
        "allOf": [{"description": "Prose.", "minProperties": 1}],
    }
    assert shorten_schema(schema) == {
        "properties": {
            "title": {"type": "string"},
            "description": {"enum": [{"title": "a"}], "default": {"description": "kept"}},
            "properties": {"properties": {"examples": {"const": {"title": 1}}}},
        },
        "required": ["title"],
        "dependentRequired": {"title": ["description"]},
        "$defs": {"title": True},
        "allOf": [{"minProperties": 1}],
    }
    assert shorten_schema(schema, 60)["description"] == "All of them"
    assert shorten_schema(schema, 60)["properties"]["title"]["description"] == "The title. More of it"


def check(made: Tool) -> None:
    """What holds for the ladder of every tool."""
    counter = TokenEstimate()
    texts = [(card.level, card.text) for card in variants_of(made, Level.FULL).cards]
    assert [level for level, _ in texts] == sorted((level for level, _ in texts), reverse=True)
    assert texts[-1] == (Level.NAME, made.handle)
    for level, text in texts:
        assert made.handle in text
        if level >= Level.PARAMETERS:
            assert all(name in text or json.dumps(name)[1:-1] in text for name in made.required)
    for level in Level:
        assert card(made, level).level is level
    costs = [counter.count(card(made, level).text) for level in Level]
    assert costs[Level.NAME] < costs[Level.SUMMARY] <= costs[Level.FULL]
    assert costs[Level.NAME] < costs[Level.PARAMETERS]


@pytest.mark.requirement("P-LEVELS", "P-SIGNATURE-COMPLETE")
def test_every_step_with_parameters_names_the_required_ones() -> None:
    for made in make_test_app(generate(20, 200)).gateway.snapshot.tools.values():
        check(made)


@pytest.mark.requirement("P-LEVELS", "P-SIGNATURE-COMPLETE")
def test_every_step_of_a_real_tool_names_its_required_parameters() -> None:
    definitions = load_fleet()
    if definitions is None:
        pytest.skip(f"{FLEET_VARIABLE} names no file with the definitions of real servers")
    for made in make_test_app(definitions).gateway.snapshot.tools.values():
        check(made)
