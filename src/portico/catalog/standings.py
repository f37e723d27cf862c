"""Tiers of tools and known categories, as last stored; each part is replaced whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from operator import itemgetter
from time import monotonic

from portico.domain.server import Packaging
from portico.domain.tool import Category, Tool, ToolId, unwritten
from portico.domain.usage import Standing, Usage, standing_of

FEW_CALLED = 15
"""Tools in use up to which the first call of one more is noticed at once: as many as the hot list has places."""
NOTICED_SECONDS = 60.0
"""How long the first call of one more may go unnoticed after that, so that a busy house still keeps its answers."""

_UNUSED = standing_of(None, 0.0)


@dataclass(slots=True, kw_only=True)
class Standings:
    """What the tiers of disclosure are ordered by; readers take what is there and see no half of a change."""

    tiers: Mapping[ToolId, Standing] = field(default_factory=dict)
    """How each tool stood at the last update."""
    categories: Mapping[str, Category] = field(default_factory=dict)
    """Those that were written down, beside the shipped ones and over them."""
    packaging: Mapping[str, Packaging] = field(default_factory=dict)
    """How servers are packed, by name."""
    revision: int = 0
    """Grows whenever a part is replaced by another, so that what was made of the last one is not taken for this."""

    _known: tuple[Hashable, Mapping[str, Category], dict[str, Category]] = (None, {}, {})
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def replace_tiers(self, tiers: Mapping[ToolId, Standing]) -> None:
        """Let tools stand like this from now on."""
        is_new = tiers != self.tiers
        self.tiers = tiers
        self._tell(is_new)

    def replace_categories(self, categories: Mapping[str, Category]) -> None:
        """Show these categories from now on."""
        is_new = categories != self.categories
        self.categories = categories
        self._tell(is_new)

    def replace_packaging(self, packaging: Mapping[str, Packaging]) -> None:
        """Say this of servers from now on."""
        is_new = packaging != self.packaging
        self.packaging = packaging
        self._tell(is_new)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call this after every replacement that has changed something."""
        self._listeners.append(listener)

    def known(self, shipped: Mapping[str, Category], named: Iterable[str] = ()) -> Mapping[str, Category]:
        """Every category: the shipped ones, those that are only named, and over both those that were written down."""
        key = (self.revision, tuple(named))
        if self._known[0] != key or self._known[1] is not shipped:
            found = {**{name: unwritten(name) for name in key[1]}, **shipped, **self.categories}
            self._known = (key, shipped, found)
        return self._known[2]

    def _tell(self, is_new: bool) -> None:
        """An equal replacement is no news: what was made of the last one is still right."""
        if is_new:
            self.revision += 1
            for listener in self._listeners:
                listener()


@dataclass(slots=True, kw_only=True)
class FirstCalls:
    """How many tools were called so far, as kept answers know it: a tool's first call makes them anew, no later one."""

    clock: Callable[[], float] = monotonic
    _noticed: int = 0
    _at: float = -inf

    def noticed(self, usage: Mapping[ToolId, Usage]) -> int:
        """How many tools have a usage; the same for a while once there are many of them."""
        now = self.clock()
        if len(usage) <= FEW_CALLED or now - self._at >= NOTICED_SECONDS:
            self._noticed, self._at = len(usage), now
        return self._noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of tools at one moment: as they were written down, or by their usage if they were unused then."""

    tiers: Mapping[ToolId, Standing]
    usage: Mapping[ToolId, Usage]
    now: float

    def standing(self, id: ToolId) -> Standing:
        """How a tool stands."""
        known, usage = self.tiers.get(id, _UNUSED), self.usage.get(id)
        return standing_of(usage, self.now) if usage is not None and known == _UNUSED else known

    def score(self, id: ToolId) -> float:
        """How well a tool stands."""
        return self.standing(id).score

    def best_first(self, tools: Iterable[Tool]) -> list[Tool]:
        """Tools by score, the best first, then by name."""
        return sorted(tools, key=lambda tool: (-self.score(tool.id), tool.id.name, tool.id.server))

    def hottest(self, tools: Iterable[Tool], pins: Sequence[Tool], servers: Sequence[str], limit: int) -> list[Tool]:
        """Pins first, then by score, by the place of their servers, and by name; never more than the limit.

        A rank and no threshold: in a new house nobody has the calls that make a tool hot. While nothing was called,
        servers take turns, or the first one would fill the list.
        """
        pinned = list({tool.id: tool for tool in pins}.values())[:limit]
        taken = {tool.id for tool in pinned}
        places = {name: place for place, name in enumerate(servers)}
        is_fresh = not self.usage and all(standing == _UNUSED for standing in self.tiers.values())
        turns: Counter[str] = Counter()

        def place(tool: Tool) -> tuple[float, int, int, str, str]:
            turns[tool.id.server] += is_fresh
            return -self.score(tool.id), turns[tool.id.server], places.get(tool.id.server, len(places)), *tool.id

        others = ((place(tool), tool) for tool in tools if tool.id not in taken)
        return [*pinned, *(tool for _, tool in nsmallest(limit - len(pinned), others, key=itemgetter(0)))]
