"""Arguments of calls: unwrapped, checked against the tool's schema, and repaired where only one reading fits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from portico.domain.suggestions import nearest_names
from portico.domain.tool import Tool
from portico.errors import InvalidArguments, NextCall
from portico.rendering.schema_examples import proposals
from portico.results.preview import is_small

from .schema_cost import CHECK_UNITS, Cost, Size, cost_of, measure

NAME_KEYS = ("name", "tool", "tool_name", "toolName", "handle")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "tool_input")
LAYERS = 4
PARTS_READ = 50_000
"""Commas and brackets in a text that is read as JSON while others wait; a longer one is left as the text that it is."""
REPAIR_LENGTH = 100_000  # letters of the texts that are read as something else, in one call
REPAIRS = 200  # values that are repaired in one call
PROBLEMS_SHOWN = 10
NAMES_READ = 1_000  # arguments that are looked at one by one
NAME_SHOWN = 100  # letters of a name that an error repeats
COMPARED_NAMES = 500  # parameters that an unknown name is compared with
PROPOSALS = 3  # calls that are made up to find one that would pass
NEXT_SIZE = 500  # values of arguments that an error repeats in its next call
COMPILED_LIMIT = 4_096
LISTED_UNITS = 2_000
"""What a check may cost whose errors are all listed: an error costs a thousand times what a check costs."""
FIRST_UNITS = 200_000  # what a check may cost whose first error is told
ERRORS_READ = 50
TOLD_LETTERS = 200_000  # letters of a value whose errors are told at all: each error holds a copy of what is wrong

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "string": str,
    "null": type(None),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A tool name and arguments as they were meant, with a line for each thing put right."""

    name: str
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def unwrap(
    raw: Mapping[str, Any], parameters_of: Callable[[str], Mapping[str, Any] | None], *, named: str = "name"
) -> Request:
    """Read a call of a tool through another one, however it is wrapped; `named` is where the tool's name belongs.

    `parameters_of` gives a tool's own parameters, so that a tool which really has a parameter called `name` or
    `arguments` is left alone.
    """
    name_key, name = _first_text(raw, (named, *NAME_KEYS))
    own = (parameters_of(name) if name else None) or {}
    # A key that the tool itself asks for may be an argument given flat.
    wrapping = (key for key in ARGUMENT_KEYS if raw.get(key) is not None and (key == "arguments" or key not in own))
    value_key = next(wrapping, "")
    request = _decode(raw[value_key], name) if value_key else Request(name, {})
    request = _with_beside(request, raw, {name_key, value_key}, own)
    for _ in range(LAYERS):
        peeled = _peel(request, parameters_of)
        if peeled is request:
            break
        request = peeled
    return request


def _decode(value: object, name: str) -> Request:
    while isinstance(value, str):
        if not value.strip():
            return Request(name, {})
        is_readable = value.count(",") + value.count("[") + value.count("{") <= PARTS_READ
        try:
            decoded = json.loads(value) if is_readable else None
        except (ValueError, RecursionError):
            decoded = None
        if isinstance(decoded, Mapping):
            return Request(name, decoded, ("read `arguments` from a JSON string",))
        if not isinstance(decoded, str):
            break
        value = decoded
    return Request(name, value if isinstance(value, Mapping) else {"arguments": value})


def _with_beside(request: Request, raw: Mapping[str, Any], used: set[str], own: Mapping[str, Any]) -> Request:
    """Arguments given beside the name instead of under `arguments`; nothing that was given is lost in silence."""
    if request.arguments:
        beside = {key: raw[key] for key in own if key in raw and key not in used and key not in request.arguments}
    else:
        beside = dict(raw)  # there may be very many, so that each is touched once
        for key in {*used, *(key for key in (*NAME_KEYS, *ARGUMENT_KEYS) if key not in own)}:
            beside.pop(key, None)
    if not beside:
        return request
    found = {**request.arguments, **beside} if request.arguments else beside
    note = "took the parameters beside `name` as its arguments"
    return replace(request, arguments=found, notes=(*request.notes, note))


def _peel(request: Request, parameters_of: Callable[[str], Mapping[str, Any] | None]) -> Request:
    """Take off one layer of wrapping, if there is one that the tool itself does not ask for."""
    arguments = request.arguments
    name_key, inner_name = _first_text(arguments, NAME_KEYS)
    own = parameters_of(request.name) if request.name else None
    if not own and inner_name and (not request.name or own is None):
        inner = parameters_of(inner_name)
        if inner is not None or not request.name:
            name_keys = {name_key, *(key for key in NAME_KEYS if key not in (inner or {}))}
            rest = {key: value for key, value in arguments.items() if key not in name_keys}
            return Request(inner_name, rest, (*request.notes, "took the tool's name from inside `arguments`"))
    own = own or {}
    keys = [key for key in ARGUMENT_KEYS if key in arguments and key not in own]
    has_others = any(key not in keys and not (key in NAME_KEYS and key not in own) for key in arguments)
    if len(keys) == 1 and not has_others:
        inside = _decode(arguments[keys[0]], request.name)
        if inside.arguments != {"arguments": arguments[keys[0]]}:
            return replace(inside, notes=(*request.notes, f"took `{keys[0]}` inside `arguments` as the arguments"))
    return request


