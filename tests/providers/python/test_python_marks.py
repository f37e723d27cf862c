"""`@tool` says which functions are tools and how they are shown, and leaves them as they are."""

from __future__ import annotations

from typing import Any

import pytest

import portico
from portico import tool
from portico.catalog.normalise import normalise
from portico.domain.tool import Effect
from portico.providers.python import ToolMark, make_tool
from portico.providers.python.decorator_and_injection import mark_of
from portico.providers.python.functions import define


@tool
def bare(x: int) -> int:
    """Bare."""
    return x


@tool(
    "drop-table",
    description="Drop one.",
    category="dba",
    tags=("sql", "danger"),
    server="warehouse",
    destructive=True,
    idempotent=False,
    title="Drop a table",
)
def handle_whatever(name: str) -> str:
    """Not this text."""
    return name


@pytest.mark.requirement("S0-49")
def test_a_marked_function_stays_as_it_is() -> None:
    assert bare(3) == 3
    assert bare.__name__ == "bare"
    assert mark_of(bare) == ToolMark()
    assert mark_of(print) is None
    assert portico.tool is tool


def test_what_the_mark_says_is_in_the_definition() -> None:
    definition = define(handle_whatever)
    assert definition["name"] == "drop-table"
    assert definition["title"] == "Drop a table"
    assert definition["description"] == "Drop one."
    assert definition["annotations"] == {"destructiveHint": True, "idempotentHint": False}
    normal = normalise(definition)
    assert normal.effect is Effect.DESTRUCTIVE
    assert normal.tags == ("sql", "danger")
    assert normal.notes == ()
    made = make_tool(handle_whatever)
    assert (made.server, made.category) == ("warehouse", "dba")
    assert "annotations" not in define(bare)


def test_a_reading_function_is_one() -> None:
    assert normalise(define(tool(read_only=True)(lambda x: x))).effect is Effect.READ


def test_a_mark_that_is_misspelled_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="a tool's name is text, not 5: write @tool or @tool"):
        tool(5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"tags are a list of texts, not 'sql': write tags=\['sql'\]"):
        tool("x", tags="sql")
    with pytest.raises(TypeError, match="readonly"):
        tool("x", readonly=True)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"category": 5}, "category of @tool is text, not 5"),
        ({"server": None}, "server of @tool is text, not None"),
        ({"description": ["x"]}, r"description of @tool is text, not \['x'\]"),
        ({"tags": ["a", 2]}, "a tag of @tool is text, not 2"),
        ({"read_only": "yes"}, "read_only of @tool is True or False, not 'yes'"),
    ],
)
def test_what_a_mark_cannot_say_is_refused_where_it_stands(said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        tool(**said)


def test_no_server_is_our_own() -> None:
    @tool(server="")
    def rename() -> None:
        """Rename."""

    assert make_tool(rename).server == "local"


@pytest.mark.requirement("S2-18")
def test_an_example_prompt_is_part_of_the_definition():
    @tool(example="add two and three", tags=["math"])
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert make_tool(add).definition["_meta"] == {"tags": ["math"], "example": "add two and three"}
    with pytest.raises(TypeError, match="example of @tool is text"):
        tool(example=5)
