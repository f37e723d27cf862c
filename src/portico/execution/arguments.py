"""Arguments are checked against the tool's schema; what is plainly meant is repaired, everything else is explained."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from portico.domain.tool import Tool
from portico.errors import InvalidArguments, NextCall

from .recursion import count_branches, depth_of

REPAIR_LENGTH = 100_000
PROBLEMS_SHOWN = 10
COMPILED_LIMIT = 4_096
TRIES_LIMIT = 100_000
"""Alternatives that a validator may try; a call that could need more is passed on unchecked."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments that fit, and one line for each thing that was repaired."""

    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Compiled:
    tool: Tool
    validator: jsonschema_rs.Validator | None
    branches: int


@dataclass(slots=True)
class ArgumentCheck:
    """Checks arguments; compiled schemas are kept for the tools that are really called."""

    _compiled: dict[int, _Compiled] = field(default_factory=dict)

    def check(self, tool: Tool, arguments: Mapping[str, Any]) -> Checked:
        """The arguments to send.

        Raises:
            InvalidArguments: with one line per problem and the call to make instead.
        """
        kept = self._kept(tool)
        if kept.validator is None or (kept.branches > 1 and kept.branches ** depth_of(arguments) > TRIES_LIMIT):
            return Checked(arguments)
        try:
            return _checked(tool, arguments, kept.validator)
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(tool.handle, details=(f"arguments that are not JSON: {error}",)) from error

    def _kept(self, tool: Tool) -> _Compiled:
        kept = self._compiled.get(id(tool))
        if kept is None or kept.tool is not tool:
            if len(self._compiled) >= COMPILED_LIMIT:
                self._compiled.clear()
            schema = tool.input_schema
            kept = self._compiled[id(tool)] = _Compiled(tool, compile_schema(schema), count_branches(schema))
        return kept


def _checked(tool: Tool, arguments: Mapping[str, Any], validator: jsonschema_rs.Validator) -> Checked:
    if validator.is_valid(arguments):
        return Checked(arguments)
    repaired, notes = _repair(tool, arguments, validator)
    if notes and validator.is_valid(repaired):
        return Checked(repaired, notes)
    raise _explained(tool, repaired, validator)


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """A validator that never touches the network; None when the schema is not valid JSON Schema.

    A server with such a schema still gets its calls, unchecked: it knows better than we do what it meant.
    """
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=50_000)
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return None


def _repair(
    tool: Tool, arguments: Mapping[str, Any], validator: jsonschema_rs.Validator
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Turn values of the wrong type into what they spell, where only one reading fits."""
    repaired, notes = dict(arguments), []
    for error in validator.iter_errors(arguments):
        path = list(error.instance_path)
        name = path[0] if len(path) == 1 else None
        if not isinstance(name, str) or name not in arguments:
            continue
        value = arguments[name]
        readings = _readings(value, _types(tool.properties.get(name)))
        if len(readings) == 1:
            repaired[name] = readings[0]
            notes.append(f"{name}: took {_brief(value)} as {_brief(readings[0])}")
    return repaired, tuple(dict.fromkeys(notes))


def _readings(value: object, types: Sequence[str]) -> list[Any]:
    """What a value may have been meant as; text is text wherever a parameter takes text."""
    if isinstance(value, str):
        return _readings_of_text(value, types) if "string" not in types else []
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return [json.dumps(value)] if is_number and "string" in types else []


def _readings_of_text(value: str, types: Sequence[str]) -> list[Any]:
    if len(value) > REPAIR_LENGTH:
        return []
    parsed = _parsed(value.strip())
    found = [parsed] if any(_fits(parsed, kind) for kind in types) else []
    return [*found, [value]] if "array" in types and not isinstance(parsed, list) else found


def _parsed(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    kinds: dict[str, type | tuple[type, ...]] = {
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
    }
    return kind in kinds and isinstance(value, kinds[kind])


def _types(schema: object) -> list[str]:
    """The JSON types that a parameter may have, unions included."""
    if not isinstance(schema, Mapping):
        return []
    declared = schema.get("type")
    found = [declared] if isinstance(declared, str) else [k for k in declared or () if isinstance(k, str)]
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list):
            found += [kind for option in options for kind in _types(option)]
    return [*dict.fromkeys(found)]


def _explained(tool: Tool, arguments: Mapping[str, Any], validator: jsonschema_rs.Validator) -> InvalidArguments:
    is_open = tool.input_schema.get("additionalProperties") not in (None, False)
    unknown = [] if is_open else [name for name in arguments if name not in tool.properties]
    missing = [name for name in tool.required if name not in arguments]
    lines = [f"missing: {name} ({_type_name(tool, name)})" for name in missing]
    lines += [_unknown_line(tool, name, arguments) for name in unknown]
    lines += [line for error in validator.iter_errors(arguments) if (line := _error_line(error))]
    shown = [*dict.fromkeys(lines)][:PROBLEMS_SHOWN]
    good = {name: value for name, value in arguments.items() if name not in unknown}
    return InvalidArguments(
        tool.handle,
        details=shown,
        next_call=NextCall("call", {"name": tool.handle, "arguments": {**good, **dict.fromkeys(missing, "...")}}),
    )


def _unknown_line(tool: Tool, name: str, arguments: Mapping[str, Any]) -> str:
    unused = [known for known in tool.properties if known not in arguments]
    near = difflib.get_close_matches(name, unused, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]} ({_type_name(tool, near[0])})?" if near else ""
    return f"unknown: {name}{hint}"


def _error_line(error: jsonschema_rs.ValidationError) -> str:
    kind = error.kind.name if hasattr(error.kind, "name") else ""
    if kind in ("required", "additionalProperties") and not list(error.instance_path):
        return ""  # said in our own words above
    where = ".".join(str(step) for step in error.instance_path) or "arguments"
    return f"{where}: {error.message if len(error.message) <= 300 else error.message[:300] + '…'}"


def _type_name(tool: Tool, name: str) -> str:
    schema = tool.properties.get(name)
    kinds = _types(schema)
    if kinds == ["array"] and isinstance(schema, Mapping):
        inner = _types(schema.get("items"))
        return f"{inner[0] if inner else 'any'}[]"
    return "|".join(kinds) or "any"


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"
