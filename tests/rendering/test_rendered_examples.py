"""Every example that is printed passes the tool's own schema, and so does every next call."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalogue import FLEET_VARIABLE, generate, load_fleet

from portico.domain.search_answers import Level
from portico.domain.tool import Tool
from portico.errors import InvalidArguments
from portico.execution.arguments import ArgumentCheck
from portico.rendering.cards import as_meta_tool, example_arguments, example_value, variants_of
from portico.rendering.schema_examples import proposals, text_like
from portico.testing import tool
from portico.tiers.tools_as_json import examples

Schema = dict[str, Any]


def made(schema: Schema) -> Tool:
    return tool({"name": "t", "description": "", "inputSchema": {"type": "object", **schema}})


def allows(schema: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(value)


def nested(levels: int, inner: Schema) -> Schema:
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


HARD: dict[str, Schema] = {
    "deep objects": nested(12, {"type": "integer", "minimum": 7}),
    "at least so many items": nested(1, {"type": "array", "items": {"type": "string"}, "minItems": 3}),
    "first items": nested(1, {"type": "array", "prefixItems": [{"type": "number"}, {"const": "x"}], "minItems": 2}),
    "unique items": nested(1, {"type": "array", "items": {"type": "integer"}, "minItems": 4, "uniqueItems": True}),
    "unique choices": nested(1, {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": True}),
    "one that is contained": nested(1, {"type": "array", "contains": {"const": 5}}),
    "either of two": {
        "properties": {"sql": {"type": "string"}, "table": {"type": "string"}},
        "anyOf": [{"required": ["sql"]}, {"required": ["table"]}],
    },
    "exactly one of two": {
        "properties": {"sql": {"type": "string"}, "table": {"type": "string"}},
        "oneOf": [{"required": ["sql"]}, {"required": ["table"]}],
    },
    "all of them": {
        "allOf": [
            {"properties": {"a": {"type": "integer", "minimum": 2}}, "required": ["a"]},
            {"properties": {"a": {"maximum": 3}, "b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "references": {
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "required": ["a"],
        "$defs": {
            "x": {"type": "object", "properties": {"b": {"$ref": "#/$defs/y"}}, "required": ["b"]},
            "y": {"const": 3},
        },
    },
    "a recursive type": {
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"],
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
                "required": ["v", "next"],
            }
        },
    },
    "bounds": nested(1, {"type": "integer", "exclusiveMinimum": 10, "maximum": 12}),
    "fractions": nested(1, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    "negative numbers": nested(1, {"type": "number", "maximum": -3.5}),
    "multiples": nested(1, {"type": "integer", "multipleOf": 7, "minimum": 20}),
    "long texts": nested(1, {"type": "string", "minLength": 40}),
    "short texts": nested(1, {"type": "string", "maxLength": 1}),
    "a pattern": nested(1, {"type": "string", "pattern": "^[A-Z]{2,5}-\\d+$"}),
    "alternatives in a pattern": nested(1, {"type": "string", "pattern": "^(?:open|closed)(_all)?$"}),
    "a date": nested(1, {"type": "string", "format": "date", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"}),
    "an example that does not fit": nested(1, {"type": "integer", "examples": ["five"], "default": "six"}),
    "a default that does not fit": nested(1, {"enum": ["a", "b"], "default": "c"}),
    "nothing but names": {"required": ["a", "b"]},
    "several properties": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "minProperties": 2},
    "any properties": {"minProperties": 2, "additionalProperties": {"type": "integer"}},
    "one needs the other": {
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a"],
        "dependentRequired": {"a": ["b"]},
    },
    "a condition": {
        "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["x"]},
    },
    "the second branch": nested(1, {"anyOf": [False, {"type": "integer"}]}),
    "a branch that cannot be": {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer"}},
        "oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}],
    },
}


@pytest.mark.requirement("P-EXAMPLES-RUN")
@pytest.mark.parametrize("kind", HARD)
def test_an_example_passes_its_schema(kind: str) -> None:
    found = example_arguments(made(HARD[kind]))
    assert found is not None
    assert allows({"type": "object", **HARD[kind]}, found)


SMALL = st.integers(-9, 9)
TEXTS = st.text("abc ä", max_size=3)
schemas = st.recursive(
    st.one_of(
        st.builds(
            lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
            st.integers(-9, 9),
            st.integers(0, 9),
        ),
        st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, SMALL),
        st.builds(
            lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        st.builds(lambda values: {"enum": values}, st.lists(SMALL | TEXTS, min_size=1, unique=True)),
        st.builds(lambda value: {"const": value}, SMALL | TEXTS),
        st.sampled_from(
            [
                {"type": "boolean"},
                {"type": "null"},
                {},
                {"type": "string", "format": "uuid"},
                {"type": ["null", "integer"]},
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.builds(lambda of, least: {"type": "array", "items": of, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(
            lambda of: {"type": "array", "prefixItems": of, "minItems": len(of)},
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(
            lambda of: {"type": "object", "properties": of, "required": [*of]},
            st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
        ),
        st.builds(lambda of: {"anyOf": of}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda of: {"allOf": [of]}, inner),
    ),
    max_leaves=12,
)


@pytest.mark.requirement("P-EXAMPLES-RUN")
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from("vwxyz"), schemas, min_size=1, max_size=4))
def test_examples_of_generated_schemas_pass_them(properties: dict[str, Any]) -> None:
    schema = {"properties": properties, "required": [*properties], "additionalProperties": False}
    found = example_arguments(made(schema))
    assert found is not None
    assert allows({"type": "object", **schema}, found)


WRONG = st.sampled_from([None, True, -(10**6), 10**6, "", "wrong", [], {}, [1, "a"], {"q": 1}])


@pytest.mark.requirement("P-NEXT-CALL-PASSES")
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from("vwxyz"), schemas, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from("uvwxyz"), WRONG, max_size=4),
)
def test_the_next_call_after_a_refused_one_would_pass(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    checked = made({"properties": properties, "required": [*properties], "additionalProperties": False})
    checks = ArgumentCheck()
    try:
        checks.check(checked, arguments)
    except InvalidArguments as error:
        refused = error
    else:
        return
    assert refused.next_call is not None
    assert refused.next_call.action == "call"
    proposed = refused.next_call.parameters["arguments"]
    assert checks.check(checked, proposed).notes == ()


@pytest.mark.requirement("P-NEXT-CALL-PASSES")
@pytest.mark.parametrize(
    ("schema", "given_", "proposed"),
    [
        ({"properties": {"limit": {"type": "integer", "minimum": 1}}}, {"limit": 0}, {"limit": 1}),
        ({"properties": {"limit": {"type": "integer", "maximum": 50}}}, {"limit": 99}, {"limit": 1}),
        ({"properties": {"state": {"enum": ["open", "closed"]}}}, {"state": "opened"}, {"state": "open"}),
        (
            {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a", "n"]},
            {"a": "kept"},
            {"a": "kept", "n": 1},
        ),
        (
            {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "additionalProperties": False},
            {"a": "kept", "m": 1},
            {"a": "kept"},
        ),
        (
            {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
            {"a": "kept", "n": "many"},
            {"a": "kept", "n": 1},
        ),
    ],
)
def test_the_next_call_keeps_what_was_right(schema: Schema, given_: Schema, proposed: Schema) -> None:
    with pytest.raises(InvalidArguments) as caught:
        ArgumentCheck().check(made(schema), given_)
    assert caught.value.next_call is not None
    assert caught.value.next_call.parameters["arguments"] == proposed


@pytest.mark.requirement("P-NEXT-CALL-PASSES")
def test_where_no_call_can_be_found_the_way_to_the_schema_is_told() -> None:
    odd = made({"properties": {"a": {"type": "string", "pattern": "^(?=.*x)(?=.*y).{9}$"}}, "required": ["a"]})
    with pytest.raises(InvalidArguments) as caught:
        ArgumentCheck().check(odd, {"a": "no"})
    assert caught.value.next_call is not None
    assert caught.value.next_call.action == "describe"
    assert "could be made" in variants_of(odd, Level.FULL, as_meta_tool).card(0).text
    assert examples(odd) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "^a+$",
        "[0-9]{3}",
        r"^\w+@\w+\.com$",
        "^(a|b)c?$",
        r"\$\{x\}",
        "",
        "^#[0-9a-fA-F]{6}$",
        r"^v\d+(\.\d+){2}$",
        "[^a]",
    ],
)
def test_a_text_like_a_pattern_matches_it(pattern: str) -> None:
    text = text_like(pattern)
    assert text is not None
    assert allows({"type": "string", "pattern": pattern}, text)


def test_a_schema_that_never_ends_is_given_up() -> None:
    endless = {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}}, "$ref": "#/$defs/n"}
    assert list(proposals(endless)) == []
    wide = {
        "properties": {f"p{n}": nested(3, {"type": "string"}) for n in range(5_000)},
        "required": [f"p{n}" for n in range(5_000)],
    }
    assert list(proposals(wide)) == []
    assert example_value(endless) == "..."


@pytest.mark.requirement("P-EXAMPLES-RUN")
def test_examples_of_a_large_catalogue_pass() -> None:
    definitions = generate(servers=20, tools=400)
    assert _failing(definitions) == []


@pytest.mark.requirement("P-EXAMPLES-RUN")
def test_examples_of_real_servers_pass() -> None:
    definitions = load_fleet()
    if definitions is None:
        pytest.skip(f"{FLEET_VARIABLE} names no file with the definitions of real servers")
    assert _failing(definitions) == []


def _failing(definitions: Any) -> list[str]:
    found = []
    for server, tools in definitions.items():
        for raw in tools:
            arguments = example_arguments(tool({**raw, "name": "t"}))
            if arguments is None or not allows(raw["inputSchema"], arguments):
                found.append(f"{server}.{raw['name']}")
    return found
