"""Example arguments for a tool, made from its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portico.domain.tool import Tool

from .parameters import followed, shape, shape_of

DEPTH = 4
_PLACEHOLDERS: Mapping[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "null": None, "string": "..."}


def example_arguments(tool: Tool) -> dict[str, Any]:
    """Every required parameter with a value of the right type."""
    found, root = shape_of(tool), tool.input_schema
    return {name: example_value(found.fields.get(name), root) for name in found.required}


def example_value(schema: object, root: Mapping[str, Any] | None = None, depth: int = DEPTH) -> Any:
    """A value that fits a schema as far as one can tell: its own example, choice or default before a placeholder.

    References lead into `root`, or into the schema itself.
    """
    if not isinstance(schema, Mapping) or depth <= 0:
        return "..."
    root = schema if root is None else root
    schema = followed(schema, root)
    if "const" in schema:
        return schema["const"]
    for keyword in ("examples", "enum"):
        values = schema.get(keyword)
        if isinstance(values, list) and values:
            return values[0]
    if schema.get("default") is not None:
        return schema["default"]
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options and "properties" not in schema:
            return example_value(options[0], root, depth - 1)
    return _by_type(schema, root, depth)


def _by_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    declared = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((k for k in declared if k != "null"), "null") if isinstance(declared, list) else declared
    if kind == "array":
        return [example_value(schema.get("items"), root, depth - 1)] if schema.get("items") else []
    if kind == "object":
        found = shape(schema, root)
        return {name: example_value(found.fields.get(name), root, depth - 1) for name in found.required}
    if kind in ("integer", "number") and isinstance(schema.get("minimum"), int | float):
        return schema["minimum"]
    return _PLACEHOLDERS.get(kind, "...") if isinstance(kind, str) else "..."
