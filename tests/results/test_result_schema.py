"""Shapes have names and types in them, and no values."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.usage_and_tiers import Learned
from portico.results.result_schema import LINE_LENGTH, WIDTH, merge, returns_line, shape_line, shape_of

NAMES = st.sampled_from(["id", "name", "total", "items", "next page", "ä", "12", "2024-01-01"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


def allows(shape: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(dict(shape)).is_valid(value)


@pytest.mark.requirement("P-SHAPES")
@given(VALUES)
def test_a_value_is_of_its_own_shape(value: Any) -> None:
    assert allows(shape_of(value), value)


@pytest.mark.requirement("P-SHAPES")
@given(VALUES, VALUES)
def test_a_merged_shape_allows_both_in_whatever_order(one: Any, other: Any) -> None:
    merged, reversed_ = merge(shape_of(one), shape_of(other)), merge(shape_of(other), shape_of(one))
    assert all(allows(shape, value) for shape in (merged, reversed_) for value in (one, other))
    assert merge(merged, shape_of(one)) == merged


@pytest.mark.requirement("P-SHAPES")
@given(VALUES)
def test_a_line_is_one_line_and_short(value: Any) -> None:
    line = shape_line(shape_of(value))
    assert len(line) <= LINE_LENGTH
    assert "\n" not in line


@pytest.mark.requirement("P-SHAPES")
def test_no_value_is_in_a_shape_nor_a_name_that_is_data() -> None:
    secrets = ["hunter2", "4111111111111111", "anna@example.com", "sk-live-1234", "6f1c2a34-aaaa"]
    value = {
        "password": secrets[0],
        "cards": {secrets[1]: 5},
        "by_mail": {secrets[2]: {"age": 41}},
        "keys": [secrets[3]],
        "by_id": {secrets[4]: True},
        "by_person": {"Ada Lovelace": 3, "Alan Turing": 4},
        "by_key": {"usr_9fA3kLmQ2xZ81b": 1},
        "paths": {"/srv/anna/notes.txt": 1},
        "by_access_key": {"AKIAQWERTYUIOPASDFGH": "on"},
        "by_user": {name: {"balance": 1} for name in ("anna", "bela", "carl")},
    }
    text = json.dumps(shape_of(value)) + shape_line(shape_of(value))
    assert not [secret for secret in [*secrets, "41", "anna", "notes", "Ada", "usr_9"] if secret in text]
    assert '"password"' in text


@pytest.mark.requirement("P-SHAPES")
def test_many_names_are_a_map_also_when_they_come_one_by_one() -> None:
    at_once = shape_of({f"name_{'x' * n}": n for n in range(WIDTH + 1)})
    one_by_one: Any = {}
    for number in range(WIDTH + 1):
        one_by_one = merge(one_by_one, shape_of({f"name_{'x' * number}": number}))
    assert at_once == one_by_one == {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.requirement("P-SHAPES")
def test_deep_and_long_values_are_looked_at_within_bounds() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"a": [deep]}
    assert len(json.dumps(shape_of(deep))) < 2_000
    assert shape_of([{"n": n} for n in range(100_000)])["items"]["properties"] == {"n": {"type": "integer"}}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            {"items": [{"id": 1, "name": "x"}, {"id": 2, "name": None, "tag": "y"}], "total": 2},
            "{items: [{id: integer, name: string?, tag?: string}], total: integer}",
        ),
        ([], "[…]"),
        ({}, "{}"),
        ([1, "a"], "[integer|string]"),
        ({"12": {"a": 1.5}}, "{any: {a: number}}"),
        ({"odd name": True}, "{'odd name': boolean}"),
    ],
)
def test_a_line_reads_like_a_signature(value: Any, line: str) -> None:
    assert shape_line(shape_of(value)) == line


def test_a_card_says_from_how_many_calls_a_shape_was_learned() -> None:
    shape = shape_of({"a": 1})
    assert returns_line(Learned(fingerprint="", shape=shape, results=1)) == (
        "returns: {a: integer} (learned from 1 call)"
    )
    assert "3 calls" in returns_line(Learned(fingerprint="", shape=shape, results=3))


@pytest.mark.requirement("P-SHAPES")
def test_names_that_differ_from_result_to_result_are_data_and_not_kept() -> None:
    learned = merge(shape_of({"balances": {"anna": 5}}), shape_of({"balances": {"bela": 7}}))
    assert shape_line(learned) == "{balances: {any: integer}}"
    either = merge(shape_of({"found": {"id": 1}}), shape_of({"error": "no"}))
    assert shape_line(either) == "{found?: {id: integer}, error?: string}"


PEOPLE = ["anna", "bela", "Carl", "D\u00f6rte", "O'Neil", "jean-luc", "maria_s", "Xi"]


@pytest.mark.requirement("P-SHAPES")
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"balances": {"anna": 5, "bela": 7}}, "{balances: {any: integer}}"),
        ({"balances": {"anna": 5}}, "{balances: {any: integer}}"),
        ({"anna": 5, "bela": 7, "carl": 2}, "{any: integer}"),
        ({"anna": 5.5, "bela": 7}, "{any: number}"),
        ({"Anna": "admin", "Bela": "guest"}, "{any: string}"),
        ({"roles": {"anna": "admin", "bela": "guest"}}, "{roles: {any: string}}"),
        ({"people": {"anna": {"age": 3}}}, "{people: {any: {age: integer}}}"),
        (
            {"members": {"anna": {"age": 3}, "bela": {"age": 4, "mail": "x"}}},
            "{members: {any: {age: integer, mail?: string}}}",
        ),
        ({"by_person": {"anna": [1], "bela": []}}, "{by_person: {any: [integer]}}"),
        ({"votes": {"anna": None, "bela": True}}, "{votes: {any: boolean?}}"),
        ({"width": 3, "height": 4}, "{width: integer, height: integer}"),
        ({"size": {"width": 3, "height": 4}}, "{size: {width: integer, height: integer}}"),
        ({"name": "x", "city": "y"}, "{name: string, city: string}"),
        ({"first_name": "x", "last_name": "y"}, "{first_name: string, last_name: string}"),
        ({"counts": {"total": 3, "failed": 4}}, "{counts: {total: integer, failed: integer}}"),
        ({"degrees": 5}, "{degrees: integer}"),
    ],
)
def test_names_of_people_are_learned_as_a_map_and_fields_as_fields(value: Any, line: str) -> None:
    assert shape_line(shape_of(value)) == line


@pytest.mark.requirement("P-SHAPES")
@given(st.lists(st.sampled_from(PEOPLE), min_size=2, unique=True), st.sampled_from([1, 2.5, True]))
def test_no_name_of_a_table_of_numbers_is_kept(people: list[str], value: Any) -> None:
    shapes = [shape_of(dict.fromkeys(people, value)), shape_of({"scores": dict.fromkeys(people, value)})]
    assert not [person for person in people for shape in shapes if json.dumps(person) in json.dumps(shape)]


@pytest.mark.requirement("P-SHAPES")
def test_names_that_come_and_go_are_data_also_when_some_stay() -> None:
    learned = merge(shape_of({"x": {"anna": "a", "bela": "b"}}), shape_of({"x": {"bela": "b", "carl": "c"}}))
    assert shape_line(learned) == "{x: {any: string}}"
