"""Values, calls and examples as Lua source."""

from __future__ import annotations

import pytest

from portico.scripting.script_session import as_lua, lua_call, quote_lua
from portico.surfaces.lua_gateway.listing import example_script
from portico.testing import definition, tool


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (2.5, "2.5"),
        ("plain", '"plain"'),
        ('quote " and \\', '"quote \\" and \\\\"'),
        ("two\nlines", '"two\\nlines"'),
        ("zero\0", '"zero\\u{0}"'),
        ([], "array({})"),
        ({}, "{}"),
        ([1, "a"], '{ 1, "a" }'),
        ({"a": 1, "end": 2, "with space": 3}, '{ a = 1, ["end"] = 2, ["with space"] = 3 }'),
    ],
)
def test_a_value_of_json_is_spelled_as_the_lua_that_gives_it(value: object, source: str):
    assert as_lua(value) == source


@pytest.mark.requirement("S3-E8")
def test_a_text_cannot_leave_its_quotes():
    assert quote_lua('"]] os.exit() --') == '"\\"]] os.exit() --"'
    assert as_lua({'"] = os.exit() --': 1}) == '{ ["\\"] = os.exit() --"] = 1 }'


def test_a_call_stands_on_one_line():
    assert lua_call("calculator.add", {"a": 5, "b": 3}) == "calculator.add({ a = 5, b = 3 }):await()"
    assert lua_call("clock.now", {}) == "clock.now({}):await()"


@pytest.mark.requirement("S3-E1", "S3-E7", "S3-17")
def test_an_example_has_a_typed_value_for_each_parameter_and_does_not_hide_result():
    made = tool(definition("add", "", a="number", b="integer", note="string"), server="calculator")
    assert example_script(made) == (
        'local res = calculator.add({\n  a = 42,\n  b = 42,\n  note = "..."\n}):await()\nresult(res)'
    )


@pytest.mark.requirement("S3-17")
def test_optional_parameters_stand_behind_comments():
    made = tool(definition("find", "", text="string", limit="integer?"), server="notes")
    assert example_script(made) == (
        'local res = notes.find({\n  text = "...",\n  -- limit = 42,\n}):await()\nresult(res)'
    )
    assert "limit" not in example_script(made, optional=False)


def test_a_tool_without_parameters_is_called_with_an_empty_table():
    assert example_script(tool(definition("now"), server="clock")) == "local res = clock.now({}):await()\nresult(res)"


def test_what_a_schema_says_of_its_values_comes_before_a_placeholder():
    schemas = {"n": {"type": "integer", "maximum": 10}, "unit": {"type": "string", "enum": ["km", "mi"]}}
    assert example_script(tool(definition("go", "", **schemas), server="x")).startswith(
        'local res = x.go({\n  n = 1,\n  unit = "km"\n})'
    )
