"""Changes to the text of a YAML file that leave comments, order and layout as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from portico.trees.tree import Member, Node
from portico.trees.yamldoc import parse

_WIDTH = 4096
_TEXT_OR_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d+e[-+]\d+')


def put_text(text: str, table: str, name: str, value: str) -> str:
    """The text with one text of a top-level table set, where it stands or as one more entry.

    Raises:
        ConfigError: the text is not YAML.
    """
    holder = _member(parse(text, ""), table)
    member = _member(holder.node, name) if holder is not None else None
    if member is None:
        return put_entry(text, table, name, value)
    node = member.node
    return f"{text[: node.start]}{json.dumps(value, ensure_ascii=False)}{text[node.end :]}"


def put_entry(text: str, table: str, name: str, entry: Mapping[str, Any] | str) -> str:
    """The text with one more entry in a top-level table, which is created when it is missing.

    Raises:
        ConfigError: the text is not YAML.
    """
    root = parse(text, "")
    holder = _member(root, table)
    if holder is None:
        return _append_table(text, root, table, {name: entry})
    node = holder.node
    if node.members is not None and node.flow:
        return _insert_flow(text, node, name, entry)
    if node.members:
        margin = " " * node.members[0].column
        return _insert_lines(text, _last_line(text, node), _block({name: entry}, margin))
    margin = " " * (holder.column + 2)
    return _insert_lines(text, holder.line, _block({name: entry}, margin))


def drop_entry(text: str, table: str, name: str) -> str:
    """The text without one entry of a top-level table; comments around it stay.

    Raises:
        ConfigError: the text is not YAML.
    """
    holder = _member(parse(text, ""), table)
    member = _member(holder.node, name) if holder is not None else None
    if holder is None or member is None:
        return text
    if holder.node.flow:
        return _cut_flow(text, holder.node, member)
    lines = text.splitlines(keepends=True)
    return "".join((*lines[: member.line - 1], *lines[max(_last_line(text, member.node), member.line) :]))


def dump(data: Any) -> str:
    """Data as YAML in blocks, in its own order."""
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_WIDTH)
    return text


def _member(table: Node, key: str) -> Member | None:
    return next((member for member in table.members or () if member.key == key and not member.merged), None)


def _append_table(text: str, root: Node, table: str, entries: Mapping[str, Any]) -> str:
    if root.members is not None and root.flow:
        return _insert_flow(text, root, table, entries)
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{dump({table: entries})}"


def _block(entries: Mapping[str, Any], margin: str) -> str:
    return "".join(f"{margin}{line}" for line in dump(entries).splitlines(keepends=True))


def _insert_lines(text: str, after: int, block: str) -> str:
    lines = text.splitlines(keepends=True)
    head = "".join(lines[:after])
    gap = "" if head.endswith(("\n", "\r")) or not head else "\n"
    if "\r\n" in text:
        gap, block = gap.replace("\n", "\r\n"), block.replace("\n", "\r\n")
    return head + gap + block + "".join(lines[after:])


def _insert_flow(text: str, table: Node, key: str, value: Any) -> str:
    member = f"{json.dumps(key, ensure_ascii=False)}: {_flow(value)}"
    own = [member for member in table.members or () if not member.merged]
    if not own:
        at = table.start + 1
        return f"{text[:at]}{member}{text[at:]}"
    end = own[-1].node.end
    return f"{text[:end]}, {member}{text[end:]}"


def _flow(value: Any) -> str:
    """A value on one line: JSON, but for numbers such as 1e-05, which are text in YAML unless they have a point."""
    return _TEXT_OR_EXPONENT.sub(_with_point, json.dumps(value, ensure_ascii=False))


def _with_point(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else found[0].replace("e", ".0e")


def _cut_flow(text: str, table: Node, member: Member) -> str:
    end = member.node.end
    rest = text[end:].lstrip()
    if rest.startswith(","):
        return text[: member.start] + rest[1:].lstrip(" ")
    head = text[: member.start].rstrip()
    return (head[:-1] if head.endswith(",") else head) + text[end:]


def _last_line(text: str, node: Node) -> int:
    """The number of the line on which a value ends; the parser counts what follows a text block as part of it."""
    leaves = [member.node for member in node.members or ()] + list(node.items or ())
    if leaves and not node.flow:
        return max(_last_line(text, leaf) for leaf in leaves)
    written = text[: node.end].rstrip()
    return max(len(written.splitlines()), node.line)
