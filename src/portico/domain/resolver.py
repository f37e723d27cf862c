"""The one resolver: from any accepted spelling to one tool, for dispatch and authorisation alike."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from operator import attrgetter
from urllib.parse import unquote

from portico.errors import AmbiguousTool, NextCall, UnknownTool

from .chapter import Chapter, Spellings
from .names import identifier
from .tool import Tool, ToolId

SEPARATORS = ("::", "__", "/", ".")
CANDIDATES = 10
SHOWN_LENGTH = 200
"""Characters of an unknown name that an error repeats."""


class Resolver:
    """Knows every spelling of every tool of one edition; each chapter is asked for its own.

    Order: exact handle or listed name, exact other spelling, unique bare name, then the same without regard to case.
    A tool outside `within` does not exist here: it is neither found nor named as a candidate.
    """

    def __init__(self, chapters: Mapping[str, Chapter]) -> None:
        self._chapters = chapters
        self._by_identifier = {chapter.server.identifier: chapter for chapter in chapters.values()}
        self._exact = _Spellings(chapters.values(), str, attrgetter("exact"))
        self._folded = _Spellings(chapters.values(), str.casefold, attrgetter("folded"))

    def resolve(self, spelling: str, within: Set[ToolId]) -> Tool:
        """The one permitted tool that a spelling means.

        Raises:
            UnknownTool: nothing permitted has that name; the nearest ones are listed.
            AmbiguousTool: several permitted tools share it; all are listed, none is picked.
        """
        for found in self._stages(spelling):
            permitted = {tool.id: tool for tool in found if tool.id in within}
            if len(permitted) == 1:
                return permitted.popitem()[1]
            if permitted:
                raise _ambiguous(spelling, [permitted[id] for id in sorted(permitted)])
        raise self._unknown(spelling, within)

    def near(self, spelling: str, within: Set[ToolId], limit: int = CANDIDATES) -> list[Tool]:
        """Permitted tools whose handle or bare name looks like the spelling, best first."""
        wanted = identifier(spelling).casefold()
        bare = wanted.rsplit("__", 1)[-1].rsplit(".", 1)[-1]
        scored = []
        for id in within:
            chapter = self._chapters.get(id.server)
            tool = chapter.tools.get(id) if chapter else None
            if tool is not None:
                names = (tool.handle.casefold().replace(".", "_"), identifier(id.name).casefold())
                score = max(_similarity(wanted, names[0]), _similarity(bare, names[1]))
                if score >= 0.6:
                    scored.append((-score, tool.handle, tool))
        return [tool for _, _, tool in sorted(scored, key=lambda row: row[:2])[:limit]]

    def _stages(self, spelling: str) -> Iterator[Iterable[Tool]]:
        yield self._by_handle(spelling)
        bare = spelling.strip()
        readings = (spelling,) if spelling == bare else (spelling, bare)  # a name may really end in a space
        for reading in readings:
            yield from self._exact.stages(reading)
        for reading in readings:
            yield from self._folded.stages(reading.casefold())

    def _by_handle(self, spelling: str) -> Iterable[Tool]:
        """What most callers say: the handle names the chapter, so that no other is asked."""
        chapter = self._by_identifier.get(spelling.partition(".")[0])
        return chapter.exact.whole.find(spelling) if chapter else ()

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
    """The spellings of all chapters under one way of folding letters."""

    def __init__(
        self, chapters: Collection[Chapter], fold: Callable[[str], str], table: Callable[[Chapter], Spellings]
    ) -> None:
        self._chapters = chapters
        self._table = table
        self._servers: dict[str, list[Chapter]] = {}
        for chapter in chapters:
            for spelling in {fold(chapter.server.name), fold(chapter.server.identifier)}:
                self._servers.setdefault(spelling, []).append(chapter)
        self._longest_server = max(map(len, self._servers), default=0)

    def stages(self, spelling: str) -> Iterator[Iterable[Tool]]:
        tables = [self._table(chapter) for chapter in self._chapters]
        yield [tool for table in tables for tool in table.whole.find(spelling)]
        yield self._qualified(spelling)
        yield [tool for table in tables for tool in table.bare.find(spelling)]

    def _qualified(self, spelling: str) -> Iterator[Tool]:
        """Every reading of `server SEP tool`; a percent-encoded path is one of them."""
        for text in {spelling, unquote(spelling.removeprefix("/"))}:
            for server_part, tool_part in _splits(text, self._longest_server):
                for chapter in self._servers.get(server_part, ()):
                    yield from self._table(chapter).bare.find(tool_part)


def _splits(text: str, longest: int) -> Iterator[tuple[str, str]]:
    for separator in SEPARATORS:
        start = text.find(separator, 1)
        while 0 < start <= longest:
            yield text[:start], text[start + len(separator) :]
            start = text.find(separator, start + 1)


def _shown(spelling: str) -> str:
    return spelling if len(spelling) <= SHOWN_LENGTH else f"{spelling[:SHOWN_LENGTH]}…"


def _similarity(a: str, b: str) -> float:
    if a == b:
        return 1.0
    matcher = difflib.SequenceMatcher(None, a, b)
    if matcher.real_quick_ratio() < 0.6 or matcher.quick_ratio() < 0.6:
        return 0.0
    return matcher.ratio()


def _ambiguous(spelling: str, tools: list[Tool]) -> AmbiguousTool:
    names = ", ".join(tool.handle for tool in tools[:CANDIDATES])
    more = f" and {len(tools) - CANDIDATES} more" if len(tools) > CANDIDATES else ""
    return AmbiguousTool(
        _shown(spelling),
        details=(f"{len(tools)} tools have that name: {names}{more}",),
        next_call=NextCall("describe", {"names": [tool.handle for tool in tools[:3]]}),
    )
