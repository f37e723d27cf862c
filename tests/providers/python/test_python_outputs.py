"""A result keeps what its return annotation promises, or says that it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import jsonschema_rs
import numpy
import pytest

from portico.providers.python import LocalProvider, make_tool


async def answer_of(function: Callable[..., Any], **arguments: Any) -> Any:
    provider = LocalProvider()
    provider.add_tool(make_tool(function, "t"))
    with anyio.fail_after(10):
        return await provider.call("t", arguments, meta={}, on_progress=None)


@dataclass
class Animal:
    name: str
    legs: int = field(init=False)

    def __post_init__(self) -> None:
        self.legs = 4


@dataclass
class Bird(Animal):
    wings: int = 2


def counts() -> int:
    """Count."""
    return None  # type: ignore[return-value]


def speaks() -> int:
    """Speak."""
    return "five"  # type: ignore[return-value]


def divides() -> float:
    """Divide."""
    return float("nan")


def lists() -> list[int]:
    """List."""
    return [1, 2, "three"]  # type: ignore[list-item]


async def counts_later() -> int:
    """Count."""
    return None  # type: ignore[return-value]


def replies() -> dict[str, int]:
    """Reply."""
    return {"content": []}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("function", "shown", "reason"),
    [
        (counts, "null", 'result: null is not of type "integer"'),
        (counts_later, "null", 'result: null is not of type "integer"'),
        (speaks, "five", "it has no structured value"),
        (divides, "null", 'result: null is not of type "number"'),
        (lists, '[1,2,"three"]', 'result.2: "three" is not of type "integer"'),
    ],
)
async def test_a_value_that_breaks_its_annotation_is_shown_and_is_an_error(
    function: Callable[..., Any], shown: str, reason: str
) -> None:
    result = await answer_of(function)
    assert result["isError"]
    assert "structuredContent" not in result
    assert result["content"][0]["text"] == shown
    assert f"does not fit its return annotation: {reason}. Mend" in result["content"][1]["text"]


async def test_a_whole_result_without_the_value_that_was_promised_is_an_error_too() -> None:
    assert (await answer_of(replies))["isError"]


async def test_a_derived_class_and_fields_that_nobody_passes_keep_the_promise() -> None:
    def hatch() -> Animal:
        """Hatch."""
        return Bird("owl")

    schema = make_tool(hatch).definition["outputSchema"]
    result = await answer_of(hatch)
    assert result["structuredContent"] == {"name": "owl", "legs": 4, "wings": 2}
    assert jsonschema_rs.is_valid(schema, result["structuredContent"])


async def test_numbers_of_numpy_are_numbers() -> None:
    def measure() -> list[float]:
        """Measure."""
        return [numpy.float64(1.5), numpy.int64(3), numpy.float32(0.5)]

    def grid() -> list[list[int]]:
        """Make a grid."""
        return numpy.zeros((2, 2), dtype=int)  # type: ignore[return-value]

    assert (await answer_of(measure))["structuredContent"] == {"result": [1.5, 3, 0.5]}
    assert (await answer_of(grid))["structuredContent"] == {"result": [[0, 0], [0, 0]]}
