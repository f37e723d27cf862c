"""Schemas that a validator could not survive are refused before one ever sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from portico.errors import InvalidDefinition

DEPTH_LIMIT = 100
NODE_LIMIT = 50_000
EXPANSION_LIMIT = 1_000
"""Subschemas that may apply to one value: two references to two references to... double with every step."""

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "example", "examples"})
_CONTAINERS = (dict, list)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_SINGLE = ("not", "if", "then", "else")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Walk a schema once, without recursion of our own.

    Raises:
        InvalidDefinition: nested too deep, too large, a remote `$ref`, or `$ref`s that lead only to each other or
            to more subschemas than a validator could try.
    """
    if is_harmless(orjson.dumps(schema)):
        return
    nodes = list(_nodes(schema))
    references = [node[keyword] for node in nodes for keyword in _REFERENCES if keyword in node]
    if not references:
        return
    ids = {node["$id"] for node in nodes if isinstance(node.get("$id"), str)}
    for reference in references:
        _check_reference(reference, ids)
    _check_cycles(schema, nodes)


def is_harmless(text: bytes) -> bool:
    """Whether no schema in a text can have any of those faults: most have no reference, and few parts."""
    return b'ef":' not in text and text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object in the schema that can be a subschema; plain data (enums, defaults) is passed over."""
    stack: list[tuple[Any, int, bool]] = [(schema, 0, False)]
    seen = 0
    while stack:
        value, depth, is_name_map = stack.pop()
        seen += 1
        if depth > DEPTH_LIMIT:
            raise InvalidDefinition(f"its schema is nested deeper than {DEPTH_LIMIT} levels")
        if seen > NODE_LIMIT:
            raise InvalidDefinition(f"its schema has more than {NODE_LIMIT:,} parts")
        if isinstance(value, dict):
            if not is_name_map:
                yield value
            for key, child in value.items():
                if isinstance(child, _CONTAINERS) and (is_name_map or key not in _DATA_KEYWORDS):
                    stack.append((child, depth + 1, not is_name_map and key in _NAME_MAPS))
        else:
            stack.extend((child, depth + 1, False) for child in value if isinstance(child, _CONTAINERS))


_NAME_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names, so that a parameter called `$ref` or `default` is not mistaken for a keyword."""


def _check_reference(reference: object, ids: set[str]) -> None:
    if not isinstance(reference, str) or reference.startswith("#"):
        return
    target = reference.split("#", 1)[0]
    if target not in ids:
        raise InvalidDefinition(
            f"its schema has a remote $ref {reference!r}: references are never fetched, put the type under $defs"
        )


def _check_cycles(schema: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> None:
    """Refuse a loop that never goes down into the instance; a recursive type passes through `properties` or `items`."""
    sizes: dict[int, int] = {}
    for start in nodes:
        path: set[int] = set()
        stack: list[tuple[Mapping[str, Any], bool]] = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            key = id(node)
            if leaving:
                path.discard(key)
                sizes[key] = _expansion(schema, node, sizes)
            elif key in path:
                raise InvalidDefinition("its schema has $refs that lead only to each other")
            elif key not in sizes:
                path.add(key)
                stack.append((node, True))
                stack.extend((child, False) for child in _in_place(schema, node))


def _expansion(schema: Mapping[str, Any], node: Mapping[str, Any], sizes: Mapping[int, int]) -> int:
    """How many subschemas one value is held against here, each as often as it is reached through a reference."""
    size = max(1, sum(sizes.get(id(child), 1) for child in _in_place(schema, node)))
    if "$ref" in node and size > EXPANSION_LIMIT:
        raise InvalidDefinition(f"its schema has $refs that unfold to more than {EXPANSION_LIMIT:,} subschemas")
    return size


def _in_place(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The subschemas that apply to the same value as this one."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        target = _resolve(schema, reference)
        if target is not None:
            yield target
    for keyword in _IN_PLACE:
        children = node.get(keyword)
        if isinstance(children, list):
            yield from (child for child in children if isinstance(child, Mapping))
    for keyword in _IN_PLACE_SINGLE:
        child = node.get(keyword)
        if isinstance(child, Mapping):
            yield child
    dependent = node.get("dependentSchemas")
    if isinstance(dependent, Mapping):
        yield from (child for child in dependent.values() if isinstance(child, Mapping))


def _resolve(schema: Mapping[str, Any], reference: str) -> Mapping[str, Any] | None:
    """Follow a local JSON pointer; one that points nowhere is left for the validator to ignore."""
    if not reference.startswith("#"):
        return None
    found: Any = schema
    for part in filter(None, reference[1:].split("/")):
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and _is_place(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found if isinstance(found, Mapping) else None


def _is_place(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 7
