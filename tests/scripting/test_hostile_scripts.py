"""What a script sends, says and gets wrong costs the gateway little, and tells the script nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from portico.errors import ScriptError
from portico.scripting.hints import hints
from tests.scripting.fake_api import Runner

SIZE = 256_000
HOSTILE_SOURCES = {
    "comments that never end": "\n--[[" * (SIZE // 5),
    "texts that never end": "[[" * (SIZE // 2),
    "texts of every level": "".join("[" + "=" * level + "[" for level in range(700)),
    "quotes that never end": '"' + '\\"' * (SIZE // 2),
    "single quotes that never end": "'" + "\\'" * (SIZE // 2),
    "a local and much space": "local " + " " * SIZE + "x result(",
    "many locals": "local " * (SIZE // 6) + "result(",
    "many functions": "=...," + "function." * (SIZE // 9),
    "many functions in a word": "=...," + "function" * (SIZE // 8),
    "many open functions": "=...," + "function(a," * (SIZE // 11),
    "many dots": "=... " * (SIZE // 5),
}
NEST = """
local function nested(value, levels) for _ = 1, levels do value = array({ value }) end return value end
local many = {}
"""


@pytest.mark.parametrize("name", HOSTILE_SOURCES)
def test_hints_are_found_in_a_time_in_proportion_to_the_source(name: str):
    """In a process that can be ended: a search that goes back and forth would take minutes, and hold up the gateway."""
    code = """
import sys
from portico.scripting.hints import hints
hints(sys.stdin.read(), "near expected result (global 'x') index not awaited", ["calculator"])
"""
    source = HOSTILE_SOURCES[name]
    subprocess.run([sys.executable, "-c", code], input=source, text=True, timeout=20, check=True)


@pytest.mark.parametrize(
    "source",
    [
        "local result = 1 result(result)",
        "local a, b, result = f() result(a)",
        "local a\nlocal result = 2 result(result)",
    ],
)
def test_a_shadowed_result_is_still_seen(source: str):
    assert any("hides the function result()" in hint for hint in hints(source, "'result' is a number", []))


def test_a_function_that_takes_any_number_of_values_is_no_placeholder():
    source = "local function all.of:them (a, ...) local t = { ... } end"
    assert hints(source, "x", []) == []
    assert hints("calculator.add({ a = ... })", "x", []) != []


@pytest.mark.requirement("T60")
@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ("for i = 1, 6e5 do many[i] = array() end result(many)", "output_bytes"),
        ("for i = 1, 2e4 do many[i] = nested(1, 9) end result(many)", "output_bytes"),
        ("local one = array() for i = 1, 6e5 do many[i] = one end calculator.echo({ value = many })", "memory_mb"),
        ("for i = 1, 2e5 do many[i] = 1 end calculator.echo({ value = many })", "memory_mb"),
    ],
)
def test_more_values_than_the_gateway_reads_at_once_are_refused(run: Runner, values: str, limit: str):
    error = run.error(NEST + values, output_bytes=10_000_000, memory_mb=128)
    assert "more than 100000 values (tables count twice) are in" in error.reason
    assert error.limit == limit
    assert run.fake.calls == []


def test_many_values_still_pass(run: Runner):
    assert len(run.value("local t = {} for i = 1, 99000 do t[i] = i end return t")) == 99_000
    assert len(run.value("local t = {} for i = 1, 49000 do t[i] = {} end return t")) == 49_000
    assert run.value("local t = {} for i = 1, 2e5 do t[i] = i end return #json.encode(t)") > 1_000_000


def test_an_integer_that_no_other_reader_takes_is_refused_where_it_is_read(run: Runner):
    assert "an integer of more than 1000 digits" in run.error("return json.decode(('9'):rep(5000))").reason
    digits = "9" * 1000
    assert run.value("return calculator.echo({ value = json.decode(('9'):rep(1000)) }):await()") == int(digits)


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_arguments_that_are_nested_too_deep_are_reported_as_such(run: Runner):
    with pytest.raises(ScriptError, match=r"its arguments cannot be read: .*nested deeper than 200 levels") as caught:
        run("return 1", {"x": _deep(220)})
    assert caught.value.limit == ""


def test_arguments_without_a_place_in_memory_are_not_sent(run: Runner):
    with pytest.raises(ScriptError, match="its source and arguments take 9,000,") as caught:
        run("return 1", {"x": "y" * 9_000_000}, memory_mb=16)
    assert caught.value.limit == "memory_mb"


def test_a_number_that_is_none_beside_a_large_one_is_refused(run: Runner):
    with pytest.raises(ScriptError, match="its arguments are not JSON"):
        run("return 1", {"x": float("nan"), "y": 2**70})


def test_an_error_that_claims_a_line_is_reported_as_it_is(run: Runner):
    error = run.error("error('script:99999999999999999999: boo', 0)")
    assert (error.limit, error.reason) == ("", "script:99999999999999999999: boo")


def test_a_tool_whose_name_is_a_book_is_refused(run: Runner):
    assert "a tool's name is text" in run.error("calculator[('a'):rep(3e6)]()").reason


def test_an_array_can_be_marked_again(run: Runner):
    assert run.value("local list = array() return { array(list) == list, array(array({ 1 })) }") == [True, [1]]


def test_calls_of_finalisers_never_get_the_answers_of_others(run: Runner):
    source = """
    for i = 1, 3000 do setmetatable({}, { __gc = function() pcall(calculator.echo, { value = -i }) end }) end
    local made = {}
    for i = 1, 200 do made[i] = calculator.echo({ value = { i, ("x"):rep(5000) } }) end
    for i = 1, 200 do assert(made[i]:await()[1] == i) end
    return true
    """
    assert run.value(source, calls=100_000) is True


PROVOKE = r"""
local given = { {}, { {} }, { print }, { "x" }, { -1 }, { 1 << 62 }, { 0 / 0 }, { null }, { calculator }, { servers },
  { {}, {} }, { "x", {} }, { "x", print }, { {}, "x" }, { print, print }, { "%", "%" }, { "[", "[" }, { "%d", "x" },
  { "x", 1, {} }, { {}, 1, 1e9 }, { coroutine.create(print), {} } }
