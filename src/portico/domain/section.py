"""One server's section of a snapshot, with every spelling of its tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import add
from sys import intern

from .names import identifier
from .server import Server
from .tool import Rejected, Tool, ToolId

COMPARED_LENGTH = 128
"""Letters of a name that are compared where names look alike; no listed name is longer."""


class Table:
    """Tools by spelling; nearly every spelling means one tool only, and the others of a shared one stand aside."""

    __slots__ = ("_first", "_others")

    def __init__(self, spelled: Iterable[tuple[str, Tool]]) -> None:
        self._first: dict[str, Tool] = {}
        self._others: dict[str, list[Tool]] = {}
        for spelling, tool in spelled:
            if self._first.setdefault(spelling, tool) is not tool:
                self._others.setdefault(spelling, []).append(tool)

    def find(self, spelling: str) -> Sequence[Tool]:
        """Every tool that is spelled so."""
        first = self._first.get(spelling)
        return () if first is None else (first, *self._others.get(spelling, ()))


class Spellings:
    """How one server's tools can be spelled, under one way of folding letters."""

    __slots__ = ("identifiers", "names", "whole")

    def __init__(self, tools: Collection[Tool], fold: Callable[[str], str]) -> None:
        handles = ((fold(tool.handle), tool) for tool in tools)
        listed = ((fold(tool.listed), tool) for tool in tools)
        names = ((fold(tool.id.name), tool) for tool in tools)
        identifiers = ((fold(tool.handle.partition(".")[2]), tool) for tool in tools)
        self.whole = Table(chain(handles, listed))
        """Those that need no server beside them."""
        self.names = Table(names)
        """The names as the server spells them."""
        self.identifiers = Table(identifiers)


class Letters:
    """Which pairs of letters the names of one server's tools have: a row of bits for each pair, a bit for each tool.

    Names are spelled with 37 letters, so there are at most 37² rows: 180 bytes for each tool at the very most.
    """

    __slots__ = ("_all", "_none", "_of_server", "_rows", "bare_lengths", "slots", "whole_lengths")

    def __init__(self, server: Server, tools: Collection[Tool]) -> None:
        width = (len(tools) + 7) // 8
        unused = 8 * width - len(tools)
        self.slots: tuple[Tool | None, ...] = (*tools, *[None] * unused)
        """The tool of each bit; the last byte may have bits of no tool."""
        self.bare_lengths = bytes(len(bare(tool)) for tool in tools) + bytes(unused)
        self.whole_lengths = bytes(len(whole(tool)) for tool in tools) + bytes(unused)
        self._rows = _rows(map(bare, tools), width)
        self._of_server = frozenset(pairs(server.identifier.casefold()))
        self._none, self._all = bytes(width), b"\xff" * width

    def of_names(self, wanted: Iterable[str]) -> list[bytes]:
        """The row of each wanted pair: the tools that have it in their bare names."""
        return [self._rows.get(pair, self._none) for pair in wanted]

    def of_handles(self, wanted: Iterable[str]) -> list[bytes]:
        """The row of each wanted pair: the tools that have it in their handles, all if the server has it."""
        return [self._all if pair in self._of_server else self._rows.get(pair, self._none) for pair in wanted]


def whole(tool: Tool) -> str:
    """The handle as it is compared with a spelling."""
    return tool.handle.casefold().replace(".", "_")[:COMPARED_LENGTH]


def bare(tool: Tool) -> str:
    """The name as it is compared with a spelling."""
    return identifier(tool.id.name).casefold()[:COMPARED_LENGTH]


def pairs(name: str) -> list[str]:
    """The neighbouring letters of a name; with an underscore at each end, those of a handle are its two parts'."""
    text = f"_{name}_"
    return list(map(add, text, text[1:]))


def _rows(names: Iterable[str], width: int) -> dict[str, bytes]:
    rows: dict[str, bytearray] = {}
    for slot, name in enumerate(names):
        byte, bit = slot >> 3, 0x80 >> (slot & 7)
        for pair in pairs(name):
            row = rows.get(pair)
            if row is None:
                row = rows[intern(pair)] = bytearray(width)
            row[byte] |= bit
    return {pair: bytes(row) for pair, row in rows.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Chapter:
    """What one server gives to an edition; the same object in every edition until something in it changes."""

    server: Server
    tools: Mapping[ToolId, Tool]
    rejected: tuple[Rejected, ...] = ()

    @cached_property
    def exact(self) -> Spellings:
        """The spellings, letter by letter."""
        return Spellings(self.tools.values(), str)

    @cached_property
    def folded(self) -> Spellings:
        """The spellings without regard to case."""
        return Spellings(self.tools.values(), str.casefold)

    @cached_property
    def letters(self) -> Letters:
        """The letters of the names, for those that look like a spelling."""
        return Letters(self.server, self.tools.values())
