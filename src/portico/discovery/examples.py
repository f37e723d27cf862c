"""Example arguments for a tool, made from its schema; what is shown has passed the schema itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import orjson

from portico.domain.instances import proposals
from portico.domain.pattern_cost import count_states, nodes_of, patterns_of
from portico.domain.tool import Tool

NO_EXAMPLE = "write the arguments by the schema"
"""What to do where no example could be found."""
TOOLS_KEPT = 2_000
SCHEMA_OBJECTS, SCHEMA_PATTERNS, PATTERN_STATES = 1_500, 100, 10_000
"""Objects and patterns of a schema that examples are checked against; a larger one would take long to compile."""

_kept: dict[int, tuple[Tool, dict[str, Any] | None]] = {}


def example_arguments(tool: Tool) -> dict[str, Any] | None:
    """Arguments that a call of the tool would pass with: its required parameters; None where none could be found."""
    kept = _kept.get(id(tool))
    if kept is None or kept[0] is not tool:
        if len(_kept) >= TOOLS_KEPT:
            _kept.clear()
        kept = _kept[id(tool)] = (tool, _found(tool.input_schema))
    return kept[1]


def example_value(schema: object, root: Mapping[str, Any] | None = None) -> Any:
    """A value that fits a schema as far as one can tell without checking it; references lead into `root`."""
    if not isinstance(schema, Mapping):
        return "..."
    return next(proposals(schema, root), "...")


def _found(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    validator = _validator(schema)
    for value in proposals({"type": "object", **schema}, schema):
        if isinstance(value, dict) and (validator is None or _allows(validator, value)):
            return value
    return None


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """What checks an example; None where that would take long, or where nothing can be checked."""
    try:
        text = orjson.dumps(schema)
        if text.count(b"{") > SCHEMA_OBJECTS or text.count(b'"pattern') > SCHEMA_PATTERNS:
            return None
        if b'"pattern' in text and _states(schema) > PATTERN_STATES:
            return None
        return jsonschema_rs.validator_for(dict(schema), offline=True)
    except (TypeError, ValueError, jsonschema_rs.ReferencingError):
        return None


def _states(schema: Mapping[str, Any]) -> int:
    return sum(count_states(pattern) for node in nodes_of(schema) for pattern in patterns_of(node))


def _allows(validator: jsonschema_rs.Validator, value: dict[str, Any]) -> bool:
    try:
        return validator.is_valid(value)
    except (ValueError, RecursionError):
        return False
