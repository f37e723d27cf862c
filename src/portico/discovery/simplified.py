"""A schema in a few words: each parameter's type and whether it is needed, and what comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from portico.domain.tool import Tool

from .parameters import followed, shape
from .sentences import first_sentence
from .signatures import type_text

RETURNS_LENGTH = 100
"""Characters of what is said about a result."""
DEPTH = 4
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
    return "|".join(dict.fromkeys(_types(schema, root, DEPTH))) or UNKNOWN


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
