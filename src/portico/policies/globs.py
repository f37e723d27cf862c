"""Allow and deny globs over each server's tool names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from portico.domain.caller import Caller
from portico.domain.chapter import Chapter
from portico.domain.edition import Edition
from portico.domain.server import ToolFilter
from portico.domain.tool import Tool, ToolId
from portico.errors import Refused

from .tool_names import permits_tool

_OPEN = ToolFilter()


@dataclass(slots=True)
class GlobPolicy:
    """What the config's `tools: {allow, deny}` leave of each server, the same for every caller."""

    filters: Mapping[str, ToolFilter] = field(default_factory=dict)
    _visible: WeakKeyDictionary[Edition, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _permitted: WeakKeyDictionary[Chapter, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)

    def visible(self, caller: Caller, edition: Edition) -> Set[ToolId]:
        """The tools that the globs let through; worked out once per chapter and put together once per edition."""
        found = self._visible.get(edition)
        if found is None:
            found = frozenset().union(*map(self._of, edition.chapters.values()))
            self._visible[edition] = found
        return found

    def _of(self, chapter: Chapter) -> Iterable[ToolId]:
        if self.filters.get(chapter.server.name, _OPEN) == _OPEN:
            return chapter.tools
        found = self._permitted.get(chapter)
        if found is None:
            found = frozenset(id for id, tool in chapter.tools.items() if self._permits(tool))
            self._permitted[chapter] = found
        return found

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Whatever is visible may be called.

        Raises:
            Refused: the tool is filtered out; no honest path leads here, since it is not visible either.
        """
        if not self._permits(tool):
            raise Refused(tool.handle)

    def _permits(self, tool: Tool) -> bool:
        filter = self.filters.get(tool.id.server)
        is_open = filter is None or not (filter.allow or filter.deny)
        return is_open or permits_tool(filter, tool.id.server, tool.id.name, tool.handle)
