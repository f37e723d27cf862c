"""Values cross the boundary exactly, or not at all and with a reason."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.scripting.protocol import dump_json
from tests.scripting.fake_api import Runner

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.sampled_from(["\ud800", "x\udc00y", "\u0000\u001f\u007f", '"\\/', "\u2028", "😀"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def exact(value: Any) -> str:
    """A spelling in which 1 and 1.0, 0.0 and -0.0 differ."""
    return json.dumps(value, sort_keys=True)


@settings(max_examples=10)
@given(values=st.lists(VALUES, min_size=100, max_size=100))
def test_values_go_in_and_out_unchanged(run: Runner, values: list[Any]):
    source = "local got = array() for i, v in ipairs(args.values) do got[i] = v end return got"
    assert exact(run.value(source, {"values": values})) == exact(values)


@pytest.mark.requirement("T60")
def test_five_thousand_values_go_in_and_out_unchanged(run: Runner):
    dice = random.Random(11)
    values = [_drawn(dice, 4) for _ in range(5_000)]
    source = "local got = array() for i, v in ipairs(args.values) do got[i] = v end return got"
    assert exact(run.value(source, {"values": values}, output_bytes=8_000_000)) == exact(values)


def _drawn(dice: random.Random, depth: int) -> Any:
    kind = dice.randrange(9 if depth else 7)
    if kind < 3:
        return dice.choice([None, True, False, "", "ä\u0000", "\udc00", -0.0, 0, 2**53 + 1, 2**63, -(2**70), 1e22, 1.0])
    if kind == 3:
        return dice.randrange(-(2 ** dice.randrange(1, 90)), 2**64)
    if kind == 4:
        return dice.uniform(-1, 1) * 10.0 ** dice.randrange(-300, 300)
    if kind < 7:
        return "".join(chr(dice.choice([dice.randrange(128), dice.randrange(0xE000, 0x110000)])) for _ in range(8))
    inner = [_drawn(dice, depth - 1) for _ in range(dice.randrange(5))]
    return inner if kind == 7 else {str(number): value for number, value in enumerate(inner)}


@settings(max_examples=10)
@given(values=st.lists(VALUES, max_size=50))
def test_values_reach_a_tool_and_come_back_unchanged(run: Runner, values: list[Any]):
    assert exact(run.value("return calculator.echo({ value = args.values }):await()", {"values": values})) == exact(
        values
    )
    assert exact(run.fake.calls[0][2]) == exact({"value": values})


@settings(max_examples=10)
@given(values=st.lists(VALUES, max_size=50))
def test_json_in_a_script_is_that_of_everyone(run: Runner, values: list[Any]):
    texts = [dump_json(value).decode("utf-8", "surrogatepass") for value in values]
    ascii_texts = [json.dumps(value, indent=1) for value in values]
    source = """
    local back = array()
    for i, text in ipairs(args.texts) do back[i] = json.encode(json.decode(text)) end
    return back
    """
    for given_texts in (texts, ascii_texts):
        back = run.value(source, {"texts": given_texts}, output_bytes=8_000_000)
        assert [exact(json.loads(text)) for text in back] == [exact(value) for value in values]


def test_numbers_keep_their_kind(run: Runner):
    numbers = [2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1, 10**40, 1.0, -0.0, 0.1, 1e300, 5e-324, 0]
    assert exact(run.value("return args.n", {"n": numbers})) == exact(numbers)
    assert exact(run.value("return { 1, 1.0, 10 // 3, 10 / 5, 2 ^ 53, 1e15, -0.0, math.mininteger }")) == exact(
        [1, 1.0, 3, 2.0, 2.0**53, 1e15, -0.0, -(2**63)]
    )


def test_large_integers_can_be_compared_and_shown(run: Runner):
    source = """
    local a, b = json.decode("99999999999999999999"), args.big
    return { a == b, a == json.decode("99999999999999999998"), tostring(a), b }
    """
    assert run.value(source, {"big": 99999999999999999999}) == [
        True,
        False,
        "99999999999999999999",
        99999999999999999999,
    ]


def test_empty_arrays_and_objects_stay_what_they_are(run: Runner):
    assert run.value("return args", {"list": [], "object": {}, "deep": [[], {}]}) == {
        "list": [],
        "object": {},
        "deep": [[], {}],
    }
    assert run.value("return { {}, array(), array({ 1 }), { x = array({}) } }") == [{}, [], [1], {"x": []}]
    assert run.value("local l = args.l l[1] = nil return l", {"l": [1]}) == []


def test_null_is_a_value(run: Runner):
    assert run.value("return { args.x == null, args.x == nil, null, tostring(null) }", {"x": None}) == [
        True,
        False,
        None,
        "null",
    ]


def test_keys_are_reported_in_a_stable_order(run: Runner):
    assert run.value("return json.encode({ b = 1, a = 2, c = { z = 1, y = 2 } })") == '{"a":2,"b":1,"c":{"y":2,"z":1}}'


@pytest.mark.requirement("T60")
@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{ a = { b = { 1, print } } }", "result.a.b[2] is a function, which cannot be sent"),
        ("{ ['odd key'] = print }", 'result["odd key"] is a function'),
        ("coroutine.create(print)", "result is a coroutine"),
        ("{ x = 0/0 }", "nan: JSON has finite numbers only"),
        ("{ x = 1/0 }", "result.x is inf"),
        ("{ 1, 2, nil, 4 }", "result is a list with gaps: 3 items up to index 4; put null in empty places"),
        ("{ [0] = 1 }", "result has a key 0: keys are strings"),
        ("{ [1.5] = 1 }", "result has a key 1.5"),
        ("{ [true] = 1 }", "result has a key of type boolean"),
        ("{ [{}] = 1 }", "result has a key of type table"),
        ("{ 1, x = 2 }", "result has list items and named fields at once"),
        ("(function() local a = array({}) a.x = 1 return a end)()", "result is an array that has named fields"),
        ("'\\xff'", "result is not valid UTF-8 text: for binary data write base64.encode(data)"),
        ("{ ['\\xff'] = 1 }", "is not valid UTF-8 text"),
        ("'\\xf5\\x80\\x80\\x80'", "is not valid UTF-8 text"),
        ("'\\xf4\\x90\\x80\\x80'", "is not valid UTF-8 text"),
        ("'\\xc0\\x80'", "is not valid UTF-8 text"),
        ("(function() local t = {} t.x = { t } return t end)()", "result.x[1] contains itself"),
        ("calculator.echo()", "result is the call calculator.echo, which was not awaited"),
        ("(function() local t = {} for i = 1, 200 do t = { t } end return t end)()", "nested deeper than 100 levels"),
    ],
)
def test_a_value_that_is_no_json_is_refused_with_its_place(run: Runner, value: str, told: str):
    error = run.error(f"result({value})")
    assert told in error.reason
    assert error.line == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a":}',
        "{a:1}",
        "01",
        "1.",
        "+1",
        "tru",
        "'x'",
        '"\\x"',
        '"\\u12"',
        '"a',
        "[1]x",
        "1e999",
        '"\t"',
    ],
)
def test_text_that_is_no_json_is_refused(run: Runner, text: str):
    error = run.error(f"json.decode([=[{text}]=])")
    assert "json.decode: byte" in error.reason


def test_a_value_is_shared_but_not_cyclic(run: Runner):
    assert run.value("local t = { 1 } return { t, t }") == [[1], [1]]


def test_an_answer_that_is_too_large_is_reported_with_what_to_do(run: Runner):
    error = run.error("calculator.text({ size = 17000000 }):await()")
    assert "its answer takes 17,000,002 bytes, and a script with 64 MB takes 16,777,216 at once" in error.reason
    assert run.value("return #calculator.text({ size = 16000000 }):await()") == 16_000_000


def test_arguments_that_are_too_large_are_reported(run: Runner):
    error = run.error("calculator.echo({ value = ('x'):rep(3000000) })")
    assert "arguments takes more than 2097152 bytes as JSON" in error.reason
    assert run.fake.calls == []


def test_an_answer_that_is_no_json_is_reported(run: Runner):
    error = run.error("calculator.strange():await()")
    assert "its answer cannot be handed to a script" in error.reason


def test_a_float_is_never_lost(run: Runner):
    values = [math.pi, 1 / 3, 1e-7, 123456789.123456789, 2.0**-1074, 1.7976931348623157e308]
    assert run.value("return args.v", {"v": values}) == values
