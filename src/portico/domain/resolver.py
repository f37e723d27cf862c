"""The one resolver: from any accepted spelling to one tool, for dispatch and authorisation alike."""

from __future__ import annotations

import difflib
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple
from urllib.parse import unquote

from portico.errors import AmbiguousTool, NextCall, UnknownTool

from .chapter import COMPARED_LENGTH, Chapter, Letters, Spellings, bare, pairs, whole
from .names import identifier
from .tool import Tool, ToolId

SEPARATORS = ("::", "__", "/", ".")
CANDIDATES = 10
SHOWN_LENGTH = 200
"""Characters of an unknown name that an error repeats."""
ALIKE = 0.6
"""The similarity from which on a name looks like another."""
FEW = 400
"""Permitted tools that are all looked at, whatever letters they have."""
LOOKS = 1_000
"""Tools that are looked at for one spelling."""
EFFORT = 100_000
"""Letters times letters that are compared in full for one spelling: some eighty names, and six of the longest."""


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
        wanted = identifier(spelling[:SHOWN_LENGTH]).casefold()
        last = wanted.rsplit("__", 1)[-1]
        handle = _Form(wanted[:COMPARED_LENGTH], whole, Letters.of_handles, attrgetter("whole_lengths"))
        name = _Form(last[:COMPARED_LENGTH], bare, Letters.of_names, attrgetter("bare_lengths"))
        nearest = _Nearest(limit)
        groups = (self._groups(form, within) for form in (handle, name) if form.text)
        for group in merge(*groups, key=lambda group: -group.bound):
            if group.bound < nearest.floor or nearest.is_tired:
                break
            nearest.consider(group)
        return nearest.tools()

    def _groups(self, form: _Form, within: Set[ToolId]) -> Iterator[_Group]:
        """Permitted tools by how many pairs of letters they share with the spelling, those with most first."""
        if len(within) <= FEW:
            found = (self._chapters[id.server].tools.get(id) for id in within if id.server in self._chapters)
            yield _Group(1.0, form, (tool for tool in found if tool))
            return
        letters = [chapter.letters for chapter in self._chapters.values()]
        slots = [tool for own in letters for tool in own.slots]
        for shared, bits in form.levels(letters):
            found = (slots[slot] for slot in _places(bits, len(slots)))
            yield _Group(form.bound(shared), form, (tool for tool in found if tool and tool.id in within))

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


class _Form(NamedTuple):
    """One way to read a spelling, and what it is compared with: handles or bare names."""

    text: str
    spell: Callable[[Tool], str]
    rows: Callable[[Letters, list[str]], list[bytes]]
    lengths: Callable[[Letters], bytes]

    def levels(self, letters: Sequence[Letters]) -> Iterator[tuple[int, int]]:
        """How many pairs are shared, and the bits of the tools that share so many, downwards."""
        wanted = pairs(self.text)
        columns = zip(*(self.rows(own, wanted) for own in letters), strict=True)
        planes = _total(int.from_bytes(b"".join(column)) for column in columns)
        return _descend(planes, self._fitting(b"".join(map(self.lengths, letters))))

    def bound(self, shared: int) -> float:
        """The best similarity that so many shared pairs allow.

        Of M letters in common, all but one in each run follow another; runs are parted by letters that are not common.
        So the pairs are at least 3M - T - 1 where both names have T letters; the best length for that gives this.
        """
        return 2 * (shared + len(self.text) + 1) / (shared + 3 * len(self.text) + 1)

    def _fitting(self, lengths: bytes) -> int:
        """The bits of the tools that are neither too short nor too long to be alike."""
        own = len(self.text)
        return int(
            lengths.translate(bytes(b"01"[3 * own <= 7 * n and 3 * n <= 7 * own] for n in range(256))) or b"0", 2
        )


class _Group(NamedTuple):
    """Tools of which none is more similar than the bound."""

    bound: float
    form: _Form
    tools: Iterator[Tool]


