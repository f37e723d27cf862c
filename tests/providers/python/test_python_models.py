"""Pydantic's types as parameters and results; pydantic itself is loaded only by those who use it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import anyio
import jsonschema_rs
import pytest
from pydantic import BaseModel, Field, HttpUrl, SecretStr, field_validator

from portico.catalog.normalise import normalise
from portico.providers.python import LocalProvider, make_tool
from portico.providers.python.functions import as_result, define


class Line(BaseModel):
    item: str = Field(description="what is bought")
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    lines: list[Line]
    due: date | None = None
    shipTo: str = Field(alias="ship_to", default="")  # noqa: N815


class Node(BaseModel):
    name: str
    below: list[Node] = []


@dataclass
class Parcel:
    order: Order
    weight: float


def handle_place(
    order: Order,
    rating: Annotated[int, Field(ge=1, le=5, description="how good")] = 3,
    site: HttpUrl | None = None,
    secret: SecretStr | None = None,
) -> Order:
    """Place an order."""
    assert isinstance(order, Order)
    return order


@pytest.mark.requirement("S2-9")
def test_a_model_is_described_by_its_own_schema() -> None:
    definition = define(handle_place)
    schema = definition["inputSchema"]
    assert schema["properties"]["order"]["properties"]["lines"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Line"},
    }
    assert schema["$defs"]["Line"] == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "what is bought"},
            "count": {"type": "integer", "default": 1, "minimum": 1},
        },
        "required": ["item"],
    }
    assert schema["properties"]["rating"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "how good",
        "default": 3,
    }
    assert schema["required"] == ["order"]
    assert normalise(definition).notes == ()
    jsonschema_rs.validator_for(schema).validate({"order": {"lines": [{"item": "x"}]}})


@pytest.mark.requirement("S2-9")
async def test_a_function_gets_instances_and_what_it_returns_fits_its_output_schema() -> None:
    provider = LocalProvider()
    provider.add_tool(make_tool(handle_place))
    arguments = {"order": {"lines": [{"item": "pen"}], "due": "2026-02-01", "ship_to": "Oslo"}}
    result = await provider.call("place", arguments, meta={}, on_progress=None)
    assert result["structuredContent"] == {
        "lines": [{"item": "pen", "count": 1}],
        "due": "2026-02-01",
        "ship_to": "Oslo",
    }
    jsonschema_rs.validator_for(define(handle_place)["outputSchema"]).validate(result["structuredContent"])


def test_what_a_model_refuses_is_named_with_its_place() -> None:
    _, wrong = make_tool(handle_place).read({"order": {"lines": [{"item": "x", "count": 0}]}, "site": "nowhere"})
    assert wrong[0] == "order.lines.0.count: Input should be greater than or equal to 1"
    assert wrong[1].startswith("site: Input should be a valid URL")


def test_a_class_that_holds_a_model_is_read_whole() -> None:
    def send(parcel: Parcel, tree: Node, extra: dict[str, Line] | None = None) -> list[Line]:
        """Send."""
        return []

    made = make_tool(send)
    schema = made.definition["inputSchema"]
    assert {"Order", "Line", "Node"} <= schema["$defs"].keys()
    jsonschema_rs.meta.validate(schema)
    value: Any = {
        "parcel": {"order": {"lines": []}, "weight": 1},
        "tree": {"name": "a", "below": [{"name": "b"}]},
        "extra": {"k": {"item": "x"}},
    }
    jsonschema_rs.validator_for(schema).validate(value)
    values, wrong = made.read(value)
    assert wrong == []
    assert values["parcel"] == Parcel(Order(lines=[]), 1.0)
    assert values["tree"].below[0].name == "b"
    assert values["extra"] == {"k": Line(item="x")}
    output = made.definition["outputSchema"]
    jsonschema_rs.validator_for(output).validate(as_result([Line(item="x")])["structuredContent"])


def test_two_models_of_one_name_stay_two() -> None:
    def make(name: str, kind: type) -> Any:
        return type(name, (BaseModel,), {"__annotations__": {"x": kind}})

    first, second = make("Same", int), make("Same", str)

    def both(a: Any, b: Any) -> None:
        """Both."""

    both.__annotations__.update({"a": first, "b": list[second]})
    schema = define(both)["inputSchema"]
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid({"a": {"x": 1}, "b": [{"x": "y"}]})
    assert not validator.is_valid({"a": {"x": "y"}, "b": []})
    assert not validator.is_valid({"a": {"x": 1}, "b": [{"x": 1}]})


@pytest.mark.requirement("P-LIBRARY-IMPORTS", "S0-49")
def test_pydantic_is_not_loaded_for_functions_that_do_not_use_it() -> None:
    script = (
        "import sys, dataclasses, datetime, enum\n"
        "from portico import Catalog, Connection, RequestContext, tool\n"
        "@dataclasses.dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "@tool(read_only=True)\n"
        "def handle_move(to: Point, when: datetime.date | None = None) -> Point:\n"
        "    'Move.'\n"
        "    return to\n"
        "Catalog().register_tool(handle_move)\n"
        "assert handle_move(Point(1)) == Point(1)\n"
        "print(sorted({'pydantic', 'mcp', 'fastapi', 'starlette'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


async def test_a_default_that_is_a_field_is_a_constraint_and_the_default_behind_it() -> None:
    def handle_page(size: int = Field(20, ge=1, description="Rows"), word: str = Field(description="What")) -> str:
        """Give a page."""
        return f"{size} {word}"

    tool = make_tool(handle_page)
    properties = tool.definition["inputSchema"]["properties"]
    assert properties["size"] == {"type": "integer", "minimum": 1, "default": 20, "description": "Rows"}
    assert properties["word"] == {"type": "string", "description": "What"}
    assert tool.definition["inputSchema"]["required"] == ["word"]
    provider = LocalProvider()
    provider.add_tool(tool)
    with anyio.fail_after(10):
        result = await provider.call("page", {"word": "x"}, meta={}, on_progress=None)
    assert result["content"][0]["text"] == "20 x"


def test_a_check_of_a_model_that_crashes_is_said_of_the_argument() -> None:
    class Fussy(BaseModel):
        size: int

        @field_validator("size")
        @classmethod
        def check(cls, value: int) -> int:
            raise RuntimeError("the checker is broken")

    def handle_make(thing: Any) -> None:
        """Make."""

    handle_make.__annotations__["thing"] = Fussy
    _, wrong = make_tool(handle_make).read({"thing": {"size": 1}})
    assert wrong == ["thing: it was refused with RuntimeError: the checker is broken"]
