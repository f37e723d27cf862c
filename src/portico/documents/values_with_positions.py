"""The tree that every format is read into: plain values that remember where they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TreePath = tuple[str | int, ...]
"""The way from the root of a document to one value, as keys and positions."""

DEPTH = 64
"""The deepest nesting of values; real config files stay below ten."""


class Spelled(str):
    """A scalar that was not written as text (a number, a switch), in its original spelling."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of a document with its place: a table has members, a list has items, a scalar has a value."""

    line: int
    start: int = -1
    end: int = -1
    value: Any = None
    spelling: str = ""
    members: tuple[Member, ...] | None = None
    items: tuple[Node, ...] | None = None
    flow: bool = True
    size: int = 1
    height: int = 0

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
    """One key of a table with its value; `merged` when it came from elsewhere through `<<`."""

    key: str
    line: int
    start: int
    node: Node
    column: int = 0
    merged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A key that one table has twice; the first one counts."""

    path: TreePath
    first: int
    second: int


def plain(node: Node) -> Any:
    """The values as ordinary data; of two equal keys the first one counts."""
    if node.members is not None:
        return {key: plain(child) for key, child in _first_members(node)}
    return [plain(item) for item in node.items] if node.items is not None else node.value


def words(node: Node) -> Any:
    """The values with every number and switch as it was spelled, so that `1.10` stays `1.10`."""
    if node.members is not None:
        return {key: words(child) for key, child in _first_members(node)}
    if node.items is not None:
        return [words(item) for item in node.items]
    return node.value if node.value is None or isinstance(node.value, str) else Spelled(node.spelling)


def line_at(root: Node, path: TreePath) -> int | None:
    """The line of the value at a path, or of the nearest table above it that exists."""
    node, line = root, None
    for part in path:
        step = _step(node, part)
        if step is None:
            return line
        line, node = step
    return line


def node_at(root: Node, path: TreePath) -> Node | None:
    """The node at a path, if there is one."""
    node = root
    for part in path:
        step = _step(node, part)
        if step is None:
            return None
        node = step[1]
    return node


def duplicates(node: Node, path: TreePath = ()) -> Iterator[Duplicate]:
    """Every key that a table holds twice, in the order of the file."""
    seen: dict[str, int] = {}
    for member in node.members or ():
        if member.key in seen:
            if not member.merged:
                yield Duplicate(path=(*path, member.key), first=seen[member.key], second=member.line)
            continue
        seen[member.key] = member.line
        yield from duplicates(member.node, (*path, member.key))
    for index, item in enumerate(node.items or ()):
        yield from duplicates(item, (*path, index))


def _first_members(node: Node) -> Iterator[tuple[str, Node]]:
    seen: set[str] = set()
    for member in node.members or ():
        if member.key not in seen:
            seen.add(member.key)
            yield member.key, member.node


def _step(node: Node, part: str | int) -> tuple[int, Node] | None:
    if isinstance(part, int):
        found = node.items[part] if node.items is not None and 0 <= part < len(node.items) else None
        return (found.line, found) if found is not None else None
    for member in node.members or ():
        if member.key == part:
            return member.line, member.node
    return None
