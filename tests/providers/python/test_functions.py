"""A plain function becomes a definition: schema from its signature, texts from its docstring."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import pytest

from portico.catalog.normalise import normalise
from portico.providers.python import LocalProvider
from portico.providers.python.functions import allow_more_fields, define, make_tool, type_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.Enum):
    DARK = (0, 0)
    LIGHT = (1, 1)


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: how far to the right
    """

    x: int
    y: int = 0


@dataclasses.dataclass
class Tree:
    children: list[Tree]
    parent: Tree | None = None


def handle_base_tableList(database: str, limit: int = 10, *, _secret: str = "") -> list[str]:  # noqa: N802
    """List the tables of a database.

    Args:
        database: which one
        limit (int): at most so many
    """
    return [database][:limit]


@pytest.mark.requirement("P-LIBRARY-FUNCTIONS", "P-PYTHON-TOOLS")
def test_a_function_is_defined_by_its_signature_and_docstring() -> None:
    found = define(handle_base_tableList)
    assert found["name"] == "base_tableList"
    assert found["description"].startswith("List the tables")
    assert found["inputSchema"] == {
        "type": "object",
        "properties": {
            "database": {"type": "string", "description": "which one"},
            "limit": {"type": "integer", "description": "at most so many", "default": 10},
        },
        "required": ["database"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"enum": ["red", "blue"]}),
        (Annotated[int, "how many"], {"type": "integer"}),
        (NewType("UserId", int), {"type": "integer"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (time, {"type": "string", "format": "time"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (bytes, {"type": "string", "format": "base64"}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (Sequence[date], {"type": "array", "items": {"type": "string", "format": "date"}}),
        (int | object, {}),
        (Shade, {"enum": ["DARK", "LIGHT"]}),
    ],
)
def test_an_annotation_becomes_a_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert type_schema(hint) == schema


def test_a_dataclass_is_an_object_and_a_recursive_one_ends() -> None:
    assert type_schema(Point)["required"] == ["x"]
    tree = type_schema(Tree)
    assert tree["properties"]["children"] == {"type": "array", "items": {}}


class Span(NamedTuple):
    first: date
    last: date = date(2026, 12, 31)


class Order(TypedDict):
    item: str
    note: NotRequired[str]


class Device:
    """Something that no JSON value can be."""


def test_classes_with_fields_are_objects_with_texts_and_defaults() -> None:
    assert type_schema(Point) == {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "how far to the right"},
            "y": {"type": "integer", "default": 0},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert type_schema(Span)["properties"]["last"] == {"type": "string", "format": "date", "default": "2026-12-31"}
    assert type_schema(Order) == {
        "type": "object",
        "properties": {"item": {"type": "string"}, "note": {"type": "string"}},
        "required": ["item"],
    }


def test_a_parameter_that_may_be_left_out_shows_its_default_and_null() -> None:
    def find(text: str | None = None, colour: Colour = Colour.BLUE, since: date = date(2026, 1, 1)) -> None:
        """Find."""

    assert define(find)["inputSchema"]["properties"] == {
        "text": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "since": {"type": "string", "format": "date", "default": "2026-01-01"},
    }


def test_a_default_that_is_not_json_is_left_out_and_noted() -> None:
    def pick(of: set[str] = frozenset(), ratio: float = float("nan")) -> None:  # type: ignore[assignment]
        """Pick."""

    made = make_tool(pick)
    assert made.definition["inputSchema"]["properties"] == {
        "of": {"type": "array", "items": {"type": "string"}},
        "ratio": {"type": "number"},
    }
    assert made.definition["inputSchema"]["required"] == []
    assert [note for note in made.notes if "is not JSON" in note] == [
        "the default of 'of' is not JSON: the schema does not say it",
        "the default of 'ratio' is not JSON: the schema does not say it",
    ]


def test_what_an_author_should_know_is_noted() -> None:
    def bare(x, y: NoSuchType) -> None: ...  # type: ignore[no-untyped-def,name-defined]  # noqa: F821

    notes = make_tool(bare).notes
    assert "its parameter 'x' has no annotation: it takes anything" in notes
    assert any(note.startswith("the annotation of 'y' cannot be read (name 'NoSuchType'") for note in notes)
    assert notes[-1].startswith("it has no docstring")


def test_one_annotation_that_cannot_be_read_does_not_spoil_the_others() -> None:
    def mixed(a: int, b: NoSuchType, c: date) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert define(mixed)["inputSchema"]["properties"] == {
        "a": {"type": "integer"},
        "b": {},
        "c": {"type": "string", "format": "date"},
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Point, allow_more_fields(type_schema(Point))),
        (Order, allow_more_fields(type_schema(Order))),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int, {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}),
        (
            list[str],
            {
                "type": "object",
                "properties": {"result": {"type": "array", "items": {"type": "string"}}},
                "required": ["result"],
            },
        ),
        (date, {"type": "object", "properties": {"result": type_schema(date)}, "required": ["result"]}),
        (str, None),
        (str | None, None),
        (Point | list[int], None),
        (dict, None),
        (None, None),
        (Any, None),
        (Device, None),
    ],
)
def test_a_return_annotation_becomes_the_schema_of_structured_content(hint: Any, schema: Any) -> None:
    def give() -> None:
        """Give."""

    give.__annotations__["return"] = hint
    assert define(give).get("outputSchema") == schema


def test_callables_of_every_make_become_tools() -> None:
    class Adder:
        """Adds."""

        def __call__(self, a: int, /, b: int = 2) -> int:
            return a + b

        def method(self, a: int) -> int:
            """Add nothing."""
            return a

    assert list(define(Adder())["inputSchema"]["properties"]) == ["a", "b"]
    assert define(Adder().method)["name"] == "method"
    assert list(define(partial(handle_base_tableList, "x"), "few")["inputSchema"]["properties"]) == ["limit"]


def test_free_keywords_leave_the_schema_open() -> None:
    def free(a: int, *rest: int, **more: int) -> None: ...

    schema = define(free)["inputSchema"]
    assert list(schema["properties"]) == ["a"]
    assert schema["additionalProperties"] is True


def test_a_hint_that_cannot_be_read_is_left_open() -> None:
    def broken(a: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert define(broken)["inputSchema"]["properties"] == {"a": {}}


@pytest.mark.parametrize("function", [handle_base_tableList, lambda x: x, len, print])
def test_what_is_defined_passes_intake(function: Any) -> None:
    assert normalise(define(function)).name


def test_a_default_is_a_copy_that_no_call_changes() -> None:
    def collect(into: list[int] = [], most: int = 2**70, name: str = "\ud800") -> list[int]:  # noqa: B006
        """Collect."""
        into.append(1)
        return into

    tool = make_tool(collect)
    tool.invoke({})
    properties = tool.definition["inputSchema"]["properties"]
    assert properties["into"]["default"] == []
    assert "default" not in properties["most"], "no wire carries so large a number"
    assert "default" not in properties["name"]
    provider = LocalProvider()
    provider.add_tool(tool)
    assert provider.fingerprint


def test_a_definition_that_cannot_be_written_leaves_the_others_their_fingerprint() -> None:
    provider = LocalProvider()
    provider.add({"name": "large", "inputSchema": {"type": "object", "default": 2**70}}, print)
    first = provider.fingerprint
    provider.add({"name": "other"}, print)
    assert provider.fingerprint != first
