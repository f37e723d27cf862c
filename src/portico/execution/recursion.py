"""How much work a validator may have with a recursive schema, before it is let loose on a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OPTIONS = ("anyOf", "oneOf", "allOf")


def count_branches(schema: Mapping[str, Any]) -> int:
    """The most alternatives of one type, when the schema is recursive: all may be tried again at every level."""
    most, is_recursive = 1, False
    left: set[int] = set()
    path: set[int] = set()
    stack: list[tuple[Any, bool]] = [(schema, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            path.discard(id(node))
            left.add(id(node))
        elif id(node) in path:
            is_recursive = True
        elif id(node) not in left:
            path.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in _below(schema, node))
            most = max(most, _alternatives(node))
    return most if is_recursive else 1


def depth_of(value: Any) -> int:
    """How many objects and lists stand inside each other."""
    depth, level = 0, [value]
    while nested := [inner for inner in level if isinstance(inner, dict | list)]:
        depth += 1
        level = [child for inner in nested for child in (inner.values() if isinstance(inner, dict) else inner)]
    return depth


def _alternatives(node: Any) -> int:
    if not isinstance(node, dict):
        return 1
    return sum(len(found) for keyword in _OPTIONS if isinstance(found := node.get(keyword), list))


def _below(schema: Mapping[str, Any], node: Any) -> Iterator[Any]:
    children = node.values() if isinstance(node, dict) else node
    yield from (child for child in children if isinstance(child, dict | list))
    reference = node.get("$ref") if isinstance(node, dict) else None
    if isinstance(reference, str) and reference.startswith("#"):
        found: Any = schema
        for step in filter(None, reference[1:].split("/")):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if isinstance(found, dict):
            yield found
