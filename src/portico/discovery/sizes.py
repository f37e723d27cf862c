"""Which tools have the largest definitions; each chapter is measured once."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from heapq import nlargest
from weakref import WeakKeyDictionary

import orjson

from portico.domain.chapter import Chapter
from portico.domain.edition import Edition
from portico.domain.tool import Tool, ToolId


@dataclass(slots=True)
class Sizes:
    """How large definitions are, in bytes: enough to tell those apart that are worth counting."""

    _kept: WeakKeyDictionary[Chapter, list[tuple[int, ToolId]]] = field(default_factory=WeakKeyDictionary)
    _counted: WeakKeyDictionary[Chapter, dict[ToolId, int]] = field(default_factory=WeakKeyDictionary)

    def largest(self, edition: Edition, visible: Set[ToolId], limit: int) -> list[tuple[int, Tool]]:
        """The visible tools with the largest definitions, largest first, with their sizes."""
        sizes = (row for chapter in edition.chapters.values() for row in self._of(chapter) if row[1] in visible)
        return [(size, edition.tools[id]) for size, id in nlargest(limit, sizes)]

    def counted(self, edition: Edition, tool: Tool, count: Callable[[], int]) -> int:
        """What a tool costs by a count that is made once."""
        known = self._counted.setdefault(edition.chapters[tool.id.server], {})
        if tool.id not in known:
            known[tool.id] = count()
        return known[tool.id]

    def _of(self, chapter: Chapter) -> list[tuple[int, ToolId]]:
        found = self._kept.get(chapter)
        if found is None:
            found = [(len(orjson.dumps(tool.definition)), id) for id, tool in chapter.tools.items()]
            self._kept[chapter] = found
        return found
