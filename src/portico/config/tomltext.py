"""Changes to the text of a TOML file, one whole table at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .tomldoc import header_of

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_IDLE = re.compile(r"\s*(?:#.*)?$")


def put_table(text: str, path: tuple[str, ...], entry: Mapping[str, Any]) -> str:
    """The text with one table set, at the place where it was, or else at the end."""
    block = _block(path, entry)
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
    headers = [(index, header) for index, line in enumerate(lines) if (header := header_of(line)) is not None]
    inside = [index for index, header in headers if header[: len(path)] == path]
    if not inside:
        return lines, [], []
    start = inside[0]
    end = next((index for index, header in headers if index > start and header[: len(path)] != path), len(lines))
    # Remarks above the next header are about that one.
    while end < len(lines) and end > start + 1 and _IDLE.match(lines[end - 1]):
        end -= 1
    return lines[:start], lines[start:end], lines[end:]


def _block(path: Iterable[str], entry: Mapping[str, Any]) -> str:
    header = ".".join(_key(part) for part in path)
    return f"[{header}]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in entry.items())


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
