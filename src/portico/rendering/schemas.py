"""A schema in a few words: each parameter's type and whether it is needed, and what comes back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from portico.domain.tool import Tool

from .cards import followed, shape, type_text
from .summaries import first_sentence

RETURNS_LENGTH = 100
"""Characters of what is said about a result."""
WORDS_DEPTH = 4
UNKNOWN = "unknown"

_RETURNS = re.compile(r"(?:^|[.!?]\s+|\n\s*)returns?:?\s+(?=\S)", re.IGNORECASE)
_WRAPPED = re.compile(r"^\{result(?:: (.*))?\}$")
"""How servers wrap what is no object, since the protocol wants one."""
_SAYS_NOTHING = frozenset({"", "any", "any~", "object", "object~", "null"})


def simplify_params(full_schema: Mapping[str, Any]) -> dict[str, str]:
    """Each parameter as `type (required)` or `type (optional)`; a type that is not told is `unknown`.

    Parameters count wherever the schema declares them, and one that is required counts without a declaration too.
    """
    found = shape(full_schema, full_schema)
    required = frozenset(found.required)
    names = [*found.fields, *(name for name in found.required if name not in found.fields)]
    return {
        name: f"{_type(found.fields.get(name), full_schema)} ({'required' if name in required else 'optional'})"
        for name in names
    }


def flat_schema(
    full_schema: Mapping[str, Any], names: Collection[str] | None = None, *, choices: bool = True
) -> dict[str, Any]:
    """A smaller schema of the same arguments: types and choices of the parameters, and nothing nested.

    It allows whatever the full one allows. Where names are given, it declares those parameters only.
    """
    found = shape(full_schema, full_schema)
    every = dict.fromkeys((*found.fields, *found.required))
    shown = [name for name in every if names is None or name in names]
    properties = {name: _flat(found.fields.get(name), full_schema, WORDS_DEPTH, choices) for name in shown}
    required = [name for name in found.required if name in properties]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def returned(tool: Tool) -> str | None:
    """What a tool returns, in a few words: as its output schema or its description says; None when neither does."""
    schema = tool.output_schema
    told = schema.get("description") if schema else None
    if isinstance(told, str) and told.strip():
        return _said(told)
    sentence = _RETURNS.search(tool.description)
    if sentence:
        return _said(tool.description[sentence.end() :])
    spelled = _WRAPPED.sub(r"\1", type_text(schema, schema)) if schema else ""
    return None if spelled in _SAYS_NOTHING else spelled[:RETURNS_LENGTH]


def _said(text: str) -> str:
    """The first sentence of a text, which begins as the text does."""
    found = first_sentence(text, RETURNS_LENGTH)
    return found[:1].lower() + found[1:] if text.lstrip()[:1].islower() else found


def _type(schema: object, root: Mapping[str, Any]) -> str:
    """The declared type; where there is none, what references, choices and branches say."""
    return "|".join(dict.fromkeys(_types(schema, root, WORDS_DEPTH))) or UNKNOWN


def _types(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    schema = followed(schema, root)
    declared = schema.get("type")
    kinds = [kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)]
    if kinds:
        yield from ([kind for kind in kinds if kind != "null"] or kinds)
        return
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        branches = options if isinstance(options, list) else []
        found = [kind for option in branches for kind in _types(option, root, depth - 1)]
        yield from ([kind for kind in found if kind != "null"] or found)
    if "properties" in schema or "items" in schema:
        yield "object" if "properties" in schema else "array"


def _flat(schema: object, root: Mapping[str, Any], depth: int, choices: bool) -> dict[str, Any]:
    """The type of a parameter, and its choices; nothing where it may be of any type."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return {}
    schema = followed(schema, root)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    found: dict[str, Any] = {"type": declared} if kinds and all(isinstance(kind, str) for kind in kinds) else {}
    if choices:
        found |= {"enum": schema["enum"]} if isinstance(schema.get("enum"), list) else {}
        found |= {"const": schema["const"]} if "const" in schema else {}
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if not found and isinstance(options, list):
            found = _either_words([_flat(option, root, depth - 1, choices) for option in options])
    return found


def _either_words(branches: list[dict[str, Any]]) -> dict[str, Any]:
    """Branches as one; nothing where one of them says nothing."""
    if not branches or not all(branches):
        return {}
    if any(branch.keys() != {"type"} for branch in branches):
        return {"anyOf": branches}
    declared = [branch["type"] for branch in branches]
    kinds = dict.fromkeys(kind for one in declared for kind in ([one] if isinstance(one, str) else one))
    return {"type": next(iter(kinds)) if len(kinds) == 1 else list(kinds)}
