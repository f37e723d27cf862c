"""Changes to the text of a JSON file that leave comments, order and layout as they are."""

from __future__ import annotations

import json
import re
from typing import Any

from portico.trees.tree import Member, Node, node_at

from .jsonc import after_trivia, parse

_UNIT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|(?:/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*)*)(?=[\r\n])")


def put_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with one member set; tables on the way to it are created.

    Raises:
        ConfigError: the text is not JSON.
    """
    if not text.strip():
        text = "{}\n"
    root = parse(text, "")
    for length in range(1, len(path) + 1):
        node = node_at(root, path[:length])
        if node is None or (length < len(path) and node.members is None):
            for key in reversed(path[length:]):
                value = {key: value}
            path = path[:length]
            break
    table = node_at(root, path[:-1])
    if table is None or table.members is None:
        return text
    member = next((member for member in table.members if member.key == path[-1]), None)
    return _replace(text, member, value) if member is not None else _insert(text, table, path[-1], value)


def drop_member(text: str, path: tuple[str, ...]) -> str:
    """The text without one member; comments around it stay.

    Raises:
        ConfigError: the text is not JSON.
    """
    table = node_at(parse(text, ""), path[:-1])
    members = table.members or () if table is not None else ()
    index = next((index for index, member in enumerate(members) if member.key == path[-1]), None)
    if index is None:
        return text
    start, end = _line_start(text, members[index].start), members[index].node.end
    comma = after_trivia(text, end)
    if text[comma : comma + 1] == ",":
        return text[:start] + text[_line_end(text, comma + 1, start) :]
    rest = text[_line_end(text, end, start) :]
    if index == 0:
        return text[:start] + rest
    before = members[index - 1].node.end
    at = text.index(",", after_trivia(text, before))
    return text[:at] + text[at + 1 : start] + rest


def dump(value: Any, *, indent: str | None, margin: str = "", newline: str = "\n") -> str:
    """One value as JSON; every line after the first is moved right by the margin."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", newline + margin)


def indent_of(text: str) -> str:
    """The unit by which a text is indented; two spaces when it is not."""
    found = _UNIT.search(text)
    return found[1] if found else "  "


def newline_of(text: str) -> str:
    """The line ending that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def _replace(text: str, member: Member, value: Any) -> str:
    margin = _margin(text, member.start)
    node = member.node
    indent = indent_of(text) if "\n" in text else None
    dumped = dump(value, indent=indent, margin=margin, newline=newline_of(text))
    return text[: node.start] + dumped + text[node.end :]


def _insert(text: str, table: Node, key: str, value: Any) -> str:
    members, newline, unit = table.members or (), newline_of(text), indent_of(text)
    label = json.dumps(key, ensure_ascii=False)
    is_inline = bool(members) and "\n" not in text[table.start : table.end]
    if is_inline:
        end = members[-1].node.end
        return f"{text[:end]}, {label}: {dump(value, indent=None)}{text[end:]}"
    margin = _margin(text, members[-1].start) if members else _margin(text, table.start) + unit
    member = f"{newline}{margin}{label}: {dump(value, indent=unit, margin=margin, newline=newline)}"
    if not members:
        rest = text[table.start + 1 :]
        tail = f"{newline}{_margin(text, table.start)}" if rest[:1] == "}" else ""
        return f"{text[: table.start + 1]}{member}{tail}{rest}"
    end = members[-1].node.end
    comma = after_trivia(text, end)
    if text[comma] == ",":
        at = _after_comment(text, comma + 1)
        return f"{text[:at]}{member}{text[at:]}"
    at = _after_comment(text, end)
    return f"{text[:end]},{text[end:at]}{member}{text[at:]}"


def _after_comment(text: str, position: int) -> int:
    """The end of the line when only a comment follows, so that the comment stays with what it is about."""
    found = _REST_OF_LINE.match(text, position)
    return found.end() if found else position


def _margin(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _line_start(text: str, position: int) -> int:
    start = text.rfind("\n", 0, position) + 1
    return start if not text[start:position].strip() else position


def _line_end(text: str, position: int, start: int) -> int:
    """The beginning of the next line, when the member began its line and nothing but a comment follows."""
    is_whole_line = start == 0 or text[start - 1] == "\n"
    found = _REST_OF_LINE.match(text, position)
    if not is_whole_line or found is None:
        return position if is_whole_line else position + (text[position : position + 1] == " ")
    end = found.end()
    return end + (2 if text.startswith("\r\n", end) else 1)
