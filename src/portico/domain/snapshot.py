"""One immutable edition of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .items import Items
from .resolver import Resolver
from .section import Chapter
from .server import Server
from .tool import Rejected, Tool, ToolId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Edition:
    """All tools at one moment, in a fixed order; a change makes the next edition."""

    number: int
    chapters: Mapping[str, Chapter] = field(repr=False)
    tools: Mapping[ToolId, Tool]
    servers: Mapping[str, Server]
    rejected: tuple[Rejected, ...]
    items: Items
    resolver: Resolver = field(repr=False)

    @property
    def categories(self) -> dict[str, int]:
        """How many tools stand on each shelf, by name of the shelf."""
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.category] = counts.get(tool.category, 0) + 1
        return dict(sorted(counts.items()))


def bind(number: int, chapters: Mapping[str, Chapter], items: Items) -> Edition:
    """Make an edition of chapters, in their order; of each tool only its place is written anew."""
    tools: dict[ToolId, Tool] = {}
    for chapter in chapters.values():
        tools.update(chapter.tools)
    return Edition(
        number=number,
        chapters=chapters,
        tools=tools,
        servers={name: chapter.server for name, chapter in chapters.items()},
        rejected=tuple(refusal for chapter in chapters.values() for refusal in chapter.rejected),
        items=items,
        resolver=Resolver(chapters, items.identifiers),
    )


EMPTY = bind(0, {}, Items())
"""What is published before the first offering."""