local told, seen = array(), {}
local function note(name, problem)
  local text = name .. ": " .. (type(problem) == "string" and problem or tostring(problem))
  if not seen[text] then seen[text] = true told[#told + 1] = text end
end
local function provoke(name, one)
  for _, values in ipairs(given) do
    local ok, problem = pcall(one, table.unpack(values))
    if not ok then note(name, problem) end
  end
end
for name, value in pairs(_G) do
  if type(value) == "function" and name ~= "print" and name ~= "result" then provoke(name, value) end
  if type(value) == "table" and value ~= _G then
    for field, one in next, value do if type(one) == "function" then provoke(name .. "." .. field, one) end end
  end
end
for _, name in ipairs({ "echo", "fail", "strange", "nowhere" }) do
  provoke("calculator." .. name, function(...) return calculator[name](...):await() end)
end
for _, name in ipairs({ "search", "nothing" }) do
  provoke("_gateway." .. name, function(...) return _gateway[name](...):await() end)
end
provoke("index", function(v) return v.x.y end)
provoke("call", function(v) return v() end)
provoke("arithmetic", function(v) return v + {} end)
provoke("order", function(v) return v < {} end)
provoke("load", function(v) return assert(load(v)) end)
for level = 0, 30 do provoke("error at " .. level, function(v) error(v, level) end) end
return told
"""


@pytest.mark.requirement("S3-22", "T64")
def test_no_error_tells_where_anything_lies(run: Runner):
    told = run.value(PROVOKE, calls=100_000, output_bytes=2_000_000)
    assert len([text for text in told if not text.startswith("error at")]) >= 200
    sign = re.compile(r"0x|(?<!\w)/\w|\.py|lupa|Traceback|userdata")
    assert [text for text in told if sign.search(text)] == []
