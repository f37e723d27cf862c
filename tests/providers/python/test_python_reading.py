"""Arguments arrive as JSON, and the function gets what its annotations say."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog.normalise import normalise
from portico.providers.python.annotations import UnfitArgument, kind_of
from portico.providers.python.functions import as_result, define, make_tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(enum.Enum):
    DARK = (0, 0)


class Name(str):
    __slots__ = ()

    def __new__(cls, text: str) -> Name:
        if not text:
            raise ValueError("a name is not empty")
        return super().__new__(cls, text)


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is not negative")


@dataclasses.dataclass(frozen=True)
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


class Span(NamedTuple):
    first: date
    last: date


class Order(TypedDict, total=False):
    at: datetime
    points: list[Point]


def read(hint: Any, value: Any) -> Any:
    found = kind_of(hint).read
    return found(value) if found else value


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (int, 5.0, 5),
        (float, 5, 5.0),
        (int | float, 5, 5),
        (int | float, 5.5, 5.5),
        (date, "2026-01-31", date(2026, 1, 31)),
        (datetime, "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (time, "12:30", time(12, 30)),
        (Decimal, "12.50", Decimal("12.50")),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678")),
        (bytes, "aGk=", b"hi"),
        (Path, "a/b", Path("a/b")),
        (Colour, "blue", Colour.BLUE),
        (Level, 2, Level.HIGH),
        (Shade, "DARK", Shade.DARK),
        (Literal["a", 1], 1, 1),
        (Literal[Colour.RED], "red", Colour.RED),
        (Name, "Ana", Name("Ana")),
        (date | None, None, None),
        (date | str, "2026-01-31", date(2026, 1, 31)),
        (date | str, "tomorrow", "tomorrow"),
        (str | date, "2026-01-31", "2026-01-31"),
        (Point, {"x": 1}, Point(1)),
        (Point | Span, {"first": "2026-01-01", "last": "2026-01-02"}, Span(date(2026, 1, 1), date(2026, 1, 2))),
        (list[Point], [{"x": 1}], [Point(1)]),
        (tuple[int, date], [1, "2026-01-01"], (1, date(2026, 1, 1))),
        (tuple[Colour, ...], ["red"], (Colour.RED,)),
        (set[int], [1, 1, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset("a")),
        (dict[int, Colour], {"5": "red"}, {5: Colour.RED}),
        (dict[Colour, float], {"red": 1}, {Colour.RED: 1.0}),
        (Order, {"points": [{"x": 2}], "more": 1}, {"points": [Point(2)], "more": 1}),
        (Tree, {"name": "a", "children": [{"name": "b", "children": []}]}, Tree("a", [Tree("b")])),
    ],
)
def test_json_becomes_what_the_annotation_says(hint: Any, value: Any, wanted: Any) -> None:
    found = read(hint, value)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (date, "2026-13-01", "'2026-13-01' is not a date; write it like 2026-01-31"),
        (datetime, 5, "must be text"),
        (int, 5.5, "must be a whole number"),
        (int, True, "must be a whole number"),
        (float, 10**400, "is too large a number"),
        (bool, "yes", "must be true or false"),
        (None, 0, "must be null"),
        (Decimal, "much", "must be a decimal number as text, such as '12.50'"),
        (bytes, "%", "must be bytes in base64"),
        (UUID, "x", "'x' is not a UUID"),
        (Colour, "green", "must be one of 'red', 'blue'"),
        (Level, True, "must be one of 1, 2"),
        (Name, "", "a name is not empty"),
        (list[Point], [{"x": 1}, {"y": 1}], "1: lacks x"),
        (Point, {"x": 1, "z": 1}, "has no field z; it has x, y"),
        (Point, {"x": -1}, "Point refuses it: x is not negative"),
        (Point, [1], "must be an object"),
        (dict[str, date], {"a": "b"}, "a: 'b' is not a date; write it like 2026-01-31"),
        (dict[int, str], {"a": "b"}, "a: 'a' is not a whole number"),
        (tuple[int, int], [1], "must be a list of 2 values"),
        (list[int], "1", "must be a list"),
        (set[Any], [[]], "unhashable type: 'list'"),
        (int | None, "x", "must be a whole number, or must be null"),
        (Tree, {"name": "a", "children": [{"name": 5}]}, "children.0.name: must be text"),
    ],
)
def test_what_cannot_become_it_is_named(hint: Any, value: Any, reason: str) -> None:
    with pytest.raises(UnfitArgument) as caught:
        read(hint, value)
    assert str(caught.value) == reason


def test_every_wrong_argument_is_named_at_once() -> None:
    def plan(day: date, places: list[Point], colour: Colour = Colour.RED) -> None: ...

    _, wrong = make_tool(plan).read({"day": "x", "places": [{"x": "one"}], "colour": "pink"})
    assert wrong == [
        "day: 'x' is not a date; write it like 2026-01-31",
        "places.0.x: must be a whole number",
        "colour: must be one of 'red', 'blue'",
    ]


def test_parameters_without_a_keyword_are_passed_by_place() -> None:
    def power(base: int, exponent: int = 2, modulus: int | None = None, /, *, label: str = "") -> Any:
        return (base, exponent, modulus, label)

    made = make_tool(power)
    assert made.invoke({"base": 2, "label": "x"}) == (2, 2, None, "x")
    assert made.invoke({"modulus": 7, "base": 3}) == (3, 2, 7, "")


HINTS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(codec="utf-8")),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    date: st.dates(),
    datetime: st.datetimes(),
    time: st.times(),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    Point: st.builds(Point, x=st.integers(0, 9), y=st.floats(0, 9)),
    Span: st.builds(Span, st.dates(), st.dates()),
    Tree: st.builds(Tree, st.just("t"), st.lists(st.builds(Tree, st.just("leaf")), max_size=2)),
}


@st.composite
def annotated_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """An annotation, and a value that it allows."""
    hint = draw(st.sampled_from(list(HINTS)))
    values = HINTS[hint]
    wrapped = draw(st.sampled_from(["", "list", "tuple", "dict", "optional", "pair"]))
    if wrapped == "list":
        return list[hint], draw(st.lists(values, max_size=3))  # type: ignore[valid-type]
    if wrapped == "tuple":
        return tuple[hint, ...], tuple(draw(st.lists(values, max_size=3)))  # type: ignore[valid-type]
    if wrapped == "dict":
        return dict[str, hint], draw(st.dictionaries(st.sampled_from("abc"), values))  # type: ignore[valid-type]
    if wrapped == "optional":
        return hint | None, draw(st.none() | values)
    if wrapped == "pair":
        return tuple[hint, int], (draw(values), draw(st.integers(0, 9)))  # type: ignore[valid-type]
    return hint, draw(values)


def signature_of(parts: list[tuple[Any, Any]], optional: int) -> Callable[..., Any]:
    """A function with these annotations; so many of the last parameters have their value as the default."""

    def give(**values: Any) -> Any:
        return values

    names = [f"p{place}" for place in range(len(parts))]
    first = len(parts) - optional
    give.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=parts[place][1] if place >= first else inspect.Parameter.empty,
            )
            for place, name in enumerate(names)
        ]
    )
    give.__annotations__ = {name: hint for name, (hint, _) in zip(names, parts, strict=True)}
    return give


@pytest.mark.requirement("P-LIBRARY-FUNCTIONS")
@given(st.lists(annotated_values(), max_size=4), st.integers(0, 4))
def test_any_signature_gives_a_schema_that_accepts_what_the_function_accepts(
    parts: list[tuple[Any, Any]], optional: int
) -> None:
    function = signature_of(parts, min(optional, len(parts)))
    definition = define(function)
    assert normalise(definition).name == "give"
    schema = definition["inputSchema"]
    jsonschema_rs.meta.validate(schema)
    written = json.loads(
        json.dumps(as_result({f"p{n}": value for n, (_, value) in enumerate(parts)})["structuredContent"])
    )
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid(written), (schema, written)
    values, wrong = make_tool(function).read(written)
    assert wrong == []
    assert values == {f"p{n}": value for n, (_, value) in enumerate(parts)}
    assert validator.is_valid({name: written[name] for name in schema["required"]})
    assert not schema["required"] or not validator.is_valid({})


@given(annotated_values())
def test_any_value_that_is_returned_fits_the_schema_of_its_annotation(part: tuple[Any, Any]) -> None:
    hint, value = part

    def give() -> None: ...

    give.__annotations__["return"] = hint
    schema, result = define(give).get("outputSchema"), as_result(value)
    if schema is not None:
        jsonschema_rs.validator_for(schema).validate(result["structuredContent"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(HINTS)), JSON)
def test_no_value_upsets_a_reader(hint: Any, value: Any) -> None:
    with suppress(UnfitArgument):
        read(hint, value)
