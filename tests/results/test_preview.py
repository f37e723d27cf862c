"""Previews: valid JSON of the same form, whole items, within the room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.call import Unit
from portico.rendering.budget import TokenEstimate
from portico.results.preview import CUT, dumps, read_outline, read_value, shorten, shorten_text
from portico.results.truncate import cut_to_fit

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=60)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=12), inner, max_size=8),
    max_leaves=40,
)
CONTAINERS = st.lists(VALUES, max_size=12) | st.dictionaries(st.text(max_size=12), VALUES, max_size=12)
COUNTER = TokenEstimate()


def is_beginning(shown: Any, whole: Any) -> bool:
    """Whether what is shown is the beginning of the whole, in every list, object and string."""
    if isinstance(whole, str):
        return shown == whole or (shown.endswith(CUT) and whole.startswith(shown[: -len(CUT)]))
    if isinstance(whole, list):
        return len(shown) <= len(whole) and all(map(is_beginning, shown, whole))
    if isinstance(whole, dict):
        return all(name in whole and is_beginning(part, whole[name]) for name, part in shown.items())
    return bool(shown == whole)


@pytest.mark.requirement("P-RESULTS-FIT")
@given(CONTAINERS, st.integers(20, 400))
def test_a_preview_is_valid_json_of_the_same_form_within_its_tokens(value: Any, tokens: int) -> None:
    outline = read_outline(json.dumps(value), tokens * 10)
    assert outline.part.is_json == bool(value)
    shown = cut_to_fit(outline.value, tokens, COUNTER, shorten, dumps)
    again = json.loads(dumps(shown))
    assert type(again) is type(value)
    assert COUNTER.count(dumps(shown)) <= tokens
    assert is_beginning(again, json.loads(json.dumps(value)))


@pytest.mark.requirement("P-RESULTS-FIT")
@given(CONTAINERS)
def test_a_value_that_fits_is_shown_whole(value: Any) -> None:
    text = json.dumps(value)
    assert shorten(read_outline(text, 10**6).value, 10**6) == json.loads(text)


@pytest.mark.requirement("P-RESULTS-FIT")
@given(CONTAINERS)
def test_the_units_of_json_together_are_all_of_it(value: Any) -> None:
    text = json.dumps(value, indent=2)
    part = read_outline(text, 100).part
    units = 0
    for segment in part.segments:
        assert [segment.holding(start) for start in segment.starts] == [*range(len(segment.starts))]  # type: ignore[attr-defined]
        for number in range(len(segment.starts)):
            unit = text[slice(*segment.span(number))].rstrip(", \n")
            json.loads(f"{{{unit}}}" if segment.unit is Unit.FIELD else unit)
            units += 1
    assert part.is_json == bool(value)
    assert units


@pytest.mark.requirement("P-RESULTS-FIT")
@given(st.text(max_size=400), st.integers(1, 400))
def test_text_is_cut_at_the_end_of_a_line_where_there_is_one(text: str, room: int) -> None:
    shown = shorten_text(text, room)
    assert len(shown) <= room
    if shown != text:
        is_line_end = text.startswith(shown + "\n")
        assert is_line_end or (shown.endswith(CUT) and text.startswith(shown[:-1]) and "\n" not in text[1:room])


@given(st.text(max_size=2_000))
def test_the_lines_of_a_text_together_are_all_of_it(text: str) -> None:
    part = read_outline(text, 100).part
    if part.is_json:
        return
    units = [text[slice(*segment.span(n))] for segment in part.segments for n in range(len(segment.starts))]
    assert "".join(units) == text


@pytest.mark.requirement("P-RESULTS-FIT")
def test_the_longest_list_gives_way_and_the_rest_stays() -> None:
    value = {"items": [{"id": n} for n in range(1_000)], "total": 1_000, "page": {"next": "abc"}}
    shown = shorten(read_outline(json.dumps(value), 500).value, 300)
    assert (shown["total"], shown["page"]) == (1_000, {"next": "abc"})
    assert shown["items"] == value["items"][: len(shown["items"])]  # type: ignore[index]
    assert 20 <= len(shown["items"]) < 40


@pytest.mark.requirement("P-RESULTS-FIT")
def test_two_long_lists_share_the_room_fairly() -> None:
    value = {"a": list(range(1_000)), "b": list(range(1_000))}
    shown = shorten(read_outline(json.dumps(value), 500).value, 400)
    assert abs(len(shown["a"]) - len(shown["b"])) <= 1
    assert len(shown["a"]) > 30


@pytest.mark.requirement("P-RESULTS-FIT")
def test_a_string_is_cut_only_where_one_item_alone_is_too_large() -> None:
    shown = shorten([{"id": 1, "text": "x" * 1_000}, {"id": 2}], 100)
    assert len(shown) == 1
    assert shown[0]["id"] == 1
    assert shown[0]["text"].endswith(CUT)


def test_lists_are_found_below_objects_and_short_ones_stay_fields() -> None:
    value = {"data": {"rows": [{"n": n} for n in range(500)]}, "tags": ["a"], "total": 500}
    part = read_outline(json.dumps(value), 100).part
    assert [(s.unit, s.place, len(s.starts)) for s in part.segments] == [
        (Unit.ITEM, ("data", "rows"), 500),
        (Unit.FIELD, (), 2),
    ]


def test_a_list_of_one_that_holds_everything_is_looked_through() -> None:
    part = read_outline(json.dumps([{"rows": list(range(2_000))}]), 100).part
    assert [(s.place, len(s.starts)) for s in part.segments] == [((0, "rows"), 2_000)]


@pytest.mark.parametrize(
    "text", ["{oh no", '{"a": 1} {"b": 2}', "[1, 2", "[1 2]", '{"a" 1}', "{1: 2}", "[" * 5_000, ""]
)
def test_what_only_looks_like_json_is_text(text: str) -> None:
    assert not read_outline(text, 100).part.is_json


def test_numbers_beyond_64_bits_and_nan_survive() -> None:
    text = '{"big": 123456789012345678901234567890, "nan": NaN}'
    assert read_value(text)["big"] == 123456789012345678901234567890
    assert dumps({"big": 10**30}) == '{"big":1000000000000000000000000000000}'