def _first_text(raw: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, str]:
    """The first of these keys that holds text, and the text."""
    return next(((k, raw[k].strip()) for k in keys if isinstance(raw.get(k), str) and raw[k].strip()), ("", ""))


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """One schema of a tool, compiled where that is cheap."""

    tool: Tool
    validator: jsonschema_rs.Validator | None
    cost: Cost
    letters: int = 0
    """Values of so many letters, written as JSON, are surely checked in time."""

    @property
    def is_unreadable(self) -> bool:
        """Whether it is no JSON Schema: the tool's server knows better than we do what it meant."""
        return self.validator is None and self.cost.is_compiled

    def allows_small(self, value: Any) -> bool:
        """Whether a value is surely small enough to be checked, and fits: the way of nearly all calls.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None:
            return False
        try:
            is_short = len(orjson.dumps(value)) <= self.letters
        except TypeError:  # integers beyond 64 bits, too many levels, or a library user's own objects
            return False
        return is_short and self.validator.is_valid(value)

    def is_valid(self, value: Any, size: Size) -> bool | None:
        """Whether the schema allows a value; None where nobody can tell in time.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None or not self.cost.affords(size) or not self.cost.reaches(value, size):
            return None
        return self.validator.is_valid(value)

    def errors(self, value: Any, size: Size) -> list[jsonschema_rs.ValidationError]:
        """The errors of a value: all of them, the first one, or none, by how long that would take."""
        is_short = size.letters <= TOLD_LETTERS and self.cost.affords(size, FIRST_UNITS)
        if self.validator is None or not is_short or not self.cost.reaches(value, size):
            return []
        if self.cost.affords(size, LISTED_UNITS):
            return [*islice(self.validator.iter_errors(value), ERRORS_READ)]
        if self.cost.has_alternatives:
            return []
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


@dataclass(slots=True)
class CompiledSchemas:
    """Compiled schemas of the tools that are really used."""

    _kept: dict[int, CompiledSchema] = field(default_factory=dict)

    def of(self, tool: Tool, schema: Mapping[str, Any]) -> CompiledSchema:
        """The schema of a tool, compiled at its first use, by a validator that never touches the network."""
        kept = self._kept.get(id(tool))
        if kept is None or kept.tool is not tool:
            if len(self._kept) >= COMPILED_LIMIT:
                self._kept.clear()
            cost, validator = cost_of(schema), None
            if cost.is_compiled:
                options = jsonschema_rs.FancyRegexOptions(backtrack_limit=50_000)
                # Calls of a tool with a schema that nobody can read go unchecked.
                with suppress(jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
                    validator = jsonschema_rs.validator_for(dict(schema), offline=True, pattern_options=options)
            letters = CHECK_UNITS // cost.per_letter if cost.per_letter else 0
            kept = self._kept[id(tool)] = CompiledSchema(tool, validator, cost, letters)
        return kept


@dataclass(slots=True)
class OutputCheck:
    """Checks the structured content of results that are shortened."""

    _schemas: CompiledSchemas = field(default_factory=CompiledSchemas)

    def allows(self, tool: Tool, structured: Any) -> bool:
        """Whether the tool's schema allows this; one without a schema, or with one that nobody can read, allows all."""
        if tool.output_schema is None:
            return True
        schema = self._schemas.of(tool, tool.output_schema)
        try:
            return schema.is_unreadable or schema.is_valid(structured, measure(structured)) is True
        except (ValueError, RecursionError):
            return False


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments that fit, and one line for each thing that was repaired."""

    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class ArgumentCheck:
    """Checks the arguments of calls, and repairs plain mistakes."""

    _schemas: CompiledSchemas = field(default_factory=CompiledSchemas)

    def check(self, tool: Tool, arguments: Mapping[str, Any]) -> Checked:
        """The arguments to send.

        Raises:
            InvalidArguments: with one line per problem and the call to make instead.
        """
        schema = self._schemas.of(tool, tool.input_schema)
        if tool.fixed and any(name in arguments for name in tool.fixed):
            raise _fixed_named(schema, arguments)
        try:
            return Checked(arguments) if schema.allows_small(arguments) else _check(schema, arguments)
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(tool.handle, details=(f"arguments that are not JSON: {error}"[:300],)) from error


def _fixed_named(schema: CompiledSchema, arguments: Mapping[str, Any]) -> InvalidArguments:
    """The error of a call that names a hidden parameter: to whoever calls, there is none of that name."""
    tool = schema.tool
    known = {name: value for name, value in arguments.items() if name not in tool.fixed}
    lines = [f"unknown: {name}" for name in arguments if name in tool.fixed]
    with suppress(ValueError, RecursionError):
        return InvalidArguments(tool.handle, details=lines, next_call=_next_call(schema, known, set()))
    return InvalidArguments(tool.handle, details=lines)


def fit_values(schema: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Values of a config as the properties of a schema take them, and what is wrong with the others.

    No message shows a value. Where a schema cannot be read, or not in time, the server says what it takes.
    """
    about = {key: found for key, found in schema.items() if key in _OF_PROPERTIES}
    cost = cost_of(about)
    if not cost.is_compiled or not cost.affords(measure(values)):
        return values, {}
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=50_000)
    try:
        validator = jsonschema_rs.validator_for(about, offline=True, pattern_options=options, mask="the value")
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return values, {}
    found, wrong = dict[str, Any](), dict[str, str]()
    for name, value in values.items():
        readings = _readings(value, _types(about["properties"][name]))
        fitting = (each for each in (value, *readings) if validator.is_valid({name: each}))
        found[name] = next(fitting, value)
        for error in islice(validator.iter_errors({name: found[name]}), 1):
            wrong[name] = error.message[:SHOWN]
    return found, wrong


