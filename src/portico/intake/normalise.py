"""A raw tool definition becomes one that we can name, index and check, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from portico.domain.tool import Effect
from portico.errors import InvalidDefinition

from .schemas import check_schema

DEFINITION_LIMIT = 256 * 1024
DESCRIPTION_LIMIT = 8_000
NAME_LIMIT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition that passed: ready for a name of ours."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    effect: Effect
    raw: Mapping[str, Any]
    """The definition as it will be listed, but for its name."""
    notes: tuple[str, ...]


def normalise(raw: object) -> Definition:
    """Check one definition and bring it into shape; the source object is not changed.

    Raises:
        InvalidDefinition: with a reason that the server's author can act on.
    """
    if not isinstance(raw, Mapping):
        raise InvalidDefinition(f"the definition is {_kind(raw)}, not an object")
    name = _name(raw)
    _check_size(raw)
    notes: list[str] = []
    schema = _input_schema(raw, notes)
    output = _output_schema(raw, notes)
    description = _description(raw, notes)
    listed = {**raw, "description": description, "inputSchema": schema}
    if output is None:
        listed.pop("outputSchema", None)
    _drop_malformed(listed, notes)
    return Definition(
        name=name,
        title=_title(raw),
        description=description,
        input_schema=schema,
        output_schema=output,
        effect=effect_of(raw.get("annotations")),
        raw=listed,
        notes=tuple(notes),
    )


def _drop_malformed(listed: dict[str, Any], notes: list[str]) -> None:
    """Leave out optional fields of the wrong shape: a strict client would refuse the whole list for one of them."""
    for field, (is_well_formed, shape) in _SHAPES.items():
        if field in listed and not is_well_formed(listed[field]):
            del listed[field]
            notes.append(f"its `{field}` was dropped: not {shape}")
    hints = listed.get("annotations", {})
    malformed = {key for key, kind in _HINTS.items() if key in hints and not isinstance(hints[key], kind)}
    if malformed:
        listed["annotations"] = {key: value for key, value in hints.items() if key not in malformed}
        notes.append(f"annotations of the wrong type were dropped: {', '.join(sorted(malformed))}")


_HINTS: Mapping[str, type] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def _is_icons(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, dict) and isinstance(i.get("src"), str) for i in value)


_SHAPES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "title": (lambda value: isinstance(value, str), "text"),
    "annotations": (lambda value: isinstance(value, dict), "an object"),
    "icons": (_is_icons, "a list of objects with a `src`"),
    "execution": (lambda value: isinstance(value, dict), "an object"),
    "_meta": (lambda value: isinstance(value, dict), "an object"),
}


def effect_of(annotations: object) -> Effect:
    """What the annotations say that a tool does; what they leave open counts as write."""
    if isinstance(annotations, Mapping):
        if annotations.get("readOnlyHint") is True:
            return Effect.READ
        if annotations.get("destructiveHint") is True:
            return Effect.DESTRUCTIVE
    return Effect.WRITE


def _name(raw: Mapping[str, Any]) -> str:
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidDefinition("it has no name: give every tool a `name` that is a non-empty string")
    if len(name) > NAME_LIMIT:
        raise InvalidDefinition(f"its name has {len(name)} characters; the limit is {NAME_LIMIT}")
    if not name.isprintable():
        raise InvalidDefinition("its name has control or invisible characters")
    return name


def _check_size(raw: Mapping[str, Any]) -> None:
    try:
        size = len(orjson.dumps(raw))
    except (TypeError, orjson.JSONEncodeError, RecursionError) as error:
        raise InvalidDefinition(f"it cannot be written as JSON ({error})") from error
    if size > DEFINITION_LIMIT:
        raise InvalidDefinition(
            f"the definition has {size:,} bytes; the limit is {DEFINITION_LIMIT:,} (256 KB): shorten its schema"
        )


def _input_schema(raw: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    schema = raw.get("inputSchema")
    if schema is None:
        notes.append("it has no inputSchema; taken as a tool without parameters")
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise InvalidDefinition(f"its inputSchema is {_kind(schema)}, not an object")
    declared = schema.get("type", "object")
    if declared != "object" and not (isinstance(declared, list) and "object" in declared):
        raise InvalidDefinition(f"its inputSchema describes {declared!r}; a tool takes an object of parameters")
    check_schema(schema)
    mended = dict(schema)
    if schema.get("type") != "object":
        notes.append('its inputSchema does not say "type": "object"; added')
        mended["type"] = "object"
    if not isinstance(schema.get("properties", {}), dict):
        notes.append("the `properties` of its inputSchema were dropped: not an object")
        del mended["properties"]
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        notes.append("the `required` of its inputSchema was mended: not a list of names")
        mended["required"] = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return schema if mended == schema else mended


def _output_schema(raw: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any] | None:
    schema = raw.get("outputSchema")
    if schema is None:
        return None
    try:
        if not isinstance(schema, dict):
            raise InvalidDefinition(f"{_kind(schema)}, not an object")
        check_schema(schema)
    except InvalidDefinition as error:
        notes.append(f"its outputSchema was dropped: {error}")
        return None
    return schema


def _description(raw: Mapping[str, Any], notes: list[str]) -> str:
    text = raw.get("description")
    if not isinstance(text, str):
        if text is not None:
            notes.append("a description that is not text was dropped")
        return ""
    if len(text) <= DESCRIPTION_LIMIT:
        return text
    notes.append(f"its description has {len(text):,} characters and was cut at {DESCRIPTION_LIMIT:,}")
    return f"{text[:DESCRIPTION_LIMIT].rstrip()} […cut, {len(text) - DESCRIPTION_LIMIT:,} more characters]"


def _title(raw: Mapping[str, Any]) -> str:
    annotations = raw.get("annotations")
    for title in (raw.get("title"), annotations.get("title") if isinstance(annotations, Mapping) else None):
        if isinstance(title, str):
            return title
    return ""


def _kind(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        str: "a string",
        list: "an array",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "an object")
