"""One-line signatures: what an agent needs to call a tool at once.

`?` marks an optional parameter, `=` one with its default, `~` something that was shortened (describe the tool to see
it whole). A required parameter is never left out; a string's type is left unsaid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from portico.domain.tool import Tool

from .parameters import Shape, followed, shape, shape_of
from .sentences import PURPOSE_LENGTH, purpose

OPTIONAL_SHOWN = 8
OPTIONAL_NAME_LENGTH = 64
LIST_LENGTH = 480
"""Characters of a parameter list; a longer one loses types, and optional parameters, but no required one."""
CHOICES_SHOWN = 6
CHOICE_LENGTH = 60
FIELDS_SHOWN = 6
OBJECT_LENGTH = 120
INNER_LENGTH = 48
"""Characters of an object, and of one inside a list, a union or another object; a longer one shows fewer fields."""
UNION_LENGTH = 60
UNION_SHOWN = 5
DEFAULT_LENGTH = 6

_PLAIN = 3
"""The depth at which an object is not spelled out at all."""
_DEEPEST = 5


def signature(tool: Tool, *, optional: int = OPTIONAL_SHOWN, words: int = PURPOSE_LENGTH) -> str:
    """`server.tool(a, b?: integer) [write] What it does`."""
    return _line(tool, parameters(tool, optional=optional), words)


def summary_line(tool: Tool, words: int = PURPOSE_LENGTH) -> str:
    """A signature without its parameters: `server.tool(~) [write] What it does`."""
    found = shape_of(tool)
    return _line(tool, "~" if found.fields or found.required or not found.is_whole else "", words)


def parameters(tool: Tool, *, optional: int = OPTIONAL_SHOWN) -> str:
    """The parameter list of a signature, required ones first, each group in the schema's order.

    A list that would be too long loses the insides of objects and most optional parameters, then all types.
    """
    found, root = shape_of(tool), tool.input_schema
    for shown, depth in ((optional, 0), (min(optional, 3), _PLAIN)):
        text = ", ".join(_listed(found, root, shown, depth))
        if len(text) <= LIST_LENGTH:
            return text
    return ", ".join([*map(_name, found.required), *(f"{_name(name)}?" for name in found.either), "~"])


def type_text(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """A parameter's type in a few characters."""
    if schema is None or schema is True:
        return "any"
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any~"
    schema = followed(schema, root)
    if "const" in schema:
        return _choices([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _choices(schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list) and "properties" not in schema:
            return _union(schema[keyword], root, depth)
    return _plain_type(schema, root, depth)


def _line(tool: Tool, listed: str, words: int) -> str:
    line = purpose(tool, words)
    return f"{tool.handle}({listed}) [{tool.effect}]" + (f" {line}" if line else "")


def _listed(found: Shape, root: Mapping[str, Any], optional: int, depth: int) -> Iterator[str]:
    """Required parameters, those that a branch asks for, and as many others as there is room for."""
    required, either = frozenset(found.required), frozenset(found.either)
    for name in found.required:
        yield _field(name, "", type_text(found.fields.get(name), root, depth))
    for name in found.either:
        yield _field(name, "?", type_text(found.fields.get(name), root, depth))
    others = [name for name in found.fields if name not in required and name not in either]
    shown = [name for name in others if len(name) <= OPTIONAL_NAME_LENGTH][:optional]
    yield from (_optional(name, found.fields[name], root, depth) for name in shown)
    if len(shown) < len(others) or not found.is_whole:
        yield "~"


def _optional(name: str, schema: object, root: Mapping[str, Any], depth: int) -> str:
    """An optional parameter; a number or switch with a default needs no type beside it."""
    kind = type_text(schema, root, depth)
    if kind in ("integer", "number", "boolean") and isinstance(schema, Mapping):
        default = followed(schema, root).get("default")
        if isinstance(default, int | float) and len(shown := json.dumps(default)) <= DEFAULT_LENGTH:
            return f"{_name(name)}={shown}"
    return _field(name, "?", kind)


def _field(name: str, mark: str, kind: str) -> str:
    return f"{_name(name)}{mark}" if kind == "string" else f"{_name(name)}{mark}: {kind}"


_ORDINARY = re.compile(r"[^\s,:;?~=|(){}\[\]\"]+")


def _name(name: str) -> str:
    """A name from outside keeps the line whole and readable: one with signs of our own in it is quoted."""
    return name if _ORDINARY.fullmatch(name) and name.isprintable() else _quoted(name)


def _quoted(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def _plain_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        kinds = [kind for kind in declared if isinstance(kind, str) and kind != "null"]
        return _joined(_plain_type({**schema, "type": kind}, root, depth) for kind in kinds)
    if declared == "array":
        inner = type_text(schema.get("items"), root, depth + 1)
        return f"({inner})[]" if "|" in _BRACES.sub("", inner) else f"{inner}[]"
    if declared == "object" or "properties" in schema:
        return _object(shape(schema, root), root, depth)
    if isinstance(declared, str):
        return declared if declared in _KINDS else "any~"
    return "any" if schema.keys() <= _SAY_NOTHING else "any~"


_BRACES = re.compile(r"\{.*?\}")
_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})
_SAY_NOTHING = frozenset({"description", "title", "default", "examples", "$comment", "deprecated"})


def _object(found: Shape, root: Mapping[str, Any], depth: int) -> str:
    """An object with its fields: those of which it must have them all, or it is only called an object."""
    if not found.fields and not found.required:
        return "object" if found.is_whole else "object~"
    needed = [*found.required, *found.either]
    if depth >= _PLAIN or len(needed) > FIELDS_SHOWN:
        return "object~"
    for optional in range(FIELDS_SHOWN - len(needed), -1, -1):
        text = "{" + ", ".join(_listed(found, root, optional, depth + 1)) + "}"
        if text != "{~}" and len(text) <= (INNER_LENGTH if depth else OBJECT_LENGTH):
            return text
    return "object~"


def _union(options: list[Any], root: Mapping[str, Any], depth: int) -> str:
    return _joined(type_text(option, root, depth + 1) for option in options)


def _joined(spelled: Iterable[str]) -> str:
    """The types of a union, each once; that a value may also be null is left unsaid."""
    return _within([kind for kind in dict.fromkeys(spelled) if kind != "null"], UNION_SHOWN, UNION_LENGTH) or "null"


def _within(options: Sequence[str], most: int, length: int) -> str:
    """Options as far as they fit; the first is always there."""
    shown, room = list(options[:1]), length - len(options[0]) if options else 0
    for option in options[1:most]:
        room -= len(option) + 1
        if room < 0:
            break
        shown.append(option)
    return "|".join([*shown, *(["~"] if len(shown) < len(options) else [])])


def _choices(values: list[Any]) -> str:
    """The values that are allowed, but for null; only as many are spelled as can be shown."""
    given = [value for value in values if value is not None]
    spelled = [_choice(value) for value in given[: CHOICES_SHOWN + 1]]
    return _within(spelled, CHOICES_SHOWN, CHOICE_LENGTH) or "null"


def _choice(value: object) -> str:
    if len(text := _quoted(value)) <= CHOICE_LENGTH:
        return text
    return f"{_quoted(f'{value[:CHOICE_LENGTH]}…')}~" if isinstance(value, str) else "any~"
