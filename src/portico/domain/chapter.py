"""One server's chapter of an edition, with every spelling of its tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from .server import Server
from .tool import Rejected, Tool, ToolId


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

    __slots__ = ("bare", "whole")

    def __init__(self, tools: Collection[Tool], fold: Callable[[str], str]) -> None:
        handles = ((fold(tool.handle), tool) for tool in tools)
        listed = ((fold(tool.listed), tool) for tool in tools)
        names = ((fold(tool.id.name), tool) for tool in tools)
        identifiers = ((fold(tool.handle.partition(".")[2]), tool) for tool in tools)
        self.whole = Table(chain(handles, listed))
        """Those that need no server beside them."""
        self.bare = Table(chain(names, identifiers))


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
