"""No arguments and no definition hold the event loop up for long: every step that reads them is bounded beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import thread_time
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.domain.call import Caller
from portico.domain.search_answers import Query
from portico.domain.tool import Tool
from portico.errors import CallError, InvalidArguments
from portico.execution.arguments import ArgumentCheck, unwrap
from portico.execution.executor import TokenSampler, text_of_arguments
from portico.surfaces.discover import Discover, _names
from portico.surfaces.mcp.surface import error_text
from portico.testing import AGENT, definition, make_test_app, tool

BODY = 4 * 1024 * 1024
DEFINITION = 236_000
"""Letters of a schema; with what stands around it, just below the limit of 256 KB."""
STALL = 0.05
"""Seconds of processor time that one step may take in the event loop."""
TRIES = 6
"""The best of so many counts, because other programs run on the same machine."""
USUAL_PACE = 0.025
"""Seconds that the fixed piece of work below takes on a machine with nothing else to do."""


def cpu(step: Callable[[], object]) -> float:
    """Seconds of processor time that a step takes; a machine that is slow just now is given more."""
    taken = []
    for _ in range(TRIES):
        taken.append(_seconds(step))
        if taken[-1] > STALL:
            taken[-1] /= max(1.0, _seconds(_fixed_work) / USUAL_PACE)
        if taken[-1] <= STALL:
            break
    return min(taken)


def _seconds(step: Callable[[], object]) -> float:
    began = thread_time()
    step()
    return thread_time() - began


def _fixed_work() -> object:
    return {f"key{number}": [number] for number in range(100_000)}


def made(schema: dict[str, Any]) -> Tool:
    return tool({"name": "t", "description": "", "inputSchema": {"type": "object", **schema}})


def answer(checks: ArgumentCheck, checked: Tool, arguments: dict[str, Any]) -> str:
    """Check arguments and write the error, as a surface does."""
    try:
        checks.check(checked, arguments)
    except InvalidArguments as error:
        return error_text(error, Discover(APPLICATION.gateway).spell)
    return ""


APPLICATION = make_test_app({"s": [definition("t", a="string")]})


def repeated(make: Callable[[int], Any], limit: int) -> list[Any]:
    """As many of these as fit into a text of this length."""
    size = len(orjson.dumps([make(number) for number in range(1_000, 1_100)])) // 100 + 1
    return [make(number) for number in range(limit // size)]


# Each gives a schema, given how much of the 256 KB it may use.
SCHEMAS: dict[str, Callable[[int], dict[str, Any]]] = {
    "one": lambda _: {"properties": {"a": {"type": "string"}}, "required": ["a"]},
    "closed": lambda _: {"properties": {"a": {"type": "string"}}, "additionalProperties": False},
    "many parameters": lambda n: {
        "properties": {f"key{i}": {"type": "integer"} for i in range(n // 30)},
        "required": [f"key{i}" for i in range(0, n // 60, 2)],
        "additionalProperties": False,
    },
    "alternatives": lambda n: {"properties": {"a": {"anyOf": repeated(lambda i: {"const": f"x{i}"}, n)}}},
    "alternatives of items": lambda n: {
        "properties": {"a": {"items": {"anyOf": repeated(lambda i: {"type": "object", "required": [f"r{i}"]}, n)}}}
    },
    "wide items": lambda n: {
        "properties": {"a": {"items": {"properties": {f"p{i}": {"type": "string"} for i in range(n // 25)}}}}
    },
    "choices": lambda n: {"properties": {"a": {"items": {"enum": [*range(n // 7)]}}}},
    "names by pattern": lambda n: {"patternProperties": {f"^k{i}x.*$": {"type": "string"} for i in range(n // 32)}},
    "patterns": lambda n: {"properties": {f"p{i}": {"pattern": f"(a|{i})*c+x{{1,9}}"} for i in range(n // 40)}},
    "a repeated repetition": lambda _: {"properties": {"a": {"items": {"pattern": "((a{1,20}){1,20}){1,20}b"}}}},
    "looking ahead": lambda _: {"properties": {"a": {"items": {"pattern": "(?=(a+)+$)(a|aa)+$"}}}},
    "looking back": lambda _: {"additionalProperties": {"pattern": r"(a+)\1+\1b"}},
    "unique": lambda _: {"properties": {"a": {"type": "array", "uniqueItems": True}}},
    "doubling": lambda n: {
        "properties": {"c": {"$ref": "#/$defs/n0"}},
        "$defs": {
            f"n{i}": {"allOf": [{"properties": {"c": {"$ref": f"#/$defs/n{i + 1}"}}}] * 2} for i in range(n // 120)
        },
    },
    "recursive": lambda _: {
        "properties": {"a": {"$ref": "#/$defs/n"}, "c": {"$ref": "#/$defs/n"}},
        "$defs": {
            "n": {
                "oneOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"$ref": "#/$defs/n"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}},
                ]
            }
        },
    },
    "unevaluated": lambda n: {
        "allOf": [{"properties": {f"q{i}": {"type": "string"}}} for i in range(n // 45)],
        "unevaluatedProperties": False,
    },
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"c": value}
    return value


# Each gives arguments, given how much of the 4 MiB they may use.
ARGUMENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "unknown keys": lambda n: {f"k{i}": i for i in range(n // 14)},
    "near keys": lambda n: {f"kye{i}": i for i in range(n // 16)},
    "long keys": lambda n: {"x" * (n // 4) + str(i): i for i in range(4)},
    "known keys of the wrong type": lambda n: {f"key{i}": "many" for i in range(n // 18)},
    "numbers as text": lambda n: {f"key{i}": "5" for i in range(n // 14)},
    "lists": lambda n: {"a": [[] for _ in range(n // 3)]},
    "objects": lambda n: {"a": [{} for _ in range(n // 3)]},
    "numbers": lambda n: {"a": [*range(n // 8)]},
    "pairs": lambda n: {"a": [[i] for i in range(n // 10)]},
    "texts": lambda n: {"a": ["a" * 300] * (n // 303)},
    "long text": lambda n: {"a": "a" * n},
    "long text in a list": lambda n: {"a": ["a" * n]},
    "JSON as text": lambda n: {"a": "[" + "[]," * (n // 3) + "[]]"},
    "large numbers": lambda n: {"a": [10**30] * (n // 32)},
    "deep": lambda n: nested(min(n // 6, 200)),
    "very deep": lambda n: nested(n // 6),
}


@pytest.mark.timed
@pytest.mark.requirement("T33", "T35", "T60")
@pytest.mark.requirement("P-NO-STALL")
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_largest_arguments_are_checked_in_no_time(arguments: str) -> None:
    given_ = ARGUMENTS[arguments](BODY)
    slow = {}
    for name, checked in large_tools().items():
        taken = cpu(lambda checked=checked: answer(ArgumentCheck(), checked, given_))
        if taken > STALL:
            slow[name] = taken
    assert not slow


@cache
def large_tools() -> dict[tuple[str, int], Tool]:
    """A tool of each schema: as large as can be, and as large as is still compiled."""
    return {(name, room): made(make(room)) for name, make in SCHEMAS.items() for room in (DEFINITION, 50_000)}


@pytest.mark.timed
@pytest.mark.requirement("T35")
@pytest.mark.requirement("P-NO-STALL")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([*SCHEMAS]),
    st.integers(200, DEFINITION),
    st.lists(st.tuples(st.sampled_from([*ARGUMENTS]), st.integers(20, BODY // 2)), min_size=1, max_size=2),
)
def test_arguments_of_any_size_are_checked_in_no_time(schema: str, room: int, parts: list[tuple[str, int]]) -> None:
    checked = made(SCHEMAS[schema](room))
    arguments = {name: value for kind, size in parts for name, value in ARGUMENTS[kind](size).items()}
    checks = ArgumentCheck()
    assert cpu(lambda: answer(ArgumentCheck(), checked, arguments)) <= STALL
    answer(checks, checked, {})
    assert cpu(lambda: answer(checks, checked, arguments)) <= STALL


@pytest.mark.timed
@pytest.mark.requirement("P-NO-STALL")
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_steps_around_a_check_take_no_time_either(arguments: str) -> None:
    given_ = ARGUMENTS[arguments](BODY)
    beside = {"name": "t", **given_}
    sampler = TokenSampler(APPLICATION.gateway.counter)
    assert cpu(lambda: sampler.tokens("in", text_of_arguments(given_))) <= STALL
    assert cpu(lambda: unwrap({"name": "t", "arguments": given_}, lambda _: {"a": {}})) <= STALL
    assert cpu(lambda: unwrap(beside, lambda _: {"a": {}})) <= STALL


@pytest.mark.timed
@pytest.mark.requirement("P-NO-STALL")
def test_arguments_written_as_text_are_read_in_no_time() -> None:
    for text in ("[" * BODY, '{"a":' * (BODY // 5), json.dumps("[" * (BODY // 2)), '{"a":[' + "[]," * (BODY // 3)):
        assert cpu(lambda text=text: unwrap({"name": "t", "arguments": text}, lambda _: {"a": {}})) <= STALL


@pytest.mark.timed
@pytest.mark.requirement("P-NO-STALL")
@pytest.mark.parametrize("unit", ["x", "%41", "s__", "s.", "İ", " ", "é/"])
def test_a_name_as_long_as_a_body_is_unknown_in_no_time(unit: str) -> None:
    spelling = unit * (BODY // len(unit.encode()))
    application = make_test_app({f"s{n}": [definition(f"tool_{n}", a="string") for n in range(50)] for n in range(20)})
    visible = application.gateway.view(Caller(name="a", surface="t")).visible

    def look() -> None:
        with pytest.raises(CallError):
            application.gateway.snapshot.resolver.resolve(spelling, visible)

    look()
    assert cpu(look) <= STALL


def test_what_is_certainly_wrong_is_reported_however_large_the_arguments_are() -> None:
    closed = made(SCHEMAS["closed"](0))
    text = answer(ArgumentCheck(), closed, {f"k{i}": i for i in range(300_000)})
    assert text.startswith("error invalid_arguments")
    assert text.count("- unknown: k") == 10
    assert len(text) < 2_000
    missing = answer(ArgumentCheck(), made(SCHEMAS["one"](0)), {f"k{i}": i for i in range(300_000)})
    assert "- missing: a (string)" in missing
    assert "next: describe_tools" in answer(ArgumentCheck(), closed, {"a": [0] * 300_000})


def test_a_wrong_value_among_many_is_found() -> None:
    rows = {"properties": {"a": {"items": {"properties": {"x": {"type": "integer"}}}}}}
    values = [{"x": i} for i in range(5_000)]
    values[3_700] = {"x": "b"}  # type: ignore[dict-item]
    assert 'a.3700.x: "b" is not of type "integer"' in answer(ArgumentCheck(), made(rows), {"a": values})


def test_large_arguments_that_fit_are_checked_too() -> None:
    rows = made({"properties": {"a": {"items": {"properties": {"x": {"type": "integer"}}}}}})
    good: dict[str, Any] = {"a": [{"x": i} for i in range(20_000)]}
    assert ArgumentCheck().check(rows, good).arguments is good
    with pytest.raises(InvalidArguments):
        ArgumentCheck().check(rows, {"a": [*good["a"], {"x": "b"}]})


def test_the_near_name_among_thousands_of_parameters_is_reported_where_it_is_among_the_first() -> None:
    many = made({"properties": {f"key{i}": {"type": "integer"} for i in range(5_000)}, "additionalProperties": False})
    assert "unknown: kye7; did you mean key7 (integer)?" in answer(ArgumentCheck(), many, {"kye7": 1})


@pytest.mark.timed
@pytest.mark.requirement("P-NO-STALL")
@pytest.mark.parametrize("unit", ["x", "word ", ",", '"', " and ", "w.", "\u00e9"])
def test_a_query_as_long_as_a_body_is_answered_in_no_time(unit: str) -> None:
    text = unit * (BODY // len(unit.encode()))
    APPLICATION.gateway.search(AGENT, Query(text="find words"))
    assert cpu(lambda: APPLICATION.gateway.search(AGENT, Query(text=text))) <= STALL


@pytest.mark.timed
@pytest.mark.requirement("P-NO-STALL")
@pytest.mark.parametrize("unit", ["[", "a,", '["a"],'])
def test_names_as_long_as_a_body_are_described_in_no_time(unit: str) -> None:
    def describe(names: str | list[str]) -> None:
        with suppress(CallError):
            APPLICATION.gateway.describe(AGENT, _names({"names": names}))

    text, many = "[" + unit * (BODY // len(unit)), [unit] * (BODY // len(unit))
    assert cpu(lambda: describe(text)) <= STALL
    assert cpu(lambda: describe(many)) <= STALL
