"""Models malform calls in a few known ways; each is put right once, with a note."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

NAME_KEYS = ("name", "tool", "tool_name", "toolName", "handle")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "tool_input")
LAYERS = 4
PARTS_READ = 50_000
"""Commas and brackets in a text that is read as JSON; a longer one is left as the text that it is."""


@dataclass(frozen=True, slots=True)
class Request:
    """A tool name and arguments as they were meant, with a line for each thing put right."""

    name: str
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def unwrap(
    raw: Mapping[str, Any], parameters_of: Callable[[str], Mapping[str, Any] | None], *, named: str = "name"
) -> Request:
    """Read a call of a tool through another one, however it is wrapped; `named` is where the tool's name belongs.

    `parameters_of` gives a tool's own parameters, so that a tool which really has a parameter called `name` or
    `arguments` is left alone.
    """
    name_key, name = _first_text(raw, (named, *NAME_KEYS))
    own = (parameters_of(name) if name else None) or {}
    value_key = next((key for key in ARGUMENT_KEYS if _is_wrapping(raw, key, own)), "")
    request = _decoded(raw[value_key], Request(name, {})) if value_key else Request(name, {})
    request = _with_beside(request, raw, {name_key, value_key}, own)
    for _ in range(LAYERS):
        peeled = _peel(request, parameters_of)
        if peeled is request:
            break
        request = peeled
    return request


def _is_wrapping(raw: Mapping[str, Any], key: str, own: Mapping[str, Any]) -> bool:
    """Whether the arguments are under this key; one that the tool itself asks for may be an argument given flat."""
    return raw.get(key) is not None and (key == "arguments" or key not in own)


def _with_beside(request: Request, raw: Mapping[str, Any], used: set[str], own: Mapping[str, Any]) -> Request:
    """Arguments given beside the name instead of under `arguments`; nothing that was given is lost in silence."""
    if request.arguments:
        beside = {key: raw[key] for key in own if key in raw and key not in used and key not in request.arguments}
    else:
        beside = dict(raw)  # there may be very many, so that each is touched once
        for key in {*used, *(key for key in (*NAME_KEYS, *ARGUMENT_KEYS) if key not in own)}:
            beside.pop(key, None)
    if not beside:
        return request
    note = "took the parameters beside `name` as its arguments"
    found = {**request.arguments, **beside} if request.arguments else beside
    return replace(request, arguments=found, notes=(*request.notes, note))


def _decoded(value: object, request: Request) -> Request:
    if isinstance(value, Mapping):
        return replace(request, arguments=value)
    if isinstance(value, str):
        if not value.strip():
            return request
        try:
            decoded = json.loads(value) if _is_readable(value) else None
        except (ValueError, RecursionError):
            decoded = None
        if isinstance(decoded, str):
            return _decoded(decoded, request) if decoded != value else request
        if isinstance(decoded, Mapping):
            return replace(request, arguments=decoded, notes=(*request.notes, "read `arguments` from a JSON string"))
    return replace(request, arguments={"arguments": value})


def _is_readable(text: str) -> bool:
    """Whether a text has few enough parts to be read while others wait."""
    return text.count(",") + text.count("[") + text.count("{") <= PARTS_READ


def _peel(request: Request, parameters_of: Callable[[str], Mapping[str, Any] | None]) -> Request:
    """Take off one layer of wrapping, if there is one that the tool itself does not ask for."""
    arguments = request.arguments
    name_key, inner_name = _first_text(arguments, NAME_KEYS)
    known = parameters_of(request.name) if request.name else None
    if not known and inner_name and (not request.name or known is None):
        inner = parameters_of(inner_name)
        if inner is not None or not request.name:
            return _named_inside(request, inner_name, {name_key} | (set(NAME_KEYS) - (inner or {}).keys()))
    own = known or {}
    keys = [key for key in ARGUMENT_KEYS if key in arguments and key not in own]
    has_others = any(key not in keys and not (key in NAME_KEYS and key not in own) for key in arguments)
    if len(keys) == 1 and not has_others:
        inner_request = _decoded(arguments[keys[0]], Request(request.name, {}))
        if inner_request.arguments != {"arguments": arguments[keys[0]]}:
            note = f"took `{keys[0]}` inside `arguments` as the arguments"
            return replace(inner_request, notes=(*request.notes, note))
    return request


def _named_inside(request: Request, name: str, name_keys: Set[str]) -> Request:
    rest = {key: value for key, value in request.arguments.items() if key not in name_keys}
    return Request(name, rest, (*request.notes, "took the tool's name from inside `arguments`"))


def _first_text(raw: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, str]:
    """The first of these keys that holds text, and the text."""
    return next(((k, raw[k].strip()) for k in keys if isinstance(raw.get(k), str) and raw[k].strip()), ("", ""))
