"""What end users' rights leave of the tools that another policy shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from portico.domain.caller import Caller
from portico.domain.edition import Edition
from portico.domain.tool import Tool, ToolId
from portico.errors import Refused
from portico.ports import Policy

EVERYBODY = "*"
KEPT = 256
"""How many callers' sets are remembered for one edition."""

_Sets = dict[tuple[str, frozenset[ToolId]], frozenset[ToolId]]


@dataclass(slots=True)
class UserPolicy:
    """Narrows what an inner policy shows to what a registry gives to the caller, by name.

    The rights belong to the tools of an edition, so that a revoked one is gone with the next, everywhere at once.
    """

    inner: Policy
    _restricted: WeakKeyDictionary[Edition, tuple[Tool, ...]] = field(default_factory=WeakKeyDictionary)
    _visible: WeakKeyDictionary[Edition, _Sets] = field(default_factory=WeakKeyDictionary)

    def visible(self, caller: Caller, edition: Edition) -> Set[ToolId]:
        """What the inner policy shows, without the tools that are others' alone; the same object for the same set."""
        shown = self.inner.visible(caller, edition)
        restricted = self._restricted_in(edition)
        if not restricted:
            return shown
        known = self._visible.setdefault(edition, {})
        key = (caller.name, frozenset(shown))
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            left = key[1].difference(tool.id for tool in restricted if not permits(tool, caller))
            known[key] = next((same for same in known.values() if same == left), left)
        return known[key]

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Ask the inner policy about a tool that is the caller's.

        Raises:
            Refused: it is others' alone, or the inner policy refuses the call.
        """
        if not permits(tool, caller):
            raise Refused(tool.handle)
        self.inner.admit(caller, tool, arguments)

    def _restricted_in(self, edition: Edition) -> tuple[Tool, ...]:
        found = self._restricted.get(edition)
        if found is None:
            found = self._restricted[edition] = tuple(_restricted(edition.tools.values()))
        return found


def permits(tool: Tool, caller: Caller) -> bool:
    """Whether a caller may see a tool, as far as its registry says."""
    return tool.users is None or caller.name in tool.users or EVERYBODY in tool.users


def _restricted(tools: Iterable[Tool]) -> Iterable[Tool]:
    return (tool for tool in tools if tool.users is not None and EVERYBODY not in tool.users)
