"""YAML read from its events, so that depth and aliases are bounded and every value keeps its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from portico.errors import ConfigError

from .tree import DEPTH, Member, Node, tallest

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml is slower and reads the same
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

NODES = 100_000
"""How many values a document may hold once its aliases are written out."""

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
        return Node(
            line=event.start_mark.line + 1,
            start=event.start_mark.index,
            end=event.end_mark.index,
            value=self._construct(event, tag),
            spelling=event.value,
        )

    def _construct(self, event: Any, tag: str) -> Any:
        if tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge", "!"):
            return self._sound(event)
        if tag.rsplit(":", 1)[-1] not in ("null", "bool", "int", "float", "value"):
            self._fail(event, f"the tag {tag!r} is not known here", "Delete the tag, or put quotes around the text.")
        try:
            return self._reader.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            return self._sound(event)

    def _sound(self, event: Any) -> str:
        try:
            event.value.encode()
        except UnicodeEncodeError:
            self._fail(event, "this text holds half a character", "Write the whole character instead of its escape.")
        return str(event.value)

    def _list(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        items = list[Node]()
        for inner in events:
            if isinstance(inner, yaml.SequenceEndEvent):
                return self._whole(event, inner, items, items=tuple(items))
            items.append(self._node(inner, events, depth + 1))
        raise AssertionError("the parser ends every list")

    def _table(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        members, merges = list[Member](), list[Node]()
        for inner in events:
            if isinstance(inner, yaml.MappingEndEvent):
                members += self._merged(members, merges)
                nodes = [member.node for member in members]
                return self._whole(event, inner, nodes, members=tuple(members))
            key = self._key(inner)
            node = self._node(next(events), events, depth + 1)
            if key == "<<" and inner.implicit[0]:
                merges += node.items or (node,)
            else:
                mark = inner.start_mark
                members.append(Member(key=key, line=mark.line + 1, start=mark.index, column=mark.column, node=node))
        raise AssertionError("the parser ends every table")

    def _key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._fail(event, "a key must be plain text", "Put quotes around the key.")
        if event.anchor:
            self._fail(event, "a key cannot have an anchor", "Put the anchor on the value.")
        return self._sound(event)

    def _merged(self, members: list[Member], merges: list[Node]) -> list[Member]:
        taken = {member.key for member in members}
        found = []
        for member in (member for node in merges for member in node.members or ()):
            if member.key not in taken:
                taken.add(member.key)
                found.append(
                    Member(key=member.key, line=member.line, start=member.start, node=member.node, merged=True)
                )
        return found

    def _whole(self, start: Any, end: Any, nodes: list[Node], **content: Any) -> Node:
        last = max((node.end for node in nodes), default=end.start_mark.index)
        return Node(
            line=start.start_mark.line + 1,
            start=start.start_mark.index,
            end=end.end_mark.index if start.flow_style else last,
            flow=bool(start.flow_style),
            size=1 + sum(node.size for node in nodes),
            height=tallest(nodes) + 1,
            **content,
        )

    def _fail(self, event: Any, problem: str, fix: str) -> NoReturn:
        raise ConfigError(problem, file=self._file, line=event.start_mark.line + 1, fix=fix)