SHOWN = 200  # letters of what is wrong with a value
_OF_PROPERTIES = frozenset("$schema $id $defs definitions properties".split())
"""What of a schema is about its properties one by one."""


def _check(schema: CompiledSchema, arguments: Mapping[str, Any]) -> Checked:
    size = measure(arguments)
    is_valid = schema.is_valid(arguments, size)
    if is_valid or schema.is_unreadable:
        return Checked(arguments)
    repaired, notes, letters = _repair(schema.tool, arguments)
    if notes:
        size = Size(size.parts + letters, size.letters)  # each letter of a text may be a value of its own now
        is_valid = schema.is_valid(repaired, size)
    if is_valid or (is_valid is None and not _is_surely_wrong(schema.tool, repaired)):
        return Checked(repaired, notes)
    errors = schema.errors(repaired, size)
    lines = _problems(schema.tool, repaired, errors)
    details = lines or ["the arguments do not fit the schema; there is too much of them to say where"]
    wrong = {error.instance_path[0] for error in errors if error.instance_path}
    raise InvalidArguments(schema.tool.handle, details=details, next_call=_next_call(schema, repaired, wrong))


def _repair(tool: Tool, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...], int]:
    """Turn values of the wrong type into what they spell, where only one reading fits, and count the letters read."""
    found, notes, letters, properties = dict[str, Any](), list[str](), 0, tool.properties
    for name in _common(arguments, properties):
        value, types = arguments[name], _types(properties[name])
        if not types or any(_fits(value, kind) for kind in types):
            continue
        letters += len(value) if isinstance(value, str) else 0
        if letters > REPAIR_LENGTH or len(notes) >= REPAIRS:
            break
        readings = _readings(value, types)
        if len(readings) == 1:
            found[name] = readings[0]
            notes.append(f"{name}: took {_brief(value)} as {_brief(readings[0])}")
    return ({**arguments, **found} if found else arguments), tuple(notes), min(letters, REPAIR_LENGTH)


def _common(arguments: Mapping[str, Any], properties: Mapping[str, Any]) -> Iterator[str]:
    """The first names that both have, found from the smaller side."""
    smaller, larger = (arguments, properties) if len(arguments) <= len(properties) else (properties, arguments)
    return islice((name for name in smaller if name in larger), NAMES_READ)


