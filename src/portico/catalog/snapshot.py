"""One immutable snapshot of the catalog: a section for each server, and the one resolver of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import attrgetter
from urllib.parse import unquote

from portico.domain.server import Server
from portico.domain.suggestions import CUTOFF_AMONG_MANY, similarities
from portico.domain.tool import Rejected, Tool, ToolId
from portico.errors import AmbiguousTool, NextCall, UnknownTool

from .naming import Owners, identifier, skeleton, splits
from .prompts_and_resources import Items
from .sections import ServerSection, Spellings, SpellingTable

CANDIDATES = 10
SHOWN_LENGTH = 200  # characters of an unknown name that an error repeats
SPELLING_LENGTH = 16_384
"""Letters of the longest spelling that is looked up; no name of a tool is so long, even percent-encoded."""


class Resolver:
    """Knows every spelling of every tool of one snapshot; each section is asked for its own.

    Order: exact handle or listed name, exact other spelling, unique bare name, then the same without regard to case.
    A tool outside `within` does not exist here: it is neither found nor named as a candidate.
    """

    def __init__(self, sections: Mapping[str, ServerSection], identifiers: Mapping[str, str] | None = None) -> None:
        self._chapters = sections
        self._owners = Owners(identifiers or {name: own.server.identifier for name, own in sections.items()})
        self._by_identifier = {section.server.identifier: section for section in sections.values()}
        self._exact = _Spellings(sections, str, attrgetter("exact"), self._owners)
        self._folded = _Spellings(sections, str.casefold, attrgetter("folded"), self._owners)

    def resolve(self, spelling: str, within: Set[ToolId]) -> Tool:
        """The one permitted tool that a spelling means.

        Raises:
            UnknownTool: nothing permitted has that name; the nearest ones are listed.
            AmbiguousTool: several permitted tools share it; all are listed, none is picked.
        """
        for found in self._stages(spelling, within) if len(spelling) <= SPELLING_LENGTH else ():
            permitted = {tool.id: tool for tool in found if tool.id in within}
            if len(permitted) == 1:
                return permitted.popitem()[1]
            if permitted:
                raise _ambiguous(spelling, [permitted[id] for id in sorted(permitted)])
        raise self._unknown(spelling, within)

    def near(self, spelling: str, within: Set[ToolId], limit: int = CANDIDATES) -> list[Tool]:
        """Permitted tools whose handle or bare name looks like the spelling, best first."""
        wanted = identifier(skeleton(spelling[:SHOWN_LENGTH])).casefold()
        last = wanted.rsplit("__", 1)[-1]
        best: dict[ToolId, float] = {}
        found: dict[ToolId, Tool] = {}
        for section in self._chapters.values():
            tools, *compared = section.compared
            allowed = [place for place, tool in enumerate(tools) if tool.id in within]
            for text, names in zip((wanted, last), compared, strict=True):
                for place, score in similarities(text, [names[place] for place in allowed], CUTOFF_AMONG_MANY):
                    tool = tools[allowed[place]]
                    found[tool.id], best[tool.id] = tool, max(score, best.get(tool.id, 0.0))
        order = sorted(found.values(), key=lambda tool: (-best[tool.id], tool.handle))
        return order[:limit]

    def _stages(self, spelling: str, within: Set[ToolId]) -> Iterator[Iterable[Tool]]:
        yield self._by_handle(spelling)
        bare = spelling.strip()
        readings = (spelling,) if spelling == bare else (spelling, bare)  # a name may really end in a space
        for reading in readings:
            yield from self._exact.stages(reading, within)
        for reading in readings:
            yield from self._folded.stages(reading.casefold(), within)

    def _by_handle(self, spelling: str) -> Iterable[Tool]:
        """What most callers say: the handle names the section, so that no other is asked."""
        section = self._by_identifier.get(spelling.partition(".")[0])
        return section.exact.whole.find(spelling) if section else ()

    def _unknown(self, spelling: str, within: Set[ToolId]) -> UnknownTool:
        near = self.near(spelling[:SHOWN_LENGTH], within)
        spelling = _shown(spelling)
        if near:
            names = ", ".join(tool.handle for tool in near)
            return UnknownTool(
                spelling,
                details=(f"did you mean: {names}?",),
                next_call=NextCall("describe", {"names": [tool.handle for tool in near[:3]]}),
            )
        return UnknownTool(
            spelling,
            details=("no tool has that name, and none that is near it",),
            next_call=NextCall("search", {"query": "what you want to do, in a few words"}),
        )


class _Spellings:
    """The spellings of all sections under one way of folding letters."""

    def __init__(
        self,
        sections: Mapping[str, ServerSection],
        fold: Callable[[str], str],
        table: Callable[[ServerSection], Spellings],
        owners: Owners,
    ) -> None:
        self._chapters, self._table, self._owners = sections, table, owners
        self._servers: dict[str, list[ServerSection]] = {}
        for section in sections.values():
            for spelling in {fold(section.server.name), fold(section.server.identifier)}:
                self._servers.setdefault(spelling, []).append(section)
        self._longest_server = max(map(len, self._servers), default=0)

    def stages(self, spelling: str, within: Set[ToolId]) -> Iterator[Iterable[Tool]]:
        """The tools that a spelling may mean, those of the most exact reading first."""
        tables = [self._table(section) for section in self._chapters.values()]
        yield [tool for table in tables for tool in table.whole.find(spelling)]
        if self._owners.is_reserved(spelling, self._chapters.keys()):
            return
        yield self._qualified(spelling, attrgetter("names"))
        yield self._qualified(spelling, attrgetter("identifiers"))
        for kind in (attrgetter("names"), attrgetter("identifiers")):
            found = [tool for table in tables for tool in kind(table).find(spelling)]
            yield [tool for tool in found if self._may_be_bare(spelling, tool, within)]
        yield self._qualified(spelling, attrgetter("originals"))

    def _qualified(self, spelling: str, kind: Callable[[Spellings], SpellingTable]) -> Iterator[Tool]:
        """Every reading of `server SEP tool`; a percent-encoded path is one of them."""
        for text in {spelling, unquote(spelling.removeprefix("/"))}:
            for server_part, tool_part in splits(text, self._longest_server):
                for section in self._servers.get(server_part, ()):
                    yield from kind(self._table(section)).find(tool_part)

    def _may_be_bare(self, spelling: str, tool: Tool, within: Set[ToolId]) -> bool:
        """Whether a name without a server can mean this tool: not where it names another server, or a tool of one."""
        own = tool.id.server
        if self._owners.speaks_for_another(spelling, own) or self._owners.speaks_for_another(tool.name, own):
            return False
        return not any(self._has(server, rest, within) for server, rest in self._owners.joined(spelling, own))

    def _has(self, server: str, rest: str, within: Set[ToolId]) -> bool:
        """Whether a server has a tool of that name, as far as the caller sees, or may have one that is not known."""
        section = self._chapters.get(server)
        if section is None:
            return True
        table = self._table(section)
        return any(tool.id in within for tool in (*table.names.find(rest), *table.identifiers.find(rest)))


def _shown(spelling: str) -> str:
    return spelling if len(spelling) <= SHOWN_LENGTH else f"{spelling[:SHOWN_LENGTH]}…"


def _ambiguous(spelling: str, tools: list[Tool]) -> AmbiguousTool:
    names = ", ".join(tool.handle for tool in tools[:CANDIDATES])
    more = f" and {len(tools) - CANDIDATES} more" if len(tools) > CANDIDATES else ""
    return AmbiguousTool(
        _shown(spelling),
        details=(f"{len(tools)} tools have that name: {names}{more}",),
        next_call=NextCall("describe", {"names": [tool.handle for tool in tools[:3]]}),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class CatalogSnapshot:
    """All tools at one moment, in a fixed order; a change makes the next snapshot."""

    number: int
    sections: Mapping[str, ServerSection] = field(repr=False)
    tools: Mapping[ToolId, Tool]
    servers: Mapping[str, Server]
    rejected: tuple[Rejected, ...]
    items: Items
    resolver: Resolver = field(repr=False)
    ages: Mapping[str, int] = field(default_factory=dict)
    """The servers, by how many were there before them."""

    @property
    def categories(self) -> dict[str, int]:
        """How many tools stand on each shelf, by name of the shelf."""
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.category] = counts.get(tool.category, 0) + 1
        return dict(sorted(counts.items()))


def bind(
    number: int, sections: Mapping[str, ServerSection], items: Items, ages: Mapping[str, int] | None = None
) -> CatalogSnapshot:
    """Make a snapshot of sections, in their order; of each tool only its place is written anew."""
    tools: dict[ToolId, Tool] = {}
    for section in sections.values():
        tools.update(section.tools)
    return CatalogSnapshot(
        number=number,
        sections=sections,
        tools=tools,
        servers={name: section.server for name, section in sections.items()},
        rejected=tuple(refusal for section in sections.values() for refusal in section.rejected),
        items=items,
        resolver=Resolver(sections, items.identifiers),
        ages=ages or {},
    )


EMPTY = bind(0, {}, Items())  # what is published before the first offering
