"""One line per tool, callable at once: nothing that a call needs is left out without a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue import FLEET_VARIABLE, generate, load_fleet

from portico.domain.search_answers import Level
from portico.domain.tool import Tool
from portico.rendering.budget import TokenEstimate
from portico.rendering.cards import (
    LIST_LENGTH,
    example_arguments,
    first_sentence,
    parameters,
    purpose,
    signature,
    summary_line,
    variants_of,
)
from portico.testing import definition, make_test_app, tool


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
        ({"type": ["string", "integer", "boolean", "number"]}, "p: string|integer|boolean|number"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "p"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "p: string|string[]"),
        ({"oneOf": [{"const": n} for n in range(5)]}, "p: 0|1|2|3|4"),
        ({"oneOf": [{"const": n} for n in range(6)]}, "p: 0|1|2|3|4|~"),
        ({"anyOf": [{"const": letter * 30} for letter in "abc"]}, f'p: "{"a" * 30}"|~'),
        ({"enum": ["open", "closed"]}, 'p: "open"|"closed"'),
        ({"enum": list("abcdefgh")}, 'p: "a"|"b"|"c"|"d"|"e"|"f"|~'),
        ({"enum": ["x" * 100]}, f'p: "{"x" * 60}…"~'),
        ({"enum": ["a\u2028b", "\x1b[31m", "é"]}, r'p: "a\u2028b"|"\u001b[31m"|"é"'),
        ({"const": 5}, "p: 5"),
        ({"enum": [None]}, "p: null"),
        ({"type": "array"}, "p: any[]"),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, "p: (string|integer)[]"),
        ({"type": "object"}, "p: object"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, "p: {a}"),
        ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}, "p: {a?: integer, b?: any}"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "hidden"]}, "p: {a: any, hidden: any}"),
        ({"type": "object", "properties": {c: {} for c in "abcdefgh"}, "required": list("abcdefgh")}, "p: object~"),
        ({"properties": {"a": {"type": "object", "properties": {"b": {}}}}}, "p: {a?: {b?: any}}"),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "p"),
        (
            {"type": "array", "items": {"properties": {"a": {}, "b": {"type": "string"}}, "required": ["b"]}},
            "p: {b, a?: any}[]",
        ),
        (
            {
                "type": "array",
                "items": {"properties": {c * 12: {"type": "integer"} for c in "abc"}, "required": ["aaaaaaaaaaaa"]},
            },
            "p: {aaaaaaaaaaaa: integer, ~}[]",
        ),
        (
            {"type": "array", "items": {"properties": {c * 30: {} for c in "ab"}, "required": [c * 30 for c in "ab"]}},
            "p: object~[]",
        ),
        (
            {"type": "array", "items": {"anyOf": [{"properties": {"a": {}}}, {"type": "string"}]}},
            "p: ({a?: any}|string)[]",
        ),
        (
            {
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            "p: {a?, b?, ~}",
        ),
        ({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}, "p: {n=3}"),
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
    assert parameters(tool(raw)) == "p: any~[][][][][][]"


def test_many_optional_parameters_are_cut_with_a_mark() -> None:
    assert parameters(tool(definition("t", **{f"p{n}": "string?" for n in range(12)}))).endswith("p7?, ~")


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"required": ["a"]}, "a: any"),
        ({"$ref": "#/$defs/args"}, "x: integer, y?"),
        ({"$ref": "#/%24defs/args"}, "x: integer, y?"),
        ({"$ref": "#/$defs/nowhere"}, "~"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "a: {a: {a: {a: object~}}}"),
        ({"allOf": [{"$ref": "#/$defs/args"}, {"required": ["y"]}]}, "x: integer, y"),
        ({"allOf": [{"properties": {"a": {}}}], "required": ["a"]}, "a: any"),
        ({"anyOf": [{"required": ["a", "b"]}, {"required": ["a", "c"]}]}, "a: any, b?: any, c?: any, ~"),
        ({"oneOf": [{"$ref": "#/$defs/args"}, {"required": ["x"]}]}, "x: integer, y?"),
        (
            {"oneOf": [{"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in "ab"]},
            'kind: "a"|"b"',
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "b?: any, ~"),
        ({"dependentRequired": {"a": ["b"]}, "properties": {"a": {}, "b": {}}}, "a?: any, b?: any, ~"),
        ({"$dynamicRef": "#x"}, "~"),
        ({"allOf": "nonsense", "anyOf": [], "oneOf": {}, "required": "a", "properties": []}, ""),
    ],
)
def test_parameters_are_found_wherever_they_are_declared(schema: dict[str, Any], text: str) -> None:
    args = {"properties": {"x": {"type": "integer"}, "y": {"type": "string"}}, "required": ["x"]}
    made = tool(definition("t"))
    made = replace(made, input_schema={"type": "object", **schema, "$defs": {"args": args}})
    assert parameters(made) == text
    assert summary_line(made).startswith(f"fake.t({'~' if text else ''})")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "default": 10}, "p=10"),
        ({"type": "boolean", "default": False}, "p=false"),
        ({"type": "number", "default": 0.5}, "p=0.5"),
        ({"type": ["integer", "null"], "default": None}, "p?: integer"),
        ({"type": "integer", "default": 123456789}, "p?: integer"),
        ({"type": "string", "default": "x"}, "p?"),
        ({"$ref": "#/$defs/n", "default": 7}, "p=7"),
    ],
)
def test_a_default_stands_in_for_the_type_of_a_number_or_switch(schema: dict[str, Any], text: str) -> None:
    raw = {
        "name": "t",
        "inputSchema": {"type": "object", "properties": {"p": schema}, "$defs": {"n": {"type": "integer"}}},
    }
    assert parameters(tool(raw)) == text
    required = {**raw["inputSchema"], "required": ["p"]}
    assert "=" not in parameters(tool({"name": "t", "inputSchema": required}))


@pytest.mark.parametrize("name", ["a b", "a, b", "a?", "x: integer", "a\nb", "a\u202eb", 'say "a"', "", "a~", "{a}"])
def test_a_name_with_signs_of_ours_is_quoted(name: str) -> None:
    made = tool(
        {"name": "t", "inputSchema": {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}}
    )
    assert json.loads(parameters(made)) == name
    assert parameters(made).isprintable()


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
def test_four_hundred_required_parameters_are_all_named_and_nothing_else() -> None:
    names = [f"parameter_{n}" for n in range(400)]
    text = parameters(tool(definition("t", **dict.fromkeys(names, "integer"), other="string?")))
    assert text.split(", ") == [*names, "~"]


def test_a_list_that_is_too_long_loses_what_is_inside_objects_first() -> None:
    inner = {"type": "object", "properties": {"field": {"type": "integer"}, "other": {"enum": ["one", "two", "three"]}}}
    whole = parameters(tool(definition("t", **{f"object_{n}": inner for n in range(4)})))
    assert whole.count("{field?: integer") == 4
    text = parameters(tool(definition("t", **{f"object_{n}": inner for n in range(12)})))
    assert text == ", ".join(f"object_{n}: object~" for n in range(12))
    assert max(len(whole), len(text)) <= LIST_LENGTH


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("Reads a file from the disk. Then more.", "Reads a file from the disk"),
        ("Short. Then the rest of it goes on", "Short. Then the rest of it goes on"),
        ("One line\nand the next", "One line and the next"),
        ("First paragraph\n\nSecond", "First paragraph"),
        ("\n\n  # Heading of it\n\nThen text", "Heading of it"),
        ("Update a page's text\nError Responses:\n400: Bad request", "Update a page's text"),
        ("Make a thing of two\n- one\n- two", "Make a thing of two"),
        ("Work with resources (e.g. pods) of a cluster. More", "Work with resources (e.g. pods) of a cluster"),
        ("This tool reads all of it", "Reads all of it"),
        ("Use this to read all of it", "Read all of it"),
        ("Tool", "Tool"),
        ("see\x1b[31m the\u202e end\u200b of it", "See[31m the end of it"),
        ("a" * 5_000, "A" + "a" * 27 + "…"),
        ("word " * 40, "Word word word word word…"),
        ("word (aside, aside, aside) word word", "Word word word"),
    ],
)
def test_the_first_sentence_is_taken(text: str, line: str) -> None:
    assert first_sentence(text, 28 if "word" in text or "aa" in text else 90) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Create a new issue in a repository.", "Create a new issue in a repository"),
        ("Create a new issue", ""),
        ("Creates issues.", ""),
        ("GitHub | Create an issue with labels", "Create an issue with labels"),
        ("Warning | Create an issue with labels", "Warning | Create an issue with labels"),
        ("Note: makes an issue", "Note: makes an issue"),
        ("", ""),
        ("创建一个新问题", "创建一个新问题"),
    ],
)
def test_what_the_name_says_already_is_not_said_again(text: str, line: str) -> None:
    made = tool(definition("create_issue", text), server="github")
    assert purpose(made) == line
    assert signature(made) == "github.create_issue() [write]" + (f" {line}" if line else "")


leaf = st.sampled_from(
    [
        {},
        {"type": "string"},
        {"type": "integer"},
        {"enum": ["a", "b\nc", "d\u2028e", "f\x85"]},
        {"type": "boolean", "default": True},
        {"enum": ["x" * 500, {"y": ["z" * 500]}]},
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


def names_in(text: str) -> Iterator[str]:
    """The names at the top of a parameter list, read by the grammar of the reference."""
    depth, quoted, start = 0, False, 0
    for position, sign in enumerate(f"{text}, "):
        quoted ^= sign == '"' and not is_escaped(text, position)
        depth += 0 if quoted else (sign in "{([") - (sign in "})]")
        if sign == "," and depth == 0 and not quoted:
            part, start = text[start:position].strip(), position + 1
            if part.startswith('"'):
                yield json.JSONDecoder().raw_decode(part)[0]
            elif part != "~":
                yield part.split(":")[0].split("=")[0].removesuffix("?")


def is_escaped(text: str, position: int) -> bool:
    before = text[:position]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def always_required(schema: dict[str, Any]) -> set[str]:
    """What a call must have: said at the root and in every part that holds in any case."""
    parts = [schema, *schema.get("allOf", [])]
    return {name for part in parts for name in part.get("required", [])}


@st.composite
def input_schemas(draw: st.DrawFn) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, nested, max_size=14))
    some = st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([])
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": [*draw(some), "beyond"]}
    if draw(st.booleans()):
        schema["allOf"] = [{"required": draw(some)}, {"properties": {"more": {}}, "required": ["more"]}]
    if draw(st.booleans()):
        schema["anyOf"] = [{"required": draw(some)}, {"required": draw(some)}]
    return schema


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
@settings(max_examples=150)
@given(input_schemas(), st.text(max_size=200))
def test_no_required_parameter_is_left_out_and_the_line_stays_one(schema: dict[str, Any], text: str) -> None:
    try:
        made = tool({"name": "t", "description": text, "inputSchema": schema})
    except KeyError:
        return  # refused by the catalog, for instance for a lone surrogate
    required = always_required(schema)
    for card in variants_of(made, Level.PARAMETERS).cards:
        assert card.text.isprintable()
        if card.level is Level.PARAMETERS:
            assert card.text.startswith("fake.t(")
    for optional in (8, 3, 0):
        listed = parameters(made, optional=optional)
        assert required <= set(names_in(listed))
        assert len(listed) <= LIST_LENGTH or listed.endswith("~")
    assert example_arguments(made).keys() >= required
    assert ("~" in listed) >= bool(schema["properties"].keys() - set(names_in(listed)))


@pytest.mark.requirement("P-SIGNATURE-SHORT")
def test_a_signature_costs_a_few_dozen_tokens() -> None:
    counter = TokenEstimate()
    costs = [counter.count(signature(tool(raw))) for raws in generate(10, 60).values() for raw in raws]
    assert sum(costs) / len(costs) < 60


@pytest.fixture(scope="module")
def fleet() -> list[Tool]:
    definitions = load_fleet()
    if definitions is None:
        pytest.skip(f"{FLEET_VARIABLE} names no file with the definitions of real servers")
    return list(make_test_app(definitions).gateway.snapshot.tools.values())


@pytest.mark.requirement("P-SIGNATURE-COMPLETE")
def test_no_real_tool_loses_a_required_parameter(fleet: list[Tool]) -> None:
    for made in fleet:
        for optional in (8, 3, 0):
            assert set(made.required) <= set(names_in(parameters(made, optional=optional))), made.handle
        assert signature(made).isprintable()


@pytest.mark.requirement("P-SIGNATURE-SHORT")
def test_signatures_of_real_tools_are_short_and_rarely_shortened(fleet: list[Tool]) -> None:
    lines = [signature(made) for made in fleet]
    assert sum(map(TokenEstimate().count, lines)) / len(lines) <= 38.5
    assert sum("~" in line for line in lines) / len(lines) <= 0.15
