"""YAML: read within bounds with the place of every value, and changed without touching the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import yaml

from portico.errors import ConfigError

from .values_with_positions import DEPTH, Member, Node

_WIDTH = 4096
_TEXT_OR_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d+e[-+]\d+')


def put_entry(text: str, path: tuple[str, str], entry: Mapping[str, Any] | str) -> str:
    """The text with one entry of a top-level table set; the table is created when it is missing.

    Raises:
        ConfigError: the text is not YAML.
    """
    table, name = path
    root = parse(text, "")
    holder = _member(root, table)
    member = _member(holder.node, name) if holder is not None else None
    if member is not None and isinstance(entry, str):
        return f"{text[: member.node.start]}{json.dumps(entry, ensure_ascii=False)}{text[member.node.end :]}"
    if member is not None:
        return put_entry(drop_entry(text, path), path, entry)
    if holder is None and root.members is not None and root.flow:
        return _insert_flow(text, root, table, {name: entry})
    if holder is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{dump({table: {name: entry}})}"
    node = holder.node
    if node.members is not None and node.flow:
        return _insert_flow(text, node, name, entry)
    margin = " " * (node.members[0].column if node.members else holder.column + 2)
    block = "".join(f"{margin}{line}" for line in dump({name: entry}).splitlines(keepends=True))
    return _insert_lines(text, _last_line(text, node) if node.members else holder.line, block)


def drop_entry(text: str, path: tuple[str, str]) -> str:
    """The text without one entry of a top-level table; comments around it stay.

    Raises:
        ConfigError: the text is not YAML.
    """
    table, name = path
    holder = _member(parse(text, ""), table)
    member = _member(holder.node, name) if holder is not None else None
    if holder is None or member is None:
        return text
    if holder.node.flow:
        return _cut_flow(text, member)
    lines = text.splitlines(keepends=True)
    return "".join((*lines[: member.line - 1], *lines[max(_last_line(text, member.node), member.line) :]))


def dump(data: Any) -> str:
    """Data as YAML in blocks, in its own order."""
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_WIDTH)
    return text


def _member(table: Node, key: str) -> Member | None:
    return next((member for member in table.members or () if member.key == key and not member.merged), None)


def _insert_lines(text: str, after: int, block: str) -> str:
    lines = text.splitlines(keepends=True)
    head = "".join(lines[:after])
    gap = "" if head.endswith(("\n", "\r")) or not head else "\n"
    if "\r\n" in text:
        gap, block = gap.replace("\n", "\r\n"), block.replace("\n", "\r\n")
    return head + gap + block + "".join(lines[after:])


def _insert_flow(text: str, table: Node, key: str, value: Any) -> str:
    # JSON, but for numbers such as 1e-05, which are text in YAML unless they have a point.
    written = _TEXT_OR_EXPONENT.sub(
        lambda found: found[0] if found[0].startswith('"') else found[0].replace("e", ".0e"),
        json.dumps(value, ensure_ascii=False),
    )
    member = f"{json.dumps(key, ensure_ascii=False)}: {written}"
    own = [member for member in table.members or () if not member.merged]
    if not own:
        at = table.start + 1
        return f"{text[:at]}{member}{text[at:]}"
    end = own[-1].node.end
    return f"{text[:end]}, {member}{text[end:]}"


def _cut_flow(text: str, member: Member) -> str:
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


try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml is slower and reads the same
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

NODES = 100_000
"""The most values of a document once its aliases are written out."""

_TEXT_TAGS = (*(f"tag:yaml.org,2002:{name}" for name in ("str", "timestamp", "merge")), "!")
_FIXES = {
    "cannot start any token": "Indent with spaces, not tabs, and put quotes around a text that begins with a sign.",
    "mapping values are not allowed": "Put quotes around a text that holds ': ', and check the indentation.",
    "could not find expected ':'": "Write `key: value`, with a colon and a space.",
    "undefined alias": "Define it with &name before it is used, or put quotes around the text.",
    "expected <block end>": "Indent the lines of one table by the same number of spaces.",
    "end of stream": "Close the quote or bracket that is opened here.",
}


def parse(text: str, file: str, *, depth: int = DEPTH, nodes: int = NODES) -> Node:
    """Read one YAML document; an empty one is null. It may be so deep, and hold so many values with its aliases.

    Raises:
        ConfigError: the text is not one YAML document, or it is nested or aliased beyond all use.
    """
    builder = _Builder(file, depth, nodes)
    try:
        return builder.document(yaml.parse(text, _Loader))
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            "a character here may not stand in YAML", file=file, line=line, fix="Delete the control character."
        ) from None


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> ConfigError:
    problem = error.problem or error.context or "this is not YAML"
    mark = error.problem_mark or error.context_mark
    is_at_end = "end of stream" in problem or "stream end" in problem or (mark and mark.line >= len(text.splitlines()))
    if error.context_mark is not None and is_at_end:
        mark = error.context_mark  # where a quote or bracket begins tells more than where the file ends
    line = mark.line + 1 if mark is not None else 1
    written = text.splitlines()[line - 1 : line]
    fix = next((fix for sign, fix in _FIXES.items() if sign in problem), "Check the indentation, quotes and brackets.")
    if written and "${" in written[0]:
        fix = 'Put quotes around a text that holds ${...}, as in "${NAME}".'
    return ConfigError(f"the YAML cannot be read: {problem}", file=file, line=line, fix=fix)


class _Builder:
    """Builds nodes from events.

    Not from `yaml.compose`: its C code runs out of stack on text that is nested deep enough, and ends the process.
    """

    def __init__(self, file: str, depth: int, nodes: int) -> None:
        self._file, self._deepest, self._most, self._total = file, depth, nodes, 0
        self._anchors: dict[str, Node | None] = {}
        self._reader = yaml.SafeLoader("")

    def document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._fail(event, "a second document starts here", "Keep one document per file; delete the ---.")
                root = self._node(next(events), events, 0)
        return root or Node(line=1, start=0, end=0, spelling="null")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        if depth > self._deepest:
            self._fail(event, f"values are nested more than {self._deepest} deep", "Flatten them.")
        self._count(event, 1)
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._table(event, events, depth)
        else:
            node = self._list(event, events, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            self._fail(event, f"the alias {event.anchor!r} is not defined before this line", _FIXES["undefined alias"])
        self._count(event, node.size)
        if depth + node.height > self._deepest:
            self._fail(event, f"values are nested more than {self._deepest} deep", "Flatten them.")
        return node

    def _count(self, event: Any, size: int) -> None:
        self._total += size
        if self._total > self._most:
            problem = f"the file holds more than {self._most} values, aliases written out"
            self._fail(event, problem, "Split it, or write it without aliases.")

    def _scalar(self, event: Any) -> Node:
        tag = event.tag or self._reader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        value: Any = None
        is_text = tag in _TEXT_TAGS
        if not is_text and tag.rsplit(":", 1)[-1] not in ("null", "bool", "int", "float", "value"):
            self._fail(event, f"the tag {tag!r} is not known here", "Delete the tag, or put quotes around the text.")
        if not is_text:
            try:
                value = self._reader.construct_object(yaml.ScalarNode(tag, event.value))
            except (ValueError, KeyError, IndexError, yaml.YAMLError):
                is_text = True
        return Node(
            line=event.start_mark.line + 1,
            start=event.start_mark.index,
            end=event.end_mark.index,
            value=self._text(event) if is_text else value,
            spelling=event.value,
        )

    def _text(self, event: Any) -> str:
        try:
            event.value.encode()
        except UnicodeEncodeError:
            self._fail(event, "this text holds half a character", "Write the whole character instead of its escape.")
        return str(event.value)

    def _list(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        items = list[Node]()
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(self._node(inner, events, depth + 1))
        return self._whole(event, inner, items, items=tuple(items))

    def _table(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        members, merges = list[Member](), list[Node]()
        while not isinstance(inner := next(events), yaml.MappingEndEvent):
            key = self._key(inner)
            node = self._node(next(events), events, depth + 1)
            if key == "<<" and inner.implicit[0]:
                merges += node.items or (node,)
            else:
                mark = inner.start_mark
                members.append(Member(key=key, line=mark.line + 1, start=mark.index, column=mark.column, node=node))
        taken = {member.key for member in members}
        for member in (member for node in merges for member in node.members or ()):
            if member.key not in taken:
                taken.add(member.key)
                members.append(replace(member, column=0, merged=True))
        return self._whole(event, inner, [member.node for member in members], members=tuple(members))

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._fail(event, "a key must be plain text", "Put quotes around the key.")
        if event.anchor:
            self._fail(event, "a key cannot have an anchor", "Put the anchor on the value.")
        return self._text(event)

    def _whole(self, start: Any, end: Any, nodes: list[Node], **content: Any) -> Node:
        last = max((node.end for node in nodes), default=end.start_mark.index)
        return Node(
            line=start.start_mark.line + 1,
            start=start.start_mark.index,
            end=end.end_mark.index if start.flow_style else last,
            flow=bool(start.flow_style),
            size=1 + sum(node.size for node in nodes),
            height=1 + max((node.height for node in nodes), default=0),
            **content,
        )

    def _fail(self, event: Any, problem: str, fix: str) -> NoReturn:
        raise ConfigError(problem, file=self._file, line=event.start_mark.line + 1, fix=fix)
