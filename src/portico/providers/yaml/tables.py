"""One table of a YAML file, asked key by key; what is wrong in it is said with file, line and what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any

from portico.config.documents.tree import Member, Node
from portico.errors import ConfigError

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
"""What a parameter, dimension or measure may be called; PostgreSQL cuts longer names."""


class Table:
    """An entry of a file, or a table within one."""

    def __init__(self, node: Node, *, name: str, file: str, notes: list[ConfigError], line: int = 0) -> None:
        """Take a node.

        Raises:
            ConfigError: it is no table, or has a key twice.
        """
        self.name, self.file, self.notes, self.line = name, file, notes, line or node.line
        if node.members is None:
            raise self.wrong(f"this is {node.kind}, not a table", "Write `key: value` lines, indented below the name")
        self._members: dict[str, Member] = {}
        for member in node.members:
            first = self._members.setdefault(member.key, member)
            if first is not member:
                fix = f"Rename or delete one; the first is in line {first.line}"
                raise self.wrong(f"{member.key!r} is there twice", fix, member.line)

    def wrong(self, problem: str, fix: str, line: int = 0) -> ConfigError:
        """What is wrong here; to be raised."""
        return ConfigError(problem, file=self.file, line=line or self.line, where=self.name, fix=fix)

    def note(self, problem: str, fix: str, line: int = 0) -> None:
        """Say what the author should know; the entry is offered all the same."""
        self.notes.append(self.wrong(f"it is offered, but {problem}", fix, line))

    def note_unknown(self, known: Collection[str]) -> None:
        """Say which keys mean nothing here."""
        for key, member in self._members.items():
            if key not in known:
                near = get_close_matches(key, known, n=1)
                fix = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(sorted(known))}"
                self.note(f"the key {key[:60]!r} means nothing here", fix, member.line)

    def get(self, key: str) -> Node | None:
        """The value of a key; None when it is not there or is nothing."""
        member = self._members.get(key)
        is_nothing = member is None or (member.node.value is None and member.node.kind == "nothing")
        return None if member is None or is_nothing else member.node

    def has(self, key: str) -> bool:
        """Whether a key is there, with or without a value."""
        return key in self._members

    def text(self, key: str, default: str | None = None) -> str:
        """A text.

        Raises:
            ConfigError: it is missing without a default, or is no single value.
        """
        node = self.get(key)
        if node is None:
            if default is not None:
                return default
            raise self.wrong(f"it has no {key!r}", f"Add a line `{key}: ...`")
        if not node.is_scalar:
            raise self.wrong(f"{key!r} is {node.kind}, not a text", "Write it as text", node.line)
        return node.spelling

    def flag(self, key: str) -> bool | None:
        """True or false; None when nothing is said.

        Raises:
            ConfigError: it is something else.
        """
        node = self.get(key)
        if node is None or isinstance(node.value, bool):
            return node.value if node is not None else None
        raise self.wrong(f"{key!r} is {node.kind}, not true or false", "Write true or false", node.line)

    def number(self, key: str) -> float | None:
        """A finite number; None when nothing is said.

        Raises:
            ConfigError: it is something else.
        """
        node = self.get(key)
        if node is None:
            return None
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        if not is_number or not math.isfinite(node.value) or abs(node.value) > 2**63 - 1:
            raise self.wrong(f"{key!r} is {node.spelling[:40]!r}, not a number", "Write a number", node.line)
        return node.value  # type: ignore[no-any-return]

    def texts(self, key: str) -> list[str]:
        """A list of texts; a single one counts as a list.

        Raises:
            ConfigError: it is something else.
        """
        return [node.spelling for node in self._scalars(key)]

    def values(self, key: str) -> list[Any]:
        """A list of values as YAML reads them.

        Raises:
            ConfigError: it is something else.
        """
        return [node.value for node in self._scalars(key)]

    def tables(self, key: str) -> Iterator[tuple[Member, Table]]:
        """The tables below a key, each with its name; one that says nothing is an empty table.

        Raises:
            ConfigError: there is something else.
        """
        for member in self.members(key):
            node = member.node if member.node.kind != "nothing" else Node(line=member.line, members=())
            path = f"{self.name}.{key}.{member.key[:60]}"
            yield member, Table(node, name=path, file=self.file, notes=self.notes, line=member.line)

    def members(self, key: str) -> list[Member]:
        """What stands below a key, by name.

        Raises:
            ConfigError: there is no table, or it has a key twice.
        """
        node = self.get(key)
        if node is None:
            return []
        found = Table(node, name=f"{self.name}.{key}", file=self.file, notes=self.notes)
        return list(found._members.values())

    def _scalars(self, key: str) -> list[Node]:
        node = self.get(key)
        if node is None:
            return []
        found = list(node.items) if node.items is not None else [node]
        for item in found:
            if not item.is_scalar:
                raise self.wrong(f"{key!r} holds {item.kind}", "Write a list of single values", item.line)
        return found
