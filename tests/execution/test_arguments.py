"""Arguments: what is plainly meant is repaired, everything else is explained, and no schema makes it slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.tool import Tool
from portico.errors import InvalidArguments, Sent
from portico.execution.arguments import ArgumentCheck, Checked
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.surface import error_text
from portico.testing import definition, make_test_app, tool

STRINGS = {"type": "array", "items": {"type": "string"}}


def made(**parameters: Any) -> Tool:
    return tool(definition("t", **parameters))


def check(checked: Tool, **arguments: Any) -> Checked:
    return ArgumentCheck().check(checked, arguments)


def problems(checked: Tool, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        check(checked, **arguments)
    assert caught.value.sent is Sent.NOTHING
    return caught.value.details


def verdict(checked: Tool, arguments: dict[str, Any]) -> str:
    try:
        found = ArgumentCheck().check(checked, arguments)
    except InvalidArguments as error:
        return "explained" if error.details else "refused without a word"
    return "fits" if found.arguments.keys() == arguments.keys() else "lost"


@pytest.mark.requirement("P-ERROR-FORMAT")
def test_the_error_text_of_the_design() -> None:
    raw = definition("create_issue", "Create", owner="string", repo="string", title="string")
    raw["inputSchema"]["properties"]["assignees"] = STRINGS
    application = make_test_app({"github": [raw]})
    with pytest.raises(InvalidArguments) as caught:
        check(application.gateway.view(None).tools[0], owner="acme", repo="api", assignee="me")  # type: ignore[arg-type]
    assert error_text(caught.value, Discover(application.gateway).spell) == (
        "error invalid_arguments for github.create_issue; nothing was sent\n"
        "- missing: title (string)\n"
        "- unknown: assignee; did you mean assignees (string[])?\n"
        'next: call_tool({"name": "github.create_issue",'
        ' "arguments": {"owner": "acme", "repo": "api", "title": "..."}})'
    )


def test_arguments_that_fit_are_passed_on_as_they_are() -> None:
    arguments = {"a": "x", "b": 1}
    found = ArgumentCheck().check(made(a="string", b="integer"), arguments)
    assert found.arguments is arguments
    assert found.notes == ()


def test_every_problem_is_one_line() -> None:
    found = problems(made(a="string", b="integer", c="boolean"), b="many", d=1)
    assert found == ("missing: a (string)", "missing: c (boolean)", "unknown: d", 'b: "many" is not of type "integer"')


def test_a_wrong_value_deep_inside_is_named_by_its_path() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}}
    assert problems(made(a=inner), a={"x": [1, "b"]}) == ('a.x.1: "b" is not of type "integer"',)


def test_no_more_than_ten_problems_and_no_long_ones_are_reported() -> None:
    assert len(problems(made(**{f"p{n}": "string" for n in range(40)}))) == 10
    assert len(problems(made(a={"enum": ["x"]}), a="y" * 10_000)[0]) < 400


def test_a_parameter_that_an_open_schema_permits_is_not_called_unknown() -> None:
    raw = definition("t", a="string")
    raw["inputSchema"]["additionalProperties"] = True
    with pytest.raises(InvalidArguments) as caught:
        check(tool(raw), extra=1)
    assert caught.value.details == ("missing: a (string)",)
    assert caught.value.next_call is not None
    assert caught.value.next_call.parameters["arguments"] == {"extra": 1, "a": "..."}


@pytest.mark.requirement("P-REPAIR")
@pytest.mark.parametrize(
    ("schema", "given_", "meant"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " -7 ", -7),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        (STRINGS, '["a"]', ["a"]),
        (STRINGS, "a", ["a"]),
        ({"type": "string"}, 5, "5"),
        ({"type": "string"}, 2.5, "2.5"),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"oneOf": [{"type": "boolean"}, {"type": "object"}]}, "true", True),
    ],
)
def test_a_value_that_can_only_be_meant_one_way_is_repaired_with_a_note(schema: Any, given_: Any, meant: Any) -> None:
    found = check(made(a=schema), a=given_)
    assert found.arguments == {"a": meant}
    assert type(found.arguments["a"]) is type(meant)
    assert found.notes[0].startswith("a: took ")


@pytest.mark.requirement("P-REPAIR")
@pytest.mark.parametrize(
    ("schema", "given_"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "true"),
        ({"type": "integer"}, "1" * 5_000),
        ({"type": "integer"}, True),
        ({"type": "boolean"}, "yes"),
        ({"type": "boolean"}, 1),
        ({"type": "boolean"}, "1"),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "Infinity"),
        ({"type": "number"}, "1e999"),
        ({"type": "string"}, True),
        ({"type": "string"}, None),
        ({"type": "string"}, ["a"]),
        ({"type": "string"}, float("inf")),
        ({"type": "object"}, "[1]"),
        ({"type": "object"}, "[" * 100_000),
        ({"type": "integer", "maximum": 3}, "5"),
        ({"type": ["string", "integer"], "minLength": 3}, "5"),
        ({"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "integer"}]}, "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "array"}]}, "5"),
        ({"type": "integer"}, "null"),
    ],
)
def test_a_value_that_may_be_meant_otherwise_is_never_touched(schema: Any, given_: Any) -> None:
    assert problems(made(a=schema), a=given_)


def test_a_string_stays_a_string_wherever_text_is_allowed() -> None:
    found = check(made(a={"type": ["string", "integer"]}, b={}), a="5", b="true")
    assert found.arguments == {"a": "5", "b": "true"}


@pytest.mark.parametrize("value", [10**400, -(10**30), 2**63, 1e308, 0])
def test_big_numbers_are_numbers(value: float) -> None:
    assert check(made(a="number"), a=value).arguments == {"a": value}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", b"bytes", {"\ud800": 1}, {1, 2}])
def test_what_is_not_json_is_refused_in_our_own_words(value: object) -> None:
    assert problems(made(a="integer"), a=value)


@pytest.mark.requirement("T20")
def test_a_deeply_nested_value_is_judged_not_crashed_on() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    assert verdict(made(a="array"), {"a": value}) in ("fits", "explained")


@pytest.mark.parametrize(
    "schema", [{"type": "banana"}, {"pattern": "(["}, {"minimum": "x"}, {"$ref": "#/$defs/nowhere"}, {"enum": 5}]
)
def test_a_schema_that_is_not_json_schema_leaves_the_call_unchecked(schema: Any) -> None:
    assert check(made(a=schema), a={"any": "thing"}, b=1).notes == ()


@pytest.mark.requirement("P-NO-SLOW-PATTERNS", "T35")
@pytest.mark.timeout(90)
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(?=(a+)+$)(a|aa)+$", r"^(\w+\s?)*$", r"(x+x+)+y"])
def test_a_regex_bomb_ends_at_once(pattern: str) -> None:
    with pytest.raises(InvalidArguments):
        check(made(a={"type": "string", "pattern": pattern}), a="a" * 5_000 + "x" * 5_000 + "!")


@pytest.mark.requirement("P-NO-SLOW-PATTERNS", "T35")
@pytest.mark.timeout(90)
def test_a_recursive_schema_cannot_hold_the_gateway() -> None:
    twice = [{"properties": {"c": {"$ref": "#/$defs/n"}}}] * 2
    raw = definition("t", c={"$ref": "#/$defs/n"})
    raw["inputSchema"]["$defs"] = {"n": {"type": "object", "anyOf": twice}}
    value: Any = 1
    for _ in range(20):  # would take the validator minutes, in which no guard could stop it
        value = {"c": value}
    ArgumentCheck().check(tool(raw), value)
    with pytest.raises(InvalidArguments):
        ArgumentCheck().check(tool(raw), {"c": {"c": 1}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), json_values))
def test_arbitrary_arguments_fit_or_are_explained(arguments: dict[str, Any]) -> None:
    checked = made(a="integer", b={"type": ["boolean", "array"]}, c="string?")
    assert verdict(checked, arguments) in ("fits", "explained")
