"""The one resolver: from any accepted spelling to one tool, for dispatch and authorisation alike."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from urllib.parse import unquote

from portico.errors import AmbiguousTool, NextCall, UnknownTool

from .names import identifier
from .server import Server
from .tool import Tool, ToolId

SEPARATORS = ("::", "__", "/", ".")
CANDIDATES = 10
SHOWN_LENGTH = 200
"""Characters of an unknown name that an error repeats."""

_Table = Mapping[str, Set[ToolId]]


class Resolver:
    """Knows every spelling of every tool of one edition.

    Order: exact handle or listed name, exact other spelling, unique bare name, then the same without regard to case.
    A tool outside `within` does not exist here: it is neither found nor named as a candidate.
    """

    def __init__(self, tools: Iterable[Tool], servers: Mapping[str, Server]) -> None:
        self._tools = {tool.id: tool for tool in tools}
        self._exact = _Spellings(self._tools.values(), servers, str)
        self._folded: _Spellings | None = None
        self._servers = servers

    def resolve(self, spelling: str, within: Set[ToolId]) -> Tool:
        """The one permitted tool that a spelling means.

        Raises:
            UnknownTool: nothing permitted has that name; the nearest ones are listed.
            AmbiguousTool: several permitted tools share it; all are listed, none is picked.
        """
        for found in self._stages(spelling):
            permitted = [self._tools[id] for id in sorted(found & within)]
            if len(permitted) == 1:
                return permitted[0]
            if permitted:
                raise _ambiguous(spelling, permitted)
        raise self._unknown(spelling, within)

    def near(self, spelling: str, within: Set[ToolId], limit: int = CANDIDATES) -> list[Tool]:
        """Permitted tools whose handle or bare name looks like the spelling, best first."""
        wanted = identifier(spelling).casefold()
        bare = wanted.rsplit("__", 1)[-1].rsplit(".", 1)[-1]
        scored = []
        for id in within:
            tool = self._tools.get(id)
            if tool is not None:
                names = (tool.handle.casefold().replace(".", "_"), identifier(id.name).casefold())
                score = max(_similarity(wanted, names[0]), _similarity(bare, names[1]))
                if score >= 0.6:
                    scored.append((-score, tool.handle, tool))
        return [tool for _, _, tool in sorted(scored, key=lambda row: row[:2])[:limit]]

    def _stages(self, spelling: str) -> Iterator[Set[ToolId]]:
        bare = spelling.strip()
        readings = (spelling,) if spelling == bare else (spelling, bare)  # a name may really end in a space
        for reading in readings:
            yield from self._exact.stages(reading)
        if self._folded is None:
            self._folded = _Spellings(self._tools.values(), self._servers, str.casefold)
        for reading in readings:
            yield from self._folded.stages(reading.casefold())

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
    """The spellings of all tools under one way of folding letters."""

    def __init__(self, tools: Iterable[Tool], servers: Mapping[str, Server], fold: Callable[[str], str]) -> None:
        self._whole: dict[str, set[ToolId]] = defaultdict(set)
        self._servers: dict[str, set[str]] = defaultdict(set)
        self._within_server: dict[tuple[str, str], set[ToolId]] = defaultdict(set)
        self._bare: dict[str, set[ToolId]] = defaultdict(set)
        for server in servers.values():
            for spelling in (server.name, server.identifier):
                self._servers[fold(spelling)].add(server.name)
        self._longest_server = max(map(len, self._servers), default=0)
        for tool in tools:
            self._whole[fold(tool.handle)].add(tool.id)
            self._whole[fold(tool.listed)].add(tool.id)
            for spelling in {tool.id.name, tool.handle.split(".", 1)[1]}:
                self._within_server[tool.id.server, fold(spelling)].add(tool.id)
                self._bare[fold(spelling)].add(tool.id)

    def stages(self, spelling: str) -> Iterator[Set[ToolId]]:
        yield self._whole.get(spelling, frozenset())
        yield self._qualified(spelling)
        yield self._bare.get(spelling, frozenset())

    def _qualified(self, spelling: str) -> Set[ToolId]:
        """Every reading of `server SEP tool`; a percent-encoded path is one of them."""
        found: set[ToolId] = set()
        for text in {spelling, unquote(spelling.removeprefix("/"))}:
            for server_part, tool_part in _splits(text, self._longest_server):
                for server in self._servers.get(server_part, ()):
                    found |= self._within_server.get((server, tool_part), frozenset())
        return found


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
