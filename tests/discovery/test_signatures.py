"""One line per tool, callable at once: nothing that a call needs is left out without a mark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue import generate

from portico.discovery.cards import full_rungs, summary_rungs
from portico.discovery.signatures import first_sentence, parameters, signature
from portico.discovery.tokens import TokenEstimate
from portico.testing import definition, tool

LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def shown(schema: dict[str, Any]) -> str:
    return parameters(tool(definition("t", p=schema)))


def test_the_line_of_the_design() -> None:
    raw = definition(
        "create_issue",
        "Create a new issue in a repository. Needs write access.",
        owner="string",
        repo="string",
        title="string",
        body="string?",
        labels={"type": "array", "items": {"type": "string"}},
    )
    raw["inputSchema"]["required"].remove("labels")
    expected = (
        "github.create_issue(owner, repo, title, body?, labels?: string[]) [write] Create a new issue in a repository"
    )
    assert signature(tool(raw, server="github")) == expected


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "p: any"),
        ({"description": "only words"}, "p: any"),
        ({"type": "string"}, "p"),
        ({"type": "integer"}, "p: integer"),
        ({"type": ["string", "null"]}, "p"),
        ({"type": ["string", "integer"]}, "p: string|integer"),
        ({"type": ["string", "integer", "boolean", "number"]}, "p: string|integer|boolean|~"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "p"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "p: string|string[]"),
        ({"oneOf": [{"const": n} for n in range(5)]}, "p: 0|1|2|~"),
        ({"enum": ["open", "closed"]}, 'p: "open"|"closed"'),
        ({"enum": list("abcdefgh")}, 'p: "a"|"b"|"c"|"d"|"e"|"f"|~'),
        ({"enum": ["x" * 100]}, f'p: "{"x" * 59}~'),
        ({"const": 5}, "p: 5"),
        ({"enum": [None]}, "p: null"),
        ({"type": "array"}, "p: any[]"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "p: (string|integer)[]"),
        ({"type": "object"}, "p: object"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, "p: {a}"),
        ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}, "p: {a?: integer, b?: any}"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "hidden"]}, "p: {a: any, hidden: any}"),
        ({"type": "object", "properties": {c: {} for c in "abcdefgh"}, "required": list("abcdefgh")}, "p: object~"),
        ({"properties": {"a": {"type": "object", "properties": {"b": {}}}}}, "p: {a?: object~}"),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "p: any~"),
        ({"allOf": [{"type": "string"}]}, "p"),
        ({"$ref": "#/$defs/nowhere"}, "p: any~"),
        ({"not": {"type": "string"}}, "p: any~"),
        ({"type": "who\nknows"}, "p: any~"),
        ({"type": []}, "p: null"),
    ],
)
def test_a_type_is_said_in_a_few_characters_and_marked_when_shortened(schema: dict[str, Any], text: str) -> None:
    assert shown(schema) == text


def test_references_are_followed() -> None:
    raw = definition("t", p={"$ref": "#/$defs/pet"}, q={"type": "array", "items": {"$ref": "#/$defs/a~1b"}})
    raw["inputSchema"]["$defs"] = {"pet": {"type": "integer"}, "a/b": {"enum": [1, 2]}}
    assert parameters(tool(raw)) == "p: integer, q: (1|2)[]"


def test_a_recursive_type_ends() -> None:
    raw = definition("t", p={"$ref": "#/$defs/n"})
    raw["inputSchema"]["$defs"] = {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}
    assert parameters(tool(raw)) == "p: any~[][][][]"


def test_many_optional_parameters_are_cut_with_a_mark() -> None:
    assert parameters(tool(definition("t", **{f"p{n}": "string?" for n in range(12)}))).endswith("p7?, ~")


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
@pytest.mark.parametrize("keyword", ["$ref", "allOf", "anyOf", "oneOf", "if"])
def test_parameters_that_stand_elsewhere_are_marked(keyword: str) -> None:
    value: Any = "#/$defs/args" if keyword == "$ref" else {} if keyword == "if" else [{"required": ["a"]}]
    raw = {"name": "t", "inputSchema": {"type": "object", keyword: value, "$defs": {"args": {}}}}
    assert parameters(tool(raw)).endswith("~")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("Reads a file from the disk. Then more.", "Reads a file from the disk"),
        ("Short. Then the rest of it goes on", "Short. Then the rest of it goes on"),
        ("One line\nand the next", "One line and the next"),
        ("First paragraph\n\nSecond", "First paragraph"),
        ("word " * 40, "word word word word word…"),
    ],
)
def test_the_first_sentence_is_taken(text: str, line: str) -> None:
    assert first_sentence(text, 28 if "word word" in text else 90) == line


leaf = st.sampled_from(
    [
        {},
        {"type": "string"},
        {"type": "integer"},
        {"enum": ["a", "b\nc"]},
        True,
        {"$ref": "#/$defs/x"},
        {"type": "x\ny"},
    ]
)
nested = st.recursive(
    leaf,
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=5)})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(st.text(max_size=5), inner)})
    ),
    max_leaves=8,
)
names = st.text(min_size=1, max_size=12) | st.sampled_from(["a\nb", "a\u2028b", "path", "x" * 100])


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
@settings(max_examples=250)
@given(st.dictionaries(names, nested, max_size=14), st.data())
def test_no_required_parameter_is_left_out_and_the_line_stays_one(
    properties: dict[str, Any], data: st.DataObject
) -> None:
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    raw = {
        "name": "t",
        "description": data.draw(st.text(max_size=200)),
        "inputSchema": {"type": "object", "properties": properties, "required": [*required, "beyond"]},
    }
    try:
        made = tool(raw)
    except KeyError:
        return  # refused by intake, for instance for a lone surrogate
    for rung in summary_rungs(made).texts[:-1]:
        line = rung[1]
        assert not set(line) & set(LINE_BREAKS)
        for name in [*required, "beyond"]:
            assert name in line if name.isprintable() else True
    optional = len(properties) - len(required)
    assert ("~" in signature(made, optional=0)) >= (optional > 0)
    assert full_rungs(made).texts[-1][1] == made.handle


@pytest.mark.requirement("P-SIGNATURE-SHORT")
def test_a_signature_costs_a_few_dozen_tokens() -> None:
    counter = TokenEstimate()
    costs = [counter.count(signature(tool(raw))) for raws in generate(10, 60).values() for raw in raws]
    assert sum(costs) / len(costs) < 60
