"""Values, calls and examples as Lua source, for people and models to read; no value that is run travels this way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from portico.domain.names import LUA_KEYWORDS
from portico.domain.tool import Tool

from .examples import example_arguments, example_value
from .parameters import followed, shape_of

NUMBER = 42
"""Stands for a number of which nothing is known."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING = object()
_OWN = ("const", "examples", "enum", "default", "minimum", "exclusiveMinimum", "multipleOf")
"""What a schema itself says of its values; a placeholder is none of them."""


def as_lua(value: Any) -> str:
    """A value of JSON as a Lua expression that gives the same value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return _table([f"{_key(str(key))} = {as_lua(item)}" for key, item in value.items()])
    return _table([as_lua(item) for item in value]) if value else "array({})"


def quoted(text: str) -> str:
    """A text in quotes, with everything that is not a plain letter spelled out."""
    return '"' + "".join(map(_letter, text)) + '"'


def call(handle: str, arguments: Mapping[str, Any]) -> str:
    """One call on one line: `calculator.add({ a = 5, b = 3 }):await()`."""
    return f"{handle}({as_lua(arguments) if arguments else '{}'}):await()"


def example(tool: Tool, *, optional: bool = True) -> str:
    """A script that runs as it is: every required parameter with a value of its type, the others behind comments."""
    found, root = shape_of(tool), tool.input_schema
    known = example_arguments(tool)
    made = (
        known if known is not None else {name: example_value(found.fields.get(name), root) for name in found.required}
    )
    needed = [f"{_key(name)} = {as_lua(_shown(found.fields.get(name), root, made[name]))}" for name in made]
    others = [name for name in found.fields if name not in made] if optional else []
    spare = [f"-- {_key(name)} = {as_lua(_shown(found.fields[name], root))}," for name in others]
    if not needed and not spare:
        return f"local res = {tool.handle}({{}}):await()\nresult(res)"
    lines = [f"{text}," for text in needed[:-1]] + [f"{text}{',' if spare else ''}" for text in needed[-1:]] + spare
    inner = "\n".join(f"  {line}" for line in lines)
    return f"local res = {tool.handle}({{\n{inner}\n}}):await()\nresult(res)"


def _shown(schema: object, root: Mapping[str, Any], value: Any = _NOTHING) -> Any:
    """A value of a parameter; a number of which nothing is known is one that looks like a placeholder."""
    value = example_value(schema, root) if value is _NOTHING else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(schema, Mapping):
        return value
    told = followed(schema, root)
    highest = told.get("maximum", told.get("exclusiveMaximum", NUMBER + 1))
    is_free = not any(key in told for key in _OWN) and isinstance(highest, int | float) and highest > NUMBER
    return NUMBER if is_free else value


def _table(parts: list[str]) -> str:
    return "{ " + ", ".join(parts) + " }" if parts else "{}"


def _key(name: str) -> str:
    is_word = _WORD.fullmatch(name) and name not in LUA_KEYWORDS
    return name if is_word else f"[{quoted(name)}]"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _letter(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    return letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}"
