"""TOML: read with line numbers, and changed one whole table at a time."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from portico.errors import ConfigError

from .values_with_positions import DEPTH, Member, Node

_HEADER = re.compile(r"\s*\[\[?(?P<path>[^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*(?P<path>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_PLACE = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")


def parse(text: str, file: str) -> Node:
    """Read one TOML document.

    Raises:
        ConfigError: the text is not TOML; a table that is defined twice counts as that.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _syntax_error(error, text, file) from None
    return _node(data, (), _lines_of(text), file)


def _key_parts(dotted: str) -> tuple[str, ...]:
    """Split a dotted TOML key, quoted parts included."""
    return tuple(part.strip("\"'") if part[0] in "\"'" else part for part in _PART.findall(dotted))


def _header_of(line: str) -> tuple[str, ...] | None:
    """The table that a line opens, if it is a header."""
    found = _HEADER.match(line)
    return _key_parts(found["path"]) if found else None


def _lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Where each table and key stands, as far as single lines tell."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _header_of(line)
        if header is not None:
            table = header
            lines.setdefault(table, number)
        elif found := _KEY.match(line):
            lines.setdefault((*table, *_key_parts(found["path"])), number)
    return lines


def _syntax_error(error: Exception, text: str, file: str) -> ConfigError:
    if isinstance(error, RecursionError):
        return ConfigError(f"values are nested more than {DEPTH} deep", file=file, line=1, fix="Flatten them.")
    place = _PLACE.search(str(error))
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    problem = _PLACE.sub("", str(error))
    fix = 'Write key = "value", and every [table] once.'
    return ConfigError(f"the TOML cannot be read: {problem}", file=file, line=line, fix=fix)


def _node(value: Any, path: tuple[str, ...], lines: Mapping[tuple[str, ...], int], file: str) -> Node:
    line = _nearest(path, lines)
    if len(path) > DEPTH:
        raise ConfigError(f"values are nested more than {DEPTH} deep", file=file, line=line, fix="Flatten them.")
    if isinstance(value, dict):
        members = tuple(
            Member(key=key, line=_nearest((*path, key), lines), start=-1, node=_node(item, (*path, key), lines, file))
            for key, item in value.items()
        )
        return Node(line=line, members=members)
    if isinstance(value, list):
        items = tuple(_node(item, (*path, "[]"), lines, file) for item in value)
        return Node(line=line, items=items)
    return Node(line=line, value=value, spelling=str(value).lower() if isinstance(value, bool) else str(value))


def _nearest(path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_IDLE = re.compile(r"\s*(?:#.*)?$")


def put_table(text: str, path: tuple[str, ...], entry: Mapping[str, Any]) -> str:
    """The text with one table set, at the place where it was, or else at the end."""
    block = f"[{'.'.join(map(_key, path))}]\n" + "".join(f"{_key(k)} = {_value(v)}\n" for k, v in entry.items())
    before, inside, after = _cut(text.splitlines(keepends=True), path)
    if inside:
        return "".join((*before, block, *after))
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{block}"


def drop_table(text: str, path: tuple[str, ...]) -> str:
    """The text without one table and the tables below it."""
    lines = text.splitlines(keepends=True)
    while True:
        before, inside, after = _cut(lines, path)
        lines = [*before, *after]
        if not inside:
            return "".join(lines)


def _cut(lines: list[str], path: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """The lines before the table, of it with the tables below it, and after it."""
    headers = [(index, header) for index, line in enumerate(lines) if (header := _header_of(line)) is not None]
    inside = [index for index, header in headers if header[: len(path)] == path]
    if not inside:
        return lines, [], []
    start = inside[0]
    end = next((index for index, header in headers if index > start and header[: len(path)] != path), len(lines))
    # Remarks above the next header are about that one.
    while end < len(lines) and end > start + 1 and _IDLE.match(lines[end - 1]):
        end -= 1
    return lines[:start], lines[start:end], lines[end:]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
