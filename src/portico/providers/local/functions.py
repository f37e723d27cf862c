"""A plain function becomes a tool definition: schema from its signature, texts from its docstring."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

PREFIX = "handle_"
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARGUMENT_LINE = re.compile(r"^\s*(?::param\s+)?(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*(?:-|:|–)\s*(\S.*)$")


def define(function: Callable[..., Any], name: str = "") -> dict[str, Any]:
    """The definition of a function; `handle_` at the start of its name is dropped."""
    doc = inspect.getdoc(function) or ""
    texts = _argument_texts(doc)
    hints = _hints(function)
    properties: dict[str, Any] = {}
    required = []
    taken = inspect.signature(function).parameters.values()
    for parameter in taken:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or parameter.name.startswith("_"):
            continue
        schema = type_schema(hints.get(parameter.name, Any))
        if parameter.name in texts:
            schema = {**schema, "description": texts[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            schema = {**schema, "default": parameter.default}
        properties[parameter.name] = schema
    return {
        "name": name or function.__name__.removeprefix(PREFIX),
        "description": doc,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": any(
                p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()
            ),
        },
    }


def type_schema(hint: Any, inside: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The JSON Schema of an annotation; one that says nothing to JSON, or that is `inside` itself, is left open."""
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [type_schema(option, inside) for option in arguments]}
    if hint in (list, tuple, set) or origin in (list, tuple, set, frozenset):
        items = {argument for argument in arguments if argument is not Ellipsis}
        return {"type": "array", **({"items": type_schema(items.pop(), inside)} if len(items) == 1 else {})}
    if hint is dict or origin is dict:
        return {"type": "object"}
    return _class_schema(hint, inside) if hint not in inside else {}


def _class_schema(hint: Any, inside: tuple[Any, ...]) -> dict[str, Any]:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        fields = dataclasses.fields(hint)
        hints = get_type_hints(hint)
        needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
        properties = {f.name: type_schema(hints[f.name], (*inside, hint)) for f in fields}
        return {"type": "object", "properties": properties, "required": needed}
    return {}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _argument_texts(doc: str) -> dict[str, str]:
    found = (_ARGUMENT_LINE.match(line) for line in doc.splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
