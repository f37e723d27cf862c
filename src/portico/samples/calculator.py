"""A calculator: the smallest server that is still worth calling."""

from __future__ import annotations

import math
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, WithJsonSchema

from portico.samples import READ

# Two whole numbers have a whole sum: `float` would turn 5 + 3 into 8.0, a bare union into two alternatives to read.
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]

server = MCPServer(
    "calculator", version="1.0.0", description="A simple calculator server", log_level="WARNING", title="Calculator"
)


@server.tool(annotations=READ)
def add(
    a: Annotated[Number, Field(description="First number to add")],
    b: Annotated[Number, Field(description="Second number to add")],
) -> Number:
    """Add two numbers"""
    return _finite(a + b)


@server.tool(annotations=READ)
def multiply(
    a: Annotated[Number, Field(description="First factor")],
    b: Annotated[Number, Field(description="Second factor")],
) -> Number:
    """Multiply two numbers"""
    return _finite(a * b)


@server.tool(annotations=READ)
def divide(
    a: Annotated[Number, Field(description="Number to be divided")],
    b: Annotated[Number, Field(description="Number to divide by; not zero")],
) -> Number:
    """Divide two numbers"""
    if b == 0:
        raise ToolError("cannot divide by zero: give a b that is not 0")
    return _whole(a / b)


@server.tool(annotations=READ)
def sqrt(x: Annotated[Number, Field(description="Number to take the root of; not negative")]) -> Number:
    """Take the square root of a number"""
    if x < 0:
        raise ToolError(f"{x} has no real square root: give an x that is not negative")
    return _whole(math.sqrt(x))


def _whole(value: float) -> Number:
    return int(value) if value.is_integer() else value


def _finite(value: Number) -> Number:
    # JSON has no word for infinity.
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("the result is too large for a number")
    return value


if __name__ == "__main__":
    server.run()
