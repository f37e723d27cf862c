"""One immutable edition of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .items import Items
from .resolver import Resolver
from .server import Server
from .tool import Rejected, Tool, ToolId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Edition:
    """All tools at one moment, in a fixed order; a change makes the next edition."""

    number: int
    tools: Mapping[ToolId, Tool]
    servers: Mapping[str, Server]
    rejected: tuple[Rejected, ...] = ()
    items: Items = field(default_factory=Items)
    resolver: Resolver = field(repr=False)

    @property
    def categories(self) -> dict[str, int]:
        """How many tools stand on each shelf, by name of the shelf."""
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.category] = counts.get(tool.category, 0) + 1
        return dict(sorted(counts.items()))


EMPTY = Edition(number=0, tools={}, servers={}, resolver=Resolver((), {}))
"""What is published before the first offering."""
