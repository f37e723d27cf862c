"""Example arguments for a tool, made from its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portico.domain.tool import Tool

DEPTH = 4
_PLACEHOLDERS: Mapping[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "null": None, "string": "..."}


def example_arguments(tool: Tool) -> dict[str, Any]:
    """Every required parameter with a value of the right type."""
    return {name: example_value(tool.properties.get(name), DEPTH) for name in tool.required}


def example_value(schema: object, depth: int = DEPTH) -> Any:
    """A value that fits a schema as far as one can tell: its own example, choice or default before a placeholder."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return "..."
    if "const" in schema:
        return schema["const"]
    for keyword in ("examples", "enum"):
        values = schema.get(keyword)
        if isinstance(values, list) and values:
            return values[0]
    if schema.get("default") is not None:
        return schema["default"]
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            return example_value(options[0], depth - 1)
    return _by_type(schema, depth)


def _by_type(schema: Mapping[str, Any], depth: int) -> Any:
    declared = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((k for k in declared if k != "null"), "null") if isinstance(declared, list) else declared
    if kind == "array":
        return [example_value(schema.get("items"), depth - 1)] if schema.get("items") else []
    if kind == "object":
        fields = schema.get("properties")
        needed = schema.get("required")
        if not isinstance(fields, Mapping) or not isinstance(needed, list):
            return {}
        return {name: example_value(fields.get(name), depth - 1) for name in needed if isinstance(name, str)}
    if kind in ("integer", "number") and isinstance(schema.get("minimum"), int | float):
        return schema["minimum"]
    return _PLACEHOLDERS.get(kind, "...") if isinstance(kind, str) else "..."
