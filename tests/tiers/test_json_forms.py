"""Schemas in a few words: types and whether they are needed, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from portico.testing import definition, tool
from portico.tiers.tools_as_json import flat_schema, result_words, simplify_params


@pytest.mark.requirement("S1-40", "S1-36", "S1-33")
def test_a_parameter_is_its_type_and_whether_it_is_needed():
    schema = {
        "type": "object",
        "properties": {
            "name_path": {"type": "string", "description": "long text"},
            "depth": {"type": "integer", "default": 0},
            "filter": {"type": "object", "properties": {"inner": {"type": "string"}}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "anything": {"description": "who knows"},
        },
        "required": ["name_path"],
    }
    assert simplify_params(schema) == {
        "name_path": "string (required)",
        "depth": "integer (optional)",
        "filter": "object (optional)",
        "tags": "array (optional)",
        "anything": "unknown (optional)",
    }


@pytest.mark.requirement("S1-40")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["string", "integer"]}, "string|integer"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, "string|array"),
        ({"$ref": "#/$defs/Point"}, "object"),
        ({"$ref": "#/$defs/missing"}, "unknown"),
        ({"properties": {"a": {}}}, "object"),
        ({"items": {}}, "array"),
        ({"type": 7}, "unknown"),
        ({"anyOf": []}, "unknown"),
        (True, "unknown"),
        ("string", "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_type_is_found_wherever_the_schema_tells_it(schema: object, expected: str):
    full = {"properties": {"x": schema}, "$defs": {"Point": {"type": "object"}}}
    assert simplify_params(full) == {"x": f"{expected} (optional)"}


@pytest.mark.requirement("S1-40")
@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": [], "required": "x"}, {"type": "string"}])
def test_a_schema_that_declares_nothing_has_no_parameters(schema: dict[str, Any]):
    assert simplify_params(schema) == {}


@pytest.mark.requirement("S1-40")
def test_what_is_required_is_there_without_a_declaration():
    assert simplify_params({"required": ["x"]}) == {"x": "unknown (required)"}


@pytest.mark.requirement("S1-37")
@pytest.mark.parametrize(
    ("description", "output", "expected"),
    [
        (
            "Find symbols.",
            {"type": "object", "description": "list of symbols with locations"},
            "list of symbols with locations",
        ),
        ("Find symbols. Returns a list of symbols. More text.", None, "a list of symbols"),
        ("Find symbols.\n\nReturns:\n    JSON with symbols", None, "JSON with symbols"),
        ("Find.", {"type": "object", "properties": {"count": {"type": "integer"}}}, "{count?: integer}"),
        ("Find.", {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}, None),
        ("Find symbols that a function returns.", None, None),
        ("Find.", {"type": "object"}, None),
        ("", None, None),
    ],
)
def test_what_comes_back_is_told_in_a_few_words(description: str, output: dict[str, Any] | None, expected: str | None):
    raw = {**definition("find", description), **({"outputSchema": output} if output else {})}
    assert result_words(tool(raw)) == expected


@pytest.mark.requirement("S1-E17", "S1-43")
def test_a_smaller_schema_keeps_types_choices_and_what_is_required():
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "long text", "maxLength": 9},
            "kind": {"$ref": "#/$defs/kind"},
            "filter": {"type": "object", "properties": {"inner": {"type": "string"}}, "required": ["inner"]},
            "body": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "to": {"oneOf": [{"type": "integer"}, {"const": "all"}]},
            "open": {"anyOf": [{"type": "string"}, {}]},
            "odd": {"type": 7, "enum": "none"},
            "any": True,
        },
        "required": ["title", "undeclared"],
        "$defs": {"kind": {"enum": ["bug", "task"]}},
    }
    assert flat_schema(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "kind": {"enum": ["bug", "task"]},
            "filter": {"type": "object"},
            "body": {"type": ["string", "null"]},
            "to": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
            "open": {},
            "odd": {},
            "any": {},
            "undeclared": {},
        },
        "required": ["title", "undeclared"],
    }
    assert flat_schema(schema, {"kind"}) == {"type": "object", "properties": {"kind": {"enum": ["bug", "task"]}}}
    assert flat_schema(schema, {"kind"}, choices=False) == {"type": "object", "properties": {"kind": {}}}
