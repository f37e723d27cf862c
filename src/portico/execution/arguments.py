"""Arguments are checked against the tool's schema, plain mistakes are repaired; outputs are checked too."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import jsonschema_rs

from portico.domain.schema_values import proposals
from portico.domain.tool import Tool
from portico.errors import InvalidArguments, NextCall
from portico.results.preview import is_small

from .schema_check import CheckedSchema, CheckedSchemas, Size, measure

NAME_KEYS = ("name", "tool", "tool_name", "toolName", "handle")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "tool_input")
LAYERS = 4
PARTS_READ = 50_000
"""Commas and brackets in a text that is read as JSON; a longer one is left as the text that it is."""


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
    value_key = next((key for key in ARGUMENT_KEYS if _is_wrapping(raw, key, own)), "")
    request = _decoded(raw[value_key], Request(name, {})) if value_key else Request(name, {})
    request = _with_beside(request, raw, {name_key, value_key}, own)
    for _ in range(LAYERS):
        peeled = _peel(request, parameters_of)
        if peeled is request:
            break
        request = peeled
    return request


def _is_wrapping(raw: Mapping[str, Any], key: str, own: Mapping[str, Any]) -> bool:
    """Whether the arguments are under this key; one that the tool itself asks for may be an argument given flat."""
    return raw.get(key) is not None and (key == "arguments" or key not in own)


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
    note = "took the parameters beside `name` as its arguments"
    found = {**request.arguments, **beside} if request.arguments else beside
    return replace(request, arguments=found, notes=(*request.notes, note))


def _decoded(value: object, request: Request) -> Request:
    if isinstance(value, Mapping):
        return replace(request, arguments=value)
    if isinstance(value, str):
        if not value.strip():
            return request
        try:
            decoded = json.loads(value) if _is_readable(value) else None
        except (ValueError, RecursionError):
            decoded = None
        if isinstance(decoded, str):
            return _decoded(decoded, request) if decoded != value else request
        if isinstance(decoded, Mapping):
            return replace(request, arguments=decoded, notes=(*request.notes, "read `arguments` from a JSON string"))
    return replace(request, arguments={"arguments": value})


def _is_readable(text: str) -> bool:
    """Whether a text has few enough parts to be read while others wait."""
    return text.count(",") + text.count("[") + text.count("{") <= PARTS_READ


def _peel(request: Request, parameters_of: Callable[[str], Mapping[str, Any] | None]) -> Request:
    """Take off one layer of wrapping, if there is one that the tool itself does not ask for."""
    arguments = request.arguments
    name_key, inner_name = _first_text(arguments, NAME_KEYS)
    known = parameters_of(request.name) if request.name else None
    if not known and inner_name and (not request.name or known is None):
        inner = parameters_of(inner_name)
        if inner is not None or not request.name:
            return _named_inside(request, inner_name, {name_key} | (set(NAME_KEYS) - (inner or {}).keys()))
    own = known or {}
    keys = [key for key in ARGUMENT_KEYS if key in arguments and key not in own]
    has_others = any(key not in keys and not (key in NAME_KEYS and key not in own) for key in arguments)
    if len(keys) == 1 and not has_others:
        inner_request = _decoded(arguments[keys[0]], Request(request.name, {}))
        if inner_request.arguments != {"arguments": arguments[keys[0]]}:
            note = f"took `{keys[0]}` inside `arguments` as the arguments"
            return replace(inner_request, notes=(*request.notes, note))
    return request


def _named_inside(request: Request, name: str, name_keys: Set[str]) -> Request:
    rest = {key: value for key, value in request.arguments.items() if key not in name_keys}
    return Request(name, rest, (*request.notes, "took the tool's name from inside `arguments`"))


def _first_text(raw: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, str]:
    """The first of these keys that holds text, and the text."""
    return next(((k, raw[k].strip()) for k in keys if isinstance(raw.get(k), str) and raw[k].strip()), ("", ""))


REPAIR_LENGTH = 100_000
"""Letters of the texts that are read as something else, in one call."""
REPAIRS = 200
"""Values that are repaired in one call."""
PROBLEMS_SHOWN = 10
NAMES_READ = 1_000
"""Arguments that are looked at one by one."""
NAME_SHOWN = 100
"""Letters of a name that an error repeats."""
COMPARED_NAMES = 500
"""Parameters that an unknown name is compared with, letter by letter."""
COMPARED_LETTERS = 60_000
"""Letters times letters that are compared for all unknown names of one call."""
PROPOSALS = 3
"""Calls that are made up to find one that would pass."""
NEXT_SIZE = 500
"""Values of arguments that an error repeats in its next call."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments that fit, and one line for each thing that was repaired."""

    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class ArgumentCheck:
    """Checks arguments; compiled schemas are kept for the tools that are really called."""

    _schemas: CheckedSchemas = field(default_factory=CheckedSchemas)

    def check(self, tool: Tool, arguments: Mapping[str, Any]) -> Checked:
        """The arguments to send.

        Raises:
            InvalidArguments: with one line per problem and the call to make instead.
        """
        schema = self._schemas.of(tool, tool.input_schema)
        try:
            return _checked(schema, arguments)
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(tool.handle, details=(f"arguments that are not JSON: {error}"[:300],)) from error


