"""A plain function becomes a definition: schema from its signature, texts from its docstring."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Literal, Optional

import pytest

from portico.intake.normalise import normalise
from portico.providers.local.functions import define, type_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
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


@pytest.mark.requirement("P-LIBRARY-FUNCTIONS")
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
        (tuple[int, str], {"type": "array"}),
        (dict[str, int], {"type": "object"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"enum": ["red", "blue"]}),
        (bytes, {}),
    ],
)
def test_an_annotation_becomes_a_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert type_schema(hint) == schema


def test_a_dataclass_is_an_object_and_a_recursive_one_ends() -> None:
    assert type_schema(Point)["required"] == ["x"]
    tree = type_schema(Tree)
    assert tree["properties"]["children"] == {"type": "array", "items": {}}


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
