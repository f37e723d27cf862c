"""One-line signatures: what an agent needs to call a tool at once.

`?` marks an optional parameter, `~` something that was shortened (describe the tool to see it whole). A required
parameter is never left out; a string's type is left unsaid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from portico.domain.tool import Tool

OPTIONAL_SHOWN = 8
CHOICES_SHOWN = 6
CHOICE_LENGTH = 60
FIELDS_SHOWN = 6
SUMMARY_LENGTH = 90
UNION_SHOWN = 3


def signature(tool: Tool, *, optional: int = OPTIONAL_SHOWN, summary: int = SUMMARY_LENGTH) -> str:
    """`server.tool(a, b?: integer) [write] What it does`."""
    head = f"{tool.handle}({parameters(tool, optional=optional)}) [{tool.effect}]"
    line = first_sentence(tool.description or tool.title, summary)
    return f"{head} {line}" if line else head


def parameters(tool: Tool, *, optional: int = OPTIONAL_SHOWN) -> str:
    """The parameter list of a signature, required ones first, each group in the schema's order."""
    required = [*dict.fromkeys(tool.required)]
    others = [name for name in tool.properties if name not in required]
    shown = [_parameter(name, tool, "") for name in required]
    shown += [_parameter(name, tool, "?") for name in others[:optional]]
    if len(others) > optional or any(keyword in tool.input_schema for keyword in _ELSEWHERE):
        shown.append("~")
    return ", ".join(shown)


_ELSEWHERE = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired")
"""Keywords that add parameters, or conditions on them, which one line does not show."""


def _parameter(name: str, tool: Tool, mark: str) -> str:
    return _field(name, mark, type_text(tool.properties.get(name), tool.input_schema))


def _field(name: str, mark: str, kind: str) -> str:
    """A name from outside keeps the line whole: one with a line break in it is quoted."""
    shown = name if name.isprintable() else json.dumps(name)
    return f"{shown}{mark}" if kind == "string" else f"{shown}{mark}: {kind}"


def type_text(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """A parameter's type in a few characters."""
    if schema is None or schema is True:
        return "any"
    if not isinstance(schema, Mapping):
        return "any~"
    if depth > 3:
        return "any~"
    schema = _followed(schema, root)
    if "const" in schema:
        return _choices([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _choices(schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list) and "properties" not in schema:
            return _union(schema[keyword], root, depth)
    return _plain_type(schema, root, depth)


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a description, cut at a word when it is long."""
    line = " ".join(text.split("\n\n", 1)[0].split())
    for end in (". ", "! ", "? ", " - "):
        position = line.find(end)
        if 15 <= position < limit:
            line = line[: position + (1 if end == ". " else 0)]
    line = line.removesuffix(".")
    if len(line) <= limit:
        return line
    return f"{line[:limit].rsplit(' ', 1)[0].rstrip(' ,;:')}…"


def _plain_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        kinds = [kind for kind in declared if isinstance(kind, str) and kind != "null"]
        spelled = [_plain_type({**schema, "type": kind}, root, depth) for kind in kinds[:UNION_SHOWN]]
        return "|".join([*spelled, *(["~"] if len(kinds) > UNION_SHOWN else [])]) or "null"
    if declared == "array":
        inner = type_text(schema.get("items"), root, depth + 1)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if declared == "object" or "properties" in schema:
        return _object(schema, root, depth)
    if isinstance(declared, str):
        return declared if declared in _KINDS else "any~"
    return "any" if schema.keys() <= _SAY_NOTHING else "any~"


_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})
_SAY_NOTHING = frozenset({"description", "title", "default", "examples", "$comment", "deprecated"})


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    fields = schema.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        return "object"
    needed = schema.get("required")
    required = dict.fromkeys(name for name in needed if isinstance(name, str)) if isinstance(needed, list) else {}
    names = [*required, *(name for name in fields if name not in required)]
    if depth > 0 or len(required) > FIELDS_SHOWN:
        return "object~"
    shown = []
    for name in names[:FIELDS_SHOWN]:
        kind = type_text(fields.get(name), root, depth + 1)
        shown.append(_field(name, "" if name in required else "?", kind))
    return "{" + ", ".join([*shown, *(["~"] if len(names) > FIELDS_SHOWN else [])]) + "}"


def _union(options: list[Any], root: Mapping[str, Any], depth: int) -> str:
    spelled = [*dict.fromkeys(type_text(option, root, depth + 1) for option in options)]
    kinds = [kind for kind in spelled if kind != "null"]
    return "|".join(kinds[:UNION_SHOWN]) + ("|~" if len(kinds) > UNION_SHOWN else "") or "null"


def _choices(values: list[Any]) -> str:
    spelled = [json.dumps(value, ensure_ascii=False, default=str) for value in values if value is not None]
    shown: list[str] = []
    for choice in spelled[:CHOICES_SHOWN]:
        if shown and len("|".join([*shown, choice])) > CHOICE_LENGTH:
            break
        shown.append(choice if len(choice) <= CHOICE_LENGTH else f"{choice[:CHOICE_LENGTH]}~")
    return "|".join([*shown, *(["~"] if len(shown) < len(spelled) else [])]) or "null"


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a local reference a few steps; intake has refused those that lead only to each other."""
    for _ in range(8):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        found: Any = root
        for step in reference[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    options = schema.get("allOf")
    if isinstance(options, list) and len(options) == 1 and isinstance(options[0], Mapping):
        return _followed(options[0], root)
    return schema
