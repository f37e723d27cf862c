"""Models malform calls in a few known ways; each is put right once, with a note."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

NAME_KEYS = ("name", "tool", "tool_name", "toolName", "handle")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "tool_input")
LAYERS = 4


@dataclass(frozen=True, slots=True)
class Request:
    """A tool name and arguments as they were meant, with a line for each thing put right."""

    name: str
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def unwrap(raw: Mapping[str, Any], parameters_of: Callable[[str], Mapping[str, Any] | None]) -> Request:
    """Read a `call_tool` request, however it is wrapped.

    `parameters_of` gives a tool's own parameters, so that a tool which really has a parameter called `name` or
    `arguments` is left alone.
    """
    name = _first_text(raw, NAME_KEYS)
    value: object = next((raw[key] for key in ARGUMENT_KEYS if raw.get(key) is not None), None)
    request = Request(name, {})
    request = _flat(raw, request) if value is None else _decoded(value, request)
    for _ in range(LAYERS):
        peeled = _peel(request, parameters_of)
        if peeled is request:
            break
        request = peeled
    return request


def _flat(raw: Mapping[str, Any], request: Request) -> Request:
    """Arguments given beside the name instead of under `arguments`."""
    rest = {key: value for key, value in raw.items() if key not in NAME_KEYS and key not in ARGUMENT_KEYS}
    if not rest:
        return request
    return replace(request, arguments=rest, notes=("took the parameters beside `name` as its arguments",))


def _decoded(value: object, request: Request) -> Request:
    if isinstance(value, Mapping):
        return replace(request, arguments=value)
    if isinstance(value, str):
        if not value.strip():
            return request
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            decoded = None
        if isinstance(decoded, str):
            return _decoded(decoded, request) if decoded != value else request
        if isinstance(decoded, Mapping):
            return replace(request, arguments=decoded, notes=(*request.notes, "read `arguments` from a JSON string"))
    return replace(request, arguments={"arguments": value})


def _peel(request: Request, parameters_of: Callable[[str], Mapping[str, Any] | None]) -> Request:
    """Take off one layer of wrapping, if there is one that the tool itself does not ask for."""
    arguments = request.arguments
    inner_name = _first_text(arguments, NAME_KEYS)
    known = parameters_of(request.name) if request.name else None
    if not known and inner_name and (not request.name or known is None):
        inner = parameters_of(inner_name)
        if inner is not None or not request.name:
            return _named_inside(request, inner_name)
    own = known or {}
    keys = [key for key in ARGUMENT_KEYS if key in arguments and key not in own]
    others = [key for key in arguments if key not in keys and not (key in NAME_KEYS and key not in own)]
    if len(keys) == 1 and not others and isinstance(arguments[keys[0]], Mapping | str):
        inner_request = _decoded(arguments[keys[0]], Request(request.name, {}))
        if set(inner_request.arguments) != {"arguments"}:
            note = f"took `{keys[0]}` inside `arguments` as the arguments"
            return replace(inner_request, notes=(*request.notes, note))
    return request


def _named_inside(request: Request, name: str) -> Request:
    rest = {key: value for key, value in request.arguments.items() if key not in NAME_KEYS}
    return Request(name, rest, (*request.notes, "took the tool's name from inside `arguments`"))


def _first_text(raw: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((raw[key].strip() for key in keys if isinstance(raw.get(key), str) and raw[key].strip()), "")
