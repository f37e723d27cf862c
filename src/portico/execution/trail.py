"""What callers were shown before they called: at which place of a search did they find their tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from portico.domain.caller import Caller
from portico.domain.tool import ToolId

CALLERS_KEPT = 1_000
TOOLS_KEPT = 500
"""Tools that are remembered of one caller."""
SECONDS_KEPT = 1_800.0


@dataclass(slots=True)
class Trail:
    """Remembers the places at which searches have shown tools, until the tool is called."""

    clock: Callable[[], float] = monotonic
    _shown: dict[str, dict[ToolId, tuple[int, float]]] = field(default_factory=dict)
    """By caller; whoever searched last comes last."""

    def showed(self, caller: Caller, tools: Sequence[ToolId], start: int = 1) -> None:
        """A search has shown these tools to a caller, the first of them at place `start`."""
        own = self._shown.pop(caller.name, {})
        self._shown[caller.name] = own
        now = self.clock()
        for place, tool in enumerate(tools, start):
            own.pop(tool, None)
            own[tool] = (place, now)
        while len(own) > TOOLS_KEPT:
            del own[next(iter(own))]
        if len(self._shown) > CALLERS_KEPT:
            del self._shown[next(iter(self._shown))]

    def rank(self, caller: Caller, tool: ToolId) -> int:
        """The place at which the caller's last search has shown a tool, once; 0 when none has."""
        own = self._shown.get(caller.name)
        place, at = own.pop(tool, (0, 0.0)) if own else (0, 0.0)
        return place if place and self.clock() - at <= SECONDS_KEPT else 0