class _Nearest:
    """The most similar tools so far; it tires, so that no spelling and no catalogue make it work for long."""

    def __init__(self, limit: int) -> None:
        self.floor = ALIKE
        """What a tool must reach to be among the first."""
        self._limit = limit
        self._scores: dict[Tool, float] = {}
        self._ascending: list[float] = []
        self._looks, self._effort = LOOKS, EFFORT

    @property
    def is_tired(self) -> bool:
        """Whether enough was done."""
        return self._looks <= 0 or self._effort <= 0

    def consider(self, group: _Group) -> None:
        """Compare the tools of a group, the likeliest first."""
        named: dict[str, list[Tool]] = {}
        for tool in islice(group.tools, self._looks):
            self._looks -= 1
            named.setdefault(group.form.spell(tool), []).append(tool)
        likely = _Order(group.form.text)
        for bound, name in sorted(((likely.bound(name), name) for name in named), reverse=True):
            if bound < self.floor or self._effort <= 0:
                break
            self._effort -= len(group.form.text) * len(name)
            self._note(named[name], _similarity(group.form.text, name))

    def tools(self) -> list[Tool]:
        """The first ones, best first."""
        order = sorted(self._scores, key=lambda tool: (-self._scores[tool], tool.handle))
        return order[: self._limit]

    def _note(self, tools: list[Tool], score: float) -> None:
        if score < self.floor:
            return
        for tool in tools:
            if tool not in self._scores:
                insort(self._ascending, score)
            self._scores[tool] = max(score, self._scores.get(tool, 0.0))
        if len(self._ascending) >= self._limit:
            self.floor = self._ascending[-self._limit]


class _Order:
    """The letters of a spelling in their order, to tell cheaply how similar a name can be at most."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._places: dict[str, int] = {}
        for place, letter in enumerate(text):
            self._places[letter] = self._places.get(letter, 0) | 1 << place

    def bound(self, name: str) -> float:
        """The similarity if the longest common subsequence were all in common; found for all places at once."""
        full = (1 << self._length) - 1
        rest = full
        for letter in name:
            if places := self._places.get(letter):
                met = rest & places
                rest = (rest + met) | (rest - met)
        return 2 * (full & ~rest).bit_count() / (self._length + len(name))


def _total(rows: Iterable[int]) -> list[int]:
    """Add up rows of bits, place by place: the n-th result has the n-th binary digit of every sum."""
    planes: list[int] = []
    for row in rows:
        carry = row
        for digit, plane in enumerate(planes):
            planes[digit] = plane ^ carry
            carry &= plane
            if not carry:
                break
        if carry:
            planes.append(carry)
    return planes


def _descend(planes: Sequence[int], among: int) -> Iterator[tuple[int, int]]:
    """Every sum with the bits of the places that have it, the largest first."""
    waiting = [(len(planes), 0, among)]
    while waiting:
        digit, total, bits = waiting.pop()
        if not bits:
            continue
        if not digit:
            yield total, bits
            continue
        digit -= 1
        waiting.append((digit, total, bits & ~planes[digit]))
        waiting.append((digit, total | 1 << digit, bits & planes[digit]))


def _places(bits: int, width: int) -> Iterator[int]:
    text = f"{bits:0{width}b}"
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)


def _similarity(a: str, b: str) -> float:
    return 1.0 if a == b else difflib.SequenceMatcher(None, a, b).ratio()


def _ambiguous(spelling: str, tools: list[Tool]) -> AmbiguousTool:
    names = ", ".join(tool.handle for tool in tools[:CANDIDATES])
    more = f" and {len(tools) - CANDIDATES} more" if len(tools) > CANDIDATES else ""
    return AmbiguousTool(
        _shown(spelling),
        details=(f"{len(tools)} tools have that name: {names}{more}",),
        next_call=NextCall("describe", {"names": [tool.handle for tool in tools[:3]]}),
    )
