"""YAML as a tree whose values keep their lines; depth and aliases are bounded, so that no file grows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from portico.errors import ConfigError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml is slower and reads the same
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

DEPTH = 20
NODES = 50_000
"""How many values a file may hold once its aliases are written out."""

_FIXES = {
    "cannot start any token": "Indent with spaces, not tabs, and put quotes around a text that begins with a sign",
    "mapping values are not allowed": "Put quotes around a text that holds ': ', and check the indentation",
    "could not find expected ':'": "Write `key: value`, with a colon and a space",
    "expected <block end>": "Indent the lines of one table by the same number of spaces",
    "end of stream": "Close the quote or bracket that is opened here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value and where it stands: a scalar, a list (`items`) or a table (`members`)."""

    line: int
    value: Any = None
    spelling: str = ""
    """A scalar as it is written."""
    items: tuple[Node, ...] | None = None
    members: tuple[Member, ...] | None = None
    size: int = 1
    height: int = 1

    @property
    def kind(self) -> str:
        """What it is, for people."""
        if self.members is not None:
            return "a table"
        if self.items is not None:
            return "a list"
        names = {type(None): "nothing", bool: "true or false", int: "a number", float: "a number"}
        return names.get(type(self.value), "a text")

    @property
    def is_scalar(self) -> bool:
        """Whether it is a single value that is there."""
        return self.items is None and self.members is None and self.value is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A key of a table with its value."""

    key: str
    line: int
    node: Node


def parse(text: str, file: str) -> Node:
    """Read one YAML document; an empty one is nothing.

    Raises:
        ConfigError: it is not one YAML document, or it is nested or aliased beyond all use.
    """
    try:
        return _Builder(file).document(yaml.parse(text, _Loader))
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "this is not YAML"
        mark = error.problem_mark or error.context_mark
        if error.context_mark is not None and mark is not None and mark.line >= len(text.splitlines()) - 1:
            mark = error.context_mark  # where a quote or bracket begins tells more than where the file ends
        fix = next((fix for sign, fix in _FIXES.items() if sign in problem), "Check indentation, quotes and brackets")
        line = mark.line + 1 if mark is not None else 1
        raise ConfigError(f"the YAML cannot be read: {problem}", file=file, line=line, fix=fix) from None
    except (yaml.YAMLError, UnicodeError) as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        fix = "Delete the control character"
        raise ConfigError("a character here may not stand in YAML", file=file, line=line, fix=fix) from None


class _Builder:
    def __init__(self, file: str) -> None:
        self._file, self._total = file, 0
        self._anchors: dict[str, Node | None] = {}
        self._reader = yaml.SafeLoader("")

    def document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._fail(event, "a second document starts here", "Keep one document per file; delete the ---")
                root = self._node(next(events), events, 0)
        return root or Node(line=1)

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        if depth > DEPTH:
            self._fail(event, f"values are nested more than {DEPTH} deep", "Flatten them")
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
            fix = "Define it with &name before it is used, or put quotes around the text"
            self._fail(event, f"the alias {event.anchor!r} is not defined before this line", fix)
        self._count(event, node.size)
        if depth + node.height > DEPTH + 1:
            self._fail(event, f"values are nested more than {DEPTH} deep", "Flatten them")
        return node

    def _count(self, event: Any, size: int) -> None:
        self._total += size
        if self._total > NODES:
            self._fail(event, f"the file holds more than {NODES} values", "Split it, or write it without aliases")

    def _scalar(self, event: Any) -> Node:
        tag = event.tag or self._reader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        value = self._construct(event, str(tag))
        return Node(line=_line(event), value=value, spelling=str(event.value))

    def _construct(self, event: Any, tag: str) -> Any:
        try:
            event.value.encode()
        except UnicodeEncodeError:
            self._fail(event, "this text holds half a character", "Write the whole character instead of its escape")
        kind = tag.rpartition(":")[2]
        if kind in ("str", "timestamp", "merge", "value", "!"):
            return str(event.value)
        if kind not in ("null", "bool", "int", "float"):
            self._fail(event, f"the tag {tag!r} is not known here", "Delete the tag, or put quotes around the text")
        try:
            return self._reader.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            return str(event.value)

    def _list(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        items = list[Node]()
        for inner in events:
            if isinstance(inner, yaml.SequenceEndEvent):
                return _whole(event, items, items=tuple(items))
            items.append(self._node(inner, events, depth + 1))
        raise AssertionError("the parser ends every list")

    def _table(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        members, merged = list[Member](), list[Member]()
        for inner in events:
            if isinstance(inner, yaml.MappingEndEvent):
                own = {member.key for member in members}
                members += {member.key: member for member in reversed(merged) if member.key not in own}.values()
                return _whole(event, [member.node for member in members], members=tuple(members))
            if not isinstance(inner, yaml.ScalarEvent):
                self._fail(inner, "a key must be plain text", "Put quotes around the key")
            key, line = str(self._construct(inner, "str")), _line(inner)
            node = self._node(next(events), events, depth + 1)
            if key == "<<" and inner.implicit[0]:
                merged += [member for part in node.items or (node,) for member in part.members or ()]
            else:
                members.append(Member(key=key, line=line, node=node))
        raise AssertionError("the parser ends every table")

    def _fail(self, event: Any, problem: str, fix: str) -> NoReturn:
        raise ConfigError(problem, file=self._file, line=_line(event), fix=fix)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _whole(start: Any, nodes: list[Node], **content: Any) -> Node:
    size = 1 + sum(node.size for node in nodes)
    height = 1 + max((node.height for node in nodes), default=0)
    return Node(line=_line(start), size=size, height=height, **content)