def _readings(value: object, types: Sequence[str]) -> list[Any]:
    """Values that may have been meant; text is text wherever a parameter takes text."""
    if not isinstance(value, str):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return [json.dumps(value)] if is_number and "string" in types else []
    if "string" in types:
        return []
    text = value.strip()
    try:
        parsed = json.loads(text.lower() if text.lower() in ("true", "false") else text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        parsed = text
    found = [parsed] if any(_fits(parsed, kind) for kind in types) else []
    return [*found, [value]] if "array" in types and not isinstance(parsed, list) else found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    return kind in _KINDS and isinstance(value, _KINDS[kind])


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


def _is_surely_wrong(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether something is wrong with arguments that can be seen without the validator."""
    properties, schema = tool.properties, tool.input_schema
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if is_closed and any(name not in properties for name in arguments):
        return True
    return any(name not in arguments for name in tool.required) or bool(_mismatches(tool, arguments))


def _mismatches(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """Lines for parameters of the wrong type, as far as that can be seen without the validator."""
    lines = list[str]()
    for name in _common(arguments, tool.properties):
        schema, value = tool.properties[name], arguments[name]
        is_plain = isinstance(schema, Mapping) and "$ref" not in schema
        types = _types({"type": schema.get("type")}) if is_plain else []
        is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
        if types and not is_whole and not any(_fits(value, kind) for kind in types):
            lines.append(f"{name[:NAME_SHOWN]}: is not of type {'|'.join(types)}")
        if len(lines) == PROBLEMS_SHOWN:
            break
    return lines


def _problems(tool: Tool, arguments: Mapping[str, Any], errors: Sequence[jsonschema_rs.ValidationError]) -> list[str]:
    """One line for each of the first problems; none where there are none that can be found in time."""
    missing = islice((name for name in tool.required if name not in arguments), PROBLEMS_SHOWN)
    lines = [f"missing: {name[:NAME_SHOWN]} ({_type_name(tool, name)})" for name in missing]
    # Only a closed schema forbids unknown names; with an open one they are told beside other problems.
    if not _is_open(tool):
        lines += _unknown_lines(tool, arguments)
    found = [line for error in errors if (line := _error_line(error))]
    return [*dict.fromkeys(lines + (found or _mismatches(tool, arguments)))][:PROBLEMS_SHOWN]


def _is_open(tool: Tool) -> bool:
    return tool.input_schema.get("additionalProperties") not in (None, False)


def _unknown_lines(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """A line for each of the first names that the tool does not have, with one that it has and that looks like it."""
    unknown = [*islice((name for name in arguments if name not in tool.properties), PROBLEMS_SHOWN)]
    unused = [name for name in islice(tool.properties, COMPARED_NAMES) if name not in arguments] if unknown else []
    lines = []
    for name in (str(one)[:NAME_SHOWN] for one in unknown):
        near = nearest_names(name, unused, limit=1)
        hint = f"; did you mean {near[0]} ({_type_name(tool, near[0])})?" if near else ""
        lines.append(f"unknown: {name}{hint}")
    return lines


def _error_line(error: jsonschema_rs.ValidationError) -> str:
    kind = error.kind.name if hasattr(error.kind, "name") else ""
    if kind in ("required", "additionalProperties") and not list(error.instance_path):
        return ""  # said in our own words above
    where = ".".join(str(step)[:NAME_SHOWN] for step in error.instance_path) or "arguments"
    return f"{where}: {error.message if len(error.message) <= 300 else error.message[:300] + '…'}"


def _type_name(tool: Tool, name: str) -> str:
    schema = tool.properties.get(name)
    kinds = _types(schema)
    if kinds == ["array"] and isinstance(schema, Mapping):
        inner = _types(schema.get("items"))
        return f"{inner[0] if inner else 'any'}[]"
    return "|".join(kinds) or "any"


def _brief(value: object) -> str:
    text = json.dumps(value[:60] if isinstance(value, str) else value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _next_call(schema: CompiledSchema, arguments: Mapping[str, Any], wrong: Set[str | int]) -> NextCall:
    """A call that would pass: the same with what is missing or wrong replaced, or else the way to the schema.

    What was just refused is never proposed again. Of large arguments nothing is repeated.
    """
    tool = schema.tool
    good = arguments if _is_open(tool) else {name: arguments[name] for name in _common(arguments, tool.properties)}
    if schema.validator is not None and is_small(good, NEXT_SIZE):
        for proposed in _proposals(tool, good, wrong):
            if is_small(proposed, NEXT_SIZE) and schema.is_valid(proposed, measure(proposed)):
                return NextCall("call", {"name": tool.handle, "arguments": proposed})
    return NextCall("describe", {"names": [tool.handle]})


def _proposals(tool: Tool, good: Mapping[str, Any], wrong: Set[str | int]) -> Iterator[dict[str, Any]]:
    """Arguments that may pass, those first that keep most of what was given."""
    whole = [*islice((found for found in proposals(tool.input_schema) if isinstance(found, dict)), PROPOSALS)]
    kept = {name: value for name, value in good.items() if name not in wrong}
    for other in whole:
        yield {**other, **good}
        mended = {name: _replacement(tool, name) for name in good if name in wrong and name not in other}
        yield {**{name: mended.get(name, value) for name, value in good.items()}, **other, **kept}
        yield {**other, **kept}
    yield from whole


def _replacement(tool: Tool, name: str) -> Any:
    """A value for a parameter in the place of one that does not fit."""
    found = tool.properties.get(name)
    return next(proposals(found, tool.input_schema), None) if isinstance(found, Mapping) else None
