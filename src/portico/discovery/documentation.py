"""What a tool's schema and docstring say of its parameters, in the words of a Python programmer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from portico.domain.tool import Tool

TYPE_NAMES: Mapping[str, str] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
"""JSON Schema's types as Python spells them."""

DEPTH = 4
REFERENCES = 8
_SECTION = re.compile(r"^(\s*)(?:arguments|args|parameters|params)\s*:\s*$", re.IGNORECASE)
_ARGUMENT = re.compile(r"^(\s*)(?:[*-] )?`?([\w.$-]+)`?\s*(?:\([^)]*\)\s*)?(?:-|–|:)\s+(\S.*)$")


def parameters(tool: Tool) -> dict[str, dict[str, Any]]:
    """Each parameter with type, whether it is required, default and description.

    `default` is the text of the default for an optional parameter, `None` when there is none. `default_json` is there
    only when the schema declares one, with the value itself: the text alone cannot tell null from "None" or nothing.
    """
    texts = argument_texts(tool.description)
    required = frozenset(tool.required)
    return {
        name: _parameter(schema, tool.input_schema, name in required, texts.get(name, ""))
        for name, schema in {**tool.properties, **{n: {} for n in tool.required if n not in tool.properties}}.items()
    }


def _parameter(schema: object, root: Mapping[str, Any], is_required: bool, text: str) -> dict[str, Any]:
    shape: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    described = _followed(shape, root)
    found: dict[str, Any] = {"type": type_name(shape, root), "required": is_required}
    if not is_required:
        declared = {**described, **shape}
        found["default"] = str(declared.get("default"))
        if "default" in declared:
            found["default_json"] = declared["default"]
    own = shape.get("description", described.get("description"))
    found["description"] = own if isinstance(own, str) and own.strip() else text
    return found


def type_name(schema: object, root: Mapping[str, Any]) -> str:
    """The Python type of a schema: `str`, `int | str`, `Any`; that a value may also be null is left unsaid."""
    names = dict.fromkeys(_names(schema, root, DEPTH))
    return " | ".join(name for name in names if name != "None") or next(iter(names), "Any")


def _names(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    schema = _followed(schema, root)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    if known := [TYPE_NAMES[kind] for kind in kinds if isinstance(kind, str) and kind in TYPE_NAMES]:
        yield from known
        return
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list):
        yield from ("None" if choice is None else type(choice).__name__ for choice in choices)
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else ():
            yield from _names(option, root, depth - 1)
    if "properties" in schema or "items" in schema:
        yield "dict" if "properties" in schema else "list"


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a local reference leads to, a few steps at most."""
    for _ in range(REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        found: Any = root
        for step in reference[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    return schema


def argument_texts(doc: str) -> dict[str, str]:
    """What the arguments section of a docstring says of each name: `name - text`, `name: text`, `name (type): text`.

    Deeper lines belong to the argument before them; the section ends with the first line outside it.
    """
    texts: dict[str, str] = {}
    lines = iter(doc.splitlines())
    section = next((len(found[1]) for line in lines if (found := _SECTION.match(line))), None)
    if section is None:
        return texts
    name, indent = "", 0
    for line in lines:
        if not line.strip():
            continue
        depth, argument = len(line) - len(line.lstrip()), _ARGUMENT.match(line)
        if argument and (not name or depth <= indent):
            name, indent = argument[2], depth
            texts.setdefault(name, argument[3].strip())
        elif name and depth > indent:
            texts[name] += f" {line.strip()}"
        elif depth <= section:
            break
    return texts
