"""Which headers a 2026-07-28 request over HTTP carries beside its body."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the `Mcp-Name` header repeats, by method."""

HeaderMap = Mapping[tuple[str, ...], str]
"""From the path of a property to the name that its header ends in."""

_ANNOTATION = "x-mcp-header"
_SAFE = re.compile(r"[\x20-\x7E]*")
_WRAPPED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MIRRORED_TYPES = frozenset({"string", "integer", "boolean"})


def header_value(value: str) -> str:
    """A value as a header can carry it: as it is, or wrapped in base64."""
    if _SAFE.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode('ascii')}?="


def header_maps(tools: Iterable[Mapping[str, Any]]) -> dict[str, HeaderMap]:
    """The header maps of those tools whose schema declares headers."""
    maps: dict[str, HeaderMap] = {}
    for tool in tools:
        name, found = tool.get("name"), dict(_declared(tool.get("inputSchema")))
        if isinstance(name, str) and found:
            maps[name] = found
    return maps


def param_headers(declared: HeaderMap, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The `Mcp-Param-*` headers that repeat some of a call's arguments."""
    headers = {}
    for path, token in declared.items():
        value = _value_at(arguments, path)
        if isinstance(value, bool):
            headers[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            headers[f"Mcp-Param-{token}"] = header_value(str(value))
    return headers


def _declared(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every valid annotation that is reached through `properties` alone."""
    stack = [(path, schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, Mapping):
            continue
        token = node.get(_ANNOTATION)
        if path and isinstance(token, str) and _TOKEN.fullmatch(token) and str(node.get("type")) in _MIRRORED_TYPES:
            yield path, token
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            stack.extend(((*path, name), sub) for name, sub in properties.items())


def _value_at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = arguments
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node
