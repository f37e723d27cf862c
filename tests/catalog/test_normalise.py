"""One bad definition is refused with a reason; everything else passes, mended where it must be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.normalise import DEFINITION_LIMIT, DESCRIPTION_LIMIT, TAG_LENGTH, TAGS_LIMIT, normalise
from portico.domain.tool import Effect
from portico.errors import InvalidDefinition
from portico.testing import make_test_app

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
KEYWORDS = "type properties $ref $defs allOf anyOf oneOf not items required enum const default $id pattern if".split()
REFERENCES = ["#", "#/", "#/$defs/a", "#/allOf/0", "#/allOf/²", "#/properties/a", "#a", "http://x/y", "%", "#/%zz"]
schemas = st.recursive(
    st.sampled_from([*REFERENCES, "object", "string", True, False, None, 1, {}, []]),
    lambda inner: (
        st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=15,
)


def with_schema(**schema: Any) -> dict[str, Any]:
    return {"name": "x", "inputSchema": {"type": "object", **schema}}


def is_taken(raw: object) -> bool:
    """Whether intake takes a definition; any exception but its own is a bug."""
    try:
        normalise(raw)
    except InvalidDefinition:
        return False
    return True


def refusal(raw: object) -> str:
    with pytest.raises(InvalidDefinition) as caught:
        normalise(raw)
    return str(caught.value)


@pytest.mark.requirement("P-INTAKE-REFUSES", "T10", "T27")
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "null, not an object"),
        ("text", "a string, not an object"),
        ([], "an array, not an object"),
        ({}, "no name"),
        ({"name": ""}, "no name"),
        ({"name": "  "}, "no name"),
        ({"name": 5}, "no name"),
        ({"name": "a\nb"}, "control or invisible"),
        ({"name": "a\u202eb"}, "control or invisible"),
        ({"name": "x" * 600}, "600 characters"),
        ({"name": "x", "description": "y" * DEFINITION_LIMIT}, "256 KB"),
        ({"name": "x", "inputSchema": []}, "an array, not an object"),
        ({"name": "x", "inputSchema": True}, "a boolean, not an object"),
        ({"name": "x", "inputSchema": {"type": "string"}}, "'string'"),
        ({"name": "x", "inputSchema": {"type": ["string", "null"]}}, "a tool takes an object"),
        ({"name": "x", "inputSchema": {"type": None}}, "a tool takes an object"),
        ({"name": "x", "extra": object()}, "cannot be written as JSON"),
        ({"name": "x", "extra": 10**30}, "cannot be written as JSON"),
        ({"name": "x", "title": "\ud800"}, "cannot be written as JSON"),
        (with_schema(**{"$ref": "https://example.com/schema.json"}), "remote $ref"),
        (with_schema(properties={"a": {"$ref": "other.json#/x"}}), "remote $ref"),
        (with_schema(**{"$ref": "#"}), "lead only to each other"),
        (with_schema(**{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "lead only to each other"),
        (with_schema(**{"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}), "lead only to each other"),
        (with_schema(**{"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}}), "lead only"),
        (with_schema(**{"$defs": {"a": {"oneOf": [{"not": {"$ref": "#/$defs/a"}}]}}}), "lead only to each other"),
        (with_schema(**{"$defs": {"a b": {"$ref": "#/$defs/a%20b"}}}), "lead only to each other"),
        (with_schema(**{"$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}}), "lead only to each other"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused_with_a_reason(raw: object, reason: str) -> None:
    assert reason in refusal(raw)


@pytest.mark.requirement("P-INTAKE-REFUSES")
def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(110):
        schema = {"type": "object", "properties": {"a": schema}}
    assert "deeper than 100" in refusal({"name": "x", "inputSchema": schema})
    deeper: Any = 1
    for _ in range(10_000):
        deeper = {"a": deeper}
    assert "cannot be written as JSON" in refusal({"name": "x", "inputSchema": {"default": deeper}})


@pytest.mark.requirement("P-INTAKE-RECURSIVE")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"child": {"$ref": "#"}}},
        {"properties": {"t": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
        {"$defs": {"n": {"anyOf": [{"type": "null"}, {"properties": {"next": {"$ref": "#/$defs/n"}}}]}}},
        {
            "$defs": {
                "a": {"properties": {"b": {"$ref": "#/$defs/b"}}},
                "b": {"properties": {"a": {"$ref": "#/$defs/a"}}},
            }
        },
        {"properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        {"$id": "https://example.com/own", "properties": {"a": {"$ref": "https://example.com/own#/$defs/b"}}},
    ],
)
def test_a_recursive_type_is_fine(schema: dict[str, Any]) -> None:
    assert normalise(with_schema(**schema)).name == "x"


@pytest.mark.parametrize(
    "properties",
    [
        {"$ref": {"type": "string"}},
        {"$ref": {"type": "string"}, "default": {"type": "object", "properties": {"$ref": {"type": "string"}}}},
        {"properties": {"type": "object", "properties": {"properties": {"type": "string"}}}},
        {"enum": {"type": "string", "enum": [{"$ref": "https://example.com/data-not-a-schema"}]}},
        {"a": {"type": "string", "default": {"$ref": "https://example.com/data"}, "examples": [{"$ref": "http://x"}]}},
        {"a": {"const": {"$ref": "http://x"}}},
    ],
)
def test_a_parameter_or_value_that_looks_like_a_keyword_is_not_mistaken(properties: dict[str, Any]) -> None:
    found = normalise(with_schema(properties=properties))
    assert found.input_schema["properties"] == properties
    assert found.notes == ()


@pytest.mark.requirement("P-INTAKE-CUTS", "T33")
def test_a_long_description_is_cut_with_a_marker() -> None:
    found = normalise({"name": "x", "description": "word " * 10_000, "inputSchema": {"type": "object"}})
    assert len(found.description) < DESCRIPTION_LIMIT + 60
    assert found.description.endswith("[…cut, 42,000 more characters]")
    assert "50,000 characters" in found.notes[0]


@pytest.mark.parametrize("output", [[], "x", True, {"$ref": "https://example.com/x"}, {"allOf": [{"$ref": "#"}]}])
def test_a_bad_output_schema_is_dropped_with_a_note(output: object) -> None:
    found = normalise({"name": "x", "inputSchema": {"type": "object"}, "outputSchema": output})
    assert found.output_schema is None
    assert "outputSchema" not in found.raw
    assert "outputSchema was dropped" in found.notes[0]


def test_a_missing_schema_means_a_tool_without_parameters() -> None:
    found = normalise({"name": "x"})
    assert found.input_schema == {"type": "object", "properties": {}}
    assert "no inputSchema" in found.notes[0]


@pytest.mark.requirement("P-INTAKE-MENDS")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", 5),
        ("annotations", "none"),
        ("annotations", None),
        ("icons", "icon.png"),
        ("icons", [{"href": "x"}]),
        ("execution", []),
        ("_meta", "text"),
    ],
)
def test_an_optional_field_of_the_wrong_shape_is_left_out(field: str, value: object) -> None:
    found = normalise({"name": "x", "inputSchema": {"type": "object"}, field: value})
    assert field not in found.raw
    assert field in found.notes[0]


@pytest.mark.requirement("P-INTAKE-MENDS")
def test_annotations_keep_what_is_well_formed() -> None:
    hints = {"readOnlyHint": True, "destructiveHint": "no", "title": None, "own": 1}
    found = normalise({"name": "x", "inputSchema": {"type": "object"}, "annotations": hints})
    assert found.raw["annotations"] == {"readOnlyHint": True, "own": 1}
    assert found.effect is Effect.READ


@pytest.mark.requirement("P-INTAKE-MENDS")
@pytest.mark.parametrize(
    ("schema", "mended"),
    [
        ({"properties": {}}, {"properties": {}, "type": "object"}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"type": "object", "properties": None}, {"type": "object"}),
        ({"type": "object", "required": "a"}, {"type": "object", "required": []}),
        ({"type": "object", "required": ["a", 5, None]}, {"type": "object", "required": ["a"]}),
    ],
)
def test_a_schema_that_a_strict_client_would_refuse_is_mended(schema: dict[str, Any], mended: dict[str, Any]) -> None:
    given_ = {"name": "x", "inputSchema": schema}
    before = repr(given_)
    found = normalise(given_)
    assert found.input_schema == found.raw["inputSchema"] == mended
    assert len(found.notes) == 1
    assert repr(given_) == before


@pytest.mark.requirement("T40")
@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        (None, Effect.WRITE),
        ({}, Effect.WRITE),
        ({"readOnlyHint": True}, Effect.READ),
        ({"readOnlyHint": "true"}, Effect.WRITE),
        ({"destructiveHint": True}, Effect.DESTRUCTIVE),
        ({"readOnlyHint": True, "destructiveHint": True}, Effect.READ),
    ],
)
def test_what_annotations_leave_open_counts_as_write(annotations: object, effect: Effect) -> None:
    assert normalise({"name": "x", "inputSchema": {"type": "object"}, "annotations": annotations}).effect is effect


@pytest.mark.requirement("P-INTAKE-REFUSES")
def test_one_bad_definition_does_not_stop_the_others() -> None:
    application = make_test_app({"s": [{"name": "a"}, {"name": ""}, "junk", {"name": "a"}, {"name": "b"}]})  # type: ignore[list-item]
    snapshot = application.gateway.snapshot
    assert [id.name for id in snapshot.tools] == ["a", "b"]
    assert [(r.name, r.reason.split(":")[0]) for r in snapshot.rejected] == [
        ("(no name)", "it has no name"),
        ("(no name)", "the definition is a string, not an object"),
        ("a", "a second tool of this name"),
    ]


def bombs() -> dict[str, dict[str, Any]]:
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)} | {
        "a60": {"type": "object"}
    }
    wide = {f"p{n}": {"type": "string"} for n in range(10_000)}
    return {
        "fan-out": with_schema(**{"$ref": "#/$defs/a0", "$defs": doubling}),
        "wide": with_schema(properties=wide),
        "many values": with_schema(properties={"a": {"enum": list(range(40_000))}}),
        "too many values": with_schema(properties={"a": {"enum": list(range(1_000_000))}}),
        "parts": with_schema(allOf=[{}] * 60_000),
        "chain": with_schema(**{"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}}),
        "ring": with_schema(**{"$defs": {f"d{n}": {"$ref": f"#/$defs/d{(n + 1) % 3_000}"} for n in range(3_000)}}),
        "ten megabytes": with_schema(description="x" * 10_000_000),
    }


@pytest.mark.requirement("P-INTAKE-BOMBS", "T35")
@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", bombs())
def test_a_schema_bomb_is_judged_at_once(name: str) -> None:
    assert is_taken(bombs()[name]) is (name in ("wide", "many values", "chain"))


@pytest.mark.requirement("P-INTAKE-NEVER-RAISES", "F50")
@pytest.mark.timeout(60, method="thread")  # the other method raises inside an example, which is then tried again
@settings(max_examples=300)
@given(json_values, json_values, json_values)
def test_arbitrary_json_is_taken_or_refused_and_never_breaks_intake(raw: object, schema: object, extra: object) -> None:
    for given_ in (
        raw,
        {"name": "x", "inputSchema": schema, "annotations": extra, "outputSchema": raw, "title": extra},
    ):
        assert is_taken(given_) in (True, False)


@pytest.mark.requirement("P-INTAKE-NEVER-RAISES")
@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(KEYWORDS), schemas, max_size=5))
def test_arbitrary_schemas_are_taken_or_refused(schema: dict[str, Any]) -> None:
    assert is_taken({"name": "x", "inputSchema": {**schema, "type": "object"}}) in (True, False)


@pytest.mark.requirement("P-TAGS")
@pytest.mark.parametrize(
    "place",
    [
        {"tags": ["a", "B c"]},
        {"annotations": {"tags": ["a", "B c"]}},
        {"_meta": {"tags": ["a", "B c"]}},
        {"_meta": {"fastmcp": {"tags": ["a", "B c"]}}},
        {"_meta": {"_fastmcp": {"tags": ["a", "B c"]}}},
        {"tags": ["a"], "_meta": {"fastmcp": {"tags": ["A", " B \n c "]}}},
    ],
)
def test_tags_are_found_where_libraries_put_them(place: dict[str, Any]) -> None:
    assert normalise({**with_schema(), **place}).tags == ("a", "B c")
    assert make_test_app({"s": [{**with_schema(), **place}]}).gateway.snapshot.tools.popitem()[1].tags == ("a", "B c")


@pytest.mark.requirement("P-TAGS")
@pytest.mark.parametrize(
    "tags", ["text", 5, {"a": 1}, None, [1, None, ["a"], {}], ["", "  ", "x" * (TAG_LENGTH + 1), "\x00", "\u202ea"]]
)
def test_what_is_no_tag_is_left_out(tags: object) -> None:
    assert normalise({**with_schema(), "tags": tags, "_meta": {"fastmcp": tags}}).tags == ()


@pytest.mark.requirement("P-TAGS")
def test_a_tool_has_a_handful_of_tags_and_no_more() -> None:
    assert len(normalise({**with_schema(), "tags": [f"t{number}" for number in range(500)]}).tags) == TAGS_LIMIT
