"""A tool's parameters, wherever its schema declares them: at the root, behind references, in every branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from portico.domain.tool import Tool

DEPTH = 8
"""How many references and branches are followed one into the other."""

_BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "dependentSchemas", "dependentRequired", "$dynamicRef")
_ELSEWHERE = frozenset({"$ref", "allOf", *_BRANCHES, *_CONDITIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields of an object."""

    fields: Mapping[str, Any]
    """Every declared field with its schema, in the order of declaration."""
    required: tuple[str, ...] = ()
    """What every value must have, declared or not."""
    either: tuple[str, ...] = ()
    """What some branch asks for and another does not."""
    is_whole: bool = True
    """Whether that is all there is to know: no conditions, and nothing that could not be followed."""


def shape_of(tool: Tool) -> Shape:
    """The shape of a tool's arguments."""
    return shape(tool.input_schema, tool.input_schema)


def shape(schema: object, root: Mapping[str, Any], depth: int = 0) -> Shape:
    """The shape that a schema gives an object, with references followed and branches laid over each other."""
    if not isinstance(schema, Mapping):
        return Shape(fields={}, is_whole=schema is True)
    if depth > DEPTH:
        return Shape(fields={}, is_whole=False)
    if _ELSEWHERE.isdisjoint(schema):
        return _declared(schema)
    parts = [_declared(schema), *(shape(part, root, depth + 1) for part in _all_of(schema, root))]
    parts += [_either(shape(option, root, depth + 1) for option in options) for options in _branches(schema)]
    parts += [_either((shape(schema[key], root, depth + 1), _NOTHING)) for key in ("then", "else") if key in schema]
    fields = _overlaid(part.fields for part in parts)
    required = tuple(dict.fromkeys(name for part in parts for name in part.required))
    either = dict.fromkeys(name for part in parts for name in part.either if name not in required)
    conditional = any(key in schema for key in _CONDITIONS)
    return Shape(
        fields=fields,
        required=required,
        either=tuple(either),
        is_whole=not conditional and all(part.is_whole for part in parts),
    )


def followed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """A schema in the place of a reference to it, and as one where `allOf` gives it in parts."""
    if ("$ref" not in schema and "allOf" not in schema) or depth > DEPTH:
        return schema
    parts = [part for part in _all_of(schema, root) if isinstance(part, Mapping)]
    if not parts:
        return schema
    found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    for part in parts:
        for key, value in followed(part, root, depth + 1).items():
            found.setdefault(key, value)
    return found


def target(reference: object, root: Mapping[str, Any]) -> object:
    """What a local reference points at, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for step in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(step)] if step.isdecimal() and len(step) < 6 and int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


_NOTHING = Shape(fields={})


def _declared(schema: Mapping[str, Any]) -> Shape:
    fields, required = schema.get("properties"), schema.get("required")
    return Shape(
        fields=fields if isinstance(fields, Mapping) else {},
        required=tuple(dict.fromkeys(n for n in required if isinstance(n, str))) if isinstance(required, list) else (),
    )


def _all_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[object]:
    """What holds beside the schema itself: the target of its reference, and every part of `allOf`."""
    if "$ref" in schema:
        yield target(schema["$ref"], root)
    parts = schema.get("allOf")
    yield from parts if isinstance(parts, list) else ()


def _branches(schema: Mapping[str, Any]) -> Iterator[list[Any]]:
    for keyword in _BRANCHES:
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            yield options


def _either(branches: Iterable[Shape]) -> Shape:
    """Branches of which one holds: what all of them ask for is required."""
    found = list(branches)
    always = [name for name in found[0].required if all(name in branch.required for branch in found)]
    asked = dict.fromkeys(name for branch in found for name in (*branch.required, *branch.either))
    either = tuple(name for name in asked if name not in always)
    return Shape(
        fields=_overlaid(branch.fields for branch in found),
        required=tuple(always),
        either=either,
        is_whole=not either and all(branch.is_whole for branch in found),
    )


def _overlaid(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of several declarations as one; a field that they declare differently may be any of these."""
    found: dict[str, list[Any]] = {}
    for layer in layers:
        for name, schema in layer.items():
            declared = found.setdefault(name, [])
            if schema not in declared:
                declared.append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}