def _checked(schema: CheckedSchema, arguments: Mapping[str, Any]) -> Checked:
    if schema.allows_small(arguments):
        return Checked(arguments)
    size = measure(arguments)
    is_valid = schema.is_valid(arguments, size)
    if is_valid:
        return Checked(arguments)
    if schema.validator is None and schema.cost.is_compiled:
        return Checked(arguments)  # not JSON Schema: its server knows better than we do what it meant
    repaired, notes, letters = _repair(schema.tool, arguments)
    if notes:
        size = Size(size.parts + letters, size.letters)  # each letter of a text may be a value of its own now
        is_valid = schema.is_valid(repaired, size)
        if is_valid:
            return Checked(repaired, notes)
    if is_valid is None and not _is_surely_wrong(schema.tool, repaired):
        return Checked(repaired, notes)
    raise _explained(schema, repaired, size)


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
    """What a value may have been meant as; text is text wherever a parameter takes text."""
    if isinstance(value, str):
        return _readings_of_text(value, types) if "string" not in types else []
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return [json.dumps(value)] if is_number and "string" in types else []


def _readings_of_text(value: str, types: Sequence[str]) -> list[Any]:
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
        "string": str,
        "null": type(None),
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


def _is_surely_wrong(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether something is wrong with arguments that can be seen without the validator."""
    properties, schema = tool.properties, tool.input_schema
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if is_closed and any(name not in properties for name in arguments):
        return True
    return any(True for _ in _missing(tool, arguments)) or any(True for _ in _mismatches(tool, arguments))


def _problems(tool: Tool, arguments: Mapping[str, Any], errors: Iterable[jsonschema_rs.ValidationError]) -> list[str]:
    """One line for each of the first problems; none where there are none that can be found in time."""
    lines = [f"missing: {name[:NAME_SHOWN]} ({_type_name(tool, name)})" for name in _missing(tool, arguments)]
    lines += _unknown_lines(tool, arguments)
    found = [line for error in errors if (line := _error_line(error))]
    lines += found or _mismatches(tool, arguments)
    return [*dict.fromkeys(lines)][:PROBLEMS_SHOWN]


def _explained(schema: CheckedSchema, arguments: Mapping[str, Any], size: Size) -> InvalidArguments:
    errors = schema.errors(arguments, size)
    lines = _problems(schema.tool, arguments, errors)
    details = lines or ["the arguments do not fit the schema; there is too much of them to say where"]
    wrong = {error.instance_path[0] for error in errors if error.instance_path}
    return InvalidArguments(schema.tool.handle, details=details, next_call=_next_call(schema, arguments, wrong))


def _next_call(schema: CheckedSchema, arguments: Mapping[str, Any], wrong: Set[str | int]) -> NextCall:
    """A call that would pass: the same with what is missing or wrong replaced, or else the way to the schema.

    What was just refused is never proposed again. Of large arguments nothing is repeated.
    """
    tool = schema.tool
    good = arguments if _is_open(tool) else {name: arguments[name] for name in _common(arguments, tool.properties)}
    if schema.validator is not None and is_small(good, NEXT_SIZE):
        for proposed in _proposals(schema.tool, good, wrong):
            if is_small(proposed, NEXT_SIZE) and schema.is_valid(proposed, measure(proposed)):
                return NextCall("call", {"name": tool.handle, "arguments": proposed})
    return NextCall("describe", {"names": [tool.handle]})


def _proposals(tool: Tool, good: Mapping[str, Any], wrong: Set[str | int]) -> Iterator[dict[str, Any]]:
    """Arguments that may pass, those first that keep most of what was given."""
    whole = [*islice((found for found in proposals(tool.input_schema) if isinstance(found, dict)), PROPOSALS)]
    kept = {name: value for name, value in good.items() if name not in wrong}
    for other in whole:
        yield {**other, **good}
        mended = {name: _instead(tool, name) for name in good if name in wrong and name not in other}
        yield {**{name: mended.get(name, value) for name, value in good.items()}, **other, **kept}
        yield {**other, **kept}
    yield from whole


def _instead(tool: Tool, name: str) -> Any:
    """A value for a parameter in the place of one that does not fit."""
    found = tool.properties.get(name)
    return next(proposals(found, tool.input_schema), None) if isinstance(found, Mapping) else None


def _missing(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[str]:
    return islice((name for name in tool.required if name not in arguments), PROBLEMS_SHOWN)


def _is_open(tool: Tool) -> bool:
    return tool.input_schema.get("additionalProperties") not in (None, False)


def _unknown_lines(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """A line for each of the first names that the tool does not have, with one that it has and that looks like it.

    Only a closed schema forbids them; with an open one they are told beside other problems.
    """
    if _is_open(tool):
        return []
    properties = tool.properties
    unknown = [*islice((name for name in arguments if name not in properties), PROBLEMS_SHOWN)]
    unused = [name for name in islice(properties, COMPARED_NAMES) if name not in arguments] if unknown else []
    letters, lines = COMPARED_LETTERS, []
    for name in unknown:
        near, letters = _near(str(name)[:NAME_SHOWN], unused, letters)
        hint = f"; did you mean {near} ({_type_name(tool, near)})?" if near else ""
        lines.append(f"unknown: {str(name)[:NAME_SHOWN]}{hint}")
    return lines


def _near(name: str, known: Sequence[str], letters: int) -> tuple[str, int]:
    """The known name that looks most like this one, and how many letters may still be compared after it."""
    best, score = "", 0.6
    matcher = difflib.SequenceMatcher(b=name, autojunk=False)
    for other in known:
        if len(other) > NAME_SHOWN or 2 * min(len(other), len(name)) < score * (len(other) + len(name)):
            continue
        letters -= len(other) * len(name)
        if letters < 0:
            break
        matcher.set_seq1(other)
        if matcher.quick_ratio() >= score and (ratio := matcher.ratio()) >= score and (ratio > score or not best):
            best, score = other, ratio
    return best, letters


def _mismatches(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Lines for parameters of the wrong type, as far as that can be seen without the validator."""
    properties = tool.properties
    wrong = (
        f"{name[:NAME_SHOWN]}: is not of type {'|'.join(types)}"
        for name in _common(arguments, properties)
        if (types := _plain_types(properties[name])) and not _is_of(arguments[name], types)
    )
    return islice(wrong, PROBLEMS_SHOWN)


def _is_of(value: object, types: Sequence[str]) -> bool:
    is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
    return is_whole or any(_fits(value, kind) for kind in types)


def _plain_types(schema: object) -> list[str]:
    """The types that a parameter says it has in so many words."""
    return _types({"type": schema.get("type")}) if isinstance(schema, Mapping) and "$ref" not in schema else []


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
    value = value[:60] if isinstance(value, str) else value
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"


@dataclass(slots=True)
class OutputCheck:
    """Checks structured content; compiled schemas are kept for the tools whose results are shortened."""

    _schemas: CheckedSchemas = field(default_factory=CheckedSchemas)

    def allows(self, tool: Tool, structured: Any) -> bool:
        """Whether the tool's schema allows this; one without a schema, or with one that nobody can read, allows all."""
        if tool.output_schema is None:
            return True
        schema = self._schemas.of(tool, tool.output_schema)
        if schema.validator is None and schema.cost.is_compiled:
            return True
        try:
            return schema.is_valid(structured, measure(structured)) is True
        except (ValueError, RecursionError):
            return False
