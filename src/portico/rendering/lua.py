"""Servers, tools and calls as text and Lua source, for those who write scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from portico.domain.disclosure import Level
from portico.domain.foreign_text import fence, json_text, one_line
from portico.domain.server import Server
from portico.domain.tool import LUA_KEYWORDS, Tool

from .budget import Texts, Variants
from .cards import CHOICES_SHOWN, example_arguments, example_value, first_sentence, followed, shape, shape_of, type_text

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


FAILED = "Connection failed"
"""All that is said of a server that could not be asked: the reason is for operators."""
BRIEF = 200
"""Characters of a description where it is one line."""
SHORT = 80
INSTRUCTIONS = 2_000
"""Characters of a server's own instructions that are shown."""
DEPTH = 3
"""Objects inside objects whose fields are told line by line."""

_PLAIN_ROOT = frozenset({"type", "properties", "required", "title", "description", "additionalProperties", "$schema"})
_PLAIN_FIELD = frozenset({"type", "title", "description", "default", "enum", "const", "items"})


def lua_name(tool: Tool) -> str:
    """What a tool is called in scripts, after its server."""
    return tool.handle.partition(".")[2]


def server_lines(server: Server) -> Variants:
    """A server: its name and identifier, what it says of itself, its version and instructions."""
    head = f"## {server.name} (Lua: {server.identifier})"
    about = one_line(server.description or ("" if server.title.casefold() == server.name.casefold() else server.title))
    version = f"Version: {one_line(server.version)}" if server.version else ""
    told = _cut(server.instructions.strip(), INSTRUCTIONS)
    instructions = f"Instructions:{_beside(told)}" if told else ""
    return Variants(
        handle=server.identifier,
        texts=(
            (Level.FULL, _lines(head, fence(about), version, instructions)),
            (Level.PARAMETERS, _lines(head, fence(about), version)),
            (Level.SUMMARY, _lines(head, fence(first_sentence(about, SHORT)), version)),
            (Level.NAME, head),
        ),
    )


def failed_lines(name: str, identifier: str) -> Variants:
    """A server that could not be asked."""
    head = f"## {name} (Lua: {identifier})"
    return Variants(handle=identifier, texts=((Level.SUMMARY, f"{head}\n{FAILED}"), (Level.NAME, f"{head} {FAILED}")))


def tool_line(tool: Tool) -> Variants:
    """A tool on one line: its name, its identifier, and what it does."""
    head = f"- {tool.id.name} (Lua: {lua_name(tool)})"
    text = tool.description or tool.title
    return Variants(
        handle=tool.handle,
        texts=Texts(
            [
                (Level.SUMMARY, lambda: _said(head, first_sentence(text, BRIEF))),
                (Level.SUMMARY, lambda: _said(head, first_sentence(text, SHORT))),
                (Level.NAME, lambda: head),
                (Level.NAME, lambda: f"- {lua_name(tool)}"),
            ]
        ),
    )


def details(tool: Tool, returns: Mapping[str, Any] | None = None) -> Variants:
    """A tool in full: description, parameters, and an example that runs; `returns` is what is known of its answers."""
    schema = "" if _is_plain(tool.input_schema) else f"### Input Schema\n\n{_json(tool.input_schema)}"
    output = f"### Returns\n\n{_json(returns)}" if returns else ""
    head, said = f"## {tool.id.name}", fence(tool.description)

    def whole() -> str:
        return _parts(head, said, _parameters(tool), schema, output, _usage(example(tool)))

    def readable() -> str:
        return _parts(head, said, _parameters(tool), _usage(example(tool)))

    def brief() -> str:
        about = fence(first_sentence(tool.description, BRIEF))
        return _parts(head, about, _parameters(tool, words=SHORT, depth=1), _usage(example(tool, optional=False)))

    def names() -> str:
        about = fence(first_sentence(tool.description, SHORT))
        return _parts(head, about, _parameters(tool, words=0, depth=1), _usage(example(tool, optional=False)))

    levels = (Level.FULL, Level.FULL, Level.PARAMETERS, Level.PARAMETERS)
    renders = zip(levels, (whole, readable, brief, names), strict=True)
    return Variants(handle=tool.handle, texts=Texts([*renders, (Level.NAME, lambda: head)]))


def _parameters(tool: Tool, *, words: int | None = None, depth: int = DEPTH) -> str:
    lines = list(_fields(tool.input_schema, tool.input_schema, words, depth))
    return "### Parameters\n\n" + ("\n".join(lines) or "None")


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], words: int | None, depth: int) -> Iterator[str]:
    """Every field on a line of its own, those of an object inside it below it."""
    found = shape(schema, root)
    for name in (*found.required, *(name for name in found.fields if name not in found.required)):
        field = found.fields.get(name)
        told = followed(field, root) if isinstance(field, Mapping) else {}
        need = "required" if name in found.required else "optional"
        default = f", default {_json(told['default'])}" if told.get("default") is not None else ""
        shown = name if name.isprintable() else _json(name)
        yield _said(f"- {shown} ({_kind(field, root)}, {need}{default})", _about(told, words))
        for inner in _inside(told, root, words, depth - 1):
            yield f"  {inner}"


def _inside(schema: Mapping[str, Any], root: Mapping[str, Any], words: int | None, depth: int) -> Iterator[str]:
    items = schema.get("items")
    inner = followed(items, root) if isinstance(items, Mapping) else schema
    if depth > 0 and "properties" in inner:
        yield from _fields(inner, root, words, depth)


def _kind(field: object, root: Mapping[str, Any]) -> str:
    """A type in a word where its fields follow below, else in as few characters as it takes."""
    told = followed(field, root) if isinstance(field, Mapping) else {}
    items = told.get("items")
    if "properties" in told:
        return "object"
    if isinstance(items, Mapping) and "properties" in followed(items, root):
        return "object[]"
    return type_text(field, root)


def _about(schema: Mapping[str, Any], words: int | None) -> str:
    text = schema.get("description")
    if not isinstance(text, str) or words == 0:
        return ""
    return one_line(text) if words is None else first_sentence(text, words)


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether the list of parameters says all that the schema says."""
    fields = schema.get("properties")
    inner = fields.values() if isinstance(fields, Mapping) else ()
    return schema.keys() <= _PLAIN_ROOT and all(_is_plain_field(field) for field in inner)


def _is_plain_field(field: object) -> bool:
    if not isinstance(field, Mapping) or not field.keys() <= _PLAIN_FIELD:
        return False
    items, choices = field.get("items", {"type": "string"}), field.get("enum", ())
    is_simple = isinstance(items, Mapping) and items.keys() <= {"type", "title"} and len(choices) <= CHOICES_SHOWN
    return is_simple and isinstance(field.get("type", "any"), str)


def _beside(text: str) -> str:
    """Foreign text behind a label of ours: on its line, or fenced below it."""
    return f" {one_line(text)}" if len(text.splitlines()) == 1 else f"\n{fence(text)}"


def _usage(script: str) -> str:
    return f"### Example Usage\n\n{script}"


def _parts(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _said(head: str, text: str) -> str:
    return f"{head}: {text}" if text else head


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rsplit(' ', 1)[0]}…"


def _json(value: Any) -> str:
    return json_text(orjson.dumps(value).decode())
