"""What a profile leaves of the tools, prompts and resources that another policy shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from portico.domain.caller import Caller
from portico.domain.chapter import Chapter
from portico.domain.edition import Edition
from portico.domain.profile import OPEN, Profile
from portico.domain.tool import Tool, ToolId
from portico.errors import Refused
from portico.ports import Policy

KEPT = 64
"""How many different sets of the inner policy are remembered for one edition."""


@dataclass(slots=True)
class ProfilePolicy:
    """Narrows what an inner policy shows to what a profile offers, the same for every caller."""

    inner: Policy
    profile: Profile = OPEN
    _offered: WeakKeyDictionary[Edition, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _permitted: WeakKeyDictionary[Chapter, frozenset[ToolId]] = field(default_factory=WeakKeyDictionary)
    _visible: WeakKeyDictionary[Edition, dict[frozenset[ToolId], frozenset[ToolId]]] = field(
        default_factory=WeakKeyDictionary
    )

    def visible(self, caller: Caller, edition: Edition) -> Set[ToolId]:
        """What the inner policy shows of what is offered; the same object while both stay the same."""
        shown = self.inner.visible(caller, edition)
        if self.profile.tool is None and self.profile.servers is None:
            return shown
        known = self._visible.setdefault(edition, {})
        key = frozenset(shown)
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            known[key] = key & self._offered_by(edition)
        return known[key]

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Ask the inner policy about a tool that is offered.

        Raises:
            Refused: the tool is not offered, or the inner policy refuses the call.
        """
        if not self._permits(tool):
            raise Refused(tool.handle)
        self.inner.admit(caller, tool, arguments)

    def permits_prompt(self, name: str) -> bool:
        """Whether a prompt is offered, by its original name."""
        return self.profile.permits_prompt(name)

    def permits_resource(self, uri: str) -> bool:
        """Whether a resource or template is offered, by its original URI."""
        return self.profile.permits_resource(uri)

    def _offered_by(self, edition: Edition) -> frozenset[ToolId]:
        found = self._offered.get(edition)
        if found is None:
            found = frozenset().union(*map(self._of, edition.chapters.values()))
            self._offered[edition] = found
        return found

    def _of(self, chapter: Chapter) -> Iterable[ToolId]:
        found = self._permitted.get(chapter)
        if found is None:
            found = frozenset(id for id, tool in chapter.tools.items() if self._permits(tool))
            self._permitted[chapter] = found
        return found

    def _permits(self, tool: Tool) -> bool:
        return self.profile.permits_server(tool.id.server) and self.profile.permits_tool(tool.id.name, tool.source)
