"""Which tools have the largest definitions; each chapter is measured once."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TypeVar
from weakref import WeakKeyDictionary

import orjson

from portico.domain.chapter import Chapter
from portico.domain.edition import Edition
from portico.domain.tool import Tool, ToolId

from .forms import SUMMARY_LENGTH

TYPED = 20
"""Letters of a parameter's type, and of what stands around it."""

LARGE = 20_000
"""Bytes of a definition from which on it takes long to write it out in all its forms."""

T = TypeVar("T")


@dataclass(slots=True)
class Sizes:
    """How large definitions are, in bytes: enough to tell those apart that are worth counting."""

    _kept: WeakKeyDictionary[Chapter, list[tuple[int, ToolId]]] = field(default_factory=WeakKeyDictionary)
    _counted: WeakKeyDictionary[Chapter, dict[ToolId, tuple[int, int]]] = field(default_factory=WeakKeyDictionary)
    _rungs: WeakKeyDictionary[Chapter, dict[ToolId, tuple[int, tuple[int, ...]]]] = field(
        default_factory=WeakKeyDictionary
    )
    _summaries: WeakKeyDictionary[Chapter, dict[ToolId, int]] = field(default_factory=WeakKeyDictionary)

    def largest(self, edition: Edition, visible: Set[ToolId], limit: int) -> list[tuple[int, Tool]]:
        """The visible tools with the largest definitions, largest first, with their sizes."""
        sizes = (row for chapter in edition.chapters.values() for row in self._of(chapter) if row[1] in visible)
        return [(size, edition.tools[id]) for size, id in nlargest(limit, sizes)]

    def counted(self, edition: Edition, tool: Tool, learned: int, count: Callable[[], int]) -> int:
        """What a tool costs by a count that is made once, and again when more is learned of its results."""
        return _once(self._counted, edition, tool, lambda: (learned, count()), lambda kept: kept[0] == learned)[1]

    def rungs(
        self, edition: Edition, tool: Tool, learned: int, count: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """What a tool costs in each of its forms, counted as often as what it costs."""
        return _once(self._rungs, edition, tool, lambda: (learned, count()), lambda kept: kept[0] == learned)[1]

    def summary(self, edition: Edition, tool: Tool) -> int:
        """About how many letters a tool has in a list of summaries."""
        return _once(self._summaries, edition, tool, lambda: _summed_up(tool))

    def _of(self, chapter: Chapter) -> list[tuple[int, ToolId]]:
        found = self._kept.get(chapter)
        if found is None:
            found = [(len(orjson.dumps(tool.definition)), id) for id, tool in chapter.tools.items()]
            self._kept[chapter] = found
        return found


def is_large(tool: Tool) -> bool:
    """Whether a tool takes long to write out, so that it is done in a worker thread."""
    return len(orjson.dumps(tool.definition)) > LARGE


def _once(
    kept: WeakKeyDictionary[Chapter, dict[ToolId, T]],
    edition: Edition,
    tool: Tool,
    make: Callable[[], T],
    is_good: Callable[[T], bool] = lambda kept: True,
) -> T:
    known = kept.setdefault(edition.chapters[tool.id.server], {})
    if tool.id not in known or not is_good(known[tool.id]):
        known[tool.id] = make()
    return known[tool.id]


def _summed_up(tool: Tool) -> int:
    naming = 2 * len(tool.id.server) + len(tool.id.name)
    return naming + min(len(tool.description), SUMMARY_LENGTH) + sum(len(name) + TYPED for name in tool.properties)
